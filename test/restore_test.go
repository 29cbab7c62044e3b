package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/restore"
)

// restoreCalls are the two calls that create an etcd: before the server has received them, and after it has answered.
var restoreCalls = []string{
	"before talos EtcdRecover machine.MachineService#1", "applied talos EtcdRecover machine.MachineService#1",
	"before talos Bootstrap machine.MachineService#1", "applied talos Bootstrap machine.MachineService#1",
}

// restoreMoments are the moments at which a restore is killed: at those calls, and on demand at the beginning and at
// the end of each of its steps.
func (l *lostCluster) restoreMoments(t *testing.T) []string {
	t.Helper()
	if !everyMoment() {
		return restoreCalls
	}
	cfg, tools := onPaper()
	return append(momentsOf(must(restore.New(cfg, tools, l.source(t)))(t).Graph), restoreCalls...)
}

// TestRestore loses all servers of a cluster that manages itself and restores it from a backup, with kills at the two
// calls that create an etcd.
func TestRestore(t *testing.T) {
	c := bootstrapped(t, "all")
	l := &lostCluster{command: c}
	l.made, _ = l.etcdsMade(t)
	l.mark(t)
	l.backUp(t)
	l.write(t, "after", "ConfigMap", map[string]string{"written": "after the backup"})

	refused := c.run(nil, "restore", l.file, "--identity", l.identity, "--lab")
	if refused.exit != 1 || !strings.Contains(refused.output, "is not lost") || slices.Contains(refused.steps("step-done"),
		"lost") {
		t.Errorf("a restore over a living cluster: exit %d\n%s", refused.exit, refused.output)
	}
	l.loseServers(t)
	if d := l.diagnose(t, l.file, "--identity", l.identity); d.Disaster != "servers-lost" ||
		!strings.HasPrefix(d.Command, "bootstrap restore "+l.file+" --lab") ||
		d.Backup.Taken.IsZero() || d.Takes.Seconds <= 0 {
		t.Errorf("of a cluster without servers: %+v", d)
	}
	l.restoreKilled(t)
	l.isRestored(t)

	// From here on it is an ordinary cluster.
	before := serverWrites(t, c)
	if o := c.run(nil, "all", "--lab"); o.exit != 0 {
		t.Errorf("all, after the restore: exit %d\n%s", o.exit, o.end())
	}
	if after := serverWrites(t, c); len(after) != len(before) {
		t.Errorf("all, after the restore, touched servers: %v", after[len(before):])
	}
}

// lostCluster is a cluster before and after it was lost.
type lostCluster struct {
	*command
	file     string // the backup
	identity string // file with its key
	uid, ca  string
	endpoint string
	token    string   // of a service account, issued before the backup
	servers  []int64  // before the loss
	made     []string // how an etcd was created, before the loss
}

const markedNamespace = "marked"

