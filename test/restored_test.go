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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// isRestored checks that it is the same cluster, complete, with the data of the backup and nothing of the lost servers.
func (l *lostCluster) isRestored(t *testing.T) {
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
	// The call may be repeated after a kill; what counts is that one server created one etcd, from the snapshot.
	made, restored := l.etcdsMade(t)
	if made = added(l.made, made); len(restored) != 1 || len(made) < 1 ||
		slices.ContainsFunc(made, func(line string) bool { return !strings.Contains(line, "true") }) {
		t.Errorf("since the loss servers were asked to make an etcd:\n%sand restored one:\n%s", strings.Join(made, ""),
			strings.Join(restored, ""))
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
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: markedNamespace, Name: "hidden"}, secret); err != nil ||
		string(secret.Data["word"]) != "plantedSecretOfTheLostCluster" {
		t.Errorf("the Secret cannot be read: %v", err)
	}
}

// tokenWorks asks the cluster for the identity of the old token.
func (l *lostCluster) tokenWorks(t *testing.T) {
	t.Helper()
	ca, endpoint := l.authority(t)
	visitor, err := kube.Connect(
		[]byte(fmt.Sprintf(
			"apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
				"clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\n"+
				"users: [{name: u, user: {token: %q}}]\n",
			endpoint, base64.StdEncoding.EncodeToString([]byte(ca)), l.token)))
	if err != nil {
		t.Fatal(err)
	}
	review := objectOf("authentication.k8s.io/v1", "SelfSubjectReview", "", "")
	// The load balancer may choose an API server that has just started and has not read the roles yet: it answers 403 to
	// everybody but system:masters until it has.
	eventually(t, "the token of before the backup to be accepted", time.Minute, func(ctx context.Context) string {
		if err := visitor.Create(ctx, review); err != nil {
			return err.Error()
		}
		return ""
	})
	name, _, _ := unstructured.NestedString(review.Object, "status", "userInfo", "username")
	if name != "system:serviceaccount:marked:visitor" {
		t.Errorf("the token of before the backup is %q's", name)
	}
}

// etcdsMade are the lines of the lab's log about a server that was asked to make
// an etcd, and about one that restored it.
func (l *lostCluster) etcdsMade(t *testing.T) (made, restored []string) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(l.state, "lab", "lab.log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "etcd is bootstrapped") {
			made = append(made, line)
		}
		if strings.Contains(line, "etcd is restored from a snapshot") {
			restored = append(restored, line)
		}
	}
	return made, restored
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
	inv := objectsIn(t, l.command, "kubeconfig")
	if s := clusterState(inv); !strings.HasPrefix(s, "active") {
		t.Errorf("the cluster holds of itself: %s", s)
	}
	names = nil
	for _, o := range inv.All() {
		if capi.ObjectKeyOf(&o).Kind.Kind == "HCloudMachine" {
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
	members, err := credentials.EtcdMembers(ctx, talos.Route{Endpoint: endpoints[0]})
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
