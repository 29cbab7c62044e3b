package test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// bootstrapSteps are the steps of the target bootstrap.
var bootstrapSteps = []string{"image", "kind-create", "capi-init", "secret", "apply", "wait-cp", "kubeconfig",
	"talosconfig", "cilium", "hcloud-ccm", "talos-ccm", "wait-nodes"}

// TestRehearsal covers the first promise: from nothing to three Ready nodes, with real etcd, kube-apiserver, CAPI,
// CABPT and CACPPT; and then what operators do next. All parts use one lab, in this order.
func TestRehearsal(t *testing.T) {
	c := newCommand(t)
	part := func(name string, f func(*testing.T, *command)) {
		ok := t.Run(name, func(t *testing.T) {
			inner := *c
			inner.t = t
			f(t, &inner)
		})
		if !ok {
			t.FailNow() // later parts depend on it
		}
	}
	part("from nothing", fromNothing)
	part("every change is recorded", everyEffectIsRecorded)
	part("three nodes of the configured version", nodesAreReady)
	part("three etcd members through the load balancer", etcdMembers)
	part("run again, nothing changes", runAgain)
	part("a backup while it is in use", func(t *testing.T, c *command) { backsUp(t, c, false) })
	part("two at once", twoAtOnce)
	part("the same cluster from another state folder", anotherStateFolder)
	part("what only the API can refuse", refusedByTheAPI)
	part("the doctor", doctorLooks)
	part("a changed value runs its step again", changedValues)
	part("a deleted release is noticed", deletedRelease)
	part("an unreachable management cluster is not recreated", unreachableManagement)
	part("a second snapshot of the name", secondSnapshot)
	part("status", statusReports)
	part("help is fast", helpIsFast)
	part("faults of the lab", labFaults)
	part("saved and loaded", savedAndLoaded)
	part("a lost lab is noticed, and an interrupted run continues", lostLabAndInterrupt)
	part("no secret anywhere", noSecrets)
	part("lab down leaves nothing", downLeavesNothing)
}

func fromNothing(t *testing.T, c *command) {
	few := false // requests are left at Hetzner, from the first step on
	o := c.run(func(e event, _ *os.Process) {
		if e.Kind == "run-started" && !few {
			few = true
			c.lab("fault", "add", "low-budget", "remaining=200")
		}
	}, "--lab")
	if o.exit != 0 {
		t.Fatalf("exit %d\n%s", o.exit, o.end())
	}
	for _, says := range []string{"the rate limit of the Hetzner project is low", "of 3600 requests are left",
		"is not low any more"} {
		if !strings.Contains(o.output, says) {
			t.Errorf("with 200 requests left at Hetzner it does not say %q", says)
		}
	}
	var slow struct {
		Hetzner struct{ Requests, Slowed, WaitedNs int }
	}
	last := o.output[strings.LastIndex(strings.TrimSpace(o.output), "\n")+1:]
	if err := json.Unmarshal([]byte(last), &slow); err != nil || slow.Hetzner.Slowed == 0 || slow.Hetzner.WaitedNs == 0 {
		t.Errorf("its summary does not say how slow Hetzner was: %+v, %v", slow, err)
	}
	c.lab("fault", "remove", "1")
	t.Logf("from nothing to Ready nodes in %.1fs, command %d MiB at most", o.elapsed.Seconds(), o.maxRSS>>20)
	for _, step := range bootstrapSteps {
		began, ended, ok := o.span(step)
		if !ok {
			t.Errorf("step %s did not run to its end", step)
			continue
		}
		t.Logf("%-12s %6.1fs", step, ended.Sub(began).Seconds())
	}
	if !slices.ContainsFunc(o.events, func(e event) bool {
		return e.Step == "wait-cp" && strings.HasPrefix(e.Message, "waiting for ") &&
			strings.Contains(e.Message, "of 3 servers")
	}) {
		t.Error("wait-cp never said how many of the servers are there")
	}
	overlap(t, o, "cilium", "hcloud-ccm", "talos-ccm")
	overlap(t, o, "image", "kind-create")
	fewHetznerRequests(t, c, o.elapsed)
	if limit := int64(250 << 20); o.maxRSS > limit {
		t.Errorf("the command took %d MiB, more than %d", o.maxRSS>>20, limit>>20)
	}
	var status labStatus
	c.labGet("/v1/status", &status)
	var rss int64
	for _, p := range status.Processes {
		rss += p.RSSBytes
	}
	t.Logf("the lab's %d processes take %d MiB", len(status.Processes), rss>>20)
	if limit := int64(4 << 30); rss > limit || rss == 0 {
		t.Errorf("the lab's processes take %d MiB; between 1 and %d are expected", rss>>20, limit>>20)
	}
}

