// Package upgrade brings a cluster to other versions, and to what else was changed in its configuration: the stages of the
// way there, what keeps it from beginning, and the graph of steps that does it.
package upgrade

import (
	"context"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/canary"
	"github.com/slipway-k8s/slipway/internal/ensure/flux"
	"github.com/slipway-k8s/slipway/platform"
)

// environment is what an upgrade works with. cfg has the versions that the cluster gets.
type environment struct {
	cfg      config.Config
	tools    platform.Tools
	sources  render.Sources
	observer *situation.Observer
}

func newEnvironment(cfg config.Config, tools platform.Tools) (*environment, error) {
	tools = tools.WithDefaults()
	sources, err := render.Read(render.VariablesOf(cfg), tools.Overrides)
	if err != nil {
		return nil, err
	}
	return &environment{cfg: cfg, tools: tools, sources: sources,
		observer: &situation.Observer{Cfg: cfg, Tools: tools, Sources: sources}}, nil
}

// clusters are the two that an upgrade works with, which are one after the pivot.
type clusters struct {
	manager, workload *kube.Cluster
	where             string // that the manager is, for people
	kubeconfig        string // of the manager, in the state folder
}

// open finds the cluster that manages this one, and connects to both.
func (e *environment) open(ctx context.Context, say flow.Say) (c clusters, err error) {
	if c.manager, c.where, err = situation.ManagingCluster(ctx, e.cfg, e.tools, e.sources, say); err != nil {
		return c, err
	}
	if c.workload, err = connect.Cluster(e.tools, platform.Kubeconfig); err != nil {
		return c, fmt.Errorf("cluster %s: %w", e.cfg.ClusterName, err)
	}
	self, err := situation.SelfManaged(ctx, e.cfg, e.tools, e.sources)
	if c.kubeconfig = platform.ManagementKubeconfig; self != nil {
		c.kubeconfig = platform.Kubeconfig
	}
	return c, err
}

// state is what a cluster is before an upgrade, or in the middle of one.
type state struct {
	versions Versions
	rolling  string // Kubernetes version that the control plane's servers are being replaced for; empty: they are not
	kubelets string // the lowest Kubernetes version of a worker's kubelet; empty: there are no workers
	replicas int
	held     bool // the agents of the network are held back: their upgrade has not come past its canary node
	observed changes.Observed
	view     view
	surges   bool // the provider creates a server before it deletes the one that it replaces
}

// retryWhileUnwell repeats look while an API server, or a webhook behind it, does not answer: a cluster that manages itself has
// no webhooks for a while after the server has gone that they ran on.
func (e *environment) retryWhileUnwell(ctx context.Context, say flow.Say, look func(context.Context) error) error {
	within := e.cfg.LoadBalancerTimeout.D()
	return wait.Wait{What: "the API server and its webhooks to answer", Within: within, Each: within}.Until(ctx, say,
		func(ctx context.Context) (string, error) {
			err := look(ctx)
			if err != nil && !kube.Unwell(err) {
				err = wait.Final(err)
			}
			return "", err
		})
}

// read asks the cluster for its versions. Of a component whose servers are being replaced it takes the lowest version
// that a server has.
func (e *environment) read(ctx context.Context, c clusters) (state, error) {
	o, err := changes.Observe(ctx, e.cfg, e.sources, c.manager)
	if err != nil {
		return state{}, fmt.Errorf("read the versions of cluster %s: %w", e.cfg.ClusterName, err)
	}
	s := state{versions: Versions{}, observed: o}
	for _, variable := range append(providerVariables(), talos, kubernetes) {
		s.versions[variable] = o.Values[variable]
	}
	plane := newControlPlane(e, c)
	plane.reader.NodeRefs = false // Cluster API sees new nodes by itself, within half a minute: each stage waits for that
	tcp, err := plane.talosControlPlane(ctx)
	if err != nil {
		return state{}, err
	}
	for _, variable := range []string{talos, kubernetes} {
		if s.versions[variable] == "" {
			return state{}, fmt.Errorf("%s does not say its %s where %s has ${%s}: let that file use the variable, so that an "+
				"upgrade knows what to change", kube.Describe(tcp), title(variable), e.sources.Cluster.Name, variable)
		}
	}
	if s.view, err = plane.look(ctx, tcp); err != nil {
		return state{}, err
	}
	s.replicas = s.view.replicas
	surge, set, _ := unstructured.NestedFieldNoCopy(tcp.Object, "spec", "rolloutStrategy", "rollingUpdate", "maxSurge")
	s.surges = capi.Text(tcp, strategyType...) != onDelete && (!set || fmt.Sprint(surge) != "0")
	if err := s.oldest(ctx, c, e.cfg); err != nil {
		return state{}, err
	}
	if err := e.readCharts(c, s.versions); err != nil {
		return state{}, err
	}
	s.held, err = e.readStopped(ctx, c, s.versions)
	return s, err
}

