package steps

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/why"
)

// surplusStands is how long Machines must have been too many, the same ones all the time, before one is taken away: the
// provider's own view may be some seconds old.
const surplusStands = 10 * time.Second

// surplus takes Machines of the control plane away that the control plane provider wants to be rid of and waits for in vain. It
// takes one away only when etcd is healthy, and starts etcd only when there are as many as replicas; so one too many before etcd
// was ever started is there for ever. There comes to be one where the management cluster's API server restarts while the provider
// makes them (it does not see its own for a moment), and where the servers' configuration changes (it replaces them).
//
// Nothing is lost with such a Machine: it is taken away only while no server of the control plane holds data of etcd.
type surplus struct {
	b       *bootstrapper
	mgmt    *kube.Cluster
	cluster Cluster

	seen  string // the UIDs of the Machines that are too many now
	since time.Time
}

// look takes one Machine away where it is time to. It tells whether there is a surplus that it takes care of: then nothing else that
// keeps the cluster counts.
func (p *surplus) look(ctx context.Context, say flow.Say, s why.Situation) (bool, error) {
	machines := surplusOf(s)
	if len(machines) == 0 {
		p.seen = ""
		return false, nil
	}
	_, nodes, err := p.b.lookForEtcd(ctx, p.mgmt, p.cluster)
	if kube.Absent(err) {
		return false, nil // no talosconfig yet, so nobody can be asked
	}
	if err != nil {
		return false, err
	}
	if !withoutEtcd(s, machines, nodes) {
		p.seen = ""
		return false, nil
	}
	if uids := uidsOf(machines); uids != p.seen {
		p.seen, p.since = uids, time.Now()
	}
	if time.Since(p.since) < surplusStands {
		return true, nil
	}
	// What was decided on must still be so now that the servers have answered.
	tcp, err := get(ctx, p.mgmt, talosControlPlaneKind, p.cluster.ControlPlane)
	if err != nil || tcp.GetResourceVersion() != s.ControlPlane.GetResourceVersion() {
		return true, err
	}
	machine := mostSpare(s, machines)
	uid := machine.GetUID()
	say("deleting %s, server %s: the control plane has %d Machines for %d replicas, and its provider neither starts etcd with that many nor takes one away before etcd runs; no server has data of etcd",
		kube.Describe(machine), text(machine, "spec", "infrastructureRef", "name"), len(machines), number(s.ControlPlane, "spec", "replicas"))
	if err := p.mgmt.Delete(ctx, machine, client.Preconditions{UID: &uid}); err != nil && !kube.Absent(err) {
		return false, fmt.Errorf("delete %s: %w", kube.Describe(machine), err)
	}
	p.seen = ""
	return true, nil
}

// surplusOf are all Machines of a control plane that has more than replicas, whose etcd was never started, and whose provider
// wants to take one away; none while one is being taken away, or somebody has the provider rest.
func surplusOf(s why.Situation) []unstructured.Unstructured {
	tcp := s.ControlPlane
	if s.Cluster == nil || tcp == nil || s.Cluster.GetDeletionTimestamp() != nil || tcp.GetDeletionTimestamp() != nil {
		return nil
	}
	if truth(tcp, "status", "bootstrapped") || truth(tcp, "status", "initialized") || !scalingDown(tcp) || atRest(s.Cluster, tcp) {
		return nil
	}
	machines := controlPlaneMachines(s.Machines)
	replicas := int(number(tcp, "spec", "replicas"))
	if replicas < 1 || len(machines) <= replicas {
		return nil
	}
	if slices.ContainsFunc(machines, func(m unstructured.Unstructured) bool { return m.GetDeletionTimestamp() != nil }) {
		return nil
	}
	return machines
}

// scalingDown: the provider says that it would take a Machine away.
func scalingDown(tcp *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(tcp.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, _ := c.(map[string]any)
		return m["type"] == "Resized" && m["status"] == "False" && m["reason"] == "ScalingDown"
	})
}

// atRest: somebody has told Cluster API to leave it alone.
func atRest(cluster, tcp *unstructured.Unstructured) bool {
	_, of := cluster.GetAnnotations()[pausedAnnotation]
	_, its := tcp.GetAnnotations()[pausedAnnotation]
	return of || its || paused(cluster)
}

// withoutEtcd tells whether all of the Machines were asked, and none has data of etcd. One whose server was never made need not
// answer.
func withoutEtcd(s why.Situation, machines []unstructured.Unstructured, nodes []etcdNode) bool {
	if len(nodes) != len(machines) {
		return false
	}
	for i := range machines {
		at := slices.IndexFunc(nodes, func(n etcdNode) bool { return n.machine == machines[i].GetName() })
		if at < 0 || nodes[at].data || nodes[at].err != nil && hasServer(s, &machines[i]) {
			return false
		}
	}
	return true
}

// hasServer tells whether Cluster API has got a server for a Machine, whether or not that answers.
func hasServer(s why.Situation, machine *unstructured.Unstructured) bool {
	i := slices.IndexFunc(s.Servers, func(o unstructured.Unstructured) bool {
		return o.GetName() == text(machine, "spec", "infrastructureRef", "name")
	})
	return text(machine, "spec", "providerID") != "" || i >= 0 && text(&s.Servers[i], "spec", "providerID") != ""
}

// mostSpare is the Machine to take away. While the provider replaces them it is the oldest, as the provider itself has it: what it has
// made last is as wanted. Otherwise all are alike: one that has no server yet, else the newest.
func mostSpare(s why.Situation, machines []unstructured.Unstructured) *unstructured.Unstructured {
	oldest := func(a, b unstructured.Unstructured) int {
		return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
	}
	if rolling(s.ControlPlane) != "" {
		one := slices.MinFunc(machines, oldest)
		return &one
	}
	made := func(m unstructured.Unstructured) int {
		if hasServer(s, &m) {
			return 1
		}
		return 0
	}
	one := slices.MinFunc(machines, func(a, b unstructured.Unstructured) int { return cmp.Or(made(a)-made(b), oldest(b, a)) })
	return &one
}

func uidsOf(machines []unstructured.Unstructured) string {
	var uids []string
	for _, m := range machines {
		uids = append(uids, string(m.GetUID()))
	}
	slices.Sort(uids)
	return strings.Join(uids, " ")
}
