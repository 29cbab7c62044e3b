// Package replace replaces one Machine of the control plane.
package replace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/internal/ensure/stockout"
	"github.com/slipway-k8s/slipway/internal/ensure/talosconfig"
	"github.com/slipway-k8s/slipway/platform"
)

// Replacement is a machine that was replaced.
type Replacement struct {
	Asked   string    `json:"asked"` // as the caller named it
	Began   time.Time `json:"began,omitzero"`
	Machine string    `json:"machine"`
	UID     types.UID `json:"uid"`
	Server  string    `json:"server"` // the HCloudMachine's, the server's, the node's and the etcd member's name
	// Node is its node's name, where that is another than the server's: see situation.Unnamed.
	Node   string   `json:"node,omitempty"`
	Before []string `json:"before"` // the control plane's Machines
	New    []string `json:"new,omitempty"`
	Now    []string `json:"-"` // the control plane's Machines at the end
}

// String says what became of the machine.
func (r Replacement) String() string {
	switch len(r.New) {
	case 0:
		return fmt.Sprintf("Machine %s is deleted. Cluster API made none in its place, as the control plane has all "+
			"Machines that it wants without it: %s",
			r.Machine, strings.Join(r.Now, ", "))
	case 1:
		return fmt.Sprintf("Machine %s is replaced by %s", r.Machine, r.New[0])
	}
	return fmt.Sprintf("Machine %s is deleted, and these are new: %s", r.Machine, strings.Join(r.New, ", "))
}

// RefusedError says why a machine is not replaced; nothing was changed.
type RefusedError struct{ Machine, Why string }

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("machine %s is not replaced: %s", e.Machine, e.Why)
}

// UnknownMachineError says that nothing has the name.
type UnknownMachineError struct {
	Name  string
	Known []string
}

// Error implements error.
func (e *UnknownMachineError) Error() string {
	return fmt.Sprintf("the cluster has no Machine, server or node %q; its Machines are %s", e.Name,
		strings.Join(e.Known, ", "))
}

// Replacer replaces one Machine of the control plane. The caller must have the lock of the journal.
type Replacer struct {
	cfg      config.Config
	tools    platform.Tools
	sources  render.Sources
	observer *situation.Observer
	// settleWithin is how long etcd may lack the quorum without the Machine's member until that is a refusal.
	settleWithin time.Duration
}

// NewReplacer makes no request.
func NewReplacer(cfg config.Config, tools platform.Tools) Replacer {
	tools = tools.WithDefaults()
	sources := render.ReadOrEmpty(cfg, tools.Overrides)
	observer := &situation.Observer{Cfg: cfg, Tools: tools, Sources: sources}
	return Replacer{cfg: cfg, tools: tools, sources: sources, observer: observer,
		settleWithin: wait.TakenWithin}
}

// Flaw is why a replacement may never end with the versions that are installed, see rollout.Flaw.
func (replacer Replacer) Flaw(ctx context.Context, say flow.Say) (string, error) {
	manager, _, err := situation.ManagingCluster(ctx, replacer.cfg, replacer.tools, replacer.sources, say)
	if err != nil {
		return "", err
	}
	return rollout.Flaw(ctx, replacer.cfg, replacer.tools, manager)
}

// Replace deletes a control plane Machine, if the cluster can do without it, and watches the one that Cluster API
// makes in its place into etcd and to Ready. name is the Machine's, or its server's, which is the node's. A machine
// health check only marks a Machine of this control plane provider, and does not delete it.
//
// It also helps when a server has vanished: CAPH creates it again under the same name, with an empty disk, while
// etcd still counts the lost member of that name, so the new one cannot join.
func (replacer Replacer) Replace(ctx context.Context, say flow.Say, name string) (Replacement, error) {
	manager, where, err := situation.ManagingCluster(ctx, replacer.cfg, replacer.tools, replacer.sources, say)
	if err != nil {
		return Replacement{}, err
	}
	say("%s manages cluster %s", where, replacer.cfg.ClusterName)
	r, err := replacer.replacement(ctx, manager, name)
	if err != nil {
		return Replacement{}, err
	}
	tcp, err := capi.Get(ctx, manager, replacer.cfg.Namespace, capi.TalosControlPlaneKind, replacer.cfg.ControlPlaneName())
	if err != nil {
		return Replacement{}, err
	}
	if !capi.Truth(tcp, "status", "initialized") { // there are no nodes to wait for
		return r, deleteBeforeEtcd(ctx, replacer.cfg, replacer.tools, say, manager, r)
	}
	workload, err := connect.Cluster(replacer.tools, platform.Kubeconfig)
	if err != nil {
		return Replacement{}, fmt.Errorf("cluster %s: %w", replacer.cfg.ClusterName, err)
	}
	if r.Node == "" {
		if r.Node, err = unnamedNode(ctx, manager, workload, replacer.cfg, r); err != nil {
			return Replacement{}, err
		}
	}
	if err := replacer.removeMachine(ctx, say, manager, workload, r); err != nil {
		return Replacement{}, err
	}
	if r.New, r.Now, err = replacer.awaitReplacement(ctx, say, manager, workload, r); err != nil {
		return Replacement{}, err
	}
	if err := replacer.tools.Files.Remove(connect.ReplacementFile); err != nil {
		return Replacement{}, err
	}
	_, err = talosconfig.Refresh(ctx, replacer.cfg, replacer.tools, replacer.observer, say, manager)
	return r, err
}

