package steps

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
)

const (
	// surplusStands is how long Machines must have been too many, the same ones all the time, before one is deleted:
	// the provider's own view may be some seconds old.
	surplusStands = 10 * time.Second
	// surplusSilence is how long servers that do not say whether they have an etcd keep another finding from ending the
	// wait.
	surplusSilence = time.Minute
	// surplusMost is how many are deleted in a run, for each replica: a rollout needs one, a rollout that is reverted
	// another.
	surplusMost = 2
)

// surplus deletes Machines of the control plane that the control plane provider wants to delete and waits for in
// vain. It deletes one only when etcd is healthy, and starts etcd only when there are as many as replicas; so one
// too many before etcd was ever started is there for ever. One is created where the management cluster's API server
// restarts while the provider makes them (it does not see its own for a moment), and where the servers' configuration
// changes (it replaces them).
//
// Nothing is lost with such a Machine: it is deleted only while no server of the control plane has an etcd, nor had
// one.
type surplus struct {
	b       *Set
	mgmt    *kube.Cluster
	cluster Cluster

	seen  string // the UIDs of the Machines that are too many, and of the one that is to go
	since time.Time
	asked time.Time // since when servers that were asked for their etcd are silent; zero: they are not
	going types.UID // of the Machine that was deleted last
	taken int
}

// look deletes one Machine where it is time to. busy tells that there is a surplus that it takes care of, or may once
// everybody has answered: then nothing else that keeps the cluster counts. keeps is why it deletes none of those that
// are too many.
func (p *surplus) look(ctx context.Context, say flow.Say, s why.Situation) (busy bool, keeps string, err error) {
	if slices.ContainsFunc(s.Machines,
		func(m unstructured.Unstructured) bool { return p.going != "" && m.GetUID() == p.going }) {
		return true, "", nil
	}
	before := p.seen
	p.seen = ""
	machines := surplusOf(s)
	if len(machines) == 0 {
		return false, "", nil
	}
	one, silent, keeps, err := p.choose(ctx, s, machines)
	if err != nil {
		return true, "", err
	}
	if !silent {
		p.asked = time.Time{}
	} else if p.asked.IsZero() {
		p.asked = time.Now()
	}
	if one == nil {
		return silent && time.Since(p.asked) < surplusSilence, keeps, nil
	}
	if p.seen = string(one.GetUID()) + " of " + uidsOf(machines); p.seen != before {
		p.since = time.Now()
	}
	if time.Since(p.since) < surplusStands {
		return true, "", nil
	}
	return true, "", p.take(ctx, say, s, machines, one)
}

// surplusOf are all Machines of a control plane that has more than replicas, whose etcd was never started, and whose
// provider wants to delete one; none while one is being deleted, or the operator has paused the cluster or its
// control plane.
func surplusOf(s why.Situation) []unstructured.Unstructured {
	tcp := s.ControlPlane
	if s.Cluster == nil || tcp == nil || s.Cluster.GetDeletionTimestamp() != nil || tcp.GetDeletionTimestamp() != nil ||
		capi.AtRest(s.Cluster, tcp) {
		return nil
	}
	if capi.Truth(tcp, "status", "bootstrapped") || capi.Truth(tcp, "status", "initialized") || !scalingDown(tcp) {
		return nil
	}
	machines := capi.ControlPlaneMachines(s.Machines)
	replicas := int(capi.Number(tcp, "spec", "replicas"))
	if replicas < 1 || len(machines) <= replicas {
		return nil
	}
	if slices.ContainsFunc(machines, func(m unstructured.Unstructured) bool { return m.GetDeletionTimestamp() != nil }) {
		return nil
	}
	return machines
}

// scalingDown: the provider, which has seen the last change, says that it would take a Machine away.
func scalingDown(tcp *unstructured.Unstructured) bool {
	return !capi.Lagging(tcp) && capi.FalseCondition(tcp, "Resized").Reason == "ScalingDown"
}

// choose is the Machine to delete, or why none is, and whether that is because servers are silent.
func (p *surplus) choose(ctx context.Context, s why.Situation, machines []unstructured.Unstructured) (
	one *unstructured.Unstructured, silent bool, keeps string, err error) {
	tcp, err := capi.Get(ctx, p.mgmt, p.b.cfg.Namespace, capi.TalosControlPlaneKind, p.cluster.ControlPlane)
	if err != nil {
		return nil, false, "", err
	}
	if len(situation.TalosConfigSpec(tcp, "spec", "controlPlaneConfig", "init")) > 0 {
		return nil, false, "none is deleted of a control plane with an init configuration, whose first server starts etcd by " +
			"itself", nil
	}
	spare, replaces := machines, capi.Rolling(tcp) != ""
	if replaces {
		configs, err := capi.List(ctx, p.mgmt, p.b.cfg.Namespace, capi.TalosConfigKind, p.cluster.Name)
		if err != nil {
			return nil, false, "", err
		}
		spare = toReplace(tcp, machines, s.Servers, configs)
	}
	if len(spare) == 0 {
		return nil, false, "none is deleted, because its provider replaces Machines that seem to be as wanted", nil
	}
	one = machineToDelete(s, spare, replaces)
	_, nodes, err := etcdview.AskMachines(ctx, p.b.tools, p.mgmt, p.b.cfg.Namespace, p.cluster.Name,
		p.cluster.LoadBalancerIP)
	if kube.Absent(err) {
		return nil, false, "", nil // no talosconfig yet, so no server can be asked
	}
	if err != nil {
		return nil, false, "", err
	}
	has, unheard := mayHaveEtcd(s, machines, nodes, replaces && hasServer(s, one))
	switch {
	case has != "":
		return nil, false, fmt.Sprintf("none is deleted, because %s has data of an etcd, or is a node", has), nil
	case len(unheard) > 0:
		return nil, true, fmt.Sprintf("one is deleted once Talos says on %s that there is no etcd; if there never was one, "+
			"kubectl --namespace %s delete machine %s in the management cluster does so now",
			strings.Join(unheard, ", "), p.b.cfg.Namespace, one.GetName()), nil
	}
	return one, false, "", nil
}

