package restore

import (
	"context"
	"fmt"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// applyPaused applies the cluster's objects as the backup has them. The control plane provider would bootstrap an empty
// etcd as soon as all servers have addresses; so its object is created paused, its status is set to bootstrapped, and
// only then it is unpaused: the provider creates the servers, and does not bootstrap etcd.
func (r inputs) applyPaused(ctx context.Context, say flow.Say, m steps.Management, lost Lost,
	_ steps.Image, endpoint steps.Endpoint) (steps.Cluster, error) {
	if endpoint.Kind == config.EndpointPrimaryIP {
		lost.IP, lost.Balancer = endpoint.IPv4, endpoint.LoadBalancer
	}
	mgmt, err := connect.Cluster(r.tools, m.Kubeconfig)
	if err != nil {
		return steps.Cluster{}, err
	}
	live, err := capi.Get(ctx, mgmt, r.cfg.Namespace, capi.HetznerClusterKind, r.cfg.ClusterName)
	if err != nil && !kube.Absent(err) {
		return steps.Cluster{}, err
	}
	patience := r.cfg.LoadBalancerTimeout.D()
	// What is there is never taken back: without an address only where there is none yet.
	if err != nil || addressOf(live) == "" {
		if err := apply.Objects(ctx, r.cfg, say, mgmt, r.restored(lost, ""), &patience); err != nil {
			return steps.Cluster{}, err
		}
	}
	ip, err := r.awaitBalancer(ctx, say, mgmt, lost.IP)
	if err != nil {
		return steps.Cluster{}, err
	}
	if err := r.applyAll(ctx, say, mgmt, r.restored(lost, ip), &patience); err != nil {
		return steps.Cluster{}, err
	}
	return recovery.DescribeCluster(ctx, r.cfg, mgmt, r.restored(lost, ip), ip)
}

// addressOf is what the load balancer's address is, as far as CAPH has said.
func addressOf(live *unstructured.Unstructured) string {
	return capi.Text(live, "status", "controlPlaneLoadBalancer", "ipv4")
}

// awaitBalancer waits for the load balancer's address. Where one survived it must be that one's: a cluster whose
// objects name another address than its load balancer has would never be reached.
func (r inputs) awaitBalancer(ctx context.Context, say flow.Say, mgmt *kube.Cluster, want string) (ip string,
	err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := mgmt.Changes(watching, kube.Selection{List: capi.ListOf(capi.HetznerClusterKind),
		Options: []client.ListOption{client.InNamespace(r.cfg.Namespace)}})
	err = wait.Wait{What: "the load balancer", Within: r.cfg.LoadBalancerTimeout.D(), Changes: changes,
		Explain: r.observer.Obstacles(mgmt, situation.WatchedOf(r.cfg))}.Until(ctx, say, func(ctx context.Context) (string,
		error) {
		live, err := capi.Get(ctx, mgmt, r.cfg.Namespace, capi.HetznerClusterKind, r.cfg.ClusterName)
		if err != nil {
			return "", err
		}
		if ip = addressOf(live); ip == "" {
			return "HetznerCluster " + r.cfg.ClusterName + " has no load balancer yet", nil
		}
		if want != "" && ip != want {
			return "", wait.Final(fmt.Errorf("the cluster's load balancer has the address %s, but %s was to be taken over: it "+
				"vanished meanwhile. Destroy what this restore has made, and restore again", ip, want))
		}
		return "", nil
	})
	return ip, err
}

// applyAll applies all objects, and keeps the pause between the control plane's creation and its release.
func (r inputs) applyAll(ctx context.Context, say flow.Say, mgmt *kube.Cluster, objects []*unstructured.Unstructured,
	patience *time.Duration) error {
	for _, o := range objects {
		if o.GroupVersionKind().GroupKind() == capi.TalosControlPlaneKind.GroupKind() {
			if err := r.createBootstrapped(ctx, say, mgmt, o, patience); err != nil {
				return err
			}
			continue
		}
		if err := apply.Objects(ctx, r.cfg, say, mgmt, []*unstructured.Unstructured{o}, patience); err != nil {
			return err
		}
	}
	return nil
}

// createBootstrapped creates the TalosControlPlane, sets in its status that its etcd is bootstrapped, and unpauses it.
// One that exists without the pause has that already: the pause goes only after that.
func (r inputs) createBootstrapped(ctx context.Context, say flow.Say, mgmt *kube.Cluster,
	wanted *unstructured.Unstructured, patience *time.Duration) error {
	live, err := capi.Get(ctx, mgmt, r.cfg.Namespace, capi.TalosControlPlaneKind, wanted.GetName())
	switch {
	case kube.Absent(err):
		if err := apply.Objects(ctx, r.cfg, say, mgmt, []*unstructured.Unstructured{wanted}, patience); err != nil {
			return err
		}
		live = wanted
	case err != nil:
		return err
	}
	if _, paused := live.GetAnnotations()[capi.PausedAnnotation]; !paused {
		return nil
	}
	if live, err = recovery.SetBootstrapped(ctx, say, mgmt, live, `{"status":{"bootstrapped":true}}`); err != nil {
		return fmt.Errorf("%w: it stays paused, for the provider would bootstrap an empty etcd", err)
	}
	if err := capi.Annotate(ctx, mgmt, live, map[string]any{capi.PausedAnnotation: nil}); err != nil {
		return fmt.Errorf("unpause it: %w", err)
	}
	return nil
}

func (r inputs) verifyCluster(ctx context.Context, was steps.Cluster) flow.Verdict {
	mgmt, err := connect.Cluster(r.tools, platform.ManagementKubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	v := situation.VerifyObjects(ctx, mgmt, r.cfg.Namespace, was.Objects, was.Name, was.UID)
	if v.Answer() != flow.AnswerHolds {
		return v
	}
	if v := situation.VerifyEndpoint(ctx, r.cfg, r.tools, r.sources, was.LoadBalancerIP); v.Answer() != flow.AnswerHolds {
		return v
	}
	tcp, err := capi.Get(ctx, mgmt, r.cfg.Namespace, capi.TalosControlPlaneKind, was.ControlPlane)
	if err != nil {
		return kube.Verdict(err)
	}
	if _, paused := tcp.GetAnnotations()[capi.PausedAnnotation]; paused {
		return flow.Gone("%s is paused", kube.Describe(tcp))
	}
	return flow.Holds()
}

// restored are the objects for a load balancer at ip; without an address (ip is empty) those that can do without: the
// Cluster then does not name its control plane yet.
func (r inputs) restored(lost Lost, ip string) []*unstructured.Unstructured {
	was, host := r.source.Endpoint()
	var objects []*unstructured.Unstructured
	for _, o := range r.source.Wanted() {
		switch o.GetKind() {
		case capi.ClusterKind.Kind:
			unstructured.RemoveNestedField(o.Object, "spec", "paused")
			// Cluster API copies it from the HetznerCluster
			unstructured.RemoveNestedField(o.Object, "spec", "controlPlaneEndpoint")
			if ip == "" {
				unstructured.RemoveNestedField(o.Object, "spec", "controlPlaneRef")
				// which repeats the address, where the core stores another version than v1beta1
				unstructured.RemoveNestedField(o.Object, "metadata", "annotations", capi.ConversionDataAnnotation)
			}
			backup.Annotate(o, capi.RestoredAnnotation, r.source.Identity().Snapshot)
		case capi.HetznerClusterKind.Kind:
			if net.ParseIP(host) != nil || host == "" { // a name stays a name
				_ = unstructured.SetNestedField(o.Object, ip, "spec", "controlPlaneEndpoint", "host")
			}
			switch {
			case lost.Balancer != "":
				_ = unstructured.SetNestedField(o.Object, lost.Balancer, "spec", "controlPlaneLoadBalancer", "name")
			case lost.IP == "": // CAPH creates none where a name is set: it waits for one of that name
				unstructured.RemoveNestedField(o.Object, "spec", "controlPlaneLoadBalancer", "name")
			}
		case capi.TalosControlPlaneKind.Kind:
			if ip == "" {
				continue
			}
			backup.Annotate(o, capi.PausedAnnotation, "true")
		}
		if ip == "" && backup.Mentions(o.Object, was) {
			continue
		}
		if ip != "" && was != "" && was != ip {
			o.Object = backup.ReplaceText(o.Object, was, ip).(map[string]any)
		}
		objects = append(objects, o)
	}
	return objects
}
