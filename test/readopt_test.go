package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/readopt"
	"github.com/slipway-k8s/slipway/test/stores"
)

// readoptCalls: half of the objects exist; the Cluster is unpaused, and the answer has not been read.
var readoptCalls = []string{
	"applied management create machines.cluster.x-k8s.io/default/k8s-control-plane-*#2",
	"applied management patch clusters.cluster.x-k8s.io/default/k8s#1",
}

// readoptMoments are the moments at which a readoption is killed: at some calls, and on demand at the beginning and at
// the end of each of its steps.
func (l *lostCluster) readoptMoments(t *testing.T, calls []string, accept ...string) []string {
	t.Helper()
	if !everyMoment() {
		return calls
	}
	cfg, tools := onPaper()
	return append(momentsOf(must(readopt.New(cfg, tools, l.source(t), accept))(t).Graph), calls...)
}

// TestReadopt loses the management of a cluster whose servers still run: first the temporary management cluster, before
// a pivot, without a backup; then, when the cluster manages itself, its own objects, of which there is only a backup
// from before a server was replaced; or those of a cluster with a worker pool, without a backup again.
func TestReadopt(t *testing.T) {
	c := bootstrapped(t, "bootstrap")
	l := &lostCluster{command: c}
	l.mark(t)
	l.saveBackup(t)
	refused := c.run(nil, "readopt", l.file, "--unencrypted", "--lab", "--yes")
	if refused.exit != 1 || !strings.Contains(refused.output, "management is not lost") {
		t.Errorf("a readoption of a cluster that is managed: exit %d\n%s", refused.exit, refused.output)
	}
	if o := c.run(nil, "backup", "--from-servers", "--lab", "--unencrypted"); o.exit != 2 ||
		!strings.Contains(o.output, "its objects are not lost") {
		t.Errorf("objects made of a cluster that has them: exit %d\n%s", o.exit, o.end())
	}
	l.awaitMachineNames(t)
	if err := c.labCall(http.MethodDelete, "/v1/management/k8s-mgmt", nil); err != nil {
		t.Fatal(err)
	}
	l.saveBackup(t, "--from-servers")
	if o := c.run(nil, "readopt", l.file, "--unencrypted", "--lab"); o.exit != 2 {
		t.Errorf("a readoption without consent: exit %d\n%s", o.exit, o.end())
	}
	before := serverWrites(t, c)
	l.readoptKilled(t)
	l.sameServers(t, before)
	if s := clusterState(objectsIn(t, c, "management.kubeconfig")); !strings.HasPrefix(s, "active") {
		t.Errorf("the management cluster holds: %s", s)
	}
	l.sameCluster(t)
	if o := c.run(nil, "all", "--lab"); o.exit != 0 {
		t.Fatalf("all, after the readoption: exit %d\n%s", o.exit, o.end())
	} else {
		t.Logf("all in %.1fs", o.elapsed.Seconds())
	}
	l.sameServers(t, before)
	l.nothingIsStale(t, l.cluster(t))
	// Each takes a minute, so they take turns, day by day; on demand both run.
	today := stores.Today() % 2
	if everyMoment() || today == 0 {
		l.readoptsItself(t)
	}
	if everyMoment() || today == 1 {
		l.readoptsWorkers(t)
	}
}

// awaitMachineNames waits until every node names its Machine, as Cluster API writes a moment after the node is Ready:
// what is made from the servers is called as before then.
func (l *lostCluster) awaitMachineNames(t *testing.T) {
	t.Helper()
	c := clientOf(t, filepath.Join(l.state, "kubeconfig"))
	eventually(t, "the names of the Machines", time.Minute, func(ctx context.Context) string {
		nodes, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, n := range nodes.Items {
			if n.Annotations["cluster.x-k8s.io/machine"] == "" {
				return n.Name + " has none"
			}
		}
		return ""
	})
}

