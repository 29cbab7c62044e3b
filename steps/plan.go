// Package steps is the bootstrap itself: what it is configured with (Config), what it works with (Tools), the graph of
// its steps (Plan) and one file for each of them.
package steps

import (
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/kube"
)

// Plan is the graph of the bootstrap, with the handle of every step for whoever wants its output.
type Plan struct {
	Graph *flow.Graph
	// Bootstrap and All name the steps that the targets bootstrap and all want; the others hang below them. Managed is Bootstrap
	// once the cluster manages itself.
	Bootstrap, All, Managed []string

	Preflight    *flow.Step[Offer]
	Reservation  *flow.Step[Reservation]
	Image        *flow.Step[Image]
	Management   *flow.Step[Management]
	Providers    *flow.Step[Providers]
	Secret       *flow.Step[TokenSecret]
	Cluster      *flow.Step[Cluster]
	ControlPlane *flow.Step[ControlPlane]
	Kubeconfig   *flow.Step[Kubeconfig]
	Talosconfig  *flow.Step[Talosconfig]
	Cilium       *flow.Step[Release]
	HCloudCCM    *flow.Step[CloudController]
	TalosCCM     *flow.Step[Release]
	Nodes        *flow.Step[Nodes]
	Pivot        *flow.Step[Pivot]
	Access       *flow.Step[Access]
	Clean        *flow.Step[Clean]
	Firewall     *flow.Step[Firewall]
	Cover        *flow.Step[Cover]

	b *bootstrapper
}

// overhead is what a step's deadline leaves for everything in it that is not its one long wait, which then ends first
// and says what it saw.
const overhead = 3 * time.Minute

