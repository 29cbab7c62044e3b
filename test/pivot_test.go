package test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// crashVariable selects all moments of TestPivot; without it only a few, so that a run stays short.
const crashVariable = "ALL_MOMENTS"

// moment is a point in a pivot at which the command is killed: a while after one of its progress lines.
type moment struct {
	phase string
	line  string // part of the line
	after time.Duration
	abort bool // run pivot --abort before the next pivot
	short bool // one of the few
}

func moments() []moment {
	const ms = time.Millisecond
	return []moment{
		{phase: "install", line: "installing cluster-api"},
		{phase: "install", line: "installing cluster-api", after: 3000 * ms},
		{phase: "install", line: "installing cluster-api", after: 8000 * ms},
		{phase: "install", line: "waiting for the providers to serve"},
		{phase: "copy", line: "copying "},
		{phase: "copy", line: "copying ", after: 60 * ms},
		{phase: "copy", line: "pausing the management cluster"},
		{phase: "copy", line: "moving "},
		{phase: "create", line: "(1 of "},
		{phase: "create", line: "(3 of ", abort: true, short: true},
		{phase: "create", line: "(9 of ", after: 20 * ms},
		{phase: "create", line: "(16 of "},
		{phase: "create", line: "(22 of ", abort: true},
		{phase: "delete", line: "(22 of ", after: 250 * ms},
		{phase: "delete", line: "(22 of ", after: 600 * ms, short: true},
		{phase: "delete", line: "(22 of ", after: 1000 * ms},
		{phase: "delete", line: "(22 of ", after: 1500 * ms},
		{phase: "unpause", line: "comparing every object"},
		{phase: "unpause", line: "unpausing cluster"},
		{phase: "verify", line: "unpausing cluster", after: 300 * ms},
		{phase: "verify", line: "unpausing cluster", after: 100 * ms},
	}
}

// TestPivot moves a cluster into itself: once undisturbed, and then killed at one moment after the other; at last the
// cluster is destroyed. Each time begins with the same bootstrapped cluster: the lab is saved and loaded as files.
func TestPivot(t *testing.T) {
	c := bootstrapped(t, "bootstrap")
	base := filepath.Join(t.TempDir(), "bootstrapped")
	c.down()
	copyFolder(t, c.state, base)

	p := &pivoted{command: c, base: base}
	if !t.Run("undisturbed", p.undisturbed) {
		return
	}
	t.Run("forged kubeconfig", p.forgedKubeconfig)
	var table strings.Builder
	fmt.Fprintf(&table, "%-8s  %-45s  %-28s  %s\n", "PHASE", "KILLED", "LEFT (management/cluster)", "NEXT RUN")
	for i, m := range moments() {
		if !m.short && os.Getenv(crashVariable) == "" {
			continue
		}
		t.Run(fmt.Sprintf("%02d %s", i+1, m.phase), func(t *testing.T) { p.killed(t, m, &table) })
	}
	t.Logf("moments:\n%s", table.String())
	t.Run("destroy", p.destroyed)
}

// destroyed destroys a cluster that manages itself, after its temporary management cluster was deleted.
func (p *pivoted) destroyed(t *testing.T) {
	c := *p.command
	c.t = t
	project := c.project()
	own := project.everything(t)
	project.plantForeign(t)
	foreign := slices.DeleteFunc(project.everything(t), func(line string) bool { return slices.Contains(own, line) })
	c.loseManagement()
	o := c.run(nil, "destroy", "--yes", "--images", "--volumes", "--lab")
	if o.exit != 0 || !strings.Contains(o.output, "pausing cluster k8s, which manages itself") {
		t.Fatalf("exit %d\n%s", o.exit, o.end())
	}
	t.Logf("destroyed in %.1fs", o.elapsed.Seconds())
	if left := project.everything(t); !slices.Equal(left, foreign) {
		t.Errorf("left\n%s\nwant only the resources of others\n%s", strings.Join(left, "\n"), strings.Join(foreign, "\n"))
	}
}

// pivoted is the cluster under test and the result of an undisturbed pivot.
type pivoted struct {
	*command
	base      string
	reference capi.Inventory
}

func (c *command) down() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if out, err := c.exec(ctx, "lab", "down"); err != nil {
		c.t.Fatalf("lab down: %v\n%s", err, out)
	}
}

