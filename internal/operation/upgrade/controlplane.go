package upgrade

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/stockout"
	"github.com/slipway-k8s/slipway/platform"
)

// controlPlane follows the servers of a control plane while the control plane provider replaces them.
type controlPlane struct {
	*environment
	clusters
	reader *rollout.Reader
	first  bool // one server is replaced, and the one that it is to replace is kept
}

func newControlPlane(e *environment, c clusters) *controlPlane {
	return &controlPlane{environment: e, clusters: c, reader: &rollout.Reader{Cfg: e.cfg, Tools: e.tools,
		Management: c.manager, Workload: c.workload, NodeRefs: true}}
}

// view is what was seen of the control plane at once.
type view struct {
	replicas int
	machines []unstructured.Unstructured // of the control plane, but for those that are being deleted
	updated  []string                    // servers of them, made from the TalosControlPlane, whose node is Ready
	outdated []string                    // servers of them, not made from it
	coming   []string                    // servers of them, made from it, whose node is not Ready
	unready  []string                    // servers of them, whose node is not Ready
	lacks    []string                    // until it is whole
	held     bool                        // an upgrade keeps the control plane provider from replacing servers
}

// look reads the control plane. tcp is the TalosControlPlane that its Machines are to be made from. Where Hetzner or
// etcd does not answer, the view has the Machines and nodes all the same.
func (c *controlPlane) look(ctx context.Context, tcp *unstructured.Unstructured) (view, error) {
	state, unanswered := c.reader.Read(ctx)
	if unanswered != nil && state.Machines == nil {
		return view{}, unanswered
	}
	v := view{replicas: state.Replicas}
	v.held = held(tcp)
	from, err := c.madeFrom(ctx, state.Machines)
	if err != nil {
		return view{}, err
	}
	for _, m := range capi.ControlPlaneMachines(state.Machines) {
		name := capi.ServerOf(&m)
		if m.GetDeletionTimestamp() != nil {
			continue
		}
		v.machines = append(v.machines, m)
		ready, updated := readyNode(state.Nodes, name), from[m.GetName()].same(fromControlPlane(tcp))
		switch {
		case !updated:
			v.outdated = append(v.outdated, name)
		case ready:
			v.updated = append(v.updated, name)
		default:
			v.coming = append(v.coming, name)
		}
		if !ready {
			v.unready = append(v.unready, name)
		}
	}
	if unanswered != nil {
		return v, unanswered
	}
	v.lacks = append(rollout.Leaving(ctx, c.workload, capi.ControlPlaneMachines(state.Machines)),
		state.Missing(c.cfg.NetworkCIDR)...)
	if len(v.lacks) > 0 {
		return v, nil
	}
	differs, err := c.etcdDiffers(ctx, v)
	if err != nil {
		return v, err
	}
	if differs != "" {
		v.lacks = append(v.lacks, differs)
	}
	return v, nil
}

// etcdDiffers says which of the servers is no healthy, voting member of etcd, and which member is no server; empty: all
// are.
func (c *controlPlane) etcdDiffers(ctx context.Context, v view) (string, error) {
	etcd, err := etcdview.Ask(ctx, c.cfg, c.tools, c.manager, "")
	if err != nil {
		return "", err
	}
	return etcd.Differs(capi.ServersOf(v.machines)), nil
}

func readyNode(nodes []corev1.Node, name string) bool {
	i := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return false
	}
	ready, _ := situation.NodeReady(&nodes[i])
	return ready
}

