package why

import (
	"fmt"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

const (
	// etcdLeavingAnnotation is on a Machine of which CACPPT v0.5.13 and newer do not expect a member of etcd any more.
	etcdLeavingAnnotation = "controlplane.cluster.x-k8s.io/etcd-leaving"
	// etcdUnhealthy is the condition that is false while the members of etcd are not those of the Machines.
	etcdUnhealthy = "EtcdClusterHealthyCondition"
	// etcdEnded is the state of Talos's service etcd on a server whose member has left the cluster.
	etcdEnded = "Finished"
	// etcdRunning is the same while it runs, healthy or not.
	etcdRunning = "Running"
	// leftWithin is how long a provider has to delete a Machine whose member has left: the two follow each other.
	leftWithin = time.Minute
)

// Left reports whether the member of etcd of a control plane's Machine has left, and the provider does not delete the
// Machine: it counts the members as one too few, for ever, and replaces and removes no server meanwhile.
func (s Situation) Left(machine string) bool {
	return slices.ContainsFunc(s.members(), func(m member) bool { return m.machine.GetName() == machine && s.left(m) })
}

func (s Situation) left(m member) bool {
	if m.machine.GetDeletionTimestamp() != nil || m.machine.GetAnnotations()[etcdLeavingAnnotation] == "true" ||
		m.state != running || m.talos.Trouble != "" || m.talos.Etcd || m.talos.State != etcdEnded || s.resting() {
		return false
	}
	return slices.ContainsFunc(complaints(s.ControlPlane), func(c condition) bool {
		return c.kind == etcdUnhealthy && !c.since.After(s.At.Add(-leftWithin))
	})
}

// resting reports whether the control plane provider is paused.
func (s Situation) resting() bool { return capi.AtRest(s.Cluster, s.ControlPlane) }

// Surplus reports whether the control plane has more Machines than it wants, but for those that are being deleted: its
// provider has chosen one to go.
func (s Situation) Surplus() bool {
	n := 0
	for _, m := range s.members() {
		if m.machine.GetDeletionTimestamp() == nil {
			n++
		}
	}
	return s.ControlPlane != nil && n > s.wanted()
}

// EtcdStopped reports whether a state of Talos's service etcd is one in which it does not run and is not about to.
func EtcdStopped(state string) bool {
	return slices.Contains([]string{etcdEnded, "Failed", "Skipped"}, state)
}

// stopped reports whether the etcd of a server that has joined is stopped while its provider works. One that has left
// is no member any more.
func (s Situation) stopped(m member) bool {
	return m.machine.GetDeletionTimestamp() == nil && m.machine.GetAnnotations()[etcdLeavingAnnotation] != "true" &&
		m.state == running && m.talos.Trouble == "" && !m.talos.Etcd && EtcdStopped(m.talos.State) && !s.resting() &&
		capi.Text(m.machine, "status", "nodeRef", "name") != "" && !s.Surplus()
}

// stoppedEtcd is a server whose member of etcd is stopped. CACPPT waits for it before it changes any server.
func (s Situation) stoppedEtcd(m member) Finding {
	f := Finding{What: fmt.Sprintf("its etcd is stopped (Talos: %s), and the control plane provider adds, removes and "+
		"replaces no server while it is", m.talos.State), weight: weightTrouble}
	if !s.quorumWithout(m) {
		f.Do = "without it etcd has no quorum: start it (talosctl service etcd start, or reboot the server)"
		return f
	}
	f.Do, f.Target = "the other members have their quorum: the target replace-machine replaces it",
		[]string{"replace-machine", m.machine.GetName()}
	return f
}

// unhealthy reports whether the etcd of a server that has joined runs and is not healthy.
func (s Situation) unhealthy(m member) bool {
	return m.isNode() && m.state == running && m.talos.Trouble == "" && !m.talos.Etcd && m.talos.State == etcdRunning &&
		!s.resting() && !s.Surplus()
}

// unhealthyEtcd is a server that was a member of etcd, whose etcd has just started, or starts and ends again and again.
func (s Situation) unhealthyEtcd(m member) Finding {
	f := Finding{What: "its etcd runs and is not healthy", weight: weightTrouble,
		Do: "without it etcd has no quorum: talosctl logs etcd tells why"}
	if s.quorumWithout(m) {
		f.Do, f.Target = "if it stays so: the other members have their quorum, and the target replace-machine replaces it",
			[]string{"replace-machine", m.machine.GetName()}
	}
	return f
}

// quorumWithout reports whether the other members of etcd are healthy, and enough.
func (s Situation) quorumWithout(m member) bool {
	members := s.members()
	runs := 0
	for _, other := range members {
		if other.talos.Etcd && other.name != m.name {
			runs++
		}
	}
	return runs > len(members)/2
}

// leftEtcd is a server whose member of etcd has left, and whose Machine stays.
func (s Situation) leftEtcd(m member) Finding {
	f := Finding{
		What: "its etcd has left the cluster and ended, and its Machine stays: the control plane provider counts it as a " +
			"missing member, and replaces and removes no server while the Machine is there (CACPPT before v0.5.13 does that " +
			"at every replacement, v0.5.13 where etcd has ended by itself)",
		Do:     "nothing of etcd is lost with the Machine: the target replace-machine deletes it",
		Target: []string{"replace-machine", m.machine.GetName()}, weight: weightTrouble,
	}
	if s.Surplus() {
		f.Terminal, f.Seen, f.weight = true, s.At, weightTerminal
		f.Do = "nothing of etcd is lost with the Machine, which is one too many: a run with --yes deletes it, and so does the " +
			"target replace-machine; then upgrade the provider (upgrade CACPPT_VERSION=v0.5.13)"
	}
	return f
}
