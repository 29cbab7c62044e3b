package steps

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/platform"
)

// Cluster is the workload cluster as the management cluster knows it.
type Cluster struct {
	Name           string            `json:"name"`
	UID            string            `json:"uid"` // of the Cluster object: a cluster created again has another
	LoadBalancerIP string            `json:"loadBalancerIp"`
	Endpoint       string            `json:"endpoint"` // host:port of the Kubernetes API
	ControlPlane   string            `json:"controlPlane"`
	Template       string            `json:"template"` // HCloudMachineTemplate of the control plane
	Replicas       int               `json:"replicas"`
	Version        string            `json:"version"` // of Kubernetes
	Objects        []platform.Object `json:"objects"` // everything that was applied
}

func clusterSpec(cfg config.Config, sources render.Sources) (any, error) {
	// Values that only a run knows: the image and the zone are arguments of the step, the address is its own output.
	v := maps.Clone(sources.Vars)
	delete(v, render.ImageNameVariable)
	spec := map[string]render.Digest{}
	files := map[string]render.Source{"cluster": sources.Cluster, "healthCheck": sources.HealthCheck}
	if cfg.OIDCIssuerURL != "" {
		files["oidcPatch"] = sources.OidcPatch
	}
	for _, s := range sources.Added {
		files[s.Path] = s
	}
	for name, s := range files {
		i, err := s.Digest(v)
		if err != nil {
			return nil, err
		}
		spec[name] = i
	}
	// Rendered once with made-up values, so that a mistake in a file is found before anything is made.
	r, err := render.Manifests(cfg, sources,
		render.MadeUpVariables(cfg, sources))
	if err != nil {
		return nil, err
	}
	return spec, changes.MissingObjects(r.Now, cfg.ClusterName, cfg.ControlPlaneName(), sources.Cluster.Name)
}

// Apply adds the step apply to a graph: the manifests are applied to the management cluster.
func (s *Set) Apply(g *flow.Graph, management *flow.Step[Management], image *flow.Step[Image],
	offer *flow.Step[Placement], endpoint *flow.Step[Endpoint]) *flow.Step[Cluster] {
	step := newApplyStep(s)
	return flow.Add(g, flow.Task[Cluster]{
		Name:     "apply",
		Doc:      "the cluster's objects are applied; its network and load balancer exist",
		Run:      flow.With4(step.run, management, image, offer, endpoint),
		Spec:     s.made.cluster,
		Verify:   step.verify,
		Deadline: 2*s.cfg.LoadBalancerTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.Webhooks(s.cfg), wait.LoadBalancer(s.cfg)},
	})
}

// applyStep runs and verifies the step apply.
type applyStep struct {
	cfg      config.Config
	tools    platform.Tools
	sources  render.Sources
	observer *situation.Observer
}

func newApplyStep(s *Set) applyStep {
	return applyStep{cfg: s.cfg, tools: s.tools, sources: s.sources, observer: s.observer}
}

// run applies the manifests. Where CAPH is to create the load balancer, first what can do without its address, then,
// once CAPH has created it, the rest. Where the address is known, as in every later run, there is one part only, so
// that what is there is never taken back.
func (a applyStep) run(ctx context.Context, say flow.Say, m Management, image Image, offer Placement,
	endpoint Endpoint) (Cluster, error) {
	mgmt, err := connect.Cluster(a.tools, m.Kubeconfig)
	if err != nil {
		return Cluster{}, err
	}
	e, err := situation.LiveEndpoint(ctx, a.cfg, a.tools, mgmt)
	if err != nil {
		return Cluster{}, err
	}
	if e.IP == "" { // the endpoint of a cluster never changes
		e = endpoint.rendered()
	}
	placement, image, err := a.placement(ctx, say, mgmt, image, offer)
	if err != nil {
		return Cluster{}, err
	}
	rendered := func() (*render.Rendered, error) {
		return render.Manifests(a.cfg, a.sources,
			render.ManifestVariables(a.sources, image.Name, offer.NetworkZone, e).Placed(placement))
	}
	patience := a.cfg.LoadBalancerTimeout.D()
	if e.IP != "" {
		if err := situation.CheckEndpoint(ctx, a.cfg, a.tools, a.sources, e.IP); err != nil {
			return Cluster{}, err
		}
	} else {
		r, err := rendered()
		if err != nil {
			return Cluster{}, err
		}
		if _, err := consent(ctx, a.cfg, a.tools, say, mgmt, r); err != nil {
			return Cluster{}, err
		}
		if err := apply.Objects(ctx, a.cfg, say, mgmt, r.Now, &patience); err != nil {
			return Cluster{}, err
		}
		if e.IP, err = a.waitLoadBalancer(ctx, say, mgmt); err != nil {
			return Cluster{}, err
		}
		say("the load balancer has the address %s", e.IP)
	}
	r, err := rendered()
	if err != nil {
		return Cluster{}, err
	}
	return a.applied(ctx, say, mgmt, r, e.IP, &patience)
}