// restore loads the bootstrapped cluster again.
func (p *pivoted) restore(t *testing.T) *command {
	t.Helper()
	c := *p.command
	c.t = t
	c.down()
	if err := os.RemoveAll(c.state); err != nil {
		t.Fatal(err)
	}
	copyFolder(t, p.base, c.state)
	return &c
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	// cp keeps modes and the lab's links, and shares blocks where the file system can.
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v\n%s", from, err, out)
	}
}

// objectsIn reads the Cluster API objects of a kubeconfig's cluster. The load balancer may lead a connection to an API
// server that does not answer any more: then it asks again.
func objectsIn(t *testing.T, c *command, kubeconfig string) capi.Inventory {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.state, kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	var inv capi.Inventory
	eventually(t, "the objects of Cluster API", time.Minute, func(ctx context.Context) string {
		cluster, err := kube.Connect(data)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		if inv, err = capi.ReadInventory(ctx, cluster, "default"); err != nil {
			return err.Error()
		}
		return ""
	})
	return inv
}

// clusterState says whether a cluster has the Cluster object, and whether that is paused.
func clusterState(inv capi.Inventory) string {
	for _, o := range inv.Moved {
		if o.GetKind() == "Cluster" {
			if spec, _ := o.Object["spec"].(map[string]any); spec["paused"] == true {
				return fmt.Sprintf("paused, %d", len(inv.All()))
			}
			return fmt.Sprintf("active, %d", len(inv.All()))
		}
	}
	return fmt.Sprintf("none, %d", len(inv.All()))
}

// hetznerRequest is a line of the simulated Hetzner API's request log.
type hetznerRequest struct {
	Method, Path, Actor string
	Status              int
	Write               bool // may have changed something
}

