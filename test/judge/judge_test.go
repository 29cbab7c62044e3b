package judge

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// noon is the time of the tests' observations.
var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// pemOf is what kubeconfigs and talosconfigs have for a certificate or key.
func pemOf(what string) string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(what)}))
}

func kubeconfigOf(uid, address string) []byte {
	return fmt.Appendf(nil,
		"current-context: admin@k8s\nclusters:\n- name: k8s\n  cluster:\n    certificate-authority-data: %s\n"+
			"    server: https://%s:6443\nusers:\n- name: admin\n  user:\n    client-key-data: %s\n", pemOf("ca-"+uid), address,
		key)
}

func talosconfigOf(uid, address string) []byte {
	return fmt.Appendf(nil,
		"context: k8s\ncontexts:\n  k8s:\n    endpoints: [%s]\n    nodes: [%s]\n    ca: %s\n    key: %s\n", address, address,
		pemOf("os-"+uid), key)
}

func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

// key is a key, as files have it.
var key = base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY",
	Bytes: []byte("notForAnybodysEyesEither")}))

// good is a small observation after a pivot, as a run with these random parts leaves it.
func good(suffix, uid, address string, id int) Observation {
	no := strconv.Itoa(id)
	bundle := base64.StdEncoding.EncodeToString(
		[]byte("cluster:\n  secret: notForAnybodysEyes\ncerts:\n  k8sserviceaccount:\n    key: " + key + "\n"))
	meta := func(kind, namespace, name string) Object {
		return Object{"kind": kind, "metadata": map[string]any{
			"name": name, "namespace": namespace, "uid": uid + "-0000-4000-8000-" + "0123456789ab", "resourceVersion": no,
			"creationTimestamp": noon.Format(time.RFC3339),
		}}
	}
	with := func(o Object, key string, value any) Object { o[key] = value; return o }
	taints := []any{map[string]any{"key": "node.cloudprovider.kubernetes.io/uninitialized"}}
	if id%16 == 0 { // a slow one has another of the node lifecycle controller's
		taints = append(taints, map[string]any{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"})
	}
	template := meta("HCloudMachineTemplate", "default", "k8s-cp")
	if id%16 == 0 { // moved by one whose CAPH was started again since
		template["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
	}
	condition := func(kind string) any { return map[string]any{"type": kind, "status": "True"} }
	machine, check := meta("Machine", "default", "k8s-cp-"+suffix), meta("MachineHealthCheck", "default", "k8s-cp")
	conditions := []any{condition("Ready")}
	if id%16 == 0 { // the health check has looked since
		conditions = append(conditions, condition("HealthCheckSucceeded"))
		check["status"] = map[string]any{"conditions": []any{condition("RemediationAllowed")}}
	}
	machine["status"] = map[string]any{"conditions": conditions}
	upToDate := condition("ControlPlaneMachinesUpToDate").(map[string]any)
	if id%16 == 0 { // Cluster API has looked when the Machines were older
		upToDate["status"] = "Unknown"
	}
	w := Observation{
		Cloud: map[string][]Object{
			"servers": {{"id": no, "name": "k8s-cp-" + suffix, "status": "running",
				"labels":     map[string]any{"caph-cluster-k8s": "owned"},
				"public_net": map[string]any{"ipv4": map[string]any{"ip": address, "dns_ptr": "static." + address}},
				"created":    noon.Format(time.RFC3339)}},
			"firewalls": {{"id": no, "name": "k8s",
				"rules": []any{map[string]any{"port": "6443", "source_ips": []any{"10.0.0.0/8"}}}}},
		},
		Clusters: map[Side]Cluster{Workload: {
			Identity: Identity{System: uid, Authority: "ca-" + uid, Bundle: "bundle-" + uid, ServiceAccount: "sa-" + uid,
				Talos: digest([]byte(pemOf("os-" + uid)))},
			Objects: []Object{
				meta("Namespace", "", "kube-system"),
				with(meta("Node", "", "k8s-cp-"+suffix), "spec", map[string]any{"providerID": "hcloud://" + no, "taints": taints}),
				with(meta("Deployment", "kube-system", "cilium-operator"), "spec", map[string]any{"replicas": "2"}),
				with(with(meta("Secret", "default", "k8s-talos"), "data", map[string]any{"bundle": bundle}), "type", "Opaque"),
				template,
				with(meta("Cluster", "default", "k8s"), "status", map[string]any{"conditions": []any{upToDate}}),
			},
		}},
		Requests: []Request{
			{Time: at(0), Method: "POST", Path: "/v1/servers", Status: 201, Actor: "slipway/1 hcloud-go/2", Write: true},
			{Time: at(1), Method: "POST", Path: "/v1/servers/1/actions/create_image", Status: 201,
				Actor: "slipway/1 hcloud-go/2", Write: true},
			{Time: at(2), Method: "DELETE", Path: "/v1/servers/1", Status: 200, Actor: "slipway/1 hcloud-go/2", Write: true},
			{Time: at(5), Method: "POST", Path: "/v1/servers", Status: 201, Actor: "cluster-api-provider-hetzner/1",
				Write: true},
			{Time: at(6), Method: "POST", Path: "/v1/servers", Status: 409, Actor: "cluster-api-provider-hetzner/1",
				Write: true},
			{Time: at(20), Method: "POST", Path: "/v1/firewalls", Status: 201, Actor: "slipway/1 hcloud-go/2", Write: true},
		},
		Writes: []Write{
			write(3, Management, "create", "deployments.apps", "capi-system", "capi", "clusterctl/v1"),
			cluster(4, Management, "patch", false), cluster(10, Management, "patch", true),
			cluster(11, Workload, "create", true), cluster(12, Management, "delete", true),
			cluster(13, Workload, "patch", false),
		},
		Files: map[string]File{
			"journal.json": {Mode: 0o600, Data: []byte(`{"steps":{"pivot":{"state":"done"}}}`)},
			"kubeconfig":   {Mode: 0o600, Data: kubeconfigOf(uid, address)},
			"talosconfig":  {Mode: 0o600, Data: talosconfigOf(uid, address)},
			"identity":     {Mode: 0o600, Data: []byte("of " + uid)},
			"pivot/node_k8s-cp-" + suffix + ".json": {Mode: 0o600,
				Data: fmt.Appendf(nil, `{"kind":"Node","metadata":{"name":"k8s-cp-%s","uid":%q}}`, suffix, uid)},
		},
		Journal: map[string]string{"pivot": "done"},
	}
	workload := w.Clusters[Workload]
	workload.Objects = append(workload.Objects, machine, check)
	w.Clusters[Workload] = workload
	return w
}

func write(second int, side Side, verb, resource, namespace, name, agent string) Write {
	return Write{Time: at(second), Side: side, Verb: verb, Resource: resource, Namespace: namespace, Name: name,
		Agent: agent, Code: 201}
}

func cluster(second int, side Side, verb string, paused bool) Write {
	w := write(second, side, verb, clusterResource, "default", "k8s", "slipway")
	w.Code, w.Paused = 200, &paused
	return w
}

func one() Observation   { return good("x7k2p", "11111111", "127.0.4.1", 1000016) }
func other() Observation { return good("jbk4n", "22222222", "127.0.4.3", 1000024) }

// Two good runs have nothing against each other, whatever ids, addresses, names and keys they got.
func TestGoodWorlds(t *testing.T) {
	a, b := one(), other()
	for verdict, findings := range map[string][]string{
		"same end":      SameEnd(a, b),
		"made once":     MadeOnce(a.Requests, b.Requests, nil),
		"same identity": SameIdentity(a, one()),
		"one manager":   OneManager(b.Writes),
		"no secret":     NoSecret(b, b.Secrets(), map[string][]byte{"the output": []byte("all is well")}),
	} {
		if len(findings) > 0 {
			t.Errorf("%s finds %q", verdict, findings)
		}
	}
	if n := len(a.Secrets()); n < 3 {
		t.Errorf("%d secrets are known: they cannot be looked for", n)
	}
	if s := normalize(a); len(s) < 8 {
		t.Errorf("only %d things are compared: %v", len(s), s)
	}
}

// Every altered observation must be found, each by its verdict.
func TestAlteredObservations(t *testing.T) {
	object := func(seen Observation, i int) Object { return seen.Clusters[Workload].Objects[i] }
	end := func(seen Observation) []string { return SameEnd(one(), seen) }
	identity := func(seen Observation) []string { return SameIdentity(one(), seen) }
	manager := func(seen Observation) []string { return OneManager(seen.Writes) }
	made := func(seen Observation) []string { return MadeOnce(one().Requests, seen.Requests, Upload(1)) }
	secret := func(seen Observation) []string { return NoSecret(seen, seen.Secrets(), nil) }
	for name, tc := range map[string]struct {
		doctor  func(*Observation)
		verdict func(Observation) []string
		says    string
	}{
		"a server too many": {func(seen *Observation) {
			seen.Cloud["servers"] = append(seen.Cloud["servers"], Object{"id": "7", "name": "k8s-cp-aaaaa"})
		}, end, "2 there, not 1"},
		"an upload's key": {func(seen *Observation) {
			seen.Cloud["ssh_keys"] = []Object{{"id": "7", "name": "hcloud-upload-image-1"}}
		}, end, "ssh_keys"},
		"a server switched off": {func(seen *Observation) { seen.Cloud["servers"][0]["status"] = "off" }, end,
			`status is "off"`},
		"a lost label": {func(seen *Observation) { seen.Cloud["servers"][0]["labels"] = map[string]any{} }, end,
			"labels"},
		"an open firewall": {func(seen *Observation) { seen.Cloud["firewalls"][0]["rules"] = []any{} }, end, "rules"},
		"a lost object": {func(seen *Observation) {
			c := seen.Clusters[Workload]
			c.Objects = c.Objects[:3]
			seen.Clusters[Workload] = c
		}, end, "Secret default/k8s-talos"},
		"another spec": {func(seen *Observation) { object(*seen, 2)["spec"] = map[string]any{"replicas": "1"} }, end,
			"spec.replicas"},
		"a lost label of an object": {func(seen *Observation) {
			object(*seen, 2)["metadata"].(map[string]any)["labels"] = map[string]any{"clusterctl.cluster.x-k8s.io/move": ""}
		}, end, "metadata.labels"},
		"a taint that nobody took off": {func(seen *Observation) {
			spec := object(*seen, 1)["spec"].(map[string]any)
			spec["taints"] = append(spec["taints"].([]any), map[string]any{"key": "somebody's"})
		}, end, "spec.taints"},
		"a condition that does not hold": {func(seen *Observation) {
			object(*seen, 1)["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "False"}}}
		}, end, "conditions"},
		"a pending release": {func(seen *Observation) {
			c := seen.Clusters[Workload]
			c.Objects = append(c.Objects, Object{"kind": "Secret", "type": "helm.sh/release.v1", "metadata": map[string]any{
				"name": "sh.helm.release.v1.cilium.v2", "namespace": "kube-system",
				"labels": map[string]any{"status": "pending-install"}}})
			seen.Clusters[Workload] = c
		}, end, "cilium.v<n>"},
		"a management cluster that is left": {func(seen *Observation) {
			seen.Clusters[Management] = Cluster{
				Objects: []Object{{"kind": "Namespace", "metadata": map[string]any{"name": "default"}}},
			}
		}, end, "management Namespace"},
		"a secret's entry that is lost": {func(seen *Observation) { object(*seen, 3)["data"] = map[string]any{} }, end,
			"data"},
		"a step that is not done": {func(seen *Observation) { seen.Journal["pivot"] = "started" }, end, "step pivot"},
		"a file that is left": {func(seen *Observation) { seen.Files[".kubeconfig.new"] = File{Mode: 0o600} }, end,
			".kubeconfig.new"},
		"a torn kubeconfig": {func(seen *Observation) {
			data := seen.Files["kubeconfig"].Data
			seen.Files["kubeconfig"] = File{Mode: 0o600, Data: data[:len(data)/2]}
		}, end, "file kubeconfig"},
		"a kubeconfig without its key": {func(seen *Observation) {
			seen.Files["kubeconfig"] = File{Mode: 0o600, Data: bytes.ReplaceAll(seen.Files["kubeconfig"].Data, []byte(key),
				[]byte("none"))}
		}, end, "neither a certificate nor a key"},
		"an empty talosconfig": {func(seen *Observation) { seen.Files["talosconfig"] = File{Mode: 0o600} }, end, "no YAML"},
		"a talosconfig without endpoints": {func(seen *Observation) {
			seen.Files["talosconfig"] = File{Mode: 0o600, Data: bytes.Replace(seen.Files["talosconfig"].Data,
				[]byte("endpoints: [127.0.4.1]"), []byte("endpoints: []"), 1)}
		}, end, "endpoints"},
		"a copy of another object": {func(seen *Observation) {
			seen.Files["pivot/node_k8s-cp-x7k2p.json"] = File{Mode: 0o600,
				Data: []byte(`{"kind":"Node","metadata":{"name":"k8s-w"}}`)}
		}, end, "Node k8s-w"},
		"a torn copy": {func(seen *Observation) {
			seen.Files["pivot/node_k8s-cp-x7k2p.json"] = File{Mode: 0o600, Data: []byte(`{"kind":"No`)}
		}, end, "no JSON"},
		"a file that is lost": {func(seen *Observation) { delete(seen.Files, "kubeconfig") }, end, "kubeconfig"},

		"a server made twice": {func(seen *Observation) { seen.Requests = append(seen.Requests, seen.Requests[3]) }, made,
			"2 times over all runs, not 1"},
		"an image made twice": {func(seen *Observation) { seen.Requests = append(seen.Requests, seen.Requests[1]) }, made,
			"create_image"},
		"a firewall made twice": {func(seen *Observation) { seen.Requests = append(seen.Requests, seen.Requests[5]) }, made,
			"firewalls"},
		"an upload's server made three times": {func(seen *Observation) {
			seen.Requests = append(seen.Requests, seen.Requests[0], seen.Requests[0])
		}, made, "slipway POST /v1/servers"},
		"a server never made": {func(seen *Observation) { seen.Requests = seen.Requests[:3] }, made, "0 times"},

		"another cluster":     {changeIdentity(func(i *Identity) { i.System = "3" }), identity, "kube-system"},
		"another authority":   {changeIdentity(func(i *Identity) { i.Authority = "3" }), identity, "authority"},
		"another bundle":      {changeIdentity(func(i *Identity) { i.Bundle = "3" }), identity, "bundle"},
		"another account key": {changeIdentity(func(i *Identity) { i.ServiceAccount = "3" }), identity, "service accounts"},
		"a talosconfig of another cluster": {func(seen *Observation) {
			seen.Files["talosconfig"] = File{Mode: 0o600, Data: talosconfigOf("3", "127.0.4.1")}
		}, identity, "talosconfig"},
		"two bundles": {func(seen *Observation) { seen.Clusters[Management] = Cluster{Identity: Identity{Bundle: "4"}} },
			identity,
			"bundle"},

		"the target unpaused too early": {func(seen *Observation) { seen.Writes[2] = cluster(10, Workload, "create", false) },
			manager,
			"both clusters"},
		"the source never paused": {func(seen *Observation) {
			seen.Writes[2] = cluster(10, Management, "patch", false)
			seen.Writes[4] = cluster(12, Management, "delete", false)
		}, manager, "both clusters"},
		"the source unpaused again": {func(seen *Observation) {
			seen.Writes = append(seen.Writes, cluster(14, Management, "update", false))
		}, manager, "12:00:14"},

		"a key in the journal": {func(seen *Observation) {
			seen.Files["journal.json"] = File{Mode: 0o600, Data: []byte(key)}
		}, secret,
			"journal.json"},
		"the bundle in a log": {func(seen *Observation) {
			seen.Files["runs/1/run.log"] = File{Mode: 0o600, Data: []byte("secret: notForAnybodysEyes")}
		}, secret, "secret 1 of k8s-talos"},
		"a file open to others": {func(seen *Observation) { seen.Files["identity"] = File{Mode: 0o644} }, secret,
			"open to others"},
	} {
		t.Run(name, func(t *testing.T) {
			w := one()
			if was := tc.verdict(w); len(was) > 0 {
				t.Fatalf("of the good observation it finds %q", was)
			}
			tc.doctor(&w)
			found := tc.verdict(w)
			if len(found) == 0 || !strings.Contains(strings.Join(found, "\n"), tc.says) {
				t.Errorf("it finds %q, not a word of %q", found, tc.says)
			}
			if strings.Contains(strings.Join(found, "\n"), key) || strings.Contains(strings.Join(found, "\n"),
				"notForAnybodysEyes") {
				t.Errorf("it prints a secret: %q", found)
			}
		})
	}
}

func changeIdentity(change func(*Identity)) func(*Observation) {
	return func(seen *Observation) {
		c := seen.Clusters[Workload]
		change(&c.Identity)
		seen.Clusters[Workload] = c
	}
}

func TestSecretInOutput(t *testing.T) {
	w := one()
	found := NoSecret(w, map[string]string{"the planted token": "plantedToken123"},
		map[string][]byte{"a process's arguments": []byte("curl\x00plantedToken123")})
	if len(found) != 1 || !strings.Contains(found[0], "the planted token is in a process's arguments") {
		t.Errorf("it finds %q", found)
	}
}

func TestNotRepeated(t *testing.T) {
	w := one()
	spans := []Span{{"image", at(-1), at(2)}, {"capi-init", at(2), at(4)}, {"firewall", at(19), at(21)}}
	known := Attribute(w, spans)
	crash := at(100)
	again := func(seen *Observation, seconds int) {
		seen.Writes = append(seen.Writes, write(seconds, Management, "create", "deployments.apps", "capi-system", "capi",
			"clusterctl/v1"))
	}
	again(&w, 99)
	if found := NotRepeated(w, crash, []string{"image", "capi-init"}, known); len(found) > 0 {
		t.Errorf("of writes before the crash it finds %q", found)
	}
	again(&w, 101)
	if found := NotRepeated(w, crash, []string{"image"}, known); len(found) > 0 {
		t.Errorf("of a step that was at work it finds %q", found)
	}
	w.Writes = append(w.Writes, write(102, Management, "update", "leases", "", "x", "capi-manager")) // somebody else's
	found := NotRepeated(w, crash, []string{"image", "capi-init"}, known)
	if len(found) != 1 || !strings.Contains(found[0], "capi-init") {
		t.Errorf("of a done step that ran again it finds %q", found)
	}
	w.Requests = append(w.Requests, Request{Time: at(103), Method: "POST", Path: "/v1/firewalls", Status: 201,
		Actor: "slipway/1", Write: true})
	if found := NotRepeated(w, crash, []string{"firewall"}, known); len(found) != 1 ||
		!strings.Contains(found[0], "cloud POST /v1/firewalls") {
		t.Errorf("of a firewall made again it finds %q", found)
	}
}

func TestInTime(t *testing.T) {
	if found := InTime(39*time.Second, 10*time.Second, 1); len(found) > 0 {
		t.Errorf("half a minute more is no finding: %q", found)
	}
	if found := InTime(41*time.Second, 10*time.Second, 1); len(found) != 1 {
		t.Errorf("of more than half a minute it finds %q", found)
	}
	if found := InTime(51*time.Second, 10*time.Second, 2); len(found) != 1 {
		t.Errorf("of more than twice as long it finds %q", found)
	}
}

// A saved observation equals the original.
func TestKeep(t *testing.T) {
	var kept bytes.Buffer
	if err := one().Keep(&kept); err != nil {
		t.Fatal(err)
	}
	read, err := Read(&kept)
	if err != nil {
		t.Fatal(err)
	}
	if found := SameEnd(one(), read); len(found) > 0 {
		t.Errorf("it differs: %q", found)
	}
	if len(OneManager(read.Writes)) > 0 || len(read.Writes) != len(one().Writes) || read.Writes[5].Paused == nil {
		t.Errorf("its writes are %+v", read.Writes)
	}
}

// The judge shares no code with what it judges.
func TestIndependence(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range parsed.Imports {
			if strings.Contains(i.Path.Value, "slipway") {
				t.Errorf("%s imports %s", file, i.Path.Value)
			}
		}
	}
}

// A reference is not taken while the provider has trouble: its condition would be missed in every case after it.
func TestSettled(t *testing.T) {
	for status, want := range map[string]bool{"True": true, "False": false, "": false} {
		w := good("aaaaa", "1", "127.0.0.1", 1)
		o := Object{"kind": "HetznerCluster", "metadata": map[string]any{"name": "k8s"}}
		if status != "" {
			o["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": status}}}
		}
		c := w.Clusters[Workload]
		c.Objects = append(c.Objects, o)
		w.Clusters[Workload] = c
		if Settled(w) != want {
			t.Errorf("with a HetznerCluster whose Ready is %q: %v", status, !want)
		}
	}
	if !Settled(good("aaaaa", "1", "127.0.0.1", 1)) {
		t.Error("an observation without a HetznerCluster never settles")
	}
}
