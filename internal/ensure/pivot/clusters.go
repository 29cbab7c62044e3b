package pivot

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// pivot is one run of a pivot, or of its abort: the objects go from the management cluster to the cluster that they
// describe.
type pivot struct {
	cfg      config.Config
	tools    platform.Tools
	sources  render.Sources
	observer *situation.Observer
	say      flow.Say

	copy   records.PivotCopy
	source *kube.Cluster // nil: there is none (any more)
	target *kube.Cluster
	self   bool // the management cluster is the cluster itself: there is no source
}

// connectClusters connects a pivot to both clusters. A source that is silent is an error; only its provider's answer
// that it does not exist counts as gone.
func connectClusters(ctx context.Context, p pivot) (*pivot, error) {
	p.copy = records.PivotCopyOf(p.tools)
	var err error
	if p.target, err = connect.Cluster(p.tools, platform.Kubeconfig); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", p.cfg.ClusterName, err)
	}
	targetUID, err := p.target.UID(ctx)
	if err != nil {
		return nil, fmt.Errorf("cluster %s does not answer, so nothing can be moved to it: %w", p.cfg.ClusterName, err)
	}
	source, sourceUID, err := connect.OpenManagement(ctx, p.cfg, p.tools, p.say)
	if err != nil {
		return nil, err
	}
	if p.self = source != nil && sourceUID == targetUID; !p.self {
		p.source = source
	}
	return &p, nil
}

// location is where the Cluster object is. All that a pivot does next follows from it.
type location struct {
	source, target *unstructured.Unstructured // nil: it is not there
	marked         []capi.ObjectKey           // objects at the source that a move has begun to delete
}

// readBothClusters asks both sides, again where one of them has just started.
func (p *pivot) readBothClusters(ctx context.Context) (st location, err error) {
	err = wait.Wait{What: "both clusters to tell what they hold", Within: lookingWithin}.Until(ctx, p.say,
		func(ctx context.Context) (string, error) {
			st, err = p.readBothClustersOnce(ctx)
			return "", err
		})
	return st, err
}

func (p *pivot) readBothClustersOnce(ctx context.Context) (st location, err error) {
	if st.target, err = connect.FindCluster(ctx, p.cfg, p.target); err != nil {
		return location{}, fmt.Errorf("cluster %s: %w", p.cfg.ClusterName, err)
	}
	if p.source == nil {
		return st, nil
	}
	if st.source, err = connect.FindCluster(ctx, p.cfg, p.source); err != nil {
		return location{}, fmt.Errorf("management cluster: %w", err)
	}
	inv, err := capi.ReadInventory(ctx, p.source, p.cfg.Namespace)
	if err != nil {
		return location{}, fmt.Errorf("management cluster: %w", err)
	}
	st.marked = inv.Marked()
	return st, nil
}

// action is what a pivot has to do next.
type action string

const (
	moveObjects  action = "move"   // from the beginning, or go on with a move that a dead run left
	resumeTarget action = "resume" // everything is over: compare, and let the cluster's own controllers begin
	settleTarget action = "settle" // they have begun: see that they have looked at everything
)

// next says what to do, or why nothing may be done.
func (st location) next(name string) (action, error) {
	switch {
	case st.source == nil && st.target == nil:
		return "", fmt.Errorf("neither the management cluster nor cluster %s holds the Cluster object %s", name, name)
	case st.target != nil && st.target.GetDeletionTimestamp() != nil:
		return "", fmt.Errorf("the Cluster object in cluster %s is being deleted: where that is an abort that died, finish "+
			"it with pivot --abort", name)
	case st.source == nil && connect.Paused(st.target):
		return resumeTarget, nil
	case st.source == nil:
		return settleTarget, nil
	case st.target != nil && !connect.Paused(st.target):
		return "", fmt.Errorf("both the management cluster and cluster %s hold the Cluster object, and the one in the "+
			"cluster is not paused, "+
			"which no move leaves behind: pause the one that must not act (spec.paused: true), in cluster %s unless you know "+
			"better, and run again", name, name)
	case st.target == nil && len(st.marked) > 0:
		return "", fmt.Errorf("a move has begun to delete objects in the management cluster (%s, …), but cluster %s does "+
			"not hold the Cluster object: "+
			"it was removed there by hand", st.marked[0], name)
	}
	return moveObjects, nil
}
