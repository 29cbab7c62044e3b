package steps

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
	spec, err := changes.ManifestDigests(cfg, sources)
	if err != nil {
		return nil, err
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
	return flow.Add(g, flow.Task[Cluster]{
		Name:     "apply",
		Doc:      "the cluster's objects are applied; its network and load balancer exist",
		Run:      flow.With4(s.runApply, management, image, offer, endpoint),
		Spec:     s.made.cluster,
		Verify:   verifyIn(s, platform.ManagementKubeconfig, s.verifyApply),
		Deadline: 2*s.cfg.LoadBalancerTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.Webhooks(s.cfg), wait.LoadBalancer(s.cfg)},
	})
}

// runApply applies the manifests. Where CAPH is to create the load balancer, first what can do without its address,
// then, once CAPH has created it, the rest. Where the address is known, as in every later run, there is one part only,
// so that what is there is never taken back.
func (s *Set) runApply(ctx context.Context, say flow.Say, m Management, image Image, offer Placement,
	endpoint Endpoint) (Cluster, error) {
	mgmt, err := connect.Cluster(s.tools, m.Kubeconfig)
	if err != nil {
		return Cluster{}, err
	}
	e, err := situation.LiveEndpoint(ctx, s.cfg, s.tools, mgmt)
	if err != nil {
		return Cluster{}, err
	}
	if e.IP == "" { // the endpoint of a cluster never changes
		e = endpoint.rendered()
	}
	placement, image, err := s.keptPlacement(ctx, say, mgmt, image, offer)
	if err != nil {
		return Cluster{}, err
	}
	rendered := func() (*render.Rendered, error) {
		return render.Manifests(s.cfg, s.sources,
			render.ManifestVariables(s.sources, image.Name, offer.NetworkZone, e).Placed(placement))
	}
	patience := s.cfg.LoadBalancerTimeout.D()
	if e.IP != "" {
		if err := situation.CheckEndpoint(ctx, s.cfg, s.tools, s.sources, e.IP); err != nil {
			return Cluster{}, err
		}
	} else {
		r, err := rendered()
		if err != nil {
			return Cluster{}, err
		}
		if _, err := s.consent(ctx, say, mgmt, r); err != nil {
			return Cluster{}, err
		}
		if err := apply.Objects(ctx, s.cfg, say, mgmt, r.Now, &patience); err != nil {
			return Cluster{}, err
		}
		if e.IP, err = s.waitLoadBalancer(ctx, say, mgmt); err != nil {
			return Cluster{}, err
		}
		say("the load balancer has the address %s", e.IP)
	}
	r, err := rendered()
	if err != nil {
		return Cluster{}, err
	}
	return s.applyAll(ctx, say, mgmt, r, e.IP, &patience)
}

// keptPlacement is what the next server is, and where, and its image. A cluster keeps what it has, where that is
// configured: a server type that came into stock since does not replace its servers.
func (s *Set) keptPlacement(ctx context.Context, say flow.Say, mgmt *kube.Cluster, image Image,
	offer Placement) (render.Placement, Image, error) {
	live, err := situation.LivePlacement(ctx, s.cfg, mgmt)
	if err != nil {
		return render.Placement{}, image, err
	}
	chosen := offer.placement()
	placement := situation.KeptPlacement(s.cfg, chosen, live)
	if placement.ServerType != chosen.ServerType || !slices.Equal(placement.Locations, chosen.Locations) {
		say("the cluster keeps server type %s in %s, which are configured (%s in %s is for new clusters)",
			placement.ServerType, strings.Join(placement.Locations, ", "), chosen.ServerType,
			strings.Join(chosen.Locations, ", "))
	}
	if placement.ServerType == offer.ServerType {
		return placement, image, nil
	}
	kind, err := hetzner.FindServerType(ctx, s.tools.Hetzner, placement.ServerType)
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

// applyAll applies everything, the Cluster last: it names the control plane, which must be there when Cluster API looks
// for it. It says what the cluster is then.
func (s *Set) applyAll(ctx context.Context, say flow.Say, mgmt *kube.Cluster, r *render.Rendered, ip string,
	patience *time.Duration) (Cluster, error) {
	out := Cluster{
		Name: s.cfg.ClusterName, LoadBalancerIP: ip, ControlPlane: s.cfg.ControlPlaneName(), Template: r.Template,
		Replicas: s.cfg.ControlPlaneReplicas, Version: s.cfg.KubernetesVersion,
	}
	todo, err := s.consent(ctx, say, mgmt, r)
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
	if err := apply.Objects(ctx, s.cfg, say, mgmt, append(others, clusters...), patience); err != nil {
		return Cluster{}, err
	}
	if err := changes.DeleteLeftOut(ctx, say, mgmt, s.cfg.Namespace, todo); err != nil {
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
func (s *Set) waitLoadBalancer(ctx context.Context, say flow.Say, mgmt *kube.Cluster) (ip string, err error) {
	w := wait.Wait{What: "the load balancer", Within: s.cfg.LoadBalancerTimeout.D(),
		Explain: s.observer.Obstacles(mgmt, situation.WatchedOf(s.cfg))}
	err = untilIn(ctx, say, w, mgmt, s.inNamespace(capi.HetznerClusterKind), func(ctx context.Context) (string, error) {
		live, err := capi.Get(ctx, mgmt, s.cfg.Namespace, capi.HetznerClusterKind, s.cfg.ClusterName)
		if err != nil {
			return "", err
		}
		if ip = capi.Text(live, "spec", "controlPlaneEndpoint", "host"); ip != "" {
			return "", nil
		}
		return "HetznerCluster " + s.cfg.ClusterName + " has no address yet", nil
	})
	return ip, err
}

// verifyApply asks for every object that was applied, and for the load balancer. What people changed in them since is
// theirs: the guide scales and upgrades with kubectl.
func (s *Set) verifyApply(ctx context.Context, mgmt *kube.Cluster, was Cluster) flow.Verdict {
	v := situation.VerifyObjects(ctx, mgmt, s.cfg.Namespace, was.Objects, was.Name, was.UID)
	if v.Answer() != flow.AnswerHolds {
		return v
	}
	return situation.VerifyEndpoint(ctx, s.cfg, s.tools, s.sources, was.LoadBalancerIP)
}