// unnamedNode is the name of a Machine's node where that is not its server's; empty: it is.
func unnamedNode(ctx context.Context, manager, workload *kube.Cluster, cfg config.Config, r Replacement) (string,
	error) {
	machines, err := capi.List(ctx, manager, cfg.Namespace, capi.MachineKind, cfg.ClusterName)
	if err != nil {
		return "", err
	}
	all := &corev1.NodeList{}
	if err := workload.List(ctx, all); err != nil {
		return "", fmt.Errorf("list the nodes: %w", err)
	}
	for i := range all.Items {
		if m := situation.Unnamed(&all.Items[i], machines); m != nil && m.GetUID() == r.UID {
			return all.Items[i].Name, nil
		}
	}
	return "", nil
}

// removeNode removes the node of a Machine that is gone, which nothing connects with it.
func removeNode(ctx context.Context, say flow.Say, workload *kube.Cluster, name string) error {
	n := &corev1.Node{}
	if err := workload.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
		return client.IgnoreNotFound(err)
	}
	return apply.RemoveNode(ctx, say, workload, n)
}

// replacement finds the machine; or the record of a run that was killed after it had deleted it.
func (replacer Replacer) replacement(ctx context.Context, manager *kube.Cluster, name string) (Replacement, error) {
	all, err := capi.List(ctx, manager, replacer.cfg.Namespace, capi.MachineKind, replacer.cfg.ClusterName)
	if err != nil {
		return Replacement{}, err
	}
	machines := capi.ControlPlaneMachines(all)
	known := namesOf(machines)
	for _, m := range all {
		r := Replacement{Asked: name, Machine: m.GetName(), UID: m.GetUID(), Server: capi.ServerOf(&m),
			Before: known}
		if name != r.Machine && name != r.Server {
			continue
		}
		if !slices.Contains(known, r.Machine) {
			return Replacement{}, &RefusedError{r.Machine, "it is not one of the control plane; delete the Machine with " +
				"kubectl, its MachineDeployment makes another"}
		}
		if was, ok := replacer.underway(); ok && was.UID == r.UID {
			return was, nil // its list of Machines is from before
		}
		if deleted := m.GetDeletionTimestamp(); deleted != nil { // by others: what was made since is made in its place
			r.Before = namesOf(slices.DeleteFunc(slices.Clone(machines), func(other unstructured.Unstructured) bool {
				return !other.GetCreationTimestamp().Time.Before(deleted.Time)
			}))
		}
		return r, nil
	}
	if was, ok := replacer.underway(); ok && (name == was.Asked || name == was.Machine || name == was.Server) {
		return was, nil
	}
	return Replacement{}, &UnknownMachineError{Name: name, Known: known}
}

func namesOf(objects []unstructured.Unstructured) (names []string) {
	for _, o := range objects {
		names = append(names, o.GetName())
	}
	return names
}

func (replacer Replacer) underway() (r Replacement, ok bool) {
	was, err := Begun(replacer.tools.Files)
	if err != nil || was == nil {
		return r, false
	}
	return *was, true
}

