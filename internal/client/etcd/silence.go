package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
)

// Where Kubernetes keeps what makes Pods run. None of it is encrypted.
const (
	deploymentsPrefix = "/registry/deployments/"
	replicaSetsPrefix = "/registry/replicasets/"
	podsPrefix        = "/registry/pods/"
)

// pageOf is how many objects are in memory at once.
const pageOf = 200

// Silence takes the Deployments that carry a label out of a snapshot, with their ReplicaSets and Pods: an API server on
// it never knew them, so that no kubelet starts them. The snapshot is changed in its place, and its checksum with it;
// where it fails, the file is worth nothing. The names of the Deployments are returned, as namespace/name.
func Silence(file, label string) (silenced []string, err error) {
	defer func() {
		if p := recover(); p != nil { // how etcd's library says that a database is damaged
			err = fmt.Errorf("take Deployments out of the etcd snapshot: %v", p)
		}
	}()
	if err := cutChecksum(file); err != nil {
		return nil, err
	}
	if silenced, err = silence(file, label); err != nil {
		return nil, fmt.Errorf("take Deployments out of the etcd snapshot: %w", err)
	}
	return silenced, addChecksum(file)
}

// cutChecksum leaves the database of a snapshot, whose pages are multiples of 512 bytes.
func cutChecksum(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.Size()%512 != sha256.Size {
		return fmt.Errorf("%s has no checksum at its end: it is no snapshot as etcd sends it", file)
	}
	return os.Truncate(file, info.Size()-sha256.Size)
}

func addChecksum(file string) (err error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil { // to the end, where it is written
		return err
	}
	if _, err := f.Write(sum.Sum(nil)); err != nil {
		return err
	}
	return f.Sync()
}

func silence(file, label string) (silenced []string, err error) {
	database := backend.NewDefaultBackend(zap.NewNop(), file)
	defer func() { err = errors.Join(err, database.Close()) }()
	store := mvcc.NewStore(zap.NewNop(), database, &lease.FakeLessor{}, mvcc.StoreConfig{})
	defer func() { err = errors.Join(err, store.Close()) }()
	defer store.Commit()

	gone := map[types.UID]bool{} // and all that they own
	doomed := func(o metav1.Object) bool {
		return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return gone[r.UID] })
	}
	for _, prefix := range []string{deploymentsPrefix, replicaSetsPrefix, podsPrefix} {
		err := each(store, prefix, func(key string, o metav1.Object) {
			_, labelled := o.GetLabels()[label]
			if !doomed(o) && (prefix != deploymentsPrefix || !labelled) {
				return
			}
			gone[o.GetUID()] = true
			store.DeleteRange([]byte(key), nil)
			if prefix == deploymentsPrefix {
				silenced = append(silenced, strings.TrimPrefix(key, deploymentsPrefix))
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return silenced, nil
}

// each goes through the objects below a prefix.
func each(store mvcc.KV, prefix string, do func(key string, o metav1.Object)) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme)); err != nil {
		return err
	}
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	end := prefix[:len(prefix)-1] + string(prefix[len(prefix)-1]+1) // the first key behind all that begin so
	for from := prefix; ; {
		// a local file does not wait
		page, err := store.Range(context.Background(), []byte(from), []byte(end), mvcc.RangeOptions{Limit: pageOf})
		if err != nil {
			return fmt.Errorf("read %s: %w", prefix, err)
		}
		for _, kv := range page.KVs {
			o, _, err := decoder.Decode(bytes.Clone(kv.Value), nil, nil)
			if err != nil {
				return fmt.Errorf("read %s: %w", kv.Key, err)
			}
			object, ok := o.(metav1.Object)
			if !ok {
				return fmt.Errorf("read %s: it is a %T", kv.Key, o)
			}
			do(string(kv.Key), object)
			from = string(kv.Key) + "\x00"
		}
		if len(page.KVs) < pageOf {
			return nil
		}
	}
}