func (l *lostCluster) cluster(t *testing.T) *kube.Cluster {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(l.state, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := kube.Connect(data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func objectOf(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// write makes an object with texts in it.
func (l *lostCluster) write(t *testing.T, name, kind string, texts map[string]string) {
	t.Helper()
	o := objectOf("v1", kind, markedNamespace, name)
	field := "data"
	if kind == "Secret" {
		field = "stringData"
	}
	values := map[string]any{}
	for k, v := range texts {
		values[k] = v
	}
	o.Object[field] = values
	if err := l.cluster(t).Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// mark writes the data that the restore must bring back, and records the cluster's identity.
func (l *lostCluster) mark(t *testing.T) {
	t.Helper()
	c, ctx := l.cluster(t), t.Context()
	if err := c.Create(ctx, objectOf("v1", "Namespace", "", markedNamespace)); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		l.write(t, fmt.Sprintf("data-%d", i), "ConfigMap", map[string]string{"written": fmt.Sprint(i)})
	}
	l.write(t, "hidden", "Secret", map[string]string{"word": "plantedSecretOfTheLostCluster"})
	account := objectOf("v1", "ServiceAccount", markedNamespace, "visitor")
	if err := c.Create(ctx, account); err != nil {
		t.Fatal(err)
	}
	request := objectOf("authentication.k8s.io/v1", "TokenRequest", "", "")
	request.Object["spec"] = map[string]any{"expirationSeconds": int64(7200)}
	if err := c.SubResource("token").Create(ctx, account, request); err != nil {
		t.Fatal(err)
	}
	l.token, _, _ = unstructured.NestedString(request.Object, "status", "token")
	var err error
	if l.uid, err = c.UID(ctx); err != nil {
		t.Fatal(err)
	}
	l.ca, l.endpoint = l.authority(t)
	if l.token == "" || l.ca == "" {
		t.Fatal("the cluster gives no token, or no authority")
	}
}

// backUp backs the cluster up as an operator does, encrypted to a key that the restore gets.
func (l *lostCluster) backUp(t *testing.T) {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	l.identity = filepath.Join(folder, "key.txt")
	if err := os.WriteFile(l.identity, []byte(key.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before, stop := writes(t, l.command), use(t, l.command)
	if o := l.run(nil, "backup", "--lab", "--to", folder, "BACKUP_RECIPIENTS="+key.Recipient().String(),
		"BACKUP_IDENTITY_FILE="+l.identity); o.exit != 0 {
		t.Fatalf("backup: exit %d\n%s", o.exit, o.end())
	}
	if stop() == 0 {
		t.Error("the cluster was not in use meanwhile")
	}
	if wrote := added(before, writes(t, l.command)); len(wrote) > 0 {
		t.Errorf("backup wrote to a cluster that manages itself: %v", wrote)
	}
	verifies(t, l.command, folder, l.identity, true)
	files, err := filepath.Glob(filepath.Join(folder, "*.slipway"))
	if err != nil || len(files) != 1 {
		t.Fatalf("backups: %v, %v", files, err)
	}
	l.file = files[0]
}

// authority is the certificate authority of the API server, and its address, from the kubeconfig.
func (l *lostCluster) authority(t *testing.T) (ca, endpoint string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(l.state, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	return string(config.CAData), config.Host
}

// loseServers deletes every server of the project, which no controller would do.
func (l *lostCluster) loseServers(t *testing.T) {
	t.Helper()
	p, ctx := l.project(), t.Context()
	all, err := p.Server.All(ctx)
	if err != nil || len(all) != 3 {
		t.Fatalf("%d servers, %v: want 3 to lose", len(all), err)
	}
	for _, s := range all {
		l.servers = append(l.servers, s.ID)
		if _, _, err := p.Server.DeleteWithResult(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		left, err := p.Server.All(ctx)
		if err == nil && len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d servers are still there: %v", len(left), err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// hasNoControllers checks that a cluster that has just been restored has no running controllers from before the loss.
func (l *lostCluster) hasNoControllers(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(l.state, "restore", "lost", "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := kube.Connect(data)
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(2 * time.Minute)
	for {
		found := &appsv1.DeploymentList{}
		err := c.List(t.Context(), found, client.HasLabels{"cluster.x-k8s.io/provider"})
		if err == nil {
			for _, d := range found.Items {
				t.Errorf("Deployment %s/%s is there and waits for a node", d.Namespace, d.Name)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the restored cluster does not answer: %v", err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// restoreKilled runs restores, one killed at each moment, and then one to the end.
func (l *lostCluster) restoreKilled(t *testing.T) {
	t.Helper()
	refused := false
	o := l.killedAt(t, l.restoreMoments(t), func(moment string) {
		if strings.HasPrefix(moment, "applied talos Bootstrap") {
			l.hasNoControllers(t)
		}
		if refused || strings.Contains(moment, " lost/") { // the folder does not belong to the restore yet
			return
		}
		refused = true
		began := l.run(nil, "bootstrap", "--lab")
		if began.exit != 2 || !strings.Contains(began.output, "restore") {
			t.Errorf("a bootstrap in the middle of a restore: exit %d\n%s", began.exit, began.output)
		}
	}, "restore", l.file, "--identity", l.identity, "--lab")
	if !everyMoment() { // otherwise an earlier run has done it
		o.logSteps(t, "etcd-bootstrap", "quiet", "sweep", "etcd-members", "release", "wait-nodes", "pivot")
	}
	if strings.Contains(o.output, "plantedSecretOfTheLostCluster") {
		t.Error("a Secret of the cluster is in the output")
	}
}
