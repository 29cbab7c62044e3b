package upgrade

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/capiinit"
	"github.com/slipway-k8s/slipway/internal/ensure/talosconfig"
	"github.com/slipway-k8s/slipway/platform"
)

// Providers are those that an upgrade has installed.
type Providers struct {
	Versions map[string]string `json:"versions"` // clusterctl's name of each → its version
}

// providersStep upgrades Cluster API and its providers in the cluster that manages this one.
type providersStep struct{ *environment }

func (p providersStep) add(g *flow.Graph) *flow.Step[Providers] {
	return flow.Add(g, flow.Task[Providers]{
		Name:     StageProviders,
		Doc:      "Cluster API and its providers have the new versions, in the cluster that manages this one",
		Run:      flow.Do(p.run),
		Spec:     capi.ProviderVersions(p.cfg),
		Verify:   p.verify,
		Deadline: 5*p.cfg.ProvidersTimeout.D() + wait.Overhead,
		Waits: []flow.Wait{
			capiinit.LeaseWait(p.cfg),
			{For: "the providers to serve (PROVIDERS_TIMEOUT)", Within: p.cfg.ProvidersTimeout.D()},
		},
	})
}

func (p providersStep) run(ctx context.Context, say flow.Say) (Providers, error) {
	c, err := p.open(ctx, say)
	if err != nil {
		return Providers{}, err
	}
	if err := capiinit.Upgrade(ctx, p.cfg, p.tools, p.sources, say, c.kubeconfig); err != nil {
		return Providers{}, err
	}
	if c.kubeconfig == platform.ManagementKubeconfig {
		if err := p.inWorkload(ctx, say, c); err != nil {
			return Providers{}, err
		}
	}
	return Providers{Versions: capi.ProviderVersions(p.cfg)}, nil
}

// inWorkload upgrades the providers that were installed in the cluster for a pivot that has not happened yet.
func (p providersStep) inWorkload(ctx context.Context, say flow.Say, c clusters) error {
	installed, err := capi.InstalledProviders(ctx, c.workload)
	if kube.Absent(err) || err == nil && len(installed) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return capiinit.Upgrade(ctx, p.cfg, p.tools, p.sources, say, platform.Kubeconfig)
}

func (p providersStep) verify(ctx context.Context, was Providers) flow.Verdict {
	c, err := p.open(ctx, silent)
	if err != nil {
		return flow.Unknown(err)
	}
	installed, err := capi.InstalledProviders(ctx, c.manager)
	if err != nil {
		return kube.Verdict(err)
	}
	for label, version := range was.Versions {
		if installed[label] != version {
			return flow.Gone("%s is installed at %s instead of %s", label, installed[label], version)
		}
	}
	return flow.Holds()
}

func silent(string, ...any) {}

// Servers are those of the control plane after a stage.
type Servers struct {
	Versions map[string]string `json:"versions"` // that the stage has brought
	Names    []string          `json:"names"`
}

// serversStep replaces the control plane's servers by those of another Talos or Kubernetes.
type serversStep struct {
	*environment
	stage    Stage
	replicas int
	first    bool // the step is FirstServer, of the stage
}

// FirstServer is a step that an upgrade can be paused after: the first control plane server is changed. One that is
// replaced is kept beside its successor until the upgrade is resumed.
const FirstServer = "first-server"

// ofFirst makes a stage's task the one of FirstServer, where the step is that. What it has done is not verified: asked
// for again, it looks again.
func (s serversStep) ofFirst(task flow.Task[Servers]) flow.Task[Servers] {
	if s.first {
		task.Name = FirstServer
		task.Doc = "the first control plane server of stage " + s.stage.Name + " is changed, and no other"
		task.Verify = func(context.Context, Servers) flow.Verdict { return flow.Gone("it is looked at again") }
	}
	return task
}

func (s serversStep) values() map[string]string {
	values := map[string]string{}
	for _, c := range s.stage.Changes {
		values[c.Variable] = c.To
	}
	return values
}

func (s serversStep) add(g *flow.Graph) *flow.Step[Servers] { return flow.Add(g, s.ofFirst(s.task())) }

func (s serversStep) task() flow.Task[Servers] {
	within := s.serverTakes()
	return flow.Task[Servers]{
		Name:   s.stage.Name,
		Doc:    "every control plane server has the new version, and is a Ready node and a healthy member of etcd",
		Run:    flow.Do(s.run),
		Spec:   s.values(),
		Verify: s.verify,
		Deadline: time.Duration(s.replicas+2)*within + s.cfg.ReleaseTimeout.D() + s.cfg.LoadBalancerTimeout.D() +
			wait.Overhead,
		Waits: []flow.Wait{
			{For: "one server to be replaced (CONTROL_PLANE_TIMEOUT and NODES_TIMEOUT)", Within: within},
			wait.Webhooks(s.cfg),
		},
	}
}

// serverTakes is the longest time for one server of the control plane.
func (e *environment) serverTakes() time.Duration {
	return e.cfg.ControlPlaneTimeout.D() + e.cfg.NodesTimeout.D()
}