// fewHetznerRequests bounds what the command asks Hetzner in a bootstrap: 70 requests, and where the machine is slow
// two more for each five seconds beyond 40 seconds, in which a wait looks again.
func fewHetznerRequests(t *testing.T, c *command, took time.Duration) {
	t.Helper()
	made := map[string]int{}
	total := 0
	for _, r := range hetznerRequests(t, c) {
		if ours(r.Actor) {
			made[r.Method+" "+r.Path]++
			total++
		}
	}
	limit := 70 + 2*int(max(0, took-40*time.Second)/(5*time.Second))
	t.Logf("the command sent %d requests to Hetzner in %.1fs", total, took.Seconds())
	if total > limit || total < 20 {
		t.Errorf("the command sent %d requests to Hetzner in %s, between 20 and %d are expected: %v", total, took, limit,
			made)
	}
}

// overlap asserts that all of the steps ran at the same time.
func overlap(t *testing.T, o outcome, steps ...string) {
	t.Helper()
	var lastBegin, firstEnd time.Time
	for _, s := range steps {
		began, ended, ok := o.span(s)
		if !ok {
			t.Errorf("step %s did not run", s)
			return
		}
		if began.After(lastBegin) {
			lastBegin = began
		}
		if firstEnd.IsZero() || ended.Before(firstEnd) {
			firstEnd = ended
		}
	}
	if !lastBegin.Before(firstEnd) {
		t.Errorf("%s were never at work at once", strings.Join(steps, ", "))
	}
}

// reason is why a step ran, as the run says it.
func (o outcome) reason(step string) string {
	for _, e := range o.events {
		if e.Kind == "step-started" && e.Step == step {
			return e.Message
		}
	}
	return "it did not run"
}

func runAgain(t *testing.T, c *command) {
	before := writes(t, c)
	if len(before) == 0 {
		t.Fatal("the records show no write of the first run: they cannot prove anything")
	}
	o := c.run(nil, "--lab")
	if o.exit != 0 {
		t.Fatalf("exit %d\n%s", o.exit, o.end())
	}
	t.Logf("again in %.2fs", o.elapsed.Seconds())
	reused := o.steps("step-reused")
	for _, step := range bootstrapSteps {
		if !slices.Contains(reused, step) {
			t.Errorf("step %s was not reused: %s", step, o.reason(step))
		}
	}
	if after := writes(t, c); len(after) != len(before) {
		t.Errorf("the second run wrote: %v", after[len(before):])
	}
	// Three seconds is what the run takes on two idle cores; noise is allowed for.
	if o.elapsed > 40*time.Second {
		t.Errorf("run again it took %s", o.elapsed)
	}
}

// twoAtOnce starts a run while another is in step endpoint, whose requests Hetzner refuses.
func twoAtOnce(t *testing.T, c *command) {
	id, _, _ := strings.Cut(strings.TrimPrefix(c.lab("fault", "add", "rate-limit", "path=/primary_ips"), "fault "), ":")
	var second outcome
	first := c.run(func(e event, p *os.Process) {
		if second.output != "" || e.Kind != "step-verifying" { // before that it may not have the journal's lock
			return
		}
		second = c.run(nil, "--lab")
		if !strings.Contains(second.output, strconv.Itoa(p.Pid)) {
			t.Errorf("the second run does not name the first, process %d:\n%s", p.Pid, second.output)
		}
		c.lab("fault", "remove", id)
	}, "--lab", "wait-nodes")
	if second.exit != 1 || !strings.Contains(second.output, "another run is at work since") {
		t.Errorf("the second run of two: exit %d\n%s", second.exit, second.output)
	}
	if first.exit != 0 {
		t.Errorf("the first run of two: exit %d\n%s", first.exit, first.output)
	}
}

// refusedByTheAPI configures what only the API can refuse: each time exit code 1, the reason, and nothing created.
func refusedByTheAPI(t *testing.T, c *command) {
	before := writes(t, c)
	o := c.run(nil, "--lab", "SERVER_TYPE=cx99")
	if o.exit != 1 || !strings.Contains(o.output, "cx99") || !strings.Contains(o.output, "cx33") {
		t.Errorf("an unknown server type: exit %d\n%s", o.exit, o.end())
	}
	// The code path of a real run, with a token that this Hetzner refuses.
	var info struct {
		HetznerEndpoint string `json:"hetznerEndpoint"`
	}
	c.labGet("/v1/info", &info)
	elsewhere := *c
	elsewhere.state = filepath.Join(t.TempDir(), "state")
	elsewhere.env = []string{"HCLOUD_ENDPOINT=" + info.HetznerEndpoint}
	o = elsewhere.run(nil, "preflight")
	if o.exit != 1 || !strings.Contains(o.output, "does not accept the API token") {
		t.Errorf("a wrong token: exit %d\n%s", o.exit, o.end())
	}
	files, err := filesUnder(elsewhere.state)
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of the run with a wrong token, %v", len(files), err)
	}
	for path, data := range files {
		if bytes.Contains(data, []byte(plantedToken)) {
			t.Errorf("the token is in %s", path)
		}
	}
	if wrote := added(before, writes(t, c)); len(wrote) > 0 {
		t.Errorf("it wrote: %v", wrote)
	}
	if o := c.run(nil, "--lab"); o.exit != 0 {
		t.Errorf("with the right values again: exit %d\n%s", o.exit, o.end())
	}
}

