package objectstore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/client/objectstore"
)

func s3Store(t *testing.T, around func(http.Handler) http.Handler) objectstore.Store {
	t.Helper()
	memory := s3mem.New()
	if err := memory.CreateBucket("states"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(around(gofakes3.New(memory, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()))
	t.Cleanup(server.Close)
	bucket, err := objectstore.OpenBucket("s3://states/of/it", objectstore.S3Options{Endpoint: server.URL, Region: "nbg1",
		AccessKey: "a", SecretKey: "b"})
	if err != nil {
		t.Fatal(err)
	}
	return objectstore.S3(bucket)
}

func secretsStore(t *testing.T) objectstore.Store {
	t.Helper()
	server := kubetest.New("uid")
	server.Strict = true
	t.Cleanup(server.Close)
	config, err := clientcmd.RESTConfigFromKubeConfig(server.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return objectstore.Secrets(client.CoreV1().Secrets("default"), "default")
}

func asIs(h http.Handler) http.Handler { return h }

func stores(t *testing.T) map[string]objectstore.Store {
	return map[string]objectstore.Store{
		"folder":  objectstore.Folder(filepath.Join(t.TempDir(), "made", "for it")),
		"s3":      s3Store(t, asIs),
		"secrets": secretsStore(t),
	}
}

func TestStores(t *testing.T) {
	for kind, s := range stores(t) {
		t.Run(kind, func(t *testing.T) {
			ctx := t.Context()
			if err := objectstore.CheckConditions(ctx, s); err != nil {
				t.Fatal(err)
			}
			const name = "hetzner/k8s/state"
			if _, _, err := s.Get(ctx, name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("get of what does not exist: %v", err)
			}
			if names, err := s.List(ctx, "hetzner/"); err != nil || len(names) != 0 {
				t.Errorf("list of nothing: %v, %v", names, err)
			}
			if _, err := s.Put(ctx, name, []byte("zero"), "of another"); !errors.Is(err, objectstore.ErrConflict) {
				t.Errorf("put in place of what does not exist: %v", err)
			}
			first, err := s.Put(ctx, name, []byte("one"), objectstore.None)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Put(ctx, name, []byte("again"), objectstore.None); !errors.Is(err, objectstore.ErrConflict) {
				t.Errorf("created twice: %v", err)
			}
			second, err := s.Put(ctx, name, []byte("two"), first)
			if err != nil || second == first {
				t.Fatalf("put in place of %q gave version %q, %v", first, second, err)
			}
			if _, err := s.Put(ctx, name, []byte("late"), first); !errors.Is(err, objectstore.ErrConflict) {
				t.Errorf("put in place of an older version: %v", err)
			}
			if data, version, err := s.Get(ctx, name); err != nil || string(data) != "two" || version != second {
				t.Errorf("get: %q of version %q, %v", data, version, err)
			}
			for _, more := range []string{"hetzner/k8s/versions/00000002", "hetzner/k8s/versions/00000010", "lab/k8s/state"} {
				if _, err := s.Put(ctx, more, []byte("x"), objectstore.None); err != nil {
					t.Fatal(err)
				}
			}
			names, err := s.List(ctx, "hetzner/k8s/versions/")
			if want := []string{"hetzner/k8s/versions/00000002", "hetzner/k8s/versions/00000010"}; err != nil ||
				!slices.Equal(names, want) {
				t.Errorf("list: %v, %v", names, err)
			}
			for range 2 { // what does not exist is no error
				if err := s.Delete(ctx, name); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.Put(ctx, name, []byte("three"), second); !errors.Is(err, objectstore.ErrConflict) {
				t.Errorf("put in place of what was deleted: %v", err)
			}
			if _, err := s.Put(ctx, name, make([]byte, 17<<20), objectstore.None); !errors.Is(err, objectstore.ErrTooLarge) {
				t.Errorf("put of 17 MiB: %v", err)
			}
			for _, bad := range []string{"", "/a", "../a", "a//b", "A", "a/", ".a"} {
				if _, err := s.Put(ctx, bad, nil, objectstore.None); err == nil {
					t.Errorf("the name %q is taken", bad)
				}
			}
		})
	}
}

// TestOneOfManyWriters has writers count in one object: no count is lost.
func TestOneOfManyWriters(t *testing.T) {
	const writers, each = 6, 5
	for kind, s := range stores(t) {
		t.Run(kind, func(t *testing.T) {
			var all sync.WaitGroup
			for range writers {
				all.Go(func() {
					for range each {
						if err := count(t.Context(), s); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			data, _, err := s.Get(t.Context(), "count")
			if err != nil || len(data) != writers*each {
				t.Errorf("counted to %d of %d, %v", len(data), writers*each, err)
			}
		})
	}
}

func count(ctx context.Context, s objectstore.Store) error {
	for {
		data, version, err := s.Get(ctx, "count")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read the count: %w", err)
		}
		_, err = s.Put(ctx, "count", append(data, 'x'), version)
		if !errors.Is(err, objectstore.ErrConflict) {
			return err
		}
	}
}

// TestStoreThatIgnoresConditions has a store in front of which the conditions of a write are lost.
func TestStoreThatIgnoresConditions(t *testing.T) {
	for _, header := range []string{"If-Match", "If-None-Match"} {
		s := s3Store(t, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Del(header)
				next.ServeHTTP(w, r)
			})
		})
		if err := objectstore.CheckConditions(t.Context(), s); err == nil || !strings.Contains(err.Error(),
			"takes no notice") {
			t.Errorf("without %s: %v", header, err)
		}
	}
}

func TestS3ThatDoesNotAnswer(t *testing.T) {
	var away atomic.Bool
	s := s3Store(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if away.Load() {
				http.Error(w, "", http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	away.Store(true)
	for do, err := range map[string]error{
		"get":    second(s.Get(t.Context(), "a")),
		"put":    first(s.Put(t.Context(), "a", nil, objectstore.None)),
		"list":   first(s.List(t.Context(), "")),
		"delete": s.Delete(t.Context(), "a"),
	} {
		if err == nil || errors.Is(err, objectstore.ErrConflict) || errors.Is(err, fs.ErrNotExist) ||
			!strings.Contains(err.Error(), "s3://states/of/it") {
			t.Errorf("%s: %v", do, err)
		}
	}
}

func first[T any](_ T, err error) error          { return err }
func second[T, U any](_ T, _ U, err error) error { return err }

func TestFolderIsClosedToOthers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if _, err := objectstore.Folder(dir).Put(t.Context(), "a/b", []byte("x"), objectstore.None); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