func (s serversStep) run(ctx context.Context, say flow.Say) (Servers, error) {
	c, now, err := s.begin(ctx, say)
	if err != nil {
		return Servers{}, err
	}
	plane, values := newControlPlane(s.environment, c), s.values()
	if !reached(now.observed.Values, values) {
		if err := plane.ready(ctx, say, s, now.view); err != nil {
			return Servers{}, err
		}
		if err := plane.change(ctx, say, values); err != nil {
			return Servers{}, err
		}
	}
	return s.complete(ctx, say, plane, "the control plane's servers to get "+sentence(values))
}

// begin opens the clusters and reads the control plane.
func (s serversStep) begin(ctx context.Context, say flow.Say) (c clusters, now state, err error) {
	if c, err = s.open(ctx, say); err != nil {
		return c, now, err
	}
	err = s.retryWhileUnwell(ctx, say, func(ctx context.Context) (err error) {
		now, err = s.read(ctx, c)
		return err
	})
	return c, now, err
}

// ready waits until the control plane is whole before a stage changes it. It does not wait where an upgrade holds it,
// or where the step FirstServer resumes a replacement: that one may never end by itself. It is an error where the Pods
// of a server cannot be evicted, or where the talosconfig cannot be renewed.
func (c *controlPlane) ready(ctx context.Context, say flow.Say, s serversStep, now view) error {
	if !now.held && (!s.first || len(now.outdated) == 0) {
		if err := c.roll(ctx, say, "the control plane to be whole before "+s.stage.Name); err != nil {
			return err
		}
	}
	if err := c.drainable(ctx, capi.ServersOf(now.machines)); err != nil {
		return err
	}
	if talosconfig.ForClients(c.tools) {
		return nil
	}
	_, err := talosconfig.Refresh(ctx, c.cfg, c.tools, c.observer, say, c.manager) // the new servers may refuse the old one
	return err
}

// complete waits until every server is replaced and the cluster is healthy, or the first one is.
func (s serversStep) complete(ctx context.Context, say flow.Say, plane *controlPlane, what string) (Servers, error) {
	plane.first = s.first
	if err := plane.roll(ctx, say, what); err != nil || s.first {
		return Servers{}, err
	}
	if err := plane.gate(ctx, say); err != nil {
		return Servers{}, err
	}
	if _, err := talosconfig.Refresh(ctx, s.cfg, s.tools, s.observer, say, plane.manager); err != nil {
		return Servers{}, err
	}
	now, err := s.read(ctx, plane.clusters)
	if err != nil {
		return Servers{}, err
	}
	values := s.values()
	if !reached(now.versions, values) {
		return Servers{}, fmt.Errorf("every control plane server was replaced, and they run %s instead of %s: look at what "+
			"their image holds (HCloudMachineTemplate, imageName)", now.versions.of(values), sentence(values))
	}
	return Servers{Versions: values, Names: capi.ServersOf(now.view.machines)}, nil
}

func (s serversStep) verify(ctx context.Context, was Servers) flow.Verdict {
	c, err := s.open(ctx, silent)
	if err != nil {
		return flow.Unknown(err)
	}
	now, err := s.read(ctx, c)
	if err != nil {
		return kube.Verdict(err)
	}
	if !reached(now.versions, was.Versions) {
		return flow.Gone("the control plane's servers have %s", now.versions.of(was.Versions))
	}
	return flow.Holds()
}

// drainable is an error if a node could not be drained now.
func (c *controlPlane) drainable(ctx context.Context, nodes []string) error {
	budgets, err := rollout.BlockingBudgets(ctx, c.workload, nodes)
	if err == nil && len(budgets) > 0 {
		err = &RefusedError{[]string{rollout.Undrainable(budgets)}}
	}
	return err
}

// gate waits until nothing that the next stage could make worse is wrong: every worker is Ready, the releases are
// available, and nothing else is known that keeps the cluster from working.
func (c *controlPlane) gate(ctx context.Context, say flow.Say) error {
	workers := &rollout.Reader{Cfg: c.cfg, Tools: c.tools, Management: c.manager, Workload: c.workload}
	w := wait.Wait{What: "the cluster to be healthy before the next stage", Within: c.cfg.ReleaseTimeout.D()}
	return w.Until(ctx, say,
		func(ctx context.Context) (string, error) {
			w, err := workers.ReadWorkers(ctx)
			if err != nil {
				return "", err
			}
			unready, err := c.unreadyReleases(ctx)
			if err != nil {
				return "", err
			}
			missing := append(w.Missing(c.cfg.NetworkCIDR), unready...)
			if len(missing) == 0 {
				seen, _ := c.observer.Observe(ctx, c.manager, situation.WatchedOf(c.cfg))
				missing = append(missing, c.observer.Explain(seen).Troubles())
			}
			return wait.Sentences(missing...), nil
		})
}

// unreadyReleases says which workloads of the releases are not available.
func (c *controlPlane) unreadyReleases(ctx context.Context) (missing []string, err error) {
	err = c.eachRelease(c.clusters, silent, func(_ chartVariable, namespace string, deployed *kube.DeployedRelease) error {
		workloads, err := kube.Workloads(deployed.Manifest, namespace)
		if err != nil {
			return err
		}
		unready, err := c.workload.Unready(ctx, workloads...)
		if unready != "" {
			missing = append(missing, unready)
		}
		return err
	})
	return missing, err
}
