package test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// publicAddress is a client on the internet, privateAddress a client in a private network.
var publicAddress, privateAddress = netip.MustParseAddr("203.0.113.66"), netip.MustParseAddr("10.9.8.7")

// firstDay is the cluster of TestFirstDay, and what happens to it.
type firstDay struct {
	*command
	project
}

// TestFirstDay runs the target all, from nothing to a cluster that manages itself behind its firewall, and then what
// happens to such a cluster next. All parts use one lab, in this order. With -short no server is added or replaced.
func TestFirstDay(t *testing.T) {
	c := newSharing(t, "all")
	d := &firstDay{command: c}
	part := func(name string, f func(*firstDay, *testing.T)) {
		ok := t.Run(name, func(t *testing.T) {
			inner := *c
			inner.t = t
			f(&firstDay{command: &inner, project: d.project}, t)
		})
		if !ok {
			t.FailNow() // later parts depend on it
		}
	}
	part("all, from nothing", (*firstDay).fromNothing)
	d.project = c.project()
	part("it manages itself, and nothing was made twice", (*firstDay).managesItself)
	part("the controllers' logs", (*firstDay).logs)
	part("the report", (*firstDay).report)
	part("run again, nothing changes", (*firstDay).again)
	part("the configuration changes", (*firstDay).configurationChanges)
	if testing.Short() {
		return
	}
	c.share("all")
	part("the firewall", (*firstDay).firewall)
	part("a vanished server is replaced", (*firstDay).vanishedServer)
	part("five servers, all behind the firewall", (*firstDay).fiveServers)
	part("the load balancer is deleted", (*firstDay).loadBalancerDeleted)
	part("three servers again", (*firstDay).threeServers)
	part("a changed configuration is applied", (*firstDay).applied)
	part("it is adopted", (*firstDay).adopted)
}

func (d *firstDay) fromNothing(t *testing.T) {
	if _, err := os.Stat(d.state); !os.IsNotExist(err) {
		t.Fatalf("there is a state folder already: %v", err)
	}
	o := d.run(nil, "all", "--lab")
	if o.exit != 0 {
		t.Fatalf("exit %d\n%s", o.exit, o.end())
	}
	t.Logf("from nothing in %.1fs", o.elapsed.Seconds())
	for _, step := range []string{"pivot", "access", "firewall-apply", "clean"} {
		began, ended, ok := o.span(step)
		if !ok {
			t.Errorf("step %s did not run to its end", step)
		}
		t.Logf("%-15s %6.1fs", step, ended.Sub(began).Seconds())
	}
}

// managesItself checks the result: the objects of Cluster API, the lab's clusters, and all that was ever created at
// Hetzner.
func (d *firstDay) managesItself(t *testing.T) {
	inv := objectsIn(t, d.command, "kubeconfig")
	if is := clusterState(inv); !strings.HasPrefix(is, "active") || len(inv.All()) < 15 {
		t.Errorf("the cluster holds of itself: %s objects", is)
	}
	reconciled := map[string]int{}
	for i := range inv.Moved {
		o := &inv.Moved[i]
		kind := o.GetKind()
		if !slices.Contains([]string{"Cluster", "HetznerCluster", "TalosControlPlane", "Machine", "HCloudMachine"}, kind) {
			continue
		}
		reconciled[kind]++
		observed, told, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
		if told && observed != o.GetGeneration() || !isReady(o) {
			t.Errorf("%s %s is not reconciled: generation %d, status %v", kind, o.GetName(), o.GetGeneration(),
				o.Object["status"])
		}
	}
	if want := map[string]int{"Cluster": 1, "HetznerCluster": 1, "TalosControlPlane": 1, "Machine": 3,
		"HCloudMachine": 3}; !maps.Equal(reconciled, want) {
		t.Errorf("objects %v, want %v", reconciled, want)
	}
	var status struct {
		Clusters []struct{ Name, Kind string }
	}
	d.labGet("/v1/status", &status)
	for _, k := range status.Clusters {
		if k.Kind == "management" {
			t.Errorf("the management cluster %s is still there", k.Name)
		}
	}
	// One server and the key are the temporary ones that the image was made with, one placement group reserves the name.
	want := map[string]int{"servers": 4, "ssh_keys": 1, "create_image": 1, "networks": 1, "load_balancers": 1,
		"primary_ips": 1, "placement_groups": 2, "firewalls": 1}
	if made := d.created(t); !maps.Equal(made, want) {
		t.Errorf("made at Hetzner: %v, want %v", made, want)
	}
}

func isReady(o *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Ready" && condition["status"] == "True"
	})
}

