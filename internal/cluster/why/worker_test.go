package why

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// withWorker is a cluster whose control plane is complete, with a worker that is a node and one that is none.
func withWorker(change func(machine, server, config object)) Situation {
	s := ordered()
	s.ControlPlane.Object["spec"] = object{"replicas": int64(1)}
	s.ControlPlane.Object["status"] = object{"initialized": true}
	s.Machines[0].Object["status"] = object{"nodeRef": object{"name": "x7k2p"}}
	s.Servers[0].Object["spec"].(object)["providerID"] = "hcloud://1"
	s.Servers[0].Object["status"] = object{"instanceState": running}
	s.Talos = map[string]Talos{"x7k2p": {Etcd: true}}
	s.Nodes = []Node{{Name: "x7k2p", Ready: true}, {Name: "a", Ready: true}}
	add := func(name string) (machine, server, config object) {
		machine = object{"metadata": object{"name": name, "namespace": "default",
			"creationTimestamp": "2026-02-03T04:01:06Z"}, "spec": object{
			"infrastructureRef": object{"name": name},
			"bootstrap":         object{"configRef": object{"name": name}}}}
		server = object{"metadata": object{"name": name, "creationTimestamp": "2026-02-03T04:01:06Z"}, "spec": object{
			"type": "cx43", "imageName": "talos-own", "placementGroupName": "db"}, "status": object{"region": "nbg1"}}
		config = object{"metadata": object{"name": name}}
		s.Machines = append(s.Machines, unstructured.Unstructured{Object: machine})
		s.Servers = append(s.Servers, unstructured.Unstructured{Object: server})
		s.Configs = append(s.Configs, unstructured.Unstructured{Object: config})
		return machine, server, config
	}
	m, _, _ := add("a")
	m["status"] = object{"nodeRef": object{"name": "a"}}
	change(add("b"))
	return s
}

