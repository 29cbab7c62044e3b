// Package etcdtest makes etcd snapshots for tests.
package etcdtest

import (
	"bytes"
	"crypto/sha256"
	"io"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/mvcc"
	"go.etcd.io/etcd/server/v3/mvcc/backend"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
)

// Snapshot writes a snapshot as etcd's server sends it, of a store that fill has filled, and returns its revision. With a uid
// it holds the namespace kube-system of a cluster.
func Snapshot(t testing.TB, to io.Writer, uid string, fill func(mvcc.KV)) (revision int64) {
	t.Helper()
	b := backend.NewDefaultBackend(filepath.Join(t.TempDir(), "db"))
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
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: types.UID(uid)},
	}
	var stored bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(namespace, &stored); err != nil {
		t.Fatal(err)
	}
	return stored.Bytes()
}
