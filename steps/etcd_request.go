package steps

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/etcddata"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/situation"
	"github.com/slipway-k8s/slipway/internal/why"
)

const (
	// etcdRequestPause is the least time between two requests: the control plane provider takes some seconds for a look.
	etcdRequestPause = 5 * time.Second
	// etcdRequests is how many there are at most in a run. Where they do not help, the provider does not work.
	etcdRequests = 3
)

// etcdRequest has the control plane provider look at its servers as soon as all of them wait for etcd to be
// bootstrapped. Nothing tells it that Talos answers, so it looks by itself every 10 to 20 seconds; when its object
// changes it looks at once, so an annotation is set. What it then does, it would do at its next look in any case.
type etcdRequest struct {
	mgmt *kube.Cluster
	last time.Time
	made int
}

// look requests a look where it is time to.
func (r *etcdRequest) look(ctx context.Context, say flow.Say, s why.Situation) error {
	if r.made >= etcdRequests || time.Since(r.last) < etcdRequestPause || !etcdAwaited(s) {
		return nil
	}
	r.last = time.Now()
	change, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": s.ControlPlane.GetUID(),
		"annotations": map[string]any{capi.EtcdRequestedAnnotation: r.last.UTC().Format(time.RFC3339)}}})
	if err != nil {
		return err
	}
	say("all %d servers wait for etcd: asking the control plane provider to bootstrap it now", len(s.Talos))
	if err := r.mgmt.Patch(ctx, s.ControlPlane.DeepCopy(), client.RawPatch(types.MergePatchType, change),
		client.FieldOwner(kube.FieldManager)); err != nil {
		return fmt.Errorf("set an annotation on %s: %w", kube.Describe(s.ControlPlane), err)
	}
	r.made++
	return nil
}

// etcdAwaited tells whether every server of the control plane waits for its etcd to be bootstrapped, and the provider
// is to do that: it is not paused, and has not done it.
func etcdAwaited(s why.Situation) bool {
	tcp := s.ControlPlane
	if s.Cluster == nil || tcp == nil || tcp.GetDeletionTimestamp() != nil || situation.AtRest(s.Cluster, tcp) ||
		capi.Truth(tcp, "status", "bootstrapped") || capi.Truth(tcp, "status", "initialized") {
		return false
	}
	machines := capi.ControlPlaneMachines(s.Machines)
	if len(machines) == 0 || len(machines) != int(capi.Number(tcp, "spec", "replicas")) {
		return false
	}
	for _, m := range machines {
		server := s.Talos[capi.Text(&m, "spec", "infrastructureRef", "name")]
		if m.GetDeletionTimestamp() != nil || server.State != etcddata.Preparing {
			return false
		}
	}
	return true
}
