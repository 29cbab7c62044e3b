package test

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/clusterapi"
	"github.com/slipway-k8s/slipway/internal/effect"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/talos"
)

// restoreKills are the moments at which a restore is ended, one after the other, each run going on with what the one before
// left. Every run of the tests ends it at the two calls that make an etcd: before the server has heard of them, and when it has
// answered. On demand it is ended at the beginning and at the end of every step of the recovery, too.
func restoreKills(all bool) []string {
	calls := map[string][]string{
		"etcd-recover":   {"before talos EtcdRecover machine.MachineService#1", "applied talos EtcdRecover machine.MachineService#1"},
		"etcd-bootstrap": {"before talos Bootstrap machine.MachineService#1", "applied talos Bootstrap machine.MachineService#1"},
	}
	var kills []string
	for _, step := range []string{
		"lost", "kind-create", "capi-init", "seed", "firewall-lift", "apply", "servers", "etcd-recover", "etcd-bootstrap", "quiet", "sweep", "etcd-members",
		"release", "talosconfig", "wait-nodes", "access", "clean",
	} {
		if all {
			kills = append(kills, "saved journal save "+step+"/started#1")
		}
		kills = append(kills, calls[step]...)
		if all {
			kills = append(kills, "before journal save "+step+"/done#1")
		}
	}
	return kills
}

// TestRestore loses all servers of a cluster that manages itself and gets it back out of a backup, with kills at the two calls
// that make an etcd.
func TestRestore(t *testing.T) {
	c := bootstrapped(t, "all")
	l := &lostCluster{command: c}
	l.mark(t)
	l.backUp(t)
	l.write(t, "after", "ConfigMap", map[string]string{"written": "after the backup"})

	refused := c.run(nil, "restore", l.file, "--lab")
	if refused.exit != 1 || !strings.Contains(refused.output, "is not lost") || slices.Contains(refused.steps("step-done"), "lost") {
		t.Errorf("a restore over a living cluster: exit %d\n%s", refused.exit, refused.output)
	}
	l.loseServers(t)
	l.restoreKilled(t, restoreKills(os.Getenv(crashVariable) != ""))
	l.isBack(t)

	// From here on it is a cluster like any other.
	before := serverWrites(t, c)
	if o := c.run(nil, "all", "--lab"); o.exit != 0 {
		t.Errorf("all, after the restore: exit %d\n%s", o.exit, o.output)
	}
	if after := serverWrites(t, c); len(after) != len(before) {
		t.Errorf("all, after the restore, touched servers: %v", after[len(before):])
	}
}

// lostCluster is a cluster before and after it was lost.
type lostCluster struct {
	*command
	file     string // the backup
	uid, ca  string
	endpoint string
	token    string  // of a service account, issued before the backup
	servers  []int64 // before
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

// mark writes what has to be there again, and remembers who the cluster is.
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

// authority is what signs the API server's certificate, and where that is, as the kubeconfig has them.
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

// loseServers deletes every server of the project, as nobody's controller does.
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

// restoreKilled runs a restore that ends itself at one call after the other, and then one to the end.
func (l *lostCluster) restoreKilled(t *testing.T, kills []string) {
	t.Helper()
	for i, kill := range kills {
		c := *l.command
		c.env = append(slices.Clone(c.env), effect.CrashVariable+"="+kill)
		o := c.run(nil, "restore", l.file, "--lab")
		if o.exit != -1 {
			t.Fatalf("restore %d with %q was not killed: exit %d\n%s", i+1, kill, o.exit, o.output)
		}
		t.Logf("killed %s after %.1fs", kill, o.elapsed.Seconds())
		if i > 0 {
			continue
		}
		began := l.run(nil, "bootstrap", "--lab")
		if began.exit != 2 || !strings.Contains(began.output, "restore") {
			t.Errorf("a bootstrap in the middle of a restore: exit %d\n%s", began.exit, began.output)
		}
	}
	o := l.run(nil, "restore", l.file, "--lab")
	if o.exit != 0 {
		t.Fatalf("restore: exit %d\n%s", o.exit, o.output)
	}
	for _, name := range []string{"etcd-bootstrap", "quiet", "sweep", "etcd-members", "release", "wait-nodes", "pivot"} {
		if began, ended, ok := o.span(name); ok {
			t.Logf("%-15s %6.1fs", name, ended.Sub(began).Seconds())
		} else {
			t.Errorf("step %s did not run to its end", name)
		}
	}
	if strings.Contains(o.output, "plantedSecretOfTheLostCluster") {
		t.Error("a Secret of the cluster stands in the output")
	}
}

// isBack looks at whether it is the same cluster, whole, with what it had at the backup and nothing of the lost servers.
func (l *lostCluster) isBack(t *testing.T) {
	t.Helper()
	c, ctx := l.cluster(t), t.Context()
	if uid, err := c.UID(ctx); err != nil || uid != l.uid {
		t.Errorf("kube-system has the UID %s (%v), it was %s", uid, err, l.uid)
	}
	if ca, endpoint := l.authority(t); ca != l.ca || endpoint != l.endpoint {
		t.Errorf("the API is at %s (it was at %s), its authority is the same: %v", endpoint, l.endpoint, ca == l.ca)
	}
	l.dataIsBack(t, c)
	l.tokenWorks(t)
	// One was founded by the bootstrap, the other restored from the snapshot.
	if founded, restored := l.etcdsMade(t); founded != 2 || restored != 1 {
		t.Errorf("the servers were asked %d times to make an etcd and %d restored one, want 2 and 1", founded, restored)
	}
	l.nothingIsStale(t, c)
	for _, name := range []string{"etcd.snapshot", "etcd.snapshot.new"} {
		if _, err := os.Lstat(filepath.Join(l.state, "restore", name)); err == nil {
			t.Errorf("%s is left in the state folder, with every secret of the cluster", name)
		}
	}
}

func (l *lostCluster) dataIsBack(t *testing.T, c *kube.Cluster) {
	t.Helper()
	maps := &corev1.ConfigMapList{}
	if err := c.List(t.Context(), maps, client.InNamespace(markedNamespace)); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, m := range maps.Items {
		found[m.Name] = m.Data["written"]
	}
	for i := range 50 {
		if name := fmt.Sprintf("data-%d", i); found[name] != fmt.Sprint(i) {
			t.Errorf("ConfigMap %s holds %q", name, found[name])
		}
	}
	if _, there := found["after"]; there {
		t.Error("what was written after the backup is there: this is not what was restored")
	}
	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: markedNamespace, Name: "hidden"}, secret); err != nil || string(secret.Data["word"]) != "plantedSecretOfTheLostCluster" {
		t.Errorf("the Secret cannot be read: %v", err)
	}
}