// New plans the bootstrap of a valid configuration. It reads the manifests and values, and speaks to nobody.
func New(cfg Config, tools Tools) (*Plan, error) {
	b := &bootstrapper{cfg: cfg, tools: tools.withDefaults(), vars: cfg.variables(), began: time.Now()}
	var err error
	if b.sources, err = readSources(tools.Overrides); err != nil {
		return nil, err
	}
	made, err := b.specs()
	if err != nil {
		return nil, err
	}
	g := flow.New("slipway")
	p := &Plan{Graph: g, b: b}
	controlPlane, nodes := cfg.waitControlPlane(), cfg.waitNodes()

	p.Preflight = flow.Add(g, "preflight", b.checkOffer).
		Doc("the token is good; location, server type and load balancer type exist and go together").
		Spec(made.offer).Verify(b.offerStands).Deadline(cfg.PreflightTimeout.D()).ExemptFromSeal()

	p.Reservation = flow.Add(g, "reserve", b.reserve).After(p.Preflight).
		Doc("the cluster's name is this state folder's in the Hetzner project: no other makes a second cluster into the first").
		Spec(map[string]string{"clusterName": cfg.ClusterName}).Verify(b.reservationStands).Deadline(reservedWithin + overhead).Waits(flow.Wait{For: "the reservation", Within: reservedWithin})

	p.Image = flow.Add1(g, "image", b.ensureImage, p.Preflight).Yields(p.Reservation).
		Doc("exactly one Talos snapshot for the servers' architecture, found as Cluster API will look for it; made where there is none").
		Spec(made.image).Verify(b.imageStands).Deadline(cfg.imagesTimeout() + overhead).ExemptFromSeal().
		Waits(flow.Wait{For: "the images (IMAGE_TIMEOUT for each)", Within: cfg.imagesTimeout()})

	p.Management = flow.Add(g, "kind-create", b.ensureManagement).After(p.Preflight, p.Reservation).
		Doc("a management cluster for Cluster API: kind, an existing one, or the lab's").
		Spec(made.management).Verify(b.managementStands).Deadline(cfg.ManagementTimeout.D() + overhead).Waits(flow.Wait{For: "the management cluster's API", Within: managementReady})

	p.Providers = flow.Add1(g, "capi-init", b.initProviders, p.Management).
		Doc("Cluster API and its providers for Hetzner and Talos are installed and serve").
		Spec(made.providers).Verify(b.providersStand).Deadline(2*cfg.ProvidersTimeout.D() + overhead).
		Waits(made.installing...)

	p.Secret = flow.Add1(g, "secret", b.ensureTokenSecret, p.Management).
		Doc("the Hetzner token for Cluster API, in the management cluster").
		Verify(b.tokenSecretStands).Deadline(overhead).Waits(waitTaken)

	p.Cluster = flow.Add3(g, "apply", b.applyCluster, p.Management, p.Image, p.Preflight).After(p.Providers, p.Secret).
		Doc("the cluster's objects are applied; its network and load balancer exist").
		Spec(made.cluster).Verify(b.clusterStands).Deadline(2*cfg.LoadBalancerTimeout.D()+overhead).
		Waits(flow.Wait{For: "the webhooks (LOAD_BALANCER_TIMEOUT)", Within: cfg.LoadBalancerTimeout.D()},
			flow.Wait{For: "the load balancer (LOAD_BALANCER_TIMEOUT)", Within: cfg.LoadBalancerTimeout.D()})

	p.ControlPlane = flow.Add2(g, "wait-cp", b.waitControlPlane, p.Management, p.Cluster).
		Doc("servers, Talos, etcd and the Kubernetes API answer through the load balancer").
		Verify(b.controlPlaneStands).Deadline(cfg.ControlPlaneTimeout.D() + overhead).Waits(controlPlane)

	p.Kubeconfig = flow.Add2(g, "kubeconfig", b.fetchKubeconfig, p.Management, p.Cluster).
		Doc("the cluster's kubeconfig, as a file").
		Verify(b.kubeconfigStands).Deadline(cfg.ControlPlaneTimeout.D() + overhead).Waits(controlPlane)

	p.Talosconfig = flow.Add2(g, "talosconfig", b.fetchTalosconfig, p.Management, p.Cluster).
		Doc("the cluster's talosconfig, as a file").
		Verify(b.talosconfigStands).Deadline(cfg.ControlPlaneTimeout.D() + overhead).Waits(controlPlane)

	releaseDeadline := 3*cfg.ReleaseTimeout.D() + overhead
	releaseWaits := []flow.Wait{waitDownload,
		{For: "the kinds of the chart, or somebody else's helm (RELEASE_TIMEOUT)", Within: cfg.ReleaseTimeout.D()},
		{For: "Helm's own work, which may begin when that wait is about to end (RELEASE_TIMEOUT)", Within: cfg.ReleaseTimeout.D()},
		{For: "the workloads (RELEASE_TIMEOUT)", Within: cfg.ReleaseTimeout.D()}}

	// The releases find the cluster by the kubeconfig in the state folder, which is there before and after the pivot.
	p.Cilium = flow.Add(g, "cilium", b.installCilium).After(p.Kubeconfig, p.ControlPlane).ExemptFromSeal().
		Doc("Cilium, the network of Pods and Services").
		Spec(made.cilium).Verify(b.releaseStands).Deadline(releaseDeadline).Waits(releaseWaits...)

	p.HCloudCCM = flow.Add(g, "hcloud-ccm", b.installHCloudCCM).After(p.Kubeconfig, p.ControlPlane).ExemptFromSeal().
		Doc("Hetzner's cloud controller manager: provider IDs and addresses of nodes, load balancers of Services").
		Spec(made.hcloudCCM).Verify(b.hcloudCCMStands).Deadline(releaseDeadline).Waits(append(releaseWaits, waitTaken)...)

	p.TalosCCM = flow.Add(g, "talos-ccm", b.installTalosCCM).After(p.Kubeconfig, p.ControlPlane).ExemptFromSeal().
		Doc("Talos's cloud controller manager: approves the kubelets' certificates").
		Spec(made.talosCCM).Verify(b.releaseStands).Deadline(releaseDeadline).Waits(releaseWaits...)

	p.Nodes = flow.Add3(g, "wait-nodes", b.waitNodes, p.Management, p.Cluster, p.Kubeconfig).Follows(p.Cilium, p.HCloudCCM, p.TalosCCM).
		Doc("every node is Ready, is the server that it claims to be, and is known to Cluster API").
		Spec(made.nodes).Verify(b.nodesStand).Deadline(cfg.NodesTimeout.D() + overhead).Waits(nodes)

	// From here on no step takes an output from before the pivot: where the journal is lost, it is not made again.
	p.Pivot = flow.Add(g, "pivot", b.pivot).After(p.Nodes, p.Talosconfig).Seal().Underway(b.pivotUnderway).
		Doc("the cluster manages itself; a point of no return").
		Verify(b.pivotStands).Deadline(cfg.pivotDeadline()).
		Waits(cfg.waitPivot(made.installing)...)

	p.Access = flow.Add(g, "access", b.refreshAccess).After(p.Pivot).
		Doc("kubeconfig, talosconfig and the list of nodes are today's, from the cluster itself").
		Verify(b.accessStands).Deadline(2*cfg.ControlPlaneTimeout.D()+overhead).Waits(controlPlane, controlPlane)

	p.Firewall = flow.Add(g, "firewall", b.ensureFirewall).Yields(p.Reservation).
		Doc("a Hetzner firewall that lets private addresses, and those of FIREWALL_ALLOW, in on 6443 and 50000").
		Spec(made.firewall).Verify(b.firewallStands).Deadline(overhead)

	p.Cover = flow.Add1(g, "firewall-apply", b.applyFirewall, p.Firewall).After(p.Kubeconfig).Yields(p.Pivot).
		Doc("every server, also one made later, is behind the firewall (the load balancer's public ports cannot be)").
		Verify(b.coverStands).Deadline(cfg.FirewallTimeout.D() + overhead).
		Waits(flow.Wait{For: "the firewall (FIREWALL_TIMEOUT)", Within: cfg.FirewallTimeout.D()})

	p.Clean = flow.Add(g, "clean", b.cleanManagement).After(p.Pivot).Yields(p.Access, p.Cover).
		Doc("the temporary management cluster is gone; refused while it may hold the only record of a cluster").
		Verify(b.cleanStands).Deadline(cfg.ManagementTimeout.D() + overhead)

	p.Bootstrap = []string{p.Talosconfig.Name(), p.Nodes.Name()}
	// After the pivot nothing brings the releases, which are exempt from its seal.
	releases := []string{p.Cilium.Name(), p.HCloudCCM.Name(), p.TalosCCM.Name()}
	p.All = append([]string{p.Access.Name(), p.Cover.Name(), p.Clean.Name()}, releases...)
	p.Managed = append([]string{p.Access.Name()}, releases...)
	return p, g.Validate()
}

