package etcd_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/mvcc"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/etcd/etcdtest"
)

// putPods stores a Deployment as an API server does, with a ReplicaSet and so many Pods.
func putPods(t *testing.T, store mvcc.KV, name string, labels map[string]string, pods int) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	put := func(folder, name string, o runtime.Object) {
		var stored bytes.Buffer
		if err := protobuf.NewSerializer(scheme, scheme).Encode(o, &stored); err != nil {
			t.Fatal(err)
		}
		store.Put([]byte("/registry/"+folder+"/space/"+name), stored.Bytes(), lease.NoLease)
	}
	meta := func(name, owner string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: "space", Name: name, UID: types.UID("uid-of-" + name)}
		if owner != "" {
			m.OwnerReferences = []metav1.OwnerReference{{UID: types.UID("uid-of-" + owner), Name: owner}}
		}
		return m
	}
	deployment := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: meta(name, "")}
	deployment.Labels = labels
	put("deployments", name, deployment)
	put("replicasets", name+"-1", &appsv1.ReplicaSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"}, ObjectMeta: meta(name+"-1", name)})
	for i := range pods {
		pod := name + "-1-" + strings.Repeat("x", i+1)
		put("pods", pod, &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: meta(pod, name+"-1")})
	}
}

// A snapshot whose Deployments were taken out is one that etcd restores, without them and with all else.
func TestSilence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "snapshot.db")
	const others = 450 // Pods: more than are read at once
	var out bytes.Buffer
	revision := etcdtest.Snapshot(t, &out, "7a3b", func(store mvcc.KV) {
		putPods(t, store, "caph", map[string]string{"cluster.x-k8s.io/provider": "infrastructure-hetzner"}, 1)
		putPods(t, store, "capi", map[string]string{"cluster.x-k8s.io/provider": "cluster-api"}, 2)
		putPods(t, store, "theirs", map[string]string{"cluster.x-k8s.io/other": ""}, others)
	})
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := inspect(t, out.Bytes())
	if err != nil || before.Keys != 1+3+4+2+others {
		t.Fatalf("%+v, %v", before, err)
	}
	silenced, err := etcd.Silence(file, "cluster.x-k8s.io/provider")
	if err != nil || !slices.Equal(silenced, []string{"space/caph", "space/capi"}) {
		t.Fatalf("%v, %v", silenced, err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// 2 Deployments, 2 ReplicaSets and 3 Pods are gone, each in a revision of its own.
	after, err := inspect(t, data)
	if err != nil || after.UID != "7a3b" || after.Keys != before.Keys-7 || after.Revision != revision+7 {
		t.Errorf("%+v, %v; it was %+v", after, err, before)
	}
	if again, err := etcd.Silence(file, "cluster.x-k8s.io/provider"); err != nil || len(again) > 0 {
		t.Errorf("a second time: %v, %v", again, err)
	}
}

func TestSilenceRefusesWhatIsNoSnapshot(t *testing.T) {
	good, _ := database(t, "")
	for name, data := range map[string][]byte{"without its checksum": good[:len(good)-32], "empty": {}, "no database": make([]byte, 8192+32)} {
		file := filepath.Join(t.TempDir(), "snapshot.db")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if silenced, err := etcd.Silence(file, "label"); err == nil {
			t.Errorf("%s: %v", name, silenced)
		}
	}
}