// readoptsItself loses the objects of a cluster that manages itself, after a server was
// replaced of which the backup knows nothing.
func (l *lostCluster) readoptsItself(t *testing.T) {
	t.Helper()
	l.saveBackup(t)
	inv := objectsIn(t, l.command, "kubeconfig")
	replaced := ""
	for _, o := range inv.All() {
		if o.GetKind() == "HCloudMachine" {
			replaced = o.GetName()
		}
	}
	if o := l.run(nil, "replace-machine", replaced, "--lab"); o.exit != 0 {
		t.Fatalf("replace-machine %s: exit %d\n%s", replaced, o.exit, o.end())
	} else {
		t.Logf("replaced %s in %.1fs", replaced, o.elapsed.Seconds())
	}
	l.loseObjects(t)
	before, wrote := serverWrites(t, l.command), writes(t, l.command)
	o := l.run(nil, "readopt", l.file, "--unencrypted", "--lab", "--yes")
	ids := o.differences(t)
	missing, unknown := "server-missing/"+replaced, ""
	for _, id := range ids {
		if strings.HasPrefix(id, "server-unknown/") {
			unknown = id
		}
	}
	if o.exit != 1 || len(ids) != 2 || !slices.Contains(ids, missing) || unknown == "" ||
		!strings.Contains(o.output, "would create server") {
		t.Fatalf("a stale backup: exit %d, differences %v\n%s", o.exit, ids, o.output)
	}
	if o = l.run(nil, "readopt", l.file, "--unencrypted", "--lab", "--yes", "--accept", missing); o.exit != 1 ||
		!strings.Contains(o.output, unknown+":") || strings.Contains(o.output, missing+":") {
		t.Errorf("a stale backup, of which one difference is accepted: exit %d\n%s", o.exit, o.end())
	}
	if after := writes(t, l.command); len(after) != len(wrote) {
		t.Errorf("a refused readoption wrote: %v", after[len(wrote):])
	}
	o = l.killedAt(t, l.readoptMoments(t, nil, missing, unknown), func(string) {}, "readopt", l.file, "--unencrypted", "--lab", "--yes",
		"--accept", missing+","+unknown)
	if !everyMoment() {
		o.logSteps(t, "capi-init", "put-back", "unpause", "reconcile", "access")
	}
	l.sameServers(t, before)
	l.sameCluster(t)
	l.nothingIsStale(t, l.cluster(t))
	if o := l.run(nil, "all", "--lab"); o.exit != 0 {
		t.Errorf("all, after the readoption: exit %d\n%s", o.exit, o.end())
	}
	l.sameServers(t, before)
}