// Begun is the replacement that was begun and has not ended; nil: there is none.
func Begun(files platform.Files) (*Replacement, error) {
	data, err := files.Read(connect.ReplacementFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r := &Replacement{}
	if err == nil {
		err = json.Unmarshal(data, r)
	}
	if err != nil {
		return nil, fmt.Errorf("read which Machine is being replaced, in %s: %w", files.Path(connect.ReplacementFile), err)
	}
	return r, nil
}

// removeMachine deletes the Machine, once etcd can do without it, and its node can be drained.
func (replacer Replacer) removeMachine(ctx context.Context, say flow.Say, manager, workload *kube.Cluster,
	r Replacement) error {
	machine, err := capi.Get(ctx, manager, replacer.cfg.Namespace, capi.MachineKind, r.Machine)
	if kube.Absent(err) || err == nil && (machine.GetUID() != r.UID || machine.GetDeletionTimestamp() != nil) {
		say("Machine %s is deleted already", r.Machine)
		return nil
	}
	if err != nil {
		return err
	}
	if err := replacer.mayRemove(ctx, say, manager, workload, r); err != nil {
		return err
	}
	if r.Began.IsZero() { // else a run that was killed before the deletion had begun it
		r.Began = time.Now().UTC()
	}
	record, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := replacer.tools.Files.Write(connect.ReplacementFile, append(record, '\n')); err != nil {
		return err
	}
	say("deleting %s", kube.Describe(machine))
	return capi.DeleteMachine(ctx, manager, machine)
}

// mayRemove asks whether the cluster can do without a Machine, and get another one. A Machine without which nothing is
// lost is no matter of etcd, in which it never was.
func (replacer Replacer) mayRemove(ctx context.Context, say flow.Say, manager, workload *kube.Cluster,
	r Replacement) error {
	if machine, keeps, err := situation.Unmade(ctx, replacer.tools, manager, situation.WatchedOf(replacer.cfg),
		r.Machine); err == nil && keeps == "" && machine.GetUID() == r.UID {
		say("etcd is not asked about Machine %s: %s", r.Machine, situation.NeverMade)
		return nil
	}
	if err := replacer.expendable(ctx, say, manager, r); err != nil {
		return err
	}
	if err := situation.NextServerPossible(ctx, replacer.cfg, replacer.tools, manager); err != nil {
		return &RefusedError{r.Machine, err.Error()}
	}
	return drainable(ctx, workload, r)
}

// drainable is nil if the Machine's node can be drained now, or does not live: that one is not drained.
func drainable(ctx context.Context, workload *kube.Cluster, r Replacement) error {
	n := &corev1.Node{}
	err := workload.Get(ctx, client.ObjectKey{Name: cmp.Or(r.Node, r.Server)}, n)
	if kube.Absent(err) {
		return nil
	}
	if err != nil {
		return &RefusedError{r.Machine, fmt.Sprintf("whether its node can be drained is not known: get node %s: %v",
			cmp.Or(r.Node, r.Server), err)}
	}
	if ready, _ := situation.NodeReady(n); !ready {
		return nil
	}
	budgets, err := rollout.BlockingBudgets(ctx, workload, []string{n.Name})
	if err != nil {
		return &RefusedError{r.Machine, err.Error()}
	}
	if len(budgets) > 0 {
		return &RefusedError{r.Machine, fmt.Sprintf("its node is drained first, and that would wait without an end for %s: "+
			"scale its Pods up or change it, then run again", rollout.BudgetSentence(budgets))}
	}
	return nil
}

// expendable asks etcd whether it keeps its quorum without a machine's member. Where it does not, and time may help, it
// asks again for a while: when a server is lost, the members that are left may elect a leader first.
func (replacer Replacer) expendable(ctx context.Context, say flow.Say, manager *kube.Cluster, r Replacement) error {
	refused := ""
	w := wait.Wait{What: "etcd to keep its quorum without " + r.Server, Within: replacer.settleWithin}
	err := w.Until(ctx, say, func(ctx context.Context) (string, error) {
		e, needs, final := replacer.needs(ctx, manager, r)
		if refused == "" || ctx.Err() == nil { // a look that was cut off says less than the one before it
			refused = needs
		}
		switch {
		case needs == "":
			say("etcd keeps its quorum without %s: %s", r.Server, e)
		case final:
			return "", wait.Final(errors.New(needs))
		}
		return needs, nil
	})
	if err != nil && refused != "" && ctx.Err() == nil {
		return &RefusedError{r.Machine, refused}
	}
	return err
}

// needs says why etcd needs a machine's member, and whether that stays so; empty: it does not need it.
func (replacer Replacer) needs(ctx context.Context, manager *kube.Cluster, r Replacement) (e etcdview.View, why string,
	final bool) {
	e, err := etcdview.Ask(ctx, replacer.cfg, replacer.tools, manager, r.Machine)
	if err != nil { // without an answer about any member it was Cluster API that could not be asked
		return e, fmt.Sprintf("etcd cannot be asked whether it can do without it: %v", err),
			kube.Absent(err) || e.Health != nil && !e.MayRecoverWithout(r.Server)
	}
	needs := e.Needs(r.Server)
	if e.Repair(replacer.tools.Command) != "" { // what to do depends on this machine's member, too
		all, err := etcdview.Ask(ctx, replacer.cfg, replacer.tools, manager, "")
		if other := all.Repair(replacer.tools.Command); err == nil && (needs != "" || all.Health[r.Server] == nil) {
			return e, wait.Sentences(needs, other), true
		}
	}
	return e, needs, !e.MayRecoverWithout(r.Server)
}

// awaitReplacement gives the Machines that are new and all that there are then. It waits until the control plane is
// whole again: as many Machines as wanted, each a Ready node and a voting member of etcd, and no other member is in it.
func (replacer Replacer) awaitReplacement(ctx context.Context, say flow.Say, manager, workload *kube.Cluster,
	r Replacement) (made, now []string, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	freed := false
	stock := stockout.Watch{Cfg: replacer.cfg, Tools: replacer.tools, Sources: replacer.sources, Say: say}
	within := replacer.cfg.ControlPlaneTimeout.D() + replacer.cfg.NodesTimeout.D()
	reader := rollout.Reader{Cfg: replacer.cfg, Tools: replacer.tools, Management: manager, Workload: workload,
		NodeRefs: true, Balance: say}
	w := wait.Wait{What: "the replacement of " + r.Machine, Within: within, Changes: reader.Changes(watching),
		Explain: replacer.observer.Obstacles(manager, situation.WatchedOf(replacer.cfg))}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		if !freed {
			if err := apply.FreePods(ctx, replacer.tools, say, workload, r.Server); err != nil {
				return "", err
			}
			freed = true
		}
		roll, err := reader.Read(ctx)
		if err != nil {
			return "", err
		}
		gone := !slices.ContainsFunc(roll.Machines, func(m unstructured.Unstructured) bool { return m.GetUID() == r.UID })
		if r.Node != "" && gone {
			if err := removeNode(ctx, say, workload, r.Node); err != nil {
				return "", err
			}
			r.Node = ""
		}
		made, now = nil, nil
		var missing []string
		for _, m := range capi.ControlPlaneMachines(roll.Machines) {
			switch {
			case m.GetUID() == r.UID:
				missing = append(missing, fmt.Sprintf("Machine %s is still being deleted (%s)", r.Machine,
					orNothing(why.Said(&m))))
			case !slices.Contains(r.Before, m.GetName()):
				made = append(made, m.GetName())
			}
			now = append(now, m.GetName())
		}
		missing = append(missing, roll.Missing(replacer.cfg.NetworkCIDR)...)
		if len(missing) > 0 {
			_, lacks, err := stock.Check(ctx, manager)
			return wait.Sentences(append(missing, lacks)...), err
		}
		e, err := etcdview.Ask(ctx, replacer.cfg, replacer.tools, manager, "")
		if err != nil {
			return "", err
		}
		return e.Differs(capi.ServersOf(capi.ControlPlaneMachines(roll.Machines))), nil
	})
	return made, now, err
}

