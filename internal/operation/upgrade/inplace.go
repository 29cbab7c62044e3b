package upgrade

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/internal/ensure/talosconfig"
)

// askAgain is how long a server that has accepted an upgrade, drains and installs, and still runs the old Talos, is
// left alone before it is asked again. Talos gives the drain five minutes.
const askAgain = 10 * time.Minute

// refuseInPlace says why the Talos of the control plane cannot be upgraded in place; nil: it can be.
func (r request) refuseInPlace() []string {
	system, changes := change(r.from, r.to, talos)
	switch {
	case !r.inPlace || !changes:
		return nil
	case !config.SameMinor(system.From, system.To):
		return []string{fmt.Sprintf("%s is another minor version, whose machine configuration Cluster API brings to a server "+
			"only by replacing it: leave --in-place out, or upgrade to a patch release of %s first", system, system.From)}
	case r.image != "":
		return []string{fmt.Sprintf("IMAGE_NAME=%s is an image of your own, and which installer belongs to it is not known: "+
			"leave --in-place out", r.image)}
	}
	return nil
}

// inPlaceStep upgrades the Talos of the control plane's servers without replacing them.
type inPlaceStep struct {
	serversStep
	installer string // image that Talos is installed from
}

func (s inPlaceStep) add(g *flow.Graph) *flow.Step[Servers] {
	within := s.serverTakes()
	return flow.Add(g, s.ofFirst(flow.Task[Servers]{
		Name:   s.stage.Name,
		Doc:    "every control plane server runs the new Talos on its own disk, and new servers are made with it",
		Run:    flow.Do(s.run),
		Spec:   map[string]string{talos: s.values()[talos], "installer": s.installer},
		Verify: s.verify,
		Deadline: time.Duration(s.replicas+1)*within + s.cfg.ReleaseTimeout.D() + s.cfg.LoadBalancerTimeout.D() +
			wait.Overhead,
		Waits: []flow.Wait{
			{For: "one server to be upgraded (CONTROL_PLANE_TIMEOUT and NODES_TIMEOUT)", Within: within},
			wait.Webhooks(s.cfg),
		},
	}))
}

// run upgrades one server after another, and then has Cluster API take them for servers of the new template.
func (s inPlaceStep) run(ctx context.Context, say flow.Say) (Servers, error) {
	c, err := s.open(ctx, say)
	if err != nil {
		return Servers{}, err
	}
	now, err := s.read(ctx, c)
	if err != nil {
		return Servers{}, err
	}
	if _, err := talosconfig.Refresh(ctx, s.cfg, s.tools, s.observer, say, c.manager); err != nil {
		return Servers{}, err
	}
	plane, values := newControlPlane(s.environment, c), s.values()
	names := capi.ServersOf(now.view.machines)
	for i, name := range names {
		if err := plane.upgradeServer(ctx, say, name, values[talos], s.installer); err != nil {
			return Servers{}, err
		}
		say("%d of %d servers run %s", i+1, len(names), sentence(values))
		if s.first {
			return Servers{}, nil
		}
	}
	if err := plane.takeOver(ctx, say, values); err != nil {
		return Servers{}, err
	}
	if err := plane.gate(ctx, say); err != nil {
		return Servers{}, err
	}
	return Servers{Versions: values, Names: names}, nil
}

// upgradeServer has a server install another Talos, once the control plane is whole and etcd has its quorum without it,
// and waits until it is a Ready node and a healthy member again.
func (c *controlPlane) upgradeServer(ctx context.Context, say flow.Say, name, version, installer string) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := c.reader.Changes(watching)
	var asked time.Time
	w := wait.Wait{What: fmt.Sprintf("server %s to run Talos %s", name, version), Within: c.serverTakes(), Changes: changes,
		Explain: c.observer.Obstacles(c.manager, situation.WatchedOf(c.cfg))}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		tcp, err := c.talosControlPlane(ctx)
		if err != nil {
			return "", err
		}
		v, err := c.look(ctx, tcp)
		if err != nil {
			return "", err
		}
		node := &corev1.Node{}
		if err := c.workload.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return "", fmt.Errorf("read node %s: %w", name, err)
		}
		lacks := append(v.lacks, cordonedByTalos(node))
		has := talosOf(node.Status.NodeInfo.OSImage)
		if has != "" && compare(has, version) >= 0 {
			return wait.Sentences(lacks...), nil
		}
		state := fmt.Sprintf("it runs Talos %s", has)
		if missing := wait.Sentences(lacks...); missing != "" || time.Since(asked) < askAgain {
			return wait.Sentences(state, missing), nil
		}
		if err := c.askToUpgrade(ctx, say, name, installer, v.replicas); err != nil {
			return "", err
		}
		asked = time.Now()
		return state, nil
	})
}

// cordonedByTalos tells of a node that Talos has cordoned for the upgrade and not uncordoned yet.
func cordonedByTalos(node *corev1.Node) string {
	if _, by := node.Annotations[constants.AnnotationCordonedKey]; by && node.Spec.Unschedulable {
		return "Talos has not uncordoned node " + node.Name + " yet"
	}
	return ""
}