// bootstrapper holds what all steps share, and nothing that changes. What a step learns goes into its output.
type bootstrapper struct {
	cfg     Config
	tools   Tools
	sources sources
	vars    variables // of the configuration
	began   time.Time // what was found hopeless before may have been mended since; zero: all counts
	cloud   cloudSight
}

// specs are what the steps are made from, for the journal: a change in one of them runs its step again.
type specs struct {
	offer, image, management, providers, cluster, cilium, hcloudCCM, talosCCM, nodes, firewall any

	installing []flow.Wait // of the providers; the journal does not have it
}

func (b *bootstrapper) specs() (specs, error) {
	c := b.cfg
	s := specs{
		offer:      map[string]string{"location": c.Location, "serverType": c.ServerType, "loadBalancerType": c.LoadBalancerType},
		management: map[string]string{"provider": b.tools.Management.Name(), "name": c.ManagementName()},
		firewall:   map[string]string{"clusterName": c.ClusterName, "firewallAllow": c.FirewallAllow},
		nodes:      map[string]any{"controlPlaneReplicas": c.ControlPlaneReplicas, "kubernetesVersion": c.KubernetesVersion, "networkCidr": c.NetworkCIDR},
	}
	var err error
	if s.image, err = b.imageSpec(); err != nil {
		return specs{}, err
	}
	if s.providers, err = b.providersSpec(); err != nil {
		return specs{}, err
	}
	if s.installing, err = b.waitProviders(); err != nil {
		return specs{}, err
	}
	if s.cluster, err = b.clusterSpec(); err != nil {
		return specs{}, err
	}
	for _, r := range []struct {
		to *any
		in installation
	}{{&s.cilium, b.cilium()}, {&s.hcloudCCM, b.hcloudCCM()}, {&s.talosCCM, b.talosCCM()}} {
		if *r.to, err = b.releaseSpec(r.in); err != nil {
			return specs{}, err
		}
	}
	return s, nil
}

// Files of the state folder.
const (
	managementFile  = "management.kubeconfig"
	kubeconfigFile  = "kubeconfig"
	talosconfigFile = "talosconfig"
)

// connect makes the cluster of a kubeconfig in the state folder.
func (b *bootstrapper) connect(file string) (*kube.Cluster, error) {
	data, err := b.tools.Files.Read(file)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return b.tools.Connect(data)
}

// unless turns an error of asking into a verdict: the answer that something does not exist is an answer, everything else
// is none.
func unless(err error) flow.Verdict {
	if kube.Absent(err) {
		return flow.Gone("%v", err)
	}
	return flow.Unknown(err)
}

// Looking names the steps that change nothing but files of the state folder.
func Looking() []string {
	return []string{"preflight", "wait-cp", "kubeconfig", "talosconfig", "wait-nodes", "access"}
}

// WaitForServers names the steps that wait while the control plane's servers are replaced.
func WaitForServers() []string { return []string{"talosconfig", "wait-nodes"} }
