// Package etcdtest makes etcd snapshots for tests.
package etcdtest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
)

// Snapshot writes a snapshot as etcd's server sends it, of a store that fill has filled, and returns its revision. With
// a uid it holds the namespace kube-system of a cluster.
func Snapshot(t testing.TB, to io.Writer, uid string, fill func(mvcc.KV)) (revision int64) {
	t.Helper()
	b := backend.NewDefaultBackend(zap.NewNop(), filepath.Join(t.TempDir(), "db"))
	defer b.Close()
	store := mvcc.New(zap.NewNop(), b, &lease.FakeLessor{}, mvcc.StoreConfig{})
	defer store.Close()
	if uid != "" {
		store.Put([]byte("/registry/namespaces/kube-system"), kubeSystem(t, uid), lease.NoLease)
	}
	fill(store)
	store.Commit()
	s := b.Snapshot()
	defer s.Close()
	sum := sha256.New()
	_, err := s.WriteTo(io.MultiWriter(to, sum))
	if err == nil {
		_, err = to.Write(sum.Sum(nil))
	}
	if err != nil {
		t.Fatal(err)
	}
	return store.Rev()
}

// kubeSystem is a namespace as an API server stores it.
func kubeSystem(t testing.TB, uid string) []byte {
	return stored(t, &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: types.UID(uid)},
	})
}

// PutDeployment puts a Deployment of the namespace "space" into a store, as an API server stores it, with a ReplicaSet
// and so many Pods.
func PutDeployment(t testing.TB, store mvcc.KV, name string, labels map[string]string, pods int) {
	t.Helper()
	put := func(folder, name string, o runtime.Object) {
		store.Put([]byte("/registry/"+folder+"/space/"+name), stored(t, o), lease.NoLease)
	}
	meta := func(name, owner string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: "space", Name: name, UID: types.UID("uid-of-" + name)}
		if owner != "" {
			m.OwnerReferences = []metav1.OwnerReference{{UID: types.UID("uid-of-" + owner), Name: owner}}
		}
		return m
	}
	deployment := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: meta(name, "")}
	deployment.Labels = labels
	put("deployments", name, deployment)
	put("replicasets", name+"-1", &appsv1.ReplicaSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"},
		ObjectMeta: meta(name+"-1", name)})
	for i := range pods {
		pod := name + "-1-" + strings.Repeat("x", i+1)
		put("pods", pod, &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: meta(pod, name+"-1")})
	}
}

func stored(t testing.TB, o runtime.Object) []byte {
	t.Helper()
	scheme := runtime.NewScheme()
	var b bytes.Buffer
	err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme))
	if err == nil {
		err = protobuf.NewSerializer(scheme, scheme).Encode(o, &b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
