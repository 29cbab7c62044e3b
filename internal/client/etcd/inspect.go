// Package etcd looks into etcd snapshots, as etcd's own library restores and reads them.
package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// kubeSystemKey is where Kubernetes keeps the namespace whose UID identifies a cluster. Namespaces are not encrypted.
const kubeSystemKey = "/registry/namespaces/" + metav1.NamespaceSystem

// Content is what a snapshot holds.
type Content struct {
	Revision int64  `json:"revision"`
	Keys     int    `json:"keys"` // that exist at this revision
	Hash     uint32 `json:"hash"` // of all buckets, as etcdutl snapshot status prints it
	Size     int64  `json:"size"` // of the database, in bytes
	// UID is that of the namespace kube-system; empty where there is none.
	UID string `json:"uid"`
}

// Inspect restores a snapshot into a folder that must not exist yet, as a new member would, and reads the member's
// store. It needs as much room there as the snapshot has, and leaves it to the caller to remove.
func Inspect(file, scratch string) (c Content, err error) {
	defer func() {
		if p := recover(); p != nil { // how etcd's library says that a database is damaged
			err = fmt.Errorf("restore the etcd snapshot: %v", p)
		}
	}()
	const name, peer = "verify", "http://127.0.0.1:2380" // no process listens there: no member is started
	manager := snapshot.NewV3(zap.NewNop())
	err = manager.Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: scratch, Name: name, PeerURLs: []string{peer}, InitialCluster: name + "=" + peer,
		InitialClusterToken: name,
	})
	if err != nil {
		return Content{}, fmt.Errorf("restore the etcd snapshot: %w", err)
	}
	// Only after the restore, which has compared the checksum: the database's own library trusts what it reads.
	status, err := manager.Status(file)
	if err != nil {
		return Content{}, fmt.Errorf("read the etcd snapshot: %w", err)
	}
	c = Content{Hash: status.Hash, Size: status.TotalSize}
	database := backend.NewDefaultBackend(zap.NewNop(), filepath.Join(scratch, "member", "snap", "db"))
	defer func() { err = errors.Join(err, database.Close()) }()
	store := mvcc.NewStore(zap.NewNop(), database, &lease.FakeLessor{}, mvcc.StoreConfig{})
	defer func() { err = errors.Join(err, store.Close()) }()
	ctx := context.Background() // reads of a local file do not wait
	all, err := store.Range(ctx, []byte{0}, []byte{}, mvcc.RangeOptions{Count: true})
	if err != nil {
		return Content{}, fmt.Errorf("count the keys of the etcd snapshot: %w", err)
	}
	c.Revision, c.Keys = all.Rev, all.Count
	found, err := store.Range(ctx, []byte(kubeSystemKey), nil, mvcc.RangeOptions{})
	if err != nil {
		return Content{}, fmt.Errorf("read %s of the etcd snapshot: %w", kubeSystemKey, err)
	}
	if len(found.KVs) > 0 {
		if c.UID, err = uid(found.KVs[0].Value); err != nil {
			return Content{}, fmt.Errorf("read %s of the etcd snapshot: %w", kubeSystemKey, err)
		}
	}
	return c, nil
}

// uid reads a namespace as an API server stores it.
func uid(stored []byte) (string, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return "", err
	}
	o, _, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(bytes.Clone(stored), nil, nil)
	if err != nil {
		return "", err
	}
	namespace, ok := o.(*corev1.Namespace)
	if !ok {
		return "", fmt.Errorf("it is a %T", o)
	}
	return string(namespace.UID), nil
}