// readoptsWorkers loses the objects of a cluster with a worker pool, of which there is no backup, and of which the
// configuration knows less than its servers have.
func (l *lostCluster) readoptsWorkers(t *testing.T) {
	t.Helper()
	const pool = "workers:\n  - name: general\n    replicas: %d\n"
	file := filepath.Join(t.TempDir(), "bootstrap.yaml")
	configure := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure(fmt.Sprintf(pool, 2) + "    patches:\n      - |\n        machine:\n          sysctls:\n            " +
		"vm.swappiness: \"7\"\n")
	if o := l.run(nil, "all", "--lab", "--yes", "--config", file); o.exit != 0 {
		t.Fatalf("all, with workers: exit %d\n%s", o.exit, o.end())
	}
	l.loseObjects(t)
	before := serverWrites(t, l.command)
	configure(fmt.Sprintf(pool, 3))
	said := l.saveBackup(t, "--from-servers", "--config", file).output
	for _, want := range []string{"has 2 servers", "becomes a patch: machine.sysctls.vm.swappiness"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	if strings.Contains(said, "later differs") || strings.Contains(said, "differs from") {
		t.Errorf("servers that are the same differ:\n%s", said)
	}
	if o := l.run(nil, "readopt", l.file, "--unencrypted", "--lab", "--yes", "--config", file); o.exit != 0 {
		t.Fatalf("readopt, with workers: exit %d\n%s", o.exit, o.end())
	}
	l.sameServers(t, before)
	eventually(t, "the workers are Cluster API's again", time.Minute, func(ctx context.Context) string {
		inventory, err := capi.ReadInventory(ctx, l.cluster(t), "default")
		if err != nil {
			return err.Error()
		}
		for _, o := range inventory.All() {
			switch n := capi.Number(&o, "status", "readyReplicas"); {
			case o.GetKind() == "TalosConfigTemplate" && !strings.Contains(fmt.Sprint(o.Object["spec"]),
				"vm.swappiness"):
				t.Fatalf("a new worker would not get what the others have: %v", o.Object["spec"])
			case o.GetKind() == "MachineDeployment" && n != 2:
				return fmt.Sprintf("%d of 2 workers are ready", n)
			}
		}
		return ""
	})
	l.sameServers(t, before)
	l.isDescribed(t)
}

// isDescribed requires that adopt finds the cluster by the state folder alone.
func (l *lostCluster) isDescribed(t *testing.T) {
	t.Helper()
	empty := *l.command
	empty.dir = t.TempDir()
	said, err := empty.exec(t.Context(), "adopt", "--dry-run", "--lab")
	if err != nil || !strings.Contains(said, "cluster k8s: it manages itself") {
		t.Errorf("adopt --dry-run: %v\n%s", err, said)
	}
}

// TestReadoptMakesWhatIsMissing loses the management and one server. A new server is created only if the operator
// accepts that, by the control plane that scales up again. It runs on demand: unit tests cover the comparison.
func TestReadoptMakesWhatIsMissing(t *testing.T) {
	if !everyMoment() {
		t.Skipf("set %s=1 to lose a server besides the management", crashVariable)
	}
	c := bootstrapped(t, "bootstrap")
	l := &lostCluster{command: c}
	l.mark(t)
	l.saveBackup(t)
	if err := c.labCall(http.MethodDelete, "/v1/management/k8s-mgmt", nil); err != nil {
		t.Fatal(err)
	}
	lost := l.loseServer(t)
	before := serverWrites(t, c)
	o := c.run(nil, "readopt", l.file, "--unencrypted", "--lab", "--yes")
	if ids := o.differences(t); o.exit != 1 || !slices.Equal(ids, []string{"server-missing/" + lost}) {
		t.Fatalf("with a server that is gone: exit %d, differences %v\n%s", o.exit, ids, o.output)
	}
	l.sameServers(t, before)
	if err := c.labCall(http.MethodGet, "/v1/management/k8s-mgmt", nil); err == nil {
		t.Error("a refused readoption made a management cluster")
	}
	if o = c.run(nil, "readopt", l.file, "--unencrypted", "--lab", "--yes", "--accept", "server-missing/"+lost); o.exit != 0 {
		t.Fatalf("readopt, with the loss accepted: exit %d\n%s", o.exit, o.end())
	}
	t.Logf("readopted in %.1fs", o.elapsed.Seconds())
	o.logSteps(t, "sweep", "put-back", "reconcile", "wait-nodes")
	made := 0
	for _, write := range serverWrites(t, c)[len(before):] {
		switch {
		case write == "POST /v1/servers":
			made++
		case strings.HasPrefix(write, "DELETE "):
			t.Errorf("a server was deleted: %s", write)
		}
	}
	if made != 1 {
		t.Errorf("%d servers were made, want 1", made)
	}
	l.sameCluster(t)
	servers, err := c.project().Server.All(t.Context())
	if err != nil || len(servers) != 3 ||
		slices.ContainsFunc(servers, func(s *hcloud.Server) bool { return s.Name == lost }) {
		t.Errorf("the servers are %v, %v; %s was lost", servers, err, lost)
	}
}

// loseServer deletes one server, which no controller would do, and returns its name.
func (l *lostCluster) loseServer(t *testing.T) string {
	t.Helper()
	p, ctx := l.project(), t.Context()
	all, err := p.Server.All(ctx)
	if err != nil || len(all) != 3 {
		t.Fatalf("%d servers, %v: want 3", len(all), err)
	}
	if _, _, err := p.Server.DeleteWithResult(ctx, all[1]); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		s, _, err := p.Server.GetByID(ctx, all[1].ID)
		if err == nil && s == nil {
			return all[1].Name
		}
		if time.Now().After(deadline) {
			t.Fatalf("server %s is still there: %v", all[1].Name, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// saveBackup backs the cluster up with the command.
func (l *lostCluster) saveBackup(t *testing.T, flags ...string) outcome {
	t.Helper()
	folder := t.TempDir()
	o := l.run(nil, append([]string{"backup", "--lab", "--to", folder, "--unencrypted"}, flags...)...)
	if o.exit != 0 {
		t.Fatalf("backup %v: exit %d\n%s", flags, o.exit, o.end())
	}
	files, err := filepath.Glob(filepath.Join(folder, "k8s-*.slipway"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the backup is %v, %v", files, err)
	}
	l.file = files[0]
	return o
}

// readoptKilled runs readoptions, one killed at each moment, and then one to the end.
func (l *lostCluster) readoptKilled(t *testing.T) {
	t.Helper()
	o := l.killedAt(t, l.readoptMoments(t, readoptCalls), func(moment string) {
		if moment != readoptCalls[1] {
			return
		}
		if began := l.run(nil, "bootstrap", "--lab"); began.exit != 2 || !strings.Contains(began.output, "readopt") {
			t.Errorf("a bootstrap in the middle of a readoption: exit %d\n%s", began.exit, began.output)
		}
	}, "readopt", l.file, "--unencrypted", "--lab", "--yes")
	if !everyMoment() {
		o.logSteps(t, "reconcile", "wait-nodes")
	}
	if strings.Contains(o.output, "plantedSecretOfTheLostCluster") {
		t.Error("a Secret of the cluster is in the output")
	}
}

// logSteps requires that steps ended, and logs how long each took.
func (o outcome) logSteps(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if began, ended, ok := o.span(name); ok {
			t.Logf("%-15s %6.1fs", name, ended.Sub(began).Seconds())
		} else {
			t.Errorf("step %s did not run to its end", name)
		}
	}
}

// differences are the IDs of those that a readoption found.
func (o outcome) differences(t *testing.T) (ids []string) {
	t.Helper()
	for line := range strings.Lines(o.output) {
		var plan struct {
			Kind        string
			Differences []struct{ ID string }
		}
		if json.Unmarshal([]byte(line), &plan) == nil && plan.Kind == "readopt-plan" {
			for _, d := range plan.Differences {
				ids = append(ids, d.ID)
			}
		}
	}
	return ids
}

// sameServers requires that no server was created, deleted or changed since.
func (l *lostCluster) sameServers(t *testing.T, before []string) {
	t.Helper()
	if len(before) == 0 {
		t.Fatal("the request log shows no server being made: it cannot prove anything")
	}
	if after := serverWrites(t, l.command); len(after) != len(before) {
		t.Errorf("servers were touched: %v", after[len(before):])
	}
}

// sameCluster requires that the cluster's identity, data and keys have not changed.
func (l *lostCluster) sameCluster(t *testing.T) {
	t.Helper()
	c := l.cluster(t)
	if uid, err := c.UID(t.Context()); err != nil || uid != l.uid {
		t.Errorf("kube-system has the UID %s (%v), it was %s", uid, err, l.uid)
	}
	if ca, endpoint := l.authority(t); ca != l.ca || endpoint != l.endpoint {
		t.Errorf("the API is at %s (it was at %s), its authority is the same: %v", endpoint, l.endpoint, ca == l.ca)
	}
	l.dataIsBack(t, c)
	l.tokenWorks(t)
	if members := l.etcdMembers(t); len(members) != 3 {
		t.Errorf("etcd's members are %v", members)
	}
}

// loseObjects removes every object by which the cluster manages itself, without a reaction of its controllers.
func (l *lostCluster) loseObjects(t *testing.T) {
	t.Helper()
	c, ctx := l.cluster(t), t.Context()
	cluster := objectOf("cluster.x-k8s.io/v1beta1", "Cluster", "default", "k8s")
	if err := c.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":true}}`))); err !=
		nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(2 * time.Minute)
	for {
		inv, err := capi.ReadInventory(ctx, c, "default")
		if err == nil && strings.HasPrefix(clusterState(inv), "none") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the cluster still holds %s, %v", clusterState(inv), err)
		}
		// The Cluster last: its pause stops the controllers.
		all := inv.Of("k8s")
		// Cluster API makes a new one the Cluster's a moment later.
		checks := capi.ListOf(capi.MachineHealthCheckKind)
		if err := c.List(ctx, checks, client.InNamespace("default")); err != nil {
			t.Fatal(err)
		}
		all = append(all, checks.Items...)
		others := slices.DeleteFunc(slices.Clone(all), func(o unstructured.Unstructured) bool {
			return o.GetKind() == "Cluster"
		})
		if len(others) == 0 {
			others = all
		}
		for i := range others {
			l.removeForce(t, c, &others[i])
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// removeForce deletes an object without its finalizers, also where a controller that has
// not seen the pause adds its own again.
func (l *lostCluster) removeForce(t *testing.T, c *kube.Cluster, o *unstructured.Unstructured) {
	t.Helper()
	bare := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	for _, do := range []func() error{
		func() error { return c.Patch(t.Context(), o.DeepCopy(), bare) },
		func() error { return c.Delete(t.Context(), o.DeepCopy()) },
		func() error { return c.Patch(t.Context(), o.DeepCopy(), bare) },
	} {
		if err := client.IgnoreNotFound(do()); err != nil {
			t.Fatal(err)
		}
	}
}