func orNothing(s string) string {
	if s == "" {
		return "nothing is said against it"
	}
	return s
}

// deleteBeforeEtcd deletes a Machine of a control plane whose etcd was never started, if nothing is lost with it (see
// situation.Unmade), and waits until it is gone. The next run waits for the one that the provider creates in its place.
func deleteBeforeEtcd(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say, manager *kube.Cluster,
	r Replacement) error {
	machine, keeps, err := situation.Unmade(ctx, tools, manager, situation.WatchedOf(cfg), r.Machine)
	switch {
	case kube.Absent(err) || err == nil && machine.GetUID() != r.UID:
		say("Machine %s is deleted already", r.Machine)
		return nil
	case err != nil:
		return err
	case keeps != "":
		return &RefusedError{r.Machine, "etcd of this cluster was never started, and " + keeps}
	}
	say("deleting %s: %s", kube.Describe(machine), situation.NeverMade)
	if err := capi.DeleteMachine(ctx, manager, machine); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := manager.Changes(watching, kube.Selection{List: capi.ListOf(capi.MachineKind),
		Options: capi.OfCluster(cfg.Namespace, cfg.ClusterName)})
	w := wait.Wait{What: "the deletion of Machine " + r.Machine, Within: cfg.ControlPlaneTimeout.D(), Changes: changes}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		now, err := capi.Get(ctx, manager, cfg.Namespace, capi.MachineKind, r.Machine)
		switch {
		case kube.Absent(err) || err == nil && now.GetUID() != r.UID:
			return "", nil
		case err != nil:
			return "", err
		}
		return fmt.Sprintf("it is still being deleted (%s)", orNothing(why.Said(now))), nil
	})
}