// roll waits until every server of the control plane is made from the TalosControlPlane and is a Ready node and a
// voting, healthy member of etcd; with c.first, until one has become so, beside those from before. Each server has the
// time that one takes. The provider goes from one server to the next by the health of etcd alone: while a new server is
// not a Ready node, it is held. So it is until a new server is deleted that is not wanted any more, as it would delete
// the oldest.
func (c *controlPlane) roll(ctx context.Context, say flow.Say, what string) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := c.reader.Changes(watching)
	stock := stockout.Watch{Cfg: c.cfg, Tools: c.tools, Sources: c.sources, Say: say}
	explain := c.observer.Obstacles(c.manager, situation.WatchedOf(c.cfg))
	c.reader.Balance = say
	for before := -1; ; {
		var v view
		done := false
		w := wait.Wait{What: what, Within: c.serverTakes(), Changes: changes, Explain: explain}
		err := w.Until(ctx, say, func(ctx context.Context) (string, error) {
			tcp, err := c.talosControlPlane(ctx)
			if err != nil {
				return "", err
			}
			var unanswered error
			if v, unanswered = c.look(ctx, tcp); unanswered != nil && len(v.machines) == 0 {
				return "", unanswered
			}
			first := c.first && len(v.updated) > 0 && len(v.outdated) > 0
			unwanted := v.unwanted()
			comes := len(v.coming) > 0 && len(v.machines) > v.replicas
			pause, err := c.hold(ctx, tcp, first || unwanted != nil || comes)
			if err := cmp.Or(err, unanswered); err != nil {
				return "", err
			}
			if unwanted != nil {
				if out, err := c.remove(ctx, say, tcp, unwanted); out != "" || err != nil {
					return out, err
				}
			}
			if first {
				done = true
				return c.etcdDiffers(ctx, v)
			}
			if v.held && pause == "" { // what it is to do now is seen when it has looked
				v.lacks = append(v.lacks, "the control plane provider was held until now")
			}
			if before < 0 {
				before = len(v.updated)
			}
			done = len(v.lacks) == 0
			if done || !c.first && len(v.updated) > before {
				return "", nil
			}
			_, out, err := stock.Check(ctx, c.manager)
			return wait.Sentences(append(v.lacks, out, pause)...), err
		})
		switch {
		case err != nil:
			return err
		case done:
			return nil
		}
		say("%s: %d of %d servers", what, min(len(v.updated), v.replicas), v.replicas)
		before = len(v.updated)
	}
}

// talosControlPlane reads the TalosControlPlane.
func (c *controlPlane) talosControlPlane(ctx context.Context) (*unstructured.Unstructured, error) {
	return capi.Get(ctx, c.manager, c.cfg.Namespace, capi.TalosControlPlaneKind, c.cfg.ControlPlaneName())
}

// live reads the TalosControlPlane, and the HCloudMachineTemplate that its servers are made from.
func (c *controlPlane) live(ctx context.Context) (o controlPlaneObjects, err error) {
	if o.tcp, err = c.talosControlPlane(ctx); err != nil {
		return o, err
	}
	o.template, err = capi.Get(ctx, c.manager, c.cfg.Namespace, capi.MachineTemplateKind,
		capi.Text(o.tcp, "spec", "infrastructureTemplate", "name"))
	return o, err
}

// hold has the control plane provider replace no further server, or lets it go on. Its error says what was tried; the
// text is what a wait says of a hold. A pause that was not made by an upgrade is left alone.
func (c *controlPlane) hold(ctx context.Context, tcp *unstructured.Unstructured, hold bool) (string, error) {
	_, paused := tcp.GetAnnotations()[capi.PausedAnnotation]
	switch {
	case hold && !paused:
		if err := c.annotate(ctx, tcp, "true", time.Now().UTC().Format(time.RFC3339)); err != nil {
			return "", err
		}
	case !hold && held(tcp):
		return "", c.annotate(ctx, tcp, nil, nil)
	case !hold && paused:
		return fmt.Sprintf("%s is paused by the annotation %s, which no upgrade has set: remove it", kube.Describe(tcp),
			capi.PausedAnnotation), nil
	case !hold:
		return "", nil
	}
	return "the control plane provider is held until then (annotation " + capi.PausedAnnotation + ")", nil
}

// held tells whether an upgrade has paused a TalosControlPlane.
func held(tcp *unstructured.Unstructured) bool {
	_, is := tcp.GetAnnotations()[capi.UpgradeHeldAnnotation]
	return is
}

// Held says that an upgrade which has failed keeps the control plane provider from replacing further servers; empty: it
// does not.
func Held(ctx context.Context, cfg config.Config, tools platform.Tools) (string, error) {
	e, err := newEnvironment(cfg, tools)
	if err != nil {
		return "", err
	}
	c, err := e.open(ctx, silent)
	if err != nil {
		return "", err
	}
	tcp, err := newControlPlane(e, c).talosControlPlane(ctx)
	if err != nil {
		return "", err
	}
	if !held(tcp) {
		return "", nil
	}
	return fmt.Sprintf("no further server is replaced, and no lost one: %s has the annotation %s until the upgrade is "+
		"resumed and the new server is a Ready node; to delete that one instead, as long as no other was replaced: %s",
		kube.Describe(tcp), capi.PausedAnnotation, tools.Command("upgrade", "--abort")), nil
}

// annotate sets the two annotations of a hold, or with nil removes them.
func (c *controlPlane) annotate(ctx context.Context, tcp *unstructured.Unstructured, paused, held any) error {
	err := capi.Annotate(ctx, c.manager, tcp, map[string]any{capi.PausedAnnotation: paused,
		capi.UpgradeHeldAnnotation: held})
	if err != nil {
		return fmt.Errorf("hold the control plane provider, or let it go on: %w", err)
	}
	return nil
}
