package destroy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// inProcess answers requests without a connection, so that a synthetic clock runs while they are answered.
type inProcess struct {
	http.Handler
	requests map[string]int // by path
}

func (p *inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	p.requests[r.URL.Path]++
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w.Result(), nil
}

func (p *inProcess) total() (n int) {
	for _, count := range p.requests {
		n += count
	}
	return n
}

// sweepBudget is how many requests destroy makes at most in an hour in which nothing changes. Hetzner allows a project
// 3600, and CAPH, the cloud controller manager and every other cluster of the project share them.
const sweepBudget = 1000

// An hour in which nothing is deleted costs less than sweepBudget, whatever it is that Hetzner does not delete.
func TestAnHourOfSweepingStaysInItsBudget(t *testing.T) {
	hour := config.Defaults()
	hour.DestroyTimeout = config.Duration(time.Hour)
	for name, plant := range map[string]func(*hetznertest.Server){
		"a server": func(s *hetznertest.Server) { s.Lock(1, 1e6) },
		"a hundred servers that are being deleted": func(s *hetznertest.Server) {
			for id := int64(1000); id < 1100; id++ {
				s.Put("servers", id, schema.Server{Name: fmt.Sprint("k8s-", id),
					Labels: map[string]string{"caph-cluster-k8s": "owned"}})
			}
			s.DeletionTakes(1e6)
		},
		"a load balancer": func(s *hetznertest.Server) { s.Lock(20, 1e6) },
		"the network":     func(s *hetznertest.Server) { s.Lock(10, 1e6) },
		"one of each": func(s *hetznertest.Server) {
			for _, id := range []int64{20, 30, 40, 60, 10, 4} {
				s.Lock(id, 1e6)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := hetznertest.NewEmpty()
			defer s.Close()
			plantCluster(s)
			plant(s)
			synctest.Test(t, func(t *testing.T) {
				cloud := &inProcess{s.Config.Handler, map[string]int{}}
				o := New(hour, platform.Tools{Hetzner: s.Client(cloud), Management: &clustertest.Provider{},
					Files: platform.FilesIn(t.TempDir())})
				removal := hetzner.NewRemoval(o.tools.Hetzner)
				if err := o.claim(t.Context(), t.Logf, removal, Deletion{}, true); err != nil {
					t.Fatal(err)
				}
				err := o.sweep(t.Context(), func(string, ...any) {}, removal, Deletion{})
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("it ended with %v", err)
				}
				if n := cloud.total(); n > sweepBudget {
					t.Errorf("%d requests, %d are allowed: %v", n, sweepBudget, cloud.requests)
				}
				if n := cloud.requests["/pricing"]; n > 0 {
					t.Errorf("it asked %d times for prices", n)
				}
			})
		})
	}
}

// What Cluster API is waited for to delete is looked at whenever a watched object changes, and Hetzner is not asked each time.
func TestAnHourOfWaitingForClusterAPIStaysInItsBudget(t *testing.T) {
	s := hetznertest.NewEmpty()
	defer s.Close()
	plantCluster(s)
	for _, id := range []int64{1, 2, 3} {
		s.Drop("servers", id)
	}
	s.Lock(21, 1e6)
	synctest.Test(t, func(t *testing.T) {
		cloud := &inProcess{s.Config.Handler, map[string]int{}}
		o := New(config.Defaults(),
			platform.Tools{Hetzner: s.Client(cloud), Management: &clustertest.Provider{}, Files: platform.FilesIn(t.TempDir())})
		look := o.cloudLook(hetzner.NewRemoval(o.tools.Hetzner))
		var seen []string
		for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(wait.LookEvery) {
			left, err := look.see(t.Context())
			if err != nil || left == "" {
				t.Fatalf("left %q, %v", left, err)
			}
			if !slices.Contains(seen, left) {
				seen = append(seen, left)
			}
		}
		if n := cloud.total(); n > sweepBudget || len(seen) != 1 {
			t.Errorf("%d requests, %d are allowed: %v; it saw %q", n, sweepBudget, cloud.requests, seen)
		}
	})
}