func changedValues(t *testing.T, c *command) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "bootstrap"), 0o755); err != nil {
		t.Fatal(err)
	}
	own := []byte("debug:\n  enabled: true\n")
	if err := os.WriteFile(filepath.Join(dir, "bootstrap", "cilium-values.yaml"), own, 0o644); err != nil {
		t.Fatal(err)
	}
	// In no clone of the project: the lab is up.
	elsewhere := *c
	elsewhere.dir = dir
	planTellsTheChange(t, &elsewhere)
	o := elsewhere.run(nil, "--lab")
	if o.exit != 0 {
		t.Fatalf("exit %d\n%s", o.exit, o.end())
	}
	ran := slices.Sorted(slices.Values(o.steps("step-done")))
	if !slices.Equal(ran, []string{"cilium", "wait-nodes", "wait-releases"}) {
		t.Errorf("after a change of Cilium's values %v ran, not cilium and what waits for it", ran)
	}
	keepsBuiltInValues(t, c)
	showsValuesOfTheLab(t, &elsewhere)
	// Back to the project's own values, for what follows.
	if o := c.run(nil, "--lab"); o.exit != 0 {
		t.Fatalf("exit %d\n%s", o.exit, o.end())
	}
}

func deletedRelease(t *testing.T, c *command) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client := workload(t, c)
	err := client.CoreV1().Secrets("kube-system").DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "owner=helm,name=" + releaseOf(t, client, "talos")})
	if err != nil {
		t.Fatal(err)
	}
	o := c.run(nil, "--lab")
	if o.exit != 0 {
		t.Fatalf("exit %d\n%s", o.exit, o.end())
	}
	ran := o.steps("step-done")
	others := slices.DeleteFunc(slices.Clone(ran), func(s string) bool {
		return s == "talos-ccm" || s == "wait-nodes" || s == "wait-releases"
	})
	if !slices.Contains(ran, "talos-ccm") || len(others) > 0 {
		t.Errorf("after the loss of talos-ccm's release %v ran", ran)
	}
	releaseOf(t, client, "talos") // it is installed again
}

// releaseOf finds the name of the deployed release with a prefix.
func releaseOf(t *testing.T, client *kubernetes.Clientset, prefix string) string {
	t.Helper()
	secrets, err := client.CoreV1().Secrets("kube-system").List(context.Background(),
		metav1.ListOptions{LabelSelector: "owner=helm,status=deployed"})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets.Items {
		if strings.HasPrefix(s.Labels["name"], prefix) {
			return s.Labels["name"]
		}
	}
	t.Fatalf("no deployed release begins with %q", prefix)
	return ""
}

func unreachableManagement(t *testing.T, c *command) {
	var status labStatus
	c.labGet("/v1/status", &status)
	pid := 0
	for _, p := range status.Processes {
		if strings.Contains(p.Name, "apiserver") && strings.HasSuffix(p.Cluster, "-mgmt") {
			pid = p.PID
		}
	}
	if pid == 0 {
		t.Fatalf("the lab names no apiserver of the management cluster: %v", status.Processes)
	}
	before := writes(t, c)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	o := c.run(nil, "--lab")
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if o.exit != 1 || !strings.Contains(o.output, "this step created nothing") {
		t.Errorf("against a management cluster that does not answer: exit %d\n%s", o.exit, o.end())
	}
	if ran := o.steps("step-started"); len(ran) > 0 {
		t.Errorf("steps %v were run", ran)
	}
	if wrote := added(before, writes(t, c)); len(wrote) > 0 {
		t.Errorf("it wrote: %v", wrote)
	}
	if o := c.run(nil, "--lab"); o.exit != 0 || len(o.steps("step-started")) > 0 {
		t.Errorf("when it answers again: exit %d, ran %v\n%s", o.exit, o.steps("step-started"), o.output)
	}
}

// secondSnapshot creates a second snapshot that Cluster API would find, too.
func secondSnapshot(t *testing.T, c *command) {
	p := c.project()
	p.plantSnapshot(t)
	o := c.run(nil, "--lab")
	for _, words := range []string{"2 images", "image --prune",
		"snapshot " + strconv.FormatInt(p.talosSnapshots(t)[1].ID, 10)} {
		if o.exit != 1 || !strings.Contains(o.output, words) {
			t.Errorf("with two snapshots: exit %d, and it should say %q\n%s", o.exit, words, o.output)
		}
	}
	if o := c.run(nil, "image", "--prune", "--yes", "--lab"); o.exit != 0 || len(p.talosSnapshots(t)) != 1 {
		t.Errorf("image --prune: exit %d, %d snapshots left\n%s", o.exit, len(p.talosSnapshots(t)), o.output)
	}
	if o := c.run(nil, "--lab"); o.exit != 0 || slices.Contains(o.steps("step-done"), "kind-create") {
		t.Errorf("with one again: exit %d, ran %v\n%s", o.exit, o.steps("step-done"), o.output)
	}
}
