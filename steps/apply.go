package steps

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/kube"
)

// Cluster is the workload cluster as the management cluster knows it.
type Cluster struct {
	Name           string   `json:"name"`
	UID            string   `json:"uid"` // of the Cluster object: a cluster made anew is another one
	LoadBalancerIP string   `json:"loadBalancerIp"`
	Endpoint       string   `json:"endpoint"` // host:port of the Kubernetes API
	ControlPlane   string   `json:"controlPlane"`
	Template       string   `json:"template"` // HCloudMachineTemplate of the control plane
	Replicas       int      `json:"replicas"`
	Version        string   `json:"version"` // of Kubernetes
	Objects        []Object `json:"objects"` // everything that was applied
}

// Object names an object of the management cluster.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

func (b *bootstrapper) clusterSpec() (any, error) {
	// Values that only a run knows: the image and the zone are arguments of the step, the address is its own output.
	v := maps.Clone(b.vars)
	delete(v, imageNameVariable)
	spec := map[string]ingredient{}
	files := map[string]source{"cluster": b.sources.cluster, "healthCheck": b.sources.healthCheck}
	if b.cfg.OIDCIssuerURL != "" {
		files["oidcPatch"] = b.sources.oidcPatch
	}
	for _, s := range b.sources.added {
		files[s.path] = s
	}
	for name, s := range files {
		i, err := s.ingredient(v)
		if err != nil {
			return nil, err
		}
		spec[name] = i
	}
	// Rendered once with made-up values, so that a mistake in a file is found before anything is made.
	r, err := b.render(b.manifestVariables("image", "eu-central", "192.0.2.1"))
	if err != nil {
		return nil, err
	}
	return spec, missingObjects(r.now, b.cfg.ClusterName, b.cfg.ControlPlaneName(), b.sources.cluster.name)
}

func (b *bootstrapper) manifestVariables(image, zone, loadBalancerIP string) variables {
	v := maps.Clone(b.vars)
	v[imageNameVariable], v[networkZoneVariable], v[loadBalancerIPVariable] = image, zone, loadBalancerIP
	return v
}

// applyCluster applies the manifests: first what can do without the load balancer's address, then, once CAPH has made the
// load balancer, the rest. Where the address is known already, as in every later run, there is one part only, so that
// what is there is never taken back.
func (b *bootstrapper) applyCluster(ctx context.Context, say flow.Say, m Management, image Image, offer Offer) (Cluster, error) {
	mgmt, err := b.connect(m.Kubeconfig)
	if err != nil {
		return Cluster{}, err
	}
	ip, err := b.loadBalancerIP(ctx, mgmt)
	if err != nil {
		return Cluster{}, err
	}
	patience := b.cfg.LoadBalancerTimeout.D()
	if ip == "" {
		r, err := b.render(b.manifestVariables(image.Name, offer.NetworkZone, ""))
		if err != nil {
			return Cluster{}, err
		}
		if _, err := b.consent(ctx, say, mgmt, r); err != nil {
			return Cluster{}, err
		}
		if err := b.apply(ctx, say, mgmt, r.now, &patience); err != nil {
			return Cluster{}, err
		}
		if ip, err = b.waitLoadBalancer(ctx, say, mgmt); err != nil {
			return Cluster{}, err
		}
		say("the load balancer has the address %s", ip)
		if r, err = b.render(b.manifestVariables(image.Name, offer.NetworkZone, ip)); err != nil {
			return Cluster{}, err
		}
		// The Cluster last: it names the control plane, which must be there when Cluster API looks for it.
		return b.applied(ctx, say, mgmt, r, ip, &patience)
	}
	if err := b.checkEndpoint(ctx, ip); err != nil {
		return Cluster{}, err
	}
	r, err := b.render(b.manifestVariables(image.Name, offer.NetworkZone, ip))
	if err != nil {
		return Cluster{}, err
	}
	return b.applied(ctx, say, mgmt, r, ip, &patience)
}

// loadBalancerIP is the address in the live HetznerCluster; empty while there is none. A cluster that the management
// cluster knows nothing of, but whose servers exist, is not created a second time beside itself.
func (b *bootstrapper) loadBalancerIP(ctx context.Context, mgmt *kube.Cluster) (string, error) {
	live, err := get(ctx, mgmt, hetznerClusterKind, b.cfg.ClusterName)
	if err == nil {
		return text(live, "spec", "controlPlaneEndpoint", "host"), nil
	}
	if !kube.Absent(err) {
		return "", err
	}
	servers, err := hetzner.Servers(ctx, b.tools.Hetzner, b.cfg.ClusterName)
	if err != nil {
		return "", err
	}
	if len(servers) > 0 {
		return "", fmt.Errorf("%d servers of a cluster %s exist at Hetzner (%s), but this management cluster knows nothing of it: "+
			"a second cluster would be made into its network and load balancer; work with the management cluster that knows it, delete the servers, or choose another CLUSTER_NAME",
			len(servers), b.cfg.ClusterName, serverNames(servers))
	}
	return "", nil
}

