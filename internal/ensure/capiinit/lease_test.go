package capiinit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/platform"
)

func silent(string, ...any) {}

func connected(t *testing.T) (*kubetest.Server, *kube.Cluster) {
	t.Helper()
	s := kubetest.New("management")
	s.Strict = true
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	c, err := kube.Connect(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// Runs of several clusters change the providers of one management cluster one after another, and a run that waits says
// for whom.
func TestProvidersAreChangedByOneRunAtATime(t *testing.T) {
	_, c := connected(t)
	cfg := config.Defaults()
	var at, most, ran atomic.Int32
	waits := make(chan struct{}) // closed once a run has said that it waits
	var said sync.Once
	var runs sync.WaitGroup
	for range 4 {
		runs.Go(func() {
			say := func(format string, args ...any) {
				if strings.Contains(fmt.Sprintf(format, args...), "installs or upgrades the providers") {
					said.Do(func() { close(waits) })
				}
			}
			err := exclusively(t.Context(), cfg, platform.Tools{Files: platform.FilesIn(t.TempDir())}, say, c, platform.ManagementKubeconfig, func(context.Context) error {
				if n := at.Add(1); n > most.Load() {
					most.Store(n)
				}
				select { // the first one holds it until another one has said that it waits
				case <-waits:
				case <-time.After(time.Minute):
					t.Error("no run said who holds the lease")
				}
				at.Add(-1)
				ran.Add(1)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	runs.Wait()
	if most.Load() != 1 || ran.Load() != 4 {
		t.Errorf("%d changes ran, %d of them at once", ran.Load(), most.Load())
	}
	// The cluster itself is one run's alone.
	s, c := connected(t)
	if err := exclusively(t.Context(), cfg, platform.Tools{}, silent, c, platform.Kubeconfig, func(context.Context) error { return nil }); err != nil ||
		len(s.Writes()) != 0 {
		t.Errorf("in the cluster itself: %v, %v", err, s.Writes())
	}
}

// A run that was killed while it held the Lease delays the next one until the Lease has expired, by that one's own
// clock; one that renews it is waited for.
func TestExpiredLeaseIsTaken(t *testing.T) {
	s, c := connected(t)
	const lasts = 5 * time.Second
	killed := &lease{mgmt: c, me: "killed", lasts: lasts, every: time.Hour}
	if err := killed.acquire(t.Context(), silent, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	// A renewal of long ago, as of a machine whose clock is wrong.
	s.Change("coordination.k8s.io/v1", "Lease", metav1.NamespaceSystem, LeaseName,
		map[string]any{"spec": map[string]any{"renewTime": "2001-01-01T00:00:00.000000Z"}})
	next := &lease{mgmt: c, me: "next", lasts: lasts, every: time.Hour}
	began := time.Now()
	if err := next.acquire(t.Context(), silent, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < lasts {
		t.Errorf("taken after %s, before it can have expired (%s)", took, lasts)
	}
	// The run after a killed one, with its state folder, does not wait.
	next.me, next.identity = holderName("0123456789abcdef"), "0123456789abcdef"
	is, err := next.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := "elsewhere/1/0123456789abcdef"
	is.Spec.HolderIdentity = &before
	if err := c.Update(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	if err := next.acquire(t.Context(), silent, 20*time.Second); err != nil || time.Since(began) > lasts {
		t.Errorf("what a killed run of the same state folder held: %v after %s", err, time.Since(began))
	}
	if err := killed.again(t.Context()); !errors.Is(err, errLeaseLost) {
		t.Errorf("the first holder renews a Lease that is another's: %v", err)
	}
	next.release(t.Context())
	began = time.Now()
	if err := killed.acquire(t.Context(), silent, 20*time.Second); err != nil || time.Since(began) > lasts {
		t.Errorf("one that was given back: %v after %s", err, time.Since(began))
	}
}

// A change ends where its Lease is lost, and says so.
func TestChangeEndsWithItsLease(t *testing.T) {
	_, c := connected(t)
	l := &lease{mgmt: c, me: "first", lasts: 2 * time.Second, every: 10 * time.Millisecond}
	if err := l.acquire(t.Context(), silent, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	ctx, lose := context.WithCancelCause(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.renew(ctx, lose) }()
	other := "second"
	for { // against its renewals
		is, err := l.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		is.Spec.HolderIdentity = &other
		if c.Update(t.Context(), is) == nil {
			break
		}
	}
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the change goes on")
	}
	if !errors.Is(context.Cause(ctx), errLeaseLost) {
		t.Errorf("cause: %v", context.Cause(ctx))
	}
}

// A holder that cannot renew its Lease ends its change before another run can take the Lease.
func TestUnrenewedLeaseEndsTheChange(t *testing.T) {
	s, c := connected(t)
	l := &lease{mgmt: c, me: "first", lasts: time.Second, every: 10 * time.Millisecond}
	if err := l.acquire(t.Context(), silent, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	s.Fail = func(r *http.Request) (int, string) {
		if strings.Contains(r.URL.Path, "/leases/") {
			return http.StatusServiceUnavailable, "unwell"
		}
		return 0, ""
	}
	ctx, lose := context.WithCancelCause(t.Context())
	began := time.Now()
	l.renew(ctx, lose)
	if took := time.Since(began); !errors.Is(context.Cause(ctx), errLeaseLost) || took < l.lasts/2 {
		t.Errorf("after %s: %v", took, context.Cause(ctx))
	}
}
