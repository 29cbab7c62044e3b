package why

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// rolling is a control plane in a rollout with four servers for three replicas, in which the provider waits for a member
// of etcd that has left: that of server-0.
func rolling(since time.Duration) Situation {
	s := Situation{At: now, Cluster: &unstructured.Unstructured{Object: object{}}, Talos: map[string]Talos{},
		Infrastructure: &unstructured.Unstructured{Object: object{"spec": object{"controlPlaneEndpoint": object{"host": "127.0.0.9"}}}},
		ControlPlane: &unstructured.Unstructured{Object: object{"spec": object{"replicas": int64(3)},
			"status": object{"initialized": true, "bootstrapped": true, "conditions": []any{object{
				"type": "EtcdClusterHealthyCondition", "status": "False", "severity": "Warning", "reason": "EtcdClusterUnhealthy",
				"message":            `error checking etcd health on machine "machine-1": : expected to have 4 members, got 3`,
				"lastTransitionTime": now.Add(-since).Format(time.RFC3339)}}}}}}
	for i, name := range []string{"server-0", "server-1", "server-2", "server-3"} {
		machine := strings.Replace(name, "server", "machine", 1)
		s.Machines = append(s.Machines, unstructured.Unstructured{Object: object{
			"metadata": object{"name": machine, "labels": object{capi.ControlPlaneLabel: ""}},
			"spec":     object{"infrastructureRef": object{"name": name}},
			"status":   object{"nodeRef": object{"name": name}}}})
		s.Servers = append(s.Servers, unstructured.Unstructured{Object: object{"metadata": object{"name": name},
			"spec": object{"providerID": "hcloud://1"}, "status": object{"instanceState": running}}})
		s.Nodes = append(s.Nodes, Node{Name: name, Ready: true})
		s.Talos[name] = Talos{Etcd: i > 0, State: map[bool]string{true: "Running", false: "Finished"}[i > 0]}
	}
	return s
}

// TestLeftEtcd: a rollout in which the provider waits for a member that has left is told from one that goes on.
func TestLeftEtcd(t *testing.T) {
	for name, tt := range map[string]struct {
		change   func(*Situation)
		since    time.Duration
		stuck    bool
		terminal bool
	}{
		"stuck":                         {func(*Situation) {}, 2 * time.Minute, true, true},
		"the provider has just seen it": {func(*Situation) {}, 10 * time.Second, false, false},
		"v0.5.13 has annotated it": {func(s *Situation) {
			s.Machines[0].SetAnnotations(map[string]string{"controlplane.cluster.x-k8s.io/etcd-leaving": "true"})
		}, 2 * time.Minute, false, false},
		"its Machine is being deleted": {func(s *Situation) {
			s.Machines[0].Object["metadata"].(object)["deletionTimestamp"] = now.Format(time.RFC3339)
		}, 2 * time.Minute, false, false},
		"held by an upgrade": {func(s *Situation) {
			s.ControlPlane.SetAnnotations(map[string]string{capi.PausedAnnotation: "true"})
		}, 2 * time.Minute, false, false},
		"etcd is healthy to the provider": {func(s *Situation) {
			delete(s.ControlPlane.Object["status"].(object), "conditions")
		}, 2 * time.Minute, false, false},
		"its etcd starts": {func(s *Situation) { s.Talos["server-0"] = Talos{State: "Preparing"} }, 2 * time.Minute, false,
			false},
	} {
		s := rolling(tt.since)
		tt.change(&s)
		a := Explain(s)
		at := slices.IndexFunc(a.Findings, func(f Finding) bool { return strings.Contains(f.What, "its etcd has left") })
		if s.Left("machine-0") != tt.stuck || at >= 0 != tt.stuck {
			t.Errorf("%s: left %t, %s", name, s.Left("machine-0"), a.Sentence())
			continue
		}
		if s.Left("machine-1") {
			t.Errorf("%s: machine-1 is called left", name)
		}
		if (a.Terminal(time.Time{}) != nil) != tt.terminal {
			t.Errorf("%s: terminal is %v", name, a.Terminal(time.Time{}))
		}
		if tt.stuck && !slices.Equal(a.Findings[at].Target, []string{"replace-machine", "machine-0"}) {
			t.Errorf("%s: to type: %q", name, a.Findings[at].Target)
		}
	}
}

// TestUnhealthyEtcd: the etcd of a server that ends again and again runs whenever Talos is asked, and is not healthy.
func TestUnhealthyEtcd(t *testing.T) {
	for name, tt := range map[string]struct {
		unhealthy int
		do        string
	}{"one": {1, "the target replace-machine replaces it"}, "two": {2, "without it etcd has no quorum"}} {
		s := rolling(0)
		s.ControlPlane.Object["spec"].(object)["replicas"] = int64(4)
		for i := range 4 {
			s.Talos[fmt.Sprintf("server-%d", i)] = Talos{Etcd: i >= tt.unhealthy, State: etcdRunning}
		}
		a := Explain(s)
		if a.For != "etcd" || len(a.Findings) == 0 || a.Findings[0].What != "its etcd runs and is not healthy" ||
			!strings.Contains(a.Findings[0].Do, tt.do) || TroubleIn(a.Sentence()) == "" || a.Terminal(time.Time{}) != nil {
			t.Errorf("%s: %q %+v", name, a.Sentence(), a.Findings)
		}
	}
}

// TestStoppedEtcd: a cluster in which all else is well is not called well while a member of etcd is stopped.
func TestStoppedEtcd(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Situation)
		is     bool
		do     string
	}{
		"stopped": {func(*Situation) {}, true, "the target replace-machine"},
		"failed":  {func(s *Situation) { s.Talos["server-0"] = Talos{State: "Failed"} }, true, "the target replace-machine"},
		"two of four": {func(s *Situation) { s.Talos["server-1"] = Talos{State: "Failed"} }, true,
			"without it etcd has no quorum: start it"},
		"it starts": {func(s *Situation) { s.Talos["server-0"] = Talos{State: "Preparing"} }, false, ""},
		"held by an upgrade": {func(s *Situation) {
			s.ControlPlane.SetAnnotations(map[string]string{capi.PausedAnnotation: "true"})
		}, false, ""},
		"it was no node yet": {func(s *Situation) {
			delete(s.Machines[0].Object["status"].(object), "nodeRef")
		}, false, ""},
	} {
		s := rolling(0)
		s.ControlPlane.Object["spec"].(object)["replicas"] = int64(4)
		tt.change(&s)
		a := Explain(s)
		at := slices.IndexFunc(a.Findings, func(f Finding) bool { return strings.Contains(f.What, "its etcd is stopped") })
		if (at >= 0) != tt.is {
			t.Errorf("%s: %q %+v", name, a.Sentence(), a.Findings)
			continue
		}
		if tt.is && (a.For != "etcd" || !strings.Contains(a.Findings[at].Do, tt.do) || TroubleIn(a.Sentence()) == "" ||
			a.Terminal(time.Time{}) != nil || !slices.Contains(a.Findings[at].Who, "server-0")) {
			t.Errorf("%s: %q %+v", name, a.Sentence(), a.Findings)
		}
	}
}
