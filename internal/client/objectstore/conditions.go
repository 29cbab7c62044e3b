package objectstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
)

// probeName is the object that CheckConditions writes.
const probeName = "conditional-writes"

// wrongVersion is the version of no object: to S3 any other text than the ETag; to Kubernetes a revision of etcd before
// the first object, where 0 would mean any.
const wrongVersion = "1"

// CheckConditions makes sure that a store refuses a write that would replace another version than the one it names.
// Some S3-compatible stores take no notice of If-Match and If-None-Match: two writers would overwrite each other.
func CheckConditions(ctx context.Context, s Store) error {
	content := []byte("Slipway writes this to see whether the store refuses conditional writes (" + rand.Text() + ")\n")
	_, version, err := s.Get(ctx, probeName)
	if err != nil {
		version = None
	}
	if _, err := s.Put(ctx, probeName, content, version); err != nil && !errors.Is(err, ErrConflict) {
		return err
	}
	// It exists now, whoever wrote it, and has had no such version.
	for _, wrong := range []string{None, wrongVersion} {
		_, err := s.Put(ctx, probeName, content, wrong)
		if err == nil {
			return fmt.Errorf("%s takes no notice of conditional writes (If-Match, If-None-Match), without which two runs "+
				"would overwrite each other's state: use another store, such as AWS S3, Ceph 19 or MinIO, a folder "+
				"(file://) or a cluster (k8s://)", s)
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return nil
}