func hetznerRequests(t *testing.T, c *command) []hetznerRequest {
	t.Helper()
	file, err := os.Open(filepath.Join(c.state, "lab", "hetzner-requests.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []hetznerRequest
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		var r hetznerRequest
		if err := json.Unmarshal(scanner.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// serverWrites are the requests, of any client, that created, changed or deleted servers.
func serverWrites(t *testing.T, c *command) []string {
	t.Helper()
	var found []string
	for _, r := range hetznerRequests(t, c) {
		if r.Write && strings.HasPrefix(r.Path, "/v1/servers") {
			found = append(found, r.Method+" "+r.Path)
		}
	}
	return found
}

// undisturbed pivots once, for the comparison.
func (p *pivoted) undisturbed(t *testing.T) {
	c := p.restore(t)
	before := serverWrites(t, c)
	if len(before) == 0 {
		t.Fatal("the request log shows no server being made: it cannot prove anything")
	}
	if o := c.run(nil, "pivot", "--lab"); o.exit != 0 {
		t.Fatalf("exit %d\n%s", o.exit, o.end())
	}
	p.reference = objectsIn(t, c, "kubeconfig")
	if is := clusterState(p.reference); !strings.HasPrefix(is, "active") || len(p.reference.All()) < 15 {
		t.Errorf("the cluster holds of itself: %s objects", is)
	}
	if after := serverWrites(t, c); len(after) != len(before) {
		t.Errorf("servers were touched: %v", after[len(before):])
	}
}

// killed pivots once with a kill at a moment, and then to the end.
func (p *pivoted) killed(t *testing.T, m moment, table *strings.Builder) {
	c := p.restore(t)
	before := serverWrites(t, c)
	hit := false
	o := c.run(func(e event, process *os.Process) {
		if hit || e.Step != "pivot" || !strings.Contains(e.Message, m.line) {
			return
		}
		hit = true
		time.AfterFunc(m.after, func() { _ = process.Kill() }) // it may have ended; the exit code decides
	}, "pivot", "--lab")
	if !hit || o.exit != -1 {
		t.Fatalf("not killed: it never said %q, or ended first (exit %d)\n%s", m.line, o.exit, o.end())
	}
	source, target := objectsIn(t, c, "management.kubeconfig"), objectsIn(t, c, "kubeconfig")
	left := clusterState(source) + " / " + clusterState(target)
	if strings.HasPrefix(clusterState(source), "active") && strings.HasPrefix(clusterState(target), "active") {
		t.Errorf("both sides are unpaused")
	}
	statusReportsThePivot(t, c)
	next := "pivot"
	if m.abort {
		next = "pivot --abort, pivot"
		p.abort(t, c, source)
	}
	o = c.run(nil, "pivot", "--lab")
	if o.exit != 0 {
		t.Fatalf("the next run: exit %d\n%s", o.exit, o.end())
	}
	fmt.Fprintf(table, "%-8s  %-45s  %-28s  %s, done in %.1fs\n", m.phase, fmt.Sprintf("%q+%s", m.line, m.after), left,
		next, o.elapsed.Seconds())

	if left := objectsIn(t, c, "management.kubeconfig").All(); len(left) > 0 {
		t.Errorf("left at the source: %v", keysOf(left))
	}
	sameAs(t, p.reference, objectsIn(t, c, "kubeconfig"))
	if after := serverWrites(t, c); len(after) != len(before) {
		t.Errorf("servers were touched: %v", after[len(before):])
	}
}

// statusReportsThePivot asserts that status reports of a killed pivot where the objects are, and how to resume it.
func statusReportsThePivot(t *testing.T, c *command) {
	t.Helper()
	out, err := c.cmd(t.Context(), "status", "--lab", "--output", "json").Output()
	if err != nil {
		t.Fatalf("status: %v\n%s", err, out)
	}
	var status struct {
		Now struct {
			Pivot struct{ Management, Cluster, Sentence, Command string }
		}
	}
	if err := json.Unmarshal(out, &status); err != nil {
		t.Fatalf("status: %v\n%s", err, out)
	}
	is := status.Now.Pivot
	if !strings.Contains(is.Management+is.Cluster, "the Cluster object") ||
		!strings.Contains(is.Sentence, "it was interrupted") ||
		!strings.HasPrefix(is.Command, "bootstrap pivot --lab") {
		t.Errorf("of the pivot that was killed, status says %+v", is)
	}
}

// abort aborts the pivot and checks that the management cluster is as before.
func (p *pivoted) abort(t *testing.T, c *command, was capi.Inventory) {
	t.Helper()
	o := c.run(nil, "pivot", "--abort", "--lab")
	if o.exit != 0 {
		t.Fatalf("pivot --abort: exit %d\n%s", o.exit, o.end())
	}
	is := objectsIn(t, c, "management.kubeconfig")
	if s := clusterState(is); !strings.HasPrefix(s, "active") || !maps.Equal(keysOf(is.All()), keysOf(was.All())) {
		t.Errorf("after pivot --abort the management cluster holds %s objects: %v", s, keysOf(is.All()))
	}
	if left := objectsIn(t, c, "kubeconfig").All(); len(left) > 0 {
		t.Errorf("after pivot --abort the cluster still holds %v", keysOf(left))
	}
}

func keysOf(objects []unstructured.Unstructured) map[string]bool {
	all := map[string]bool{}
	for _, o := range objects {
		all[capi.ObjectKeyOf(&o).String()] = true
	}
	return all
}

// sameAs asserts that a killed pivot has the same result as the undisturbed one. Only the talosconfig may differ: its
// provider writes a new certificate into it whenever it reconciles a machine.
func sameAs(t *testing.T, want, is capi.Inventory) {
	t.Helper()
	if s := clusterState(is); !strings.HasPrefix(s, "active") {
		t.Errorf("the cluster holds of itself: %s objects", s)
	}
	found := map[string]*unstructured.Unstructured{}
	for _, o := range is.All() {
		found[capi.ObjectKeyOf(&o).String()] = &o
	}
	for _, w := range want.All() {
		key := capi.ObjectKeyOf(&w).String()
		o := found[key]
		delete(found, key)
		if o == nil {
			t.Errorf("%s is not there", key)
			continue
		}
		differences := slices.DeleteFunc(capi.Differences(&w, o), func(d string) bool {
			return key == "Secret k8s-talosconfig" && strings.HasPrefix(d, "data")
		})
		if len(differences) > 0 {
			t.Errorf("%s differs from that of the undisturbed pivot: %v", key, differences)
		}
		if capi.IsMarked(o) {
			t.Errorf("%s carries the mover's mark", key)
		}
	}
	if len(found) > 0 {
		t.Errorf("more than after the undisturbed pivot: %v", slices.Collect(maps.Keys(found)))
	}
}
