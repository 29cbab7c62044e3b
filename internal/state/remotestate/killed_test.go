package remotestate

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/client/objectstore"
)

// everyStore makes a store of each kind.
func everyStore(t *testing.T) map[string]func(*testing.T) objectstore.Store {
	t.Helper()
	return map[string]func(*testing.T) objectstore.Store{
		"file": func(t *testing.T) objectstore.Store { return objectstore.Folder(t.TempDir()) },
		"s3": func(t *testing.T) objectstore.Store {
			memory := s3mem.New()
			if err := memory.CreateBucket("states"); err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(gofakes3.New(memory, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
			t.Cleanup(server.Close)
			bucket, err := objectstore.OpenBucket("s3://states/of/clusters", objectstore.S3Options{Endpoint: server.URL,
				Region: "nbg1", AccessKey: "a",
				SecretKey: "b"})
			if err != nil {
				t.Fatal(err)
			}
			return objectstore.S3(bucket)
		},
		"k8s": func(t *testing.T) objectstore.Store {
			server := kubetest.New("another cluster")
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
		},
	}
}

// killing is a store in which the process ends at one of its calls: before it is done, or after.
type killing struct {
	objectstore.Store
	at    int // counted from 1, in halves of calls; 0: never
	calls int
}

// errKilled is what a killed process ends with.
var errKilled = errors.New("killed")

func (k *killing) half() {
	if k.calls++; k.calls == k.at {
		panic(errKilled)
	}
}

func (k *killing) Get(ctx context.Context, name string) ([]byte, string, error) {
	k.half()
	data, version, err := k.Store.Get(ctx, name)
	k.half()
	return data, version, err
}

func (k *killing) Put(ctx context.Context, name string, data []byte, version string) (string, error) {
	k.half()
	written, err := k.Store.Put(ctx, name, data, version)
	k.half()
	return written, err
}

func (k *killing) List(ctx context.Context, prefix string) ([]string, error) {
	k.half()
	names, err := k.Store.List(ctx, prefix)
	k.half()
	return names, err
}

func (k *killing) Delete(ctx context.Context, name string) error {
	k.half()
	err := k.Store.Delete(ctx, name)
	k.half()
	return err
}

// untilKilled does what a process does, to its end or its death.
func untilKilled(do func() error) (err error) {
	defer func() {
		if is := recover(); is != nil {
			if err, _ = is.(error); !errors.Is(err, errKilled) {
				panic(is)
			}
		}
	}()
	return do()
}

// TestCommandsAreKilled ends each command that works with a store before and after each of its calls, over each kind of
// store. The same command, run again, ends well, and nothing is lost: the state has the content of the folder, each
// version its own, and no run holds the lease.
func TestCommandsAreKilled(t *testing.T) {
	commands := map[string]func(Place) error{
		"push": func(p Place) error {
			_, err := p.Push(context.Background(), time.Minute, false, func(string, ...any) {})
			return err
		},
		"push by force": func(p Place) error {
			_, err := p.Push(context.Background(), time.Minute, true, func(string, ...any) {})
			return err
		},
		"pull": func(p Place) error {
			_, _, err := p.Pull(context.Background())
			return err
		},
		"rekey": func(p Place) error {
			_, _, err := p.Rekey(context.Background(), time.Minute, false, func(string, ...any) {})
			return err
		},
	}
	for kind, open := range everyStore(t) {
		for name, do := range commands {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				for at := 1; ; at++ {
					if !killedAt(t, open, name, do, at) {
						t.Logf("killed at %d places", at-1)
						return
					}
				}
			})
		}
	}
}

// killedAt has a command killed at one place; it returns false where the command has no such place.
func killedAt(t *testing.T, open func(*testing.T) objectstore.Store, name string, do func(Place) error, at int) bool {
	t.Helper()
	m := newMachines(t, long)
	m.store = open(t)
	a, _ := m.place("a")
	for i := range 3 {
		_, s := m.acquire(a)
		m.write(a, "journal.json", fmt.Sprint("run ", i+1))
		m.write(a, "kubeconfig", "kubeconfig")
		m.release(s)
	}
	p, want := a, "run 3"
	switch name {
	case "push":
		want = "changed"
		m.write(a, "journal.json", want)
	case "push by force":
		want = "changed"
		m.write(a, "journal.json", want)
		m.put(a.name(), altered(t, m.get(a.name()), func(d map[string]any) { d["serial"] = 98 }))
	case "pull":
		p, _ = m.place("b")
	case "rekey":
		fresh, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		p.Keys = keysOf(t, fresh.String()+"\n"+m.key.String())
	}
	k := &killing{Store: m.store, at: at}
	p.Store, p.Who.PID = k, endedProcess(t)
	err := untilKilled(func() error { return do(p) })
	if !errors.Is(err, errKilled) {
		if err != nil {
			t.Errorf("not killed: %v", err)
		}
		return false
	}
	p.Store, p.Who.PID = m.store, os.Getpid()
	if err := do(p); err != nil {
		t.Errorf("killed at %d, and run again: %v", at, err)
		return true
	}
	d, _, ok, err := p.Document(t.Context())
	if err != nil || !ok || d.Holder != nil {
		t.Errorf("killed at %d: %v holds it, %v", at, d.Holder, err)
		return true
	}
	c, err := p.content(d)
	if err != nil || string(c["journal.json"]) != want || string(c["kubeconfig"]) != "kubeconfig" {
		t.Errorf("killed at %d: stored is %q, %v", at, c["journal.json"], err)
	}
	if is, err := os.ReadFile(filepath.Join(p.Dir, "journal.json")); string(is) != want {
		t.Errorf("killed at %d: the folder has %q, %v", at, is, err)
	}
	for serial := int64(1); serial <= 2; serial++ {
		v, err := p.Version(t.Context(), serial)
		if err == nil {
			c, err = p.content(v)
		}
		if is := string(c["journal.json"]); err != nil || is != fmt.Sprint("run ", serial) {
			t.Errorf("killed at %d: version %d has %q, %v", at, serial, is, err)
		}
	}
	return true
}