// toReplace are the Machines that are not as the control plane has them now, by what the provider compares: version,
// template of the server, configuration. Of what is not there it knows nothing.
func toReplace(tcp *unstructured.Unstructured, machines, servers,
	configs []unstructured.Unstructured) []unstructured.Unstructured {
	wanted := situation.TalosConfigSpec(tcp, "spec", "controlPlaneConfig", "controlplane")
	return slices.DeleteFunc(slices.Clone(machines), func(m unstructured.Unstructured) bool {
		server := situation.Named(servers, capi.Text(&m, "spec", "infrastructureRef", "name"))
		template := server.GetAnnotations()[capi.ClonedFromAnnotation]
		config := situation.TalosConfigSpec(situation.Named(configs, capi.Text(&m, "spec", "bootstrap", "configRef", "name")),
			"spec")
		return capi.Text(&m, "spec", "version") == capi.Text(tcp, "spec", "version") &&
			(template == "" || template == capi.Text(tcp, "spec", "infrastructureTemplate", "name")) &&
			(len(config) == 0 || equality.Semantic.DeepEqual(config, wanted))
	})
}

// machineToDelete is the Machine to delete: one that has no server yet; otherwise, of those that are replaced, the
// oldest, as the provider has it, and of those that are alike the newest.
func machineToDelete(s why.Situation, machines []unstructured.Unstructured, oldest bool) *unstructured.Unstructured {
	made := func(m unstructured.Unstructured) int {
		if hasServer(s, &m) {
			return 1
		}
		return 0
	}
	one := slices.MinFunc(machines, func(a, b unstructured.Unstructured) int {
		age := cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
		if !oldest {
			age = -age
		}
		return cmp.Or(made(a)-made(b), age)
	})
	return &one
}

// hasServer tells whether Cluster API has got a server for a Machine, whether or not that answers.
func hasServer(s why.Situation, machine *unstructured.Unstructured) bool {
	server := situation.Named(s.Servers, capi.Text(machine, "spec", "infrastructureRef", "name"))
	return capi.Text(machine, "spec", "providerID") != "" || capi.Text(server, "spec", "providerID") != ""
}

// mayHaveEtcd tells which server has an etcd or had one, else of which ones that is not certain. A server must have
// said that its etcd waits to be started, and after that, that it has no data: before its disk is mounted it has none
// either. A server that was never made says nothing, which is enough unless all must be there.
func mayHaveEtcd(s why.Situation, machines []unstructured.Unstructured, nodes []etcdview.Node, all bool) (has string,
	silent []string) {
	for i := range machines {
		m := &machines[i]
		name := cmp.Or(capi.Text(m, "spec", "infrastructureRef", "name"), m.GetName())
		at := slices.IndexFunc(nodes, func(n etcdview.Node) bool { return n.Machine == m.GetName() })
		switch {
		case at >= 0 && nodes[at].Data || capi.Text(m, "status", "nodeRef", "name") != "":
			return name, nil
		case !hasServer(s, m) && !all:
		case at < 0 || nodes[at].Err != nil || s.Talos[name].State != etcdview.Preparing:
			silent = append(silent, name)
		}
	}
	slices.Sort(silent)
	return "", silent
}

// take deletes the Machine, unless something has changed since it was chosen.
func (p *surplus) take(ctx context.Context, say flow.Say, s why.Situation, machines []unstructured.Unstructured,
	one *unstructured.Unstructured) error {
	tcp, err := capi.Get(ctx, p.mgmt, p.b.cfg.Namespace, capi.TalosControlPlaneKind, p.cluster.ControlPlane)
	if err != nil {
		return err
	}
	now, err := capi.List(ctx, p.mgmt, p.b.cfg.Namespace, capi.MachineKind, p.cluster.Name)
	if err != nil {
		return err
	}
	now = capi.ControlPlaneMachines(now)
	if tcp.GetResourceVersion() != s.ControlPlane.GetResourceVersion() || uidsOf(now) != uidsOf(machines) ||
		slices.ContainsFunc(now, func(m unstructured.Unstructured) bool { return m.GetDeletionTimestamp() != nil }) {
		return nil
	}
	replicas := int(capi.Number(tcp, "spec", "replicas"))
	if p.taken >= surplusMost*replicas {
		return wait.Final(fmt.Errorf("%d Machines of the control plane were deleted, and there are still %d for %d "+
			"replicas: something else makes them, or changes TalosControlPlane %s, again and again; find out what before you "+
			"run again",
			p.taken, len(machines), replicas, tcp.GetName()))
	}
	uid := one.GetUID()
	say("deleting %s, server %s: the control plane has %d Machines for %d replicas, and its provider neither starts "+
		"etcd with that many nor takes one away before etcd runs; no server has an etcd",
		kube.Describe(one), capi.Text(one, "spec", "infrastructureRef", "name"), len(machines), replicas)
	if err := p.mgmt.Delete(ctx, one, client.Preconditions{UID: &uid}); err != nil && !kube.Absent(err) {
		return fmt.Errorf("delete %s: %w", kube.Describe(one), err)
	}
	p.going, p.taken = uid, p.taken+1
	return nil
}

func uidsOf(machines []unstructured.Unstructured) string {
	var uids []string
	for _, m := range machines {
		uids = append(uids, string(m.GetUID()))
	}
	slices.Sort(uids)
	return strings.Join(uids, " ")
}