// apply applies objects, waiting while the API server or the providers' webhooks do not answer: for all of the step's
// objects together no longer than its patience, of which it takes what it needs.
func (b *bootstrapper) apply(ctx context.Context, say flow.Say, mgmt *kube.Cluster, objects []*unstructured.Unstructured, patience *time.Duration) error {
	began, had := time.Now(), *patience
	for _, o := range objects {
		say("applying %s", kube.Describe(o))
		markOwned(o, b.cfg.ClusterName)
		err := wait{what: "the API server and its webhooks to take " + kube.Describe(o), within: *patience}.until(ctx, say, func(ctx context.Context) (string, error) {
			err := mgmt.Apply(ctx, o)
			if err != nil && !kube.Unwell(err) {
				return "", final(err)
			}
			return "", err
		})
		if err != nil {
			return err
		}
		*patience = max(0, had-time.Since(began)).Truncate(time.Millisecond)
	}
	return nil
}

// applied applies everything and says what the cluster is then.
func (b *bootstrapper) applied(ctx context.Context, say flow.Say, mgmt *kube.Cluster, r *rendered, ip string, patience *time.Duration) (Cluster, error) {
	out := Cluster{
		Name: b.cfg.ClusterName, LoadBalancerIP: ip, ControlPlane: b.cfg.ControlPlaneName(), Template: r.template,
		Replicas: b.cfg.ControlPlaneReplicas, Version: b.cfg.KubernetesVersion,
	}
	todo, err := b.consent(ctx, say, mgmt, r)
	if err != nil {
		return Cluster{}, err
	}
	var others, clusters []*unstructured.Unstructured
	for _, o := range r.now {
		out.Objects = append(out.Objects, Object{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName()})
		if o.GroupVersionKind() == clusterKind {
			clusters = append(clusters, o)
		} else {
			others = append(others, o)
		}
	}
	if err := b.apply(ctx, say, mgmt, append(others, clusters...), patience); err != nil {
		return Cluster{}, err
	}
	if err := deleteLeftOut(ctx, say, mgmt, todo); err != nil {
		return Cluster{}, err
	}
	for _, o := range r.now {
		switch {
		case o.GroupVersionKind() == clusterKind && o.GetName() == out.Name:
			out.UID = string(o.GetUID())
		case o.GroupVersionKind() == hetznerClusterKind:
			out.Endpoint = net.JoinHostPort(ip, strconv.FormatInt(number(o, "spec", "controlPlaneEndpoint", "port"), 10))
		}
	}
	return out, nil
}

// waitLoadBalancer waits until CAPH has made the load balancer and written its address down.
func (b *bootstrapper) waitLoadBalancer(ctx context.Context, say flow.Say, mgmt *kube.Cluster) (ip string, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := mgmt.Changes(watching, kube.Selection{List: listOf(hetznerClusterKind), Options: []client.ListOption{client.InNamespace(Namespace)}})
	w := wait{what: "the load balancer", within: b.cfg.LoadBalancerTimeout.D(), changes: changes, because: b.hindered(mgmt, b.watched())}
	err = w.until(ctx, say, func(ctx context.Context) (string, error) {
		live, err := get(ctx, mgmt, hetznerClusterKind, b.cfg.ClusterName)
		if err != nil {
			return "", err
		}
		if ip = text(live, "spec", "controlPlaneEndpoint", "host"); ip != "" {
			return "", nil
		}
		return "HetznerCluster " + b.cfg.ClusterName + " has no address yet", nil
	})
	return ip, err
}

// clusterStands asks for every object that was applied, and for the load balancer. What people changed in them since is theirs: the guide scales
// and upgrades with kubectl.
func (b *bootstrapper) clusterStands(ctx context.Context, was Cluster) flow.Verdict {
	mgmt, err := b.connect(managementFile)
	if err != nil {
		return flow.Unknown(err)
	}
	for _, name := range was.Objects {
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(schema.FromAPIVersionAndKind(name.APIVersion, name.Kind))
		if err := mgmt.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name.Name}, o); err != nil {
			return unless(fmt.Errorf("get %s %s: %w", name.Kind, name.Name, err))
		}
		if o.GetDeletionTimestamp() != nil {
			return flow.Unknown(fmt.Errorf("%s %s is being deleted: wait until it is gone", name.Kind, name.Name))
		}
		if name.Kind == clusterKind.Kind && name.Name == was.Name && string(o.GetUID()) != was.UID {
			return flow.Gone("Cluster %s is another one than the recorded", was.Name)
		}
	}
	return b.endpointStands(ctx, was.LoadBalancerIP)
}