// tokenWorks asks the cluster who the bearer of the old token is.
func (l *lostCluster) tokenWorks(t *testing.T) {
	t.Helper()
	ca, endpoint := l.authority(t)
	visitor, err := kube.Connect([]byte(fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
		"clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\nusers: [{name: u, user: {token: %q}}]\n",
		endpoint, base64.StdEncoding.EncodeToString([]byte(ca)), l.token)))
	if err != nil {
		t.Fatal(err)
	}
	review := objectOf("authentication.k8s.io/v1", "SelfSubjectReview", "", "")
	if err := visitor.Create(t.Context(), review); err != nil {
		t.Fatalf("the token of before the backup is not taken: %v", err)
	}
	if name, _, _ := unstructured.NestedString(review.Object, "status", "userInfo", "username"); name != "system:serviceaccount:marked:visitor" {
		t.Errorf("the token of before the backup is %q's", name)
	}
}

// etcdsMade counts, in the lab's log, how often a server founded an etcd and how often one restored it.
func (l *lostCluster) etcdsMade(t *testing.T) (founded, restored int) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(l.state, "lab", "lab.log"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(log), "etcd is bootstrapped"), strings.Count(string(log), "etcd is restored from a snapshot")
}

// nothingIsStale compares servers, nodes, Machines and etcd's members.
func (l *lostCluster) nothingIsStale(t *testing.T, c *kube.Cluster) {
	t.Helper()
	servers, err := hetzner.Servers(t.Context(), l.project().Client, "k8s")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, s := range servers {
		want[s.Name] = true
		if slices.Contains(l.servers, s.ID) {
			t.Errorf("server %s was lost and is there", s.Name)
		}
	}
	if len(want) != 3 {
		t.Errorf("%d servers", len(want))
	}
	same := func(what string, names []string) {
		t.Helper()
		if len(names) != len(want) || slices.ContainsFunc(names, func(n string) bool { return !want[n] }) {
			t.Errorf("%s are %v, the servers %v", what, names, want)
		}
	}
	nodes := &corev1.NodeList{}
	if err := c.List(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range nodes.Items {
		names = append(names, n.Name)
		if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			t.Errorf("node %s is not Ready", n.Name)
		}
	}
	same("the nodes", names)
	inv := side(t, l.command, "kubeconfig")
	if s := standing(inv); !strings.HasPrefix(s, "active") {
		t.Errorf("the cluster holds of itself: %s", s)
	}
	names = nil
	for _, o := range inv.All() {
		if clusterapi.KeyOf(&o).Kind.Kind == "HCloudMachine" {
			names = append(names, o.GetName())
		}
	}
	same("the HCloudMachines", names)
	same("etcd's members", l.etcdMembers(t))
}

func (l *lostCluster) etcdMembers(t *testing.T) (names []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(l.state, "talosconfig"))
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := talos.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	endpoints, _ := credentials.Targets()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	members, err := credentials.EtcdMembers(ctx, endpoints[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		if m.Learner {
			t.Errorf("etcd's member %s does not vote", m.Name)
		}
		names = append(names, m.Name)
	}
	return names
}