// askToUpgrade calls the Talos of a server, unless etcd would lose its quorum while the server boots. The only server
// of a control plane takes its etcd with it.
func (c *controlPlane) askToUpgrade(ctx context.Context, say flow.Say, name, installer string, replicas int) error {
	if replicas > 1 {
		etcd, err := etcdview.Ask(ctx, c.cfg, c.tools, c.manager, "")
		if err != nil {
			return err
		}
		if needs := etcd.Needs(name); needs != "" {
			return fmt.Errorf("%s", needs)
		}
	}
	t, route, err := c.talosOf(ctx, name)
	if err != nil {
		return err
	}
	say("upgrading the Talos of server %s with %s", name, installer)
	return t.Upgrade(ctx, route, installer)
}

// takeOver has new servers made from the image of the new Talos, and the servers that there are stand for servers of
// that image. The control plane provider replaces a server whose HCloudMachine was made from another template than the
// TalosControlPlane names, and leaves one alone that does not say from which (CACPPT v0.5.13, controllers/
// controlplane.go, MatchesTemplateClonedFrom): so the annotation goes first, and comes back with the name of the new
// template once the provider has seen the TalosControlPlane name that one. The talosVersion stays, as the
// TalosConfigs of the servers are immutable.
func (c *controlPlane) takeOver(ctx context.Context, say flow.Say, values map[string]string) error {
	return apply.Change(ctx, c.cfg, say, "the new template of "+c.cfg.ControlPlaneName(),
		func(ctx context.Context) (string, error) { return c.tryTakeOver(ctx, say, values) })
}

func (c *controlPlane) tryTakeOver(ctx context.Context, say flow.Say, values map[string]string) (missing string,
	err error) {
	tcp, template, err := c.templateOf(ctx, say, values)
	if err != nil {
		return "", err
	}
	servers, err := c.madeFromTemplates(ctx)
	if err != nil {
		return "", err
	}
	if capi.Text(tcp, "spec", "infrastructureTemplate", "name") != template {
		for _, s := range servers {
			if s.GetAnnotations()[capi.ClonedFromAnnotation] == template {
				continue
			}
			if err := c.clonedFrom(ctx, s, nil); err != nil {
				return "", err
			}
		}
		changed := tcp.DeepCopy()
		if err := unstructured.SetNestedField(changed.Object, template, "spec", "infrastructureTemplate", "name"); err != nil {
			return "", err
		}
		say("%s: new servers are made with %s", kube.Describe(tcp), sentence(values))
		patch := client.MergeFromWithOptions(tcp, client.MergeFromWithOptimisticLock{})
		if err := c.manager.Patch(ctx, changed, patch); err != nil {
			return "", fmt.Errorf("change the template of %s: %w", kube.Describe(tcp), err)
		}
		tcp = changed // as the API server has it now
	}
	if capi.Lagging(tcp) {
		return "the control plane provider has not seen it yet", nil
	}
	for _, s := range servers {
		if err := c.clonedFrom(ctx, s, template); err != nil {
			return "", err
		}
	}
	return "", nil
}

// templateOf is the TalosControlPlane, and the name of the template of servers with the image of the new Talos, which
// is created where it does not exist.
func (c *controlPlane) templateOf(ctx context.Context, say flow.Say, values map[string]string) (
	*unstructured.Unstructured, string, error) {
	live, err := c.live(ctx)
	if err != nil {
		return nil, "", err
	}
	observed, err := changes.Observe(ctx, c.cfg, c.sources, c.manager)
	if err != nil {
		return nil, "", err
	}
	image, err := c.image(ctx, live.template)
	if err != nil {
		return nil, "", err
	}
	is, err := c.rendered(observed)
	if err != nil {
		return nil, "", err
	}
	becomes, err := c.rendered(observed.With(values, image))
	if err != nil {
		return nil, "", err
	}
	template, err := c.newTemplate(ctx, say, live.template, is.template, becomes.template)
	if err != nil {
		return nil, "", err
	}
	return live.tcp, template.GetName(), nil
}

// madeFromTemplates are the HCloudMachines of the control plane.
func (c *controlPlane) madeFromTemplates(ctx context.Context) (all []*unstructured.Unstructured, err error) {
	machines, err := capi.List(ctx, c.manager, c.cfg.Namespace, capi.MachineKind, c.cfg.ClusterName)
	if err != nil {
		return nil, err
	}
	for _, m := range capi.ControlPlaneMachines(machines) {
		one, err := capi.Get(ctx, c.manager, c.cfg.Namespace, capi.HCloudMachineKind, capi.ServerOf(&m))
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// withoutTemplate tells whether an HCloudMachine of the control plane does not say which template it was made from: an
// upgrade in place that was ended in the middle leaves it so, and the provider would not replace its server for another
// template.
func (c *controlPlane) withoutTemplate(ctx context.Context) (bool, error) {
	servers, err := c.madeFromTemplates(ctx)
	return slices.ContainsFunc(servers, func(s *unstructured.Unstructured) bool {
		return s.GetAnnotations()[capi.ClonedFromAnnotation] == ""
	}), err
}

// clonedFrom sets the template that an HCloudMachine says to be made from, or with nil removes it.
func (c *controlPlane) clonedFrom(ctx context.Context, machine *unstructured.Unstructured, template any) error {
	is, has := machine.GetAnnotations()[capi.ClonedFromAnnotation]
	if template == nil && !has || template == is && has {
		return nil
	}
	return capi.Annotate(ctx, c.manager, machine, map[string]any{capi.ClonedFromAnnotation: template})
}
