package why

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

type object = map[string]any

var now = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

func condition3(kind, reason, severity, message string) object {
	return object{"type": kind, "status": "False", "reason": reason, "severity": severity, "message": message,
		"lastTransitionTime": now.Add(-time.Minute).Format(time.RFC3339)}
}

// ordered is a control plane with one server of three that complains.
func ordered(complaints ...object) Situation {
	var all []any
	for _, c := range complaints {
		all = append(all, c)
	}
	s := Situation{
		At: now, Cluster: &unstructured.Unstructured{Object: object{}},
		Infrastructure: &unstructured.Unstructured{Object: object{"spec": object{"controlPlaneEndpoint": object{"host": "127.0.0.9"}}}},
		ControlPlane:   &unstructured.Unstructured{Object: object{"spec": object{"replicas": int64(3)}}},
		Machines: []unstructured.Unstructured{{Object: object{
			"metadata": object{"name": "machine", "labels": object{capi.ControlPlaneLabel: ""}},
			"spec":     object{"infrastructureRef": object{"name": "x7k2p"}}}}},
		Servers: []unstructured.Unstructured{{Object: object{
			"metadata": object{"name": "x7k2p", "creationTimestamp": now.Add(-4 * time.Minute).Format(time.RFC3339)},
			"spec":     object{"type": "cx33", "imageName": "talos"}, "status": object{"region": "nbg1", "conditions": all}}}},
	}
	return s
}

