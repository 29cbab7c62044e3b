package status

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/platform"
)

// seenSide is one of the two clusters that can hold the Cluster API objects, as a look finds it.
type seenSide struct {
	cluster *kube.Cluster              // nil: it cannot be asked
	uid     string                     // empty: it does not answer
	object  *unstructured.Unstructured // its Cluster object; nil: it holds none
	// why it could not be asked, or not whether it holds the object; fs.ErrNotExist: there is no kubeconfig of it
	err error
}

// none reports that there is no kubeconfig of it in the state folder.
func (s seenSide) none() bool { return errors.Is(s.err, fs.ErrNotExist) }

// answers reports whether its API answers and says what it holds.
func (s seenSide) answers() bool { return s.cluster != nil && s.err == nil }

// manages reports whether it holds the Cluster object, unpaused.
func (s seenSide) manages() bool {
	return s.answers() && s.object != nil && !connect.Paused(s.object)
}

// seeSide asks the cluster of a kubeconfig in the state folder who it is, and for the Cluster object.
func seeSide(cfg config.Config, tools platform.Tools, q *inquiry, file string) (s seenSide) {
	c, err := connect.Cluster(tools, file)
	if err != nil {
		q.settle()
		return seenSide{err: err}
	}
	s.cluster = c
	if s.uid, err = kube.Within(q.ctx, func() (string, error) { return readyUID(q.ctx, c) }); err != nil {
		s.err = fmt.Errorf("%s (%s): %w", c.Host(), file, q.heard(err))
		return s
	}
	q.answer()
	s.object, s.err = kube.Within(q.ctx,
		func() (*unstructured.Unstructured, error) { return connect.FindCluster(q.ctx, cfg, c) })
	return s
}

// readyUID is who a cluster is, or why it does not answer: an API server without its etcd is silent when it is asked
// for an object, but its /readyz may say so.
func readyUID(ctx context.Context, c *kube.Cluster) (string, error) {
	unready := make(chan error, 1)
	go func() { unready <- c.Ready(ctx) }()
	uid, err := c.UID(ctx)
	if err == nil {
		return uid, nil
	}
	select {
	case ready := <-unready:
		if ready != nil && ctx.Err() == nil {
			return "", ready
		}
	default:
	}
	return "", err
}

// promise is a value that is being read.
type promise[T any] struct {
	done  chan struct{} // closed when it is known
	value T
}

// soon begins to find out.
func async[T any](find func() T) *promise[T] {
	p := &promise[T]{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.value = find()
	}()
	return p
}

// get waits until it is known.
func (p *promise[T]) get() T {
	<-p.done
	return p.value
}

// lookedClusters are both clusters, as they are being asked.
type lookedClusters struct {
	self, beside *promise[seenSide]
	manager      *promise[*kube.Cluster] // nil: neither can be asked for the objects of Cluster API
}

// seeClusters asks both at once. Which of them manages the cluster is known as soon as one says so, or when both have
// been heard.
func (l *Reader) seeClusters() lookedClusters {
	s := lookedClusters{
		self:   async(func() seenSide { return seeSide(l.cfg, l.tools, l.api, platform.Kubeconfig) }),
		beside: async(func() seenSide { return seeSide(l.cfg, l.tools, l.mgmt, platform.ManagementKubeconfig) }),
	}
	first := make(chan *kube.Cluster, 3)
	for _, one := range []*promise[seenSide]{s.self, s.beside} {
		go func() {
			if seen := one.get(); seen.manages() {
				first <- seen.cluster
			}
		}()
	}
	go func() { first <- managerOf(s.self.get(), s.beside.get()) }()
	s.manager = async(func() *kube.Cluster { return <-first })
	return s
}

// managerOf is the cluster to read Cluster API's objects from: the one that manages; else one that holds them paused,
// as amid a pivot; else the management cluster, where nothing may be applied yet, unless the cluster is silent, which
// then may manage itself.
func managerOf(self, beside seenSide) *kube.Cluster {
	switch {
	case self.manages():
		return self.cluster
	case beside.answers() && (beside.object != nil || self.none() || self.answers() && self.object == nil):
		return beside.cluster
	case self.answers() && self.object != nil:
		return self.cluster
	}
	return nil
}
