package fakeenv

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

// refuses tells whether what an object needs is not given, and the first time has CAPH say so.
func (w *Environment) refuses(o *unstructured.Unstructured, kind string) bool {
	w.mu.Lock()
	first, refuses := w.refused == nil, w.plan.Refused.Kind == kind && !w.mended
	if refuses {
		w.refused = o
	}
	w.mu.Unlock()
	if !refuses || !first {
		return refuses
	}
	r := w.plan.Refused
	said := object{"region": "nbg1", "conditions": []any{object{
		"type": r.Condition, "status": "False", "severity": r.Severity, "reason": r.Reason, "message": r.Message,
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}}}
	if r.NoImage {
		w.Hetzner.SetImages()
	}
	if kind == o.GetKind() {
		w.Management.Change(o.GetAPIVersion(), kind, o.GetNamespace(), o.GetName(), object{"status": said})
	} else {
		w.firstServer(said)
	}
	if r.For > 0 {
		time.AfterFunc(r.For, w.Mend)
	}
	return true
}

// firstServer is the only one that Cluster API has come to, with what CAPH says of it.
func (w *Environment) firstServer(said object) {
	name := w.Servers()[0]
	labels := object{"cluster.x-k8s.io/cluster-name": w.plan.Cluster, "cluster.x-k8s.io/control-plane": ""}
	w.Management.Put(kubetest.Object(caph, "HCloudMachine", w.plan.Namespace, name, object{
		"metadata": object{"labels": labels}, "spec": object{"imageName": w.plan.Image, "type": "cx33"}, "status": said,
	}))
	w.Management.Put(kubetest.Object(capi, "Machine", w.plan.Namespace, name, object{
		"metadata": object{"labels": labels}, "spec": object{"infrastructureRef": object{"name": name}},
	}))
}

// withoutInfrastructure tells whether CAPH refuses what every server depends on.
func (w *Environment) withoutInfrastructure() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.plan.Refused.Kind == "HetznerCluster" && !w.mended
}

// Mend ends the refusal: what was wanted is made.
func (w *Environment) Mend() {
	w.reconciling.Lock()
	defer w.reconciling.Unlock()
	w.image()
	w.mu.Lock()
	o, done := w.refused, w.mended
	w.mended = true
	w.mu.Unlock()
	if o != nil && !done {
		w.reconcile(o)
	}
}

func (w *Environment) image() {
	w.Hetzner.SetImages(hetznertest.Image(1, w.plan.Image, "x86", "available"))
}