// placement is what the next server is, and where, and its image. A cluster keeps what it has, where that is
// configured: a server type that came into stock since does not replace its servers.
func (a applyStep) placement(ctx context.Context, say flow.Say, mgmt *kube.Cluster, image Image,
	offer Placement) (render.Placement, Image, error) {
	live, err := situation.LivePlacement(ctx, a.cfg, mgmt)
	if err != nil {
		return render.Placement{}, image, err
	}
	chosen := offer.placement()
	placement := situation.KeptPlacement(a.cfg, chosen, live)
	if placement.ServerType != chosen.ServerType || !slices.Equal(placement.Locations, chosen.Locations) {
		say("the cluster keeps server type %s in %s, which are configured (%s in %s is for new clusters)",
			placement.ServerType, strings.Join(placement.Locations, ", "), chosen.ServerType,
			strings.Join(chosen.Locations, ", "))
	}
	if placement.ServerType == offer.ServerType {
		return placement, image, nil
	}
	kind, err := hetzner.FindServerType(ctx, a.tools.Hetzner, placement.ServerType)
	if err != nil {
		return render.Placement{}, image, err
	}
	for _, one := range append([]Image{image}, image.Others...) {
		if one.Architecture == kind.Architecture && one.Schematic == "" {
			return placement, one, nil
		}
	}
	return render.Placement{}, image, fmt.Errorf("the cluster's servers are of type %s, and there is no image for %s: set "+
		"IMAGE_ARCHITECTURES=%s and run again", kind.Name, kind.Architecture, kind.Architecture)
}

// applied applies everything, the Cluster last: it names the control plane, which must be there when Cluster API looks
// for it. It says what the cluster is then.
func (a applyStep) applied(ctx context.Context, say flow.Say, mgmt *kube.Cluster, r *render.Rendered, ip string,
	patience *time.Duration) (Cluster, error) {
	out := Cluster{
		Name: a.cfg.ClusterName, LoadBalancerIP: ip, ControlPlane: a.cfg.ControlPlaneName(), Template: r.Template,
		Replicas: a.cfg.ControlPlaneReplicas, Version: a.cfg.KubernetesVersion,
	}
	todo, err := consent(ctx, a.cfg, a.tools, say, mgmt, r)
	if err != nil {
		return Cluster{}, err
	}
	var others, clusters []*unstructured.Unstructured
	for _, o := range r.Now {
		out.Objects = append(out.Objects,
			platform.Object{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName()})
		if o.GroupVersionKind() == capi.ClusterKind {
			clusters = append(clusters, o)
		} else {
			others = append(others, o)
		}
	}
	if err := apply.Objects(ctx, a.cfg, say, mgmt, append(others, clusters...), patience); err != nil {
		return Cluster{}, err
	}
	if err := changes.DeleteLeftOut(ctx, say, mgmt, a.cfg.Namespace, todo); err != nil {
		return Cluster{}, err
	}
	for _, o := range r.Now {
		switch {
		case o.GroupVersionKind() == capi.ClusterKind && o.GetName() == out.Name:
			out.UID = string(o.GetUID())
		case o.GroupVersionKind() == capi.HetznerClusterKind:
			out.Endpoint = net.JoinHostPort(capi.Text(o, "spec", "controlPlaneEndpoint", "host"),
				strconv.FormatInt(capi.Number(o, "spec", "controlPlaneEndpoint", "port"), 10))
		}
	}
	return out, nil
}

// waitLoadBalancer waits until CAPH has made the load balancer and written its address down.
func (a applyStep) waitLoadBalancer(ctx context.Context, say flow.Say, mgmt *kube.Cluster) (ip string, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := mgmt.Changes(watching,
		kube.Selection{List: capi.ListOf(capi.HetznerClusterKind),
			Options: []client.ListOption{client.InNamespace(a.cfg.Namespace)}})
	w := wait.Wait{What: "the load balancer", Within: a.cfg.LoadBalancerTimeout.D(), Changes: changes,
		Explain: a.observer.Obstacles(mgmt, situation.WatchedOf(a.cfg))}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		live, err := capi.Get(ctx, mgmt, a.cfg.Namespace, capi.HetznerClusterKind, a.cfg.ClusterName)
		if err != nil {
			return "", err
		}
		if ip = capi.Text(live, "spec", "controlPlaneEndpoint", "host"); ip != "" {
			return "", nil
		}
		return "HetznerCluster " + a.cfg.ClusterName + " has no address yet", nil
	})
	return ip, err
}

// verify asks for every object that was applied, and for the load balancer. What people changed in them since is
// theirs: the guide scales and upgrades with kubectl.
func (a applyStep) verify(ctx context.Context, was Cluster) flow.Verdict {
	mgmt, err := connect.Cluster(a.tools, platform.ManagementKubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	v := situation.VerifyObjects(ctx, mgmt, a.cfg.Namespace, was.Objects, was.Name, was.UID)
	if v.Answer() != flow.AnswerHolds {
		return v
	}
	return situation.VerifyEndpoint(ctx, a.cfg, a.tools, a.sources, was.LoadBalancerIP)
}