// The sentence that operators need, out of Hetzner's real messages: with the number of the answer, which is
// another each time.
func TestOutOfStock(t *testing.T) {
	refusal := "error during placement (resource_unavailable, 3a4b5c6d7e8f9a0b)"
	a := Explain(ordered(condition3("ServerCreateSucceeded", "ServerCreateFailedReason", "Warning",
		`creating server "x7k2p" (cx33 in nbg1): `+refusal)))
	want := "waiting for etcd: 0 of 3 servers run; x7k2p: server type cx33 is out of stock in nbg1 (CAPH tries again within 4 min)"
	if got := a.Sentence(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if a.Terminal(time.Time{}) != nil {
		t.Error("stock comes back")
	}
}

// CAPH v1.0.12 orders a server once. Its messages are those of its source.
func TestOrderedOnce(t *testing.T) {
	irrecoverable := func(message string) Answer {
		return Explain(ordered(condition3("ServerCreateSucceeded", "ServerCreateFailedIrrecoverableError", "Error",
			`failed to create HCloud server in "nbg1" (type "cx33"): `+message)))
	}
	a := irrecoverable("error during placement (resource_unavailable, 3a4b5c6d7e8f9a0b)")
	want := "waiting for etcd: 0 of 3 servers run; x7k2p: server type cx33 is out of stock in nbg1 (CAPH does not order it " +
		"again by itself; a run that waits for it does)"
	if got := a.Sentence(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if a.Terminal(time.Time{}) != nil {
		t.Error("stock comes back")
	}
	a = irrecoverable("unsupported location for server type (invalid_input, 3a4b5c6d7e8f9a0b)")
	if got := a.Sentence(); !strings.Contains(got, "x7k2p: Hetzner refuses the order: unsupported location for server type") ||
		a.Terminal(time.Time{}) == nil {
		t.Errorf("got %s", got)
	}
}

// An unknown error is reported in Hetzner's words without the number, so that the sentence stays the same while the
// situation does.
func TestOtherRefusals(t *testing.T) {
	a := Explain(ordered(condition3("ServerCreateSucceeded", "ServerCreateFailedReason", "Warning",
		`creating server "x7k2p" (cx33 in nbg1): out of cheese (cheese_error, 3a4b5c6d7e8f9a0b)`)))
	if got, want := a.Findings[0].String(), "x7k2p: its server cannot be created: out of cheese (cheese_error) (CAPH "+
		"tries again within 4 min)"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// While Hetzner does not answer CAPH, what it complained about before is old.
func TestReachabilityFirst(t *testing.T) {
	a := Explain(ordered(
		condition3("ServerCreateSucceeded", "ServerLimitExceeded", "Error", "limit"),
		condition3("HetznerAPIReachable", "RateLimitExceeded", "Warning", "")))
	if a.Terminal(time.Time{}) != nil || !strings.Contains(a.Sentence(), "refuses more requests") {
		t.Errorf("it says %s", a.Sentence())
	}
}

// A limit ends a wait that began before it was met, or when an event says that it was met again; not one that began
// since.
func TestHopelessSince(t *testing.T) {
	s := ordered(condition3("ServerCreateSucceeded", "ServerLimitExceeded", "Error", "limit"))
	for _, tt := range []struct {
		name  string
		began time.Time
		event time.Time
		ends  bool
	}{
		{"met after the begin", now.Add(-time.Hour), time.Time{}, true},
		{"met within the second of the begin", now.Add(-time.Minute + 300*time.Millisecond), time.Time{}, true},
		{"met before the begin", now.Add(-30 * time.Second), time.Time{}, false},
		{"met again", now.Add(-30 * time.Second), now.Add(-10 * time.Second), true},
	} {
		s.Events = []Event{{Kind: "HCloudMachine", Name: "x7k2p", Reason: "ServerLimitExceeded", Last: tt.event}}
		a := Explain(s)
		if ended := a.Terminal(tt.began) != nil; ended != tt.ends {
			t.Errorf("%s: ends %v", tt.name, ended)
		}
	}
}

// What CAPH says of images may be five minutes old; what Hetzner says is not.
func TestImagesAreAskedFor(t *testing.T) {
	s := ordered(condition3("ServerCreateSucceeded", "ImageNotFound", "Error", "no image found"))
	s.Images = &Images{Name: "talos", Found: 1}
	if a := Explain(s); a.Terminal(time.Time{}) != nil || !strings.Contains(a.Sentence(), "is found now") {
		t.Errorf("with one image: %s", a.Sentence())
	}
	s.Images.Found = 0
	if a := Explain(s); a.Terminal(now.Add(-time.Second)) == nil {
		t.Errorf("without: %s", a.Sentence())
	}
}

// A server that Hetzner did not know yet when it was asked is not gone.
func TestVanished(t *testing.T) {
	s := ordered()
	server := s.Servers[0].Object
	server["spec"].(object)["providerID"] = "hcloud://1"
	server["status"].(object)["conditions"] = []any{object{"type": "ServerCreateSucceeded", "status": "True",
		"lastTransitionTime": now.Format(time.RFC3339)}}
	s.Cloud, s.CloudAt = []Server{}, now.Add(-time.Second)
	if got := Explain(s).Sentence(); strings.Contains(got, "gone") {
		t.Errorf("asked before it was made: %s", got)
	}
	s.CloudAt = now.Add(time.Minute)
	if got := Explain(s).Sentence(); !strings.Contains(got, "x7k2p: its server is gone from the Hetzner project") {
		t.Errorf("asked long after: %s", got)
	}
}

// A failed action of Hetzner's is reported with its error, until the server runs.
func TestFailedAction(t *testing.T) {
	s := ordered()
	s.Servers[0].Object["spec"].(object)["providerID"] = "hcloud://7"
	s.Cloud, s.CloudAt = []Server{{ID: 7, Name: "x7k2p", Status: "off"}}, now
	s.Failures = []Failure{{Command: "start_server", Server: 7, Code: "server_error", Message: "could not be started",
		Finished: now}}
	if got := Explain(s).Sentence(); !strings.Contains(got, "x7k2p: Hetzner's action start_server failed: could not be "+
		"started (server_error); its server is off") {
		t.Errorf("it says %s", got)
	}
	s.Cloud[0].Status = running
	if got := Explain(s).Sentence(); strings.Contains(got, "start_server") {
		t.Errorf("a server that runs: %s", got)
	}
}

func TestUnseen(t *testing.T) {
	for err, want := range map[string]string{
		`Internal error occurred: failed calling webhook "default.cluster.cluster.x-k8s.io": failed to call webhook: Post "https://x": dial tcp 127.1.1.1:443: connect: connection refused`: "webhook default.cluster.cluster.x-k8s.io does not answer yet",
		`Get "https://127.0.0.9:6443/readyz": dial tcp 127.0.0.9:6443: connect: connection refused`:                                                                                         "connection refused by 127.0.0.9:6443",
		`Get "https://x/api": net/http: TLS handshake timeout`:                                                                                                                              "no answer in time",
		"the server has asked for the client to provide credentials: Unauthorized":                                                                                                          "it does not accept our certificate, which may have expired: the target kubeconfig (access after a pivot) fetches a new one",
		"get Cluster k8s: https://127.0.0.9:6443 did not answer in time":                                                                                                                    "no answer in time",
		"get Cluster k8s: Unauthorized: it does not accept the client certificate of the kubeconfig, which ended on 2026-02-03":                                                             "it does not accept the client certificate of the kubeconfig, which ended on 2026-02-03",
		"something else": "something else",
	} {
		if got := ShortError(err); got != want {
			t.Errorf("%s\nis said %q, not %q", err, got, want)
		}
	}
}

// Before etcd was ever started, a Machine too many keeps it from that, and so does a replacement without one more.
func TestSurplusKeepsEtcd(t *testing.T) {
	many := func(n int, change object) Situation {
		s := ordered()
		for range n - 1 {
			s.Machines = append(s.Machines, *s.Machines[0].DeepCopy())
		}
		s.ControlPlane.Object["status"] = change
		return s
	}
	rolling := object{"conditions": []any{condition3("MachinesSpecUpToDate", "RollingUpdateInProgress", "Warning",
		"Rolling 3 replicas")}}
	inPlace := many(3, rolling)
	_ = unstructured.SetNestedField(inPlace.ControlPlane.Object, int64(0), "spec", "rolloutStrategy", "rollingUpdate",
		"maxSurge")
	for name, tt := range map[string]struct {
		s    Situation
		want string
	}{
		"too many": {many(4, object{}), "TalosControlPlane: it has 4 Machines for 3 replicas, and starts etcd " +
			"with exactly 3"},
		"as many":           {many(3, object{}), ""},
		"started":           {many(4, object{"bootstrapped": true}), ""},
		"replaced in place": {inPlace, "set maxSurge to 1"},
		"replaced":          {many(3, rolling), ""},
	} {
		got := Explain(tt.s).Troubles()
		if tt.want == "" && strings.Contains(got, "TalosControlPlane") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: it says %q, want %q", name, got, tt.want)
		}
	}
}

// After a patch was corrected, the Machine that was created from the old one stays: what to type is said, and that
// waiting does not help, unless etcd was never started.
func TestUnmadeMachineNamesTheTarget(t *testing.T) {
	s := load(t, "configuration-refused")
	i := slices.IndexFunc(s.Machines, func(m unstructured.Unstructured) bool {
		return capi.Text(&m, "spec", "infrastructureRef", "name") == "k8s-control-plane-3b431-zkclv"
	})
	machine := s.Machines[i].GetName()
	later := s.At.Add(time.Hour)
	if a := Explain(s); a.Findings[0].Target != nil || a.Terminal(later) != nil {
		t.Errorf("before it was corrected: %+v", a.Findings[0])
	}
	s.At, s.Outdated = later, []string{machine}
	f := Explain(s).Terminal(later)
	if f == nil || !slices.Equal(f.Target, []string{"replace-machine", machine}) ||
		!strings.Contains(f.Error(), "so does the target replace-machine") {
		t.Errorf("after it was corrected: %+v", Explain(s).Findings)
	}
	for _, field := range []string{"bootstrapped", "initialized"} {
		if err := unstructured.SetNestedField(s.ControlPlane.Object, false, "status", field); err != nil {
			t.Fatal(err)
		}
	}
	if f := Explain(s).Terminal(time.Time{}); f != nil {
		t.Errorf("before etcd is started: %v", f)
	}
}

// A server that is refused ends a wait, unless the control plane has another template since: then the Machine is replaced. Once
// etcd runs its provider keeps a Machine that never had a server, and what to type is said.
func TestRefusedServerOfAnOlderTemplate(t *testing.T) {
	s := ordered(condition3("ServerCreateSucceeded", "SSHKeyNotFound", "Error", `ssh key "my-key" not present in hcloud`))
	set := func(o *unstructured.Unstructured, value any, path ...string) {
		t.Helper()
		if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
			t.Fatal(err)
		}
	}
	set(s.ControlPlane, "of-now", "spec", "infrastructureTemplate", "name")
	set(&s.Servers[0], "of-now", "metadata", "annotations", capi.ClonedFromAnnotation)
	if f := Explain(s).Terminal(time.Time{}); f == nil || !strings.Contains(f.Error(), "correct manifests/cluster.yaml") {
		t.Fatalf("of the template of now: %+v", Explain(s).Findings)
	}
	set(&s.Servers[0], "older", "metadata", "annotations", capi.ClonedFromAnnotation)
	a := Explain(s)
	if f := a.Terminal(time.Time{}); f != nil || !strings.Contains(a.Sentence(), "is of an older template") {
		t.Errorf("of an older one: %v, %s", f, a.Sentence())
	}
	set(s.ControlPlane, true, "status", "bootstrapped")
	f := Explain(s).Terminal(time.Time{})
	if f == nil || !slices.Equal(f.Target, []string{"replace-machine", "machine"}) || !s.Unmade("machine") {
		t.Errorf("of an older one, while etcd runs: %+v", Explain(s).Findings)
	}
	set(&s.Machines[0], "hcloud://1", "spec", "providerID")
	if s.Unmade("machine") {
		t.Error("a Machine with a server is taken for one without")
	}
}

// CAPH v1.1 gives a server up in status.bootState alone, and leaves the conditions as they were. Messages and state are
// those of v1.1.8.
func TestGivenUpByItsBootState(t *testing.T) {
	given := func(providerID string, complaint object) Situation {
		s := ordered(complaint)
		s.Images = &Images{Name: "talos", Found: 1}
		set := func(o *unstructured.Unstructured, value string, path ...string) {
			t.Helper()
			if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
				t.Fatal(err)
			}
		}
		set(&s.Servers[0], "ProvisioningFailed", "status", "bootState")
		if providerID != "" {
			set(&s.Servers[0], providerID, "spec", "providerID")
		}
		return s
	}
	s := given("", condition3("ServerCreateSucceeded", "ImageNotFound", "Warning",
		"no image found with name talos (boot state unset timed out, in this state since 10m1s)"))
	f := Explain(s).Terminal(now.Add(time.Hour))
	if f != nil {
		t.Errorf("of a look before the run began: %v", f)
	}
	f = Explain(s).Terminal(time.Time{})
	if f == nil || !strings.Contains(f.What, "is given up (ProvisioningFailed: no image found with name talos") ||
		!slices.Equal(f.Target, []string{"replace-machine", "machine"}) || !s.Unmade("machine") {
		t.Errorf("it was never created: %+v", Explain(s).Findings)
	}
	s = given("hcloud://1", condition3("ServerAvailable", "NoHCloudServerFound", "Warning",
		`hcloud server ("hcloud://1") no longer available. Setting MachineError.`))
	f = Explain(s).Terminal(time.Time{})
	if f == nil || !strings.Contains(f.What, "no longer available") || !strings.Contains(f.Do, "delete machine machine") ||
		s.Unmade("machine") {
		t.Errorf("its server is gone: %+v", Explain(s).Findings)
	}
}

