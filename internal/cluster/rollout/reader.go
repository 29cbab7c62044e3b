package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/platform"
)

// serversEvery is how often a Reader asks Hetzner while something else does not agree.
const serversEvery = 20 * time.Second

// Reader is for a wait, which reads the control plane or the workers again and again. It asks Hetzner each time once
// nothing else is missing: what it finds complete is so at Hetzner too. Until then the servers only add to what a wait
// says: they are asked for every serversEvery, and may be as old. Where workers differ from their servers alone, that
// is the pace, too.
type Reader struct {
	Cfg                  config.Config
	Tools                platform.Tools
	Management, Workload *kube.Cluster
	// NodeRefs tells that Cluster API has to know the node of each Machine of the control plane, too.
	NodeRefs bool
	// Balance adds control plane servers to the load balancer where CAPH left them out, whenever Hetzner is asked, and is
	// told. nil: nothing is changed.
	Balance flow.Say
	// Pool limits the workers that are read to those of a worker pool; empty: all.
	Pool string

	servers []hetzner.Server // as they were last; nil: not asked for yet
	next    time.Time        // when they are to be asked for again
}

// Changes signals after every change to the nodes, the Machines and other objects of the cluster, until ctx ends.
func (o *Reader) Changes(ctx context.Context, others ...schema.GroupVersionKind) <-chan struct{} {
	var selections []kube.Selection
	for _, kind := range append(others, capi.MachineKind) {
		selections = append(selections, kube.Selection{List: capi.ListOf(kind),
			Options: capi.OfCluster(o.Cfg.Namespace, o.Cfg.ClusterName)})
	}
	objects := o.Management.Changes(ctx, selections...)
	nodes := o.Workload.Changes(ctx, kube.Selection{List: &corev1.NodeList{}})
	both := make(chan struct{}, 1)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-objects:
			case <-nodes:
			}
			select {
			case both <- struct{}{}:
			default: // one is waiting already
			}
		}
	}()
	return both
}

// objects reads the nodes and the Machines, by name.
func (o *Reader) objects(ctx context.Context) ([]corev1.Node, []unstructured.Unstructured, error) {
	nodes := &corev1.NodeList{}
	if err := o.Workload.List(ctx, nodes); err != nil {
		return nil, nil, fmt.Errorf("list the nodes: %w", err)
	}
	slices.SortFunc(nodes.Items, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	machines, err := capi.List(ctx, o.Management, o.Cfg.Namespace, capi.MachineKind, o.Cfg.ClusterName)
	return nodes.Items, machines, err
}

// ask asks Hetzner for the servers where nothing else is missing, or where that was long ago; else they are those that
// it had last.
func (o *Reader) ask(ctx context.Context, missing []string) (servers []hetzner.Server, asked bool, err error) {
	if o.next.IsZero() {
		o.next = time.Now().Add(serversEvery)
	}
	if len(missing) > 0 && time.Now().Before(o.next) {
		return o.servers, false, nil
	}
	servers, err = hetzner.Servers(ctx, o.Tools.Hetzner, o.Cfg.ClusterName)
	if err == nil {
		o.servers, o.next = servers, time.Now().Add(serversEvery)
	}
	return servers, true, err
}

// byProviderID are servers by their provider IDs; nil where they were not asked for.
func byProviderID(servers []hetzner.Server) map[string]hetzner.Server {
	if servers == nil {
		return nil
	}
	return hetzner.ByProviderID(servers)
}

func countServers(servers []hetzner.Server, worker bool) (n int) {
	for _, s := range servers {
		if s.Worker == worker {
			n++
		}
	}
	return n
}