// oldest replaces the versions that the control plane is changed to by the lowest that its servers have.
func (s *state) oldest(ctx context.Context, c clusters, cfg config.Config) error {
	machines, err := capi.List(ctx, c.manager, cfg.Namespace, capi.MachineKind, cfg.ClusterName)
	if err != nil {
		return err
	}
	nodes := &corev1.NodeList{}
	if err := c.workload.List(ctx, nodes); err != nil {
		return fmt.Errorf("list the nodes: %w", err)
	}
	for _, n := range nodes.Items {
		if _, plane := n.Labels[capi.ControlPlaneRole]; !plane {
			s.kubelets = lowest(s.kubelets, n.Status.NodeInfo.KubeletVersion)
		}
	}
	wanted := s.versions[kubernetes]
	for _, m := range capi.ControlPlaneMachines(machines) {
		s.versions[kubernetes] = lowest(s.versions[kubernetes], capi.Text(&m, "spec", "version"))
		for _, n := range nodes.Items {
			if n.Name == capi.ServerOf(&m) {
				s.versions[talos] = lowest(s.versions[talos], talosOf(n.Status.NodeInfo.OSImage))
			}
		}
	}
	if s.versions[kubernetes] != wanted {
		s.rolling = wanted
	}
	return nil
}

var osImage = regexp.MustCompile(`^Talos \((v\d+\.\d+\.\d+[^)]*)\)`)

// talosOf is the version of Talos in what a node reports as its operating system: "Talos (v1.12.2)"; empty: it is not
// one.
func talosOf(image string) string {
	if found := osImage.FindStringSubmatch(image); found != nil {
		return found[1]
	}
	return ""
}

// readCharts asks for the versions of the releases. One that is not deployed is left out: the bootstrap installs it.
func (e *environment) readCharts(c clusters, into Versions) error {
	log := func(format string, args ...any) { fmt.Fprintf(e.tools.Log, "helm: "+format+"\n", args...) }
	return e.eachRelease(c, log, func(v chartVariable, _ string, deployed *kube.DeployedRelease) error {
		into[v.name] = deployed.Version
		return nil
	})
}

// readStopped takes the version of before for Cilium where its upgrade has not come past its canary node. Values that
// Flux gives the release are no trace of one.
func (e *environment) readStopped(ctx context.Context, c clusters, into Versions) (stopped bool, err error) {
	in := render.CiliumChart(e.cfg, e.sources)
	if e.cfg.GitOps == config.GitOpsFlux {
		if by, err := flux.Manages(ctx, c.workload, in.Namespace, in.Release); err != nil || by != "" {
			return false, err
		}
	}
	values, err := in.Values.Values(e.sources.Vars)
	if err != nil {
		return false, err
	}
	helm, err := c.workload.Helm(in.Namespace, "", silent)
	if err != nil {
		return false, err
	}
	before, stopped, err := canary.Stopped(helm, in.Release, values)
	if before != nil {
		into[cilium] = before.Version
	}
	return stopped, err
}

// eachRelease shows the releases of the charts that are deployed, with their namespaces.
func (e *environment) eachRelease(c clusters, log flow.Say,
	show func(v chartVariable, namespace string, deployed *kube.DeployedRelease) error) error {
	for _, v := range chartVariables() {
		in := v.installation(e.cfg, e.sources)
		helm, err := c.workload.Helm(in.Namespace, "", log)
		if err != nil {
			return err
		}
		deployed, err := helm.Deployed(in.Release)
		if err != nil {
			return fmt.Errorf("read release %s: %w", in.Release, err)
		}
		if deployed == nil {
			continue
		}
		if err := show(v, in.Namespace, deployed); err != nil {
			return err
		}
	}
	return nil
}