// A Pod that ends again and again blocks: a wait that does not depend on its Pod names it, with the command that shows
// its log. One that only starts does not.
func TestCrashLoop(t *testing.T) {
	s := load(t, "uninitialized")
	s.Pods = []Pod{{Name: "starting-1", Trouble: "Pod starting-1: ContainerCreating"},
		{Name: "ccm-1", Trouble: "Pod ccm-1: container c ended with exit code 1, was restarted 2 times (CrashLoopBackOff)",
			Crashes: true, Log: "hcloud-ccm"}}
	a := Explain(s)
	want := "Pod ccm-1: container c ended with exit code 1, was restarted 2 times (CrashLoopBackOff)"
	if got := a.Troubles(); got != want+" (its log has the cause)" {
		t.Errorf("a wait hears %q", got)
	}
	if f := a.Findings[0]; strings.Join(f.Target, " ") != "logs hcloud-ccm --no-follow" || f.Terminal ||
		!strings.Contains(a.Sentence(), want) {
		t.Errorf("the first finding is %+v", f)
	}
	s.Pods[1].Log = ""
	if got := Explain(s).Findings[0].Do; !strings.Contains(got, "kubectl --namespace kube-system logs ccm-1 --previous") {
		t.Errorf("of another Pod: %s", got)
	}
}

// CAPH does not recognise a refused token at Hetzner, whose errors carry the answer's number: the refusal is in the
// condition of what it was doing. What is said stays the same with the next answer.
func TestRefusedTokenAsHetznerRefusesIt(t *testing.T) {
	a := Explain(ordered(condition3("ServerAvailable", "ServerNotFound", "Error",
		"failed to find server: failed to list servers: unable to authenticate (unauthorized, 15184c16fb506e24)")))
	if f := a.Terminal(time.Time{}); f == nil || f.String() != "x7k2p: Hetzner does not accept the token that Cluster API has" {
		t.Errorf("got %s", a.Sentence())
	}
	if got := ShortError("list the servers: service unavailable (unavailable, 15184c16fb506e24)"); got !=
		"list the servers: service unavailable (unavailable)" {
		t.Errorf("got %s", got)
	}
}