// again repeats all: with the journal, and then with everything but the kubeconfig lost. Nothing is created.
func (d *firstDay) again(t *testing.T) {
	servers := serverWrites(t, d.command)
	again := func(what string, want ...string) {
		t.Helper()
		wrote := writes(t, d.command)
		o := d.run(nil, "all", "--lab")
		if o.exit != 0 {
			t.Fatalf("%s: exit %d\n%s", what, o.exit, o.end())
		}
		if want == nil {
			if ran := o.steps("step-started"); len(ran) > 0 {
				t.Errorf("%s: %v ran", what, ran)
			}
			if after := writes(t, d.command); len(after) != len(wrote) {
				t.Errorf("%s: it wrote %v", what, after[len(wrote):])
			}
		}
		if after := serverWrites(t, d.command); len(after) != len(servers) {
			t.Errorf("%s: servers were touched: %v", what, after[len(servers):])
		}
	}
	if len(writes(t, d.command)) == 0 {
		t.Fatal("the records show no write of the first run: they cannot prove anything")
	}
	again("run again")
	keep, err := os.ReadFile(filepath.Join(d.state, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	remove := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if err := os.RemoveAll(filepath.Join(d.state, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove("journal.json")
	again("with the journal lost", "pivot")
	remove("journal.json", "pivot")
	again("with the journal and the copy lost", "kind-create")
	remove("journal.json", "pivot", "kubeconfig", "management.kubeconfig")
	o := d.run(nil, "all", "--lab")
	if o.exit != 1 || !strings.Contains(o.output, "MANAGEMENT_KUBECONFIG") ||
		slices.Contains(o.steps("step-done"), "kind-create") {
		t.Errorf("with the state folder lost: exit %d, ran %v\n%s", o.exit, o.steps("step-done"), o.output)
	}
	if err := os.WriteFile(filepath.Join(d.state, "kubeconfig"), keep, 0o600); err != nil {
		t.Fatal(err)
	}
	again("with the kubeconfig found again", "kind-create")
}

// configurationChanges requests a change that the target bootstrap does not make after the pivot, which is refused, and
// one that it makes: another chart's values.
func (d *firstDay) configurationChanges(t *testing.T) {
	wrote := len(writes(t, d.command))
	for _, c := range []struct{ value, says string }{
		{"KUBERNETES_VERSION=v1.36.5", "and the cluster has v1.35.4; to change the cluster: bootstrap upgrade"},
		{"SERVER_TYPE=cx43", "and the cluster has cx33; to change the cluster: "},
		{"LOCATION=fsn1", "and the cluster has nbg1; to change the cluster: it cannot be changed"},
	} {
		o := d.run(nil, "bootstrap", "--lab", c.value)
		if o.exit != 2 || !strings.Contains(o.output, c.says) || len(o.steps("step-started")) > 0 {
			t.Errorf("%s: exit %d, ran %v\n%s", c.value, o.exit, o.steps("step-started"), o.output)
		}
	}
	if after := writes(t, d.command); len(after) != wrote {
		t.Errorf("refused runs wrote %v", after[wrote:])
	}
	own := t.TempDir()
	if err := os.Mkdir(filepath.Join(own, "bootstrap"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(own, "bootstrap", "cilium-values.yaml"),
		[]byte("bpf: {preallocateMaps: false}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--dir", own}, nil} { // and reverted
		o := d.run(nil, append([]string{"bootstrap", "--lab"}, args...)...)
		if o.exit != 0 || !slices.Equal(o.steps("step-started"), []string{"cilium", "wait-releases"}) ||
			strings.Contains(o.output, "and the cluster has") {
			t.Errorf("other values (%v): exit %d, ran %v\n%s", args, o.exit, o.steps("step-started"), o.output)
		}
	}
}

// firewall evaluates the simulated cloud's rules, before and after the firewall was opened by hand.
func (d *firstDay) firewall(t *testing.T) {
	d.closed(t, 3)
	wall := d.openFirewall(t)
	for _, s := range d.clusterServers(t) {
		if !d.allows(t, s, publicAddress, 6443) {
			t.Fatalf("server %s refuses all clients on 6443 although its firewall was opened: the rules are not "+
				"evaluated correctly",
				s.Name)
		}
	}
	o := d.run(nil, "all", "--lab")
	if o.exit != 0 || !slices.Equal(o.steps("step-started"), []string{"firewall"}) {
		t.Errorf("after the firewall was opened by hand: exit %d, ran %v\n%s", o.exit, o.steps("step-started"), o.output)
	}
	for _, words := range []string{"it has in tcp 6443 for 0.0.0.0/0",
		"lets 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 in on 6443 and 50000, and nothing else"} {
		if !strings.Contains(o.output, words) {
			t.Errorf("it does not say %q\n%s", words, o.output)
		}
	}
	d.closed(t, 3)
	if is := must(d.Firewall.All(t.Context()))(t); !slices.ContainsFunc(is, func(f *hcloud.Firewall) bool {
		return f.ID == wall
	}) {
		t.Error("the firewall is another one")
	}
	notes := d.status(t).Notes
	if len(notes) != 1 ||
		!regexp.MustCompile(`load balancer .* answers every address on 6443 and 50000`).MatchString(notes[0]) {
		t.Errorf("status does not say what the firewall cannot cover: %q", notes)
	}
}

// statusReport is the part of `status --output json` that the tests read.
type statusReport struct {
	Steps []struct{ Step, State, World, Reason string }
	Notes []string
}

func (d *firstDay) status(t *testing.T) (s statusReport) {
	t.Helper()
	out, err := d.cmd(t.Context(), "status", "--lab", "--output", "json").Output()
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		t.Fatalf("status: %v\n%s", err, out)
	}
	return s
}

// verdict is the status's verdict on a step.
func (s statusReport) verdict(step string) (answer, reason string) {
	for _, one := range s.Steps {
		if one.Step == step {
			return one.World, one.Reason
		}
	}
	return "", ""
}

// created counts what was ever created at Hetzner, by any client.
func (d *firstDay) created(t *testing.T) map[string]int {
	t.Helper()
	made := map[string]int{}
	collection := regexp.MustCompile(`^/v1/([a-z_]+)$`)
	for _, r := range hetznerRequests(t, d.command) {
		if r.Method != "POST" || r.Status != http.StatusCreated {
			continue
		}
		if m := collection.FindStringSubmatch(r.Path); m != nil {
			made[m[1]]++
		} else if strings.HasSuffix(r.Path, "/actions/create_image") {
			made["create_image"]++
		}
	}
	return made
}