// A cluster that only workers are missing in says what each of them waits for. It ends no wait.
func TestWorkers(t *testing.T) {
	complains := func(reason, severity, message string) func(machine, server, config object) {
		return func(_, server, _ object) {
			server["status"] = object{"region": "nbg1", "conditions": []any{
				condition3("ServerCreateSucceeded", reason, severity, message)}}
		}
	}
	const ordering = `creating server "b" (cx43 in nbg1): `
	for what, tt := range map[string]struct {
		change    func(machine, server, config object)
		says, do  string
		isTrouble bool
	}{
		"out of stock": {complains("ServerCreateFailedReason", "Warning", ordering+
			"error during placement (resource_unavailable, 3a4b5c6d7e8f9a0b)"),
			"b: server type cx43 is out of stock in nbg1", "give the pool another serverType or location", true},
		"no host in the placement group": {complains("ServerCreateFailedReason", "Warning", ordering+
			"no host (placement_error, 3a4b5c6d7e8f9a0b)"),
			"b: Hetzner has no host in nbg1 for another server of the placement group", "give the pool another", true},
		"ordered once": {complains(orderedOnce, "Error", `failed to create HCloud server in "nbg1" (type "cx43"): `+
			"error during placement (resource_unavailable, 3a4b5c6d7e8f9a0b)"),
			"b: server type cx43 is out of stock in nbg1 (CAPH does not order it again by itself; the pool's MachineHealthCheck",
			"give the pool another", true},
		"no image": {complains("ImageNotFound", "Error", "no image"), "b: there is no image talos-own",
			"the target image creates it", true},
		"no placement group": {complains("InstanceHasNonExistingPlacementGroup", "Error", "placement group"),
			"b: its placement group db does not exist yet", "lists it in the HetznerCluster", true},
		"no bootstrap data": {complains("BootstrapNotReady", "Info", ""),
			"b: its machine configuration is not generated yet", "", false},
		"a configuration that cannot be made": {func(_, _, config object) {
			config["status"] = object{"conditions": []any{condition3("DataSecretAvailable", configurationFailed, "Error",
				"bad patch")}}
		}, "b: its machine configuration cannot be generated: bad patch", "correct the pool's patches", true},
		"a server that runs": {func(_, server, _ object) {
			server["spec"].(object)["providerID"] = "hcloud://3"
			server["status"] = object{"instanceState": running}
		}, "b: its server runs, and it is no node yet", "", false},
		"a server that has run for long": {func(machine, server, _ object) {
			machine["metadata"].(object)["creationTimestamp"] = now.Add(-time.Hour).UTC().Format(time.RFC3339)
			server["spec"].(object)["providerID"] = "hcloud://3"
			server["status"] = object{"instanceState": running}
		}, "b: its Machine is more than 5 minutes old and its server runs, but it is not a node",
			"its console at Hetzner", true},
		"a server that is deleted": {func(machine, _, _ object) {
			machine["metadata"].(object)["deletionTimestamp"] = "2026-02-03T04:05:00Z"
		}, "b: is being deleted", "", false},
	} {
		s := withWorker(tt.change)
		s.Images = &Images{Name: "talos", Found: 1} // of the control plane's
		a := Explain(s)
		if !strings.HasPrefix(a.Sentence(), "waiting for the workers: 1 of 2 are nodes; "+tt.says) ||
			len(a.Findings) != 1 || !strings.Contains(a.Findings[0].Do, tt.do) || (a.Troubles() != "") != tt.isTrouble {
			t.Errorf("%s: %q %+v", what, a.Sentence(), a.Findings)
		}
		if a.Findings[0].Terminal {
			t.Errorf("%s: it ends a wait", what)
		}
		for _, f := range a.Findings {
			if word := TroubleIn(f.What); (word != "") != tt.isTrouble {
				t.Errorf("%s: %q as trouble: %q", what, f.What, word)
			}
		}
	}
	whole := withWorker(func(machine, _, _ object) { machine["status"] = object{"nodeRef": object{"name": "b"}} })
	if a := Explain(whole); a.For != "" {
		t.Errorf("nothing is missing: %+v", a)
	}
	young := withWorker(complains("ImageNotFound", "Error", "no image"))
	young.ControlPlane.Object["status"] = object{}
	if says := Explain(young).Sentence(); strings.Contains(says, "talos-own") {
		t.Errorf("without a control plane: %s", says)
	}
}

// A limit of the project ends a wait for the workers, and no other one.
func TestLimitEndsAWaitForWorkers(t *testing.T) {
	for what, c := range map[string]object{
		"servers": condition3("ServerCreateSucceeded", "ServerLimitExceeded", "Error", "limit"),
		"anything": condition3("ServerCreateSucceeded", "ServerCreateFailedReason", "Warning", `creating server "b" (cx43 in `+
			`nbg1): limit (resource_limit_exceeded, 3a4b5c6d7e8f9a0b)`),
		"ordered once": condition3("ServerCreateSucceeded", orderedOnce, "Error",
			"failed to create HCloud server: limit (resource_limit_exceeded, 3a4b5c6d7e8f9a0b)"),
	} {
		a := Explain(withWorker(func(_, server, _ object) {
			server["status"] = object{"region": "nbg1", "conditions": []any{c}}
		}))
		f := a.TerminalForWorkers(now.Add(-time.Hour))
		if f == nil || !strings.Contains(f.Error(), "raise the limit") {
			t.Errorf("%s: %v", what, a)
		}
		if a.Terminal(now.Add(-time.Hour)) != nil || a.TerminalForWorkers(now.Add(time.Hour)) != nil {
			t.Errorf("%s: it ends a wait for the control plane, or one that begins later", what)
		}
	}
	stock := condition3("ServerCreateSucceeded", "ServerCreateFailedReason", "Warning",
		`creating server "b" (cx43 in nbg1): placement (resource_unavailable, 3a4b5c6d7e8f9a0b)`)
	a := Explain(withWorker(func(_, server, _ object) { server["status"] = object{"conditions": []any{stock}} }))
	if f := a.TerminalForWorkers(time.Time{}); f != nil {
		t.Errorf("stock ends a wait: %v", f)
	}
}
