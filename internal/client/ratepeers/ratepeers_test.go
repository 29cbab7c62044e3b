package ratepeers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/slipway-k8s/slipway/internal/client/hetzner/ratelimit"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

const token, namespace = "planted-token-of-the-tests", "slipway"

// cluster is the one that the state is in, asked without a network, so that a test's clock moves on.
type cluster struct {
	*kubetest.Server

	mu   sync.Mutex
	away error // every request fails
	fail func(*http.Request) int
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{Server: kubetest.New("uid")}
	t.Cleanup(c.Close)
	c.Fail = func(r *http.Request) (int, string) {
		if c.fail == nil {
			return 0, ""
		}
		return c.fail(r), "not allowed"
	}
	return c
}

func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	away := c.away
	c.mu.Unlock()
	if away != nil {
		return nil, away
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	c.Config.Handler.ServeHTTP(w, r)
	return w.Result(), nil
}

func (c *cluster) setAway(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = err
}

func (c *cluster) leases(t *testing.T) typed.LeaseInterface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1", Transport: c, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client.CoordinationV1().Leases(namespace)
}

// names are those of the Leases that exist.
func (c *cluster) names() (all []string) {
	for path := range c.All() {
		if _, name, is := strings.Cut(path, "/leases/"); is {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

type notes struct {
	mu  sync.Mutex
	all []string
}

func (n *notes) say(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, fmt.Sprintf(format, args...))
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.all, "\n")
}

// join joins a run of a cluster; crash ends it without Leave.
func join(t *testing.T, c *cluster, token, of string) (p *Peers, said *notes, crash context.CancelFunc) {
	t.Helper()
	said = &notes{}
	ctx, crash := context.WithCancel(t.Context())
	return Join(ctx, c.leases(t), Project(token), of, "a test", said.say), said, crash
}

func runsOf(all ...*Peers) (n []int) {
	for _, p := range all {
		n = append(n, p.Runs())
	}
	return n
}

// Runs find one another, and those of another project or without a Lease of Slipway do not count.
func TestRunsCountOneAnother(t *testing.T) {
	c := newCluster(t)
	synctest.Test(t, func(t *testing.T) {
		foreign := kubetest.Object("coordination.k8s.io/v1", "Lease", namespace, "cert-manager-controller", nil)
		c.Put(foreign)
		one, said, _ := join(t, c, token, "one")
		two, _, _ := join(t, c, token, "two")
		other, otherSaid, _ := join(t, c, "another-token", "one")
		three, _, crash := join(t, c, token, "three")
		time.Sleep(renewEvery + time.Second)
		if n := runsOf(one, two, three, other, nil); !slices.Equal(n, []int{3, 3, 3, 1, 1}) {
			t.Errorf("they count %v", n)
		}
		want := "3 runs of this Hetzner project are at work: each takes a third of the rate limit"
		if said.String() != want {
			t.Errorf("it said %q, want %q", said, want)
		}
		for _, name := range c.names() {
			if strings.Contains(fmt.Sprint(c.Get("coordination.k8s.io/v1", "Lease", namespace, name)), token) {
				t.Errorf("Lease %s has the token", name)
			}
		}
		time.Sleep(time.Hour) // they live
		two.Leave(t.Context())
		if len(c.names()) != 4 {
			t.Errorf("after one has left there are %v", c.names())
		}
		crash()
		time.Sleep(expiresAfter - renewEvery)
		if n := runsOf(one, other); !slices.Equal(n, []int{2, 1}) {
			t.Errorf("before the dead run's Lease has expired they count %v", n)
		}
		time.Sleep(3 * renewEvery)
		if n := runsOf(one, other); !slices.Equal(n, []int{1, 1}) || !strings.HasSuffix(said.String(), "whole rate limit") {
			t.Errorf("after it has expired they count %v and said %q", n, said)
		}
		left := []string{foreign.GetName(), one.name, other.name}
		if slices.Sort(left); !slices.Equal(c.names(), left) {
			t.Errorf("there are %v, want %v", c.names(), left)
		}
		one.Leave(t.Context())
		other.Leave(t.Context())
		if otherSaid.String() != "" || len(c.names()) != 1 {
			t.Errorf("the other project's run said %q; at last there are %v", otherSaid, c.names())
		}
	})
}

// A resumed run takes over the Lease of the one that was killed, and is alone at once. The killed one, should it live
// after all, does not take the Lease away.
func TestResumedRunTakesTheLeaseOver(t *testing.T) {
	c := newCluster(t)
	synctest.Test(t, func(t *testing.T) {
		killed, _, crash := join(t, c, token, "one")
		crash()
		<-killed.ended
		for range 3 {
			ctx, crash := context.WithCancel(t.Context())
			resumed := Join(ctx, c.leases(t), Project(token), "one", "the next run", (&notes{}).say)
			crash()
			<-resumed.ended
			if n := runsOf(resumed); n[0] != 1 || len(c.names()) != 1 {
				t.Errorf("the resumed run counts %v, with %v", n, c.names())
			}
		}
		killed.Leave(t.Context())
		lease, err := c.leases(t).Get(t.Context(), killed.name, metav1.GetOptions{})
		if err != nil || *lease.Spec.HolderIdentity != "the next run" {
			t.Errorf("after the killed run's Leave: %v, %v", lease, err)
		}
		last, _, _ := join(t, c, token, "one")
		if last.Leave(t.Context()); len(c.names()) != 0 {
			t.Errorf("at last there are %v", c.names())
		}
	})
}

// While the cluster is away a run keeps the number that it knew; it does not take those for dead that it could not see.
func TestClusterAway(t *testing.T) {
	c := newCluster(t)
	synctest.Test(t, func(t *testing.T) {
		one, said, _ := join(t, c, token, "one")
		two, _, _ := join(t, c, token, "two")
		time.Sleep(renewEvery + time.Second)
		before := c.names()
		c.setAway(errors.New("connection refused"))
		time.Sleep(10 * time.Minute)
		if n := runsOf(one, two); !slices.Equal(n, []int{2, 2}) {
			t.Errorf("while the cluster is away they count %v", n)
		}
		if s := said.String(); strings.Count(s, "connection refused") != 1 ||
			!strings.HasSuffix(s, "continues as one of 2") {
			t.Errorf("it said %q", s)
		}
		c.setAway(nil)
		time.Sleep(5 * time.Minute)
		if n := runsOf(one, two); !slices.Equal(n, []int{2, 2}) || !slices.Equal(c.names(), before) ||
			strings.Count(said.String(), "\n") != 1 {
			t.Errorf("after it is back they count %v, with Leases %v of %v, and said %q", n, c.names(), before, said)
		}
		c.Remove("coordination.k8s.io/v1", "Lease", namespace, two.name) // as another does, when it stood still
		time.Sleep(2 * renewEvery)
		if n := runsOf(one, two); !slices.Equal(n, []int{2, 2}) {
			t.Errorf("after a Lease was removed they count %v", n)
		}
		c.setAway(errors.New("connection refused"))
		one.Leave(t.Context())
		two.Leave(t.Context())
	})
}

// A Lease that its run renews while another takes it for dead is not deleted.
func TestRenewedMeanwhileIsKept(t *testing.T) {
	c := newCluster(t)
	synctest.Test(t, func(t *testing.T) {
		dead, _, crash := join(t, c, token, "dead")
		crash()
		<-dead.ended
		p := newPeers(c.leases(t), Project(token), "living", "a test", (&notes{}).say)
		c.mu.Lock()
		c.fail = func(r *http.Request) int {
			if r.Method == http.MethodDelete { // it is renewed right before
				c.Change("coordination.k8s.io/v1", "Lease", namespace, dead.name, map[string]any{"spec": map[string]any{
					"holderIdentity": "alive"}})
			}
			return 0
		}
		c.mu.Unlock()
		for range 6 {
			p.look(t.Context())
			time.Sleep(renewEvery)
		}
		if p.Runs() != 2 || len(c.names()) != 2 {
			t.Errorf("it counts %d, with %v", p.Runs(), c.names())
		}
	})
}

// A role without Leases costs one note, whichever verb is missing.
func TestForbidden(t *testing.T) {
	for _, verb := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		t.Run(verb, func(t *testing.T) {
			c := newCluster(t)
			synctest.Test(t, func(t *testing.T) {
				dead, _, crash := join(t, c, token, "dead")
				crash()
				<-dead.ended
				c.fail = func(r *http.Request) int {
					if r.Method == verb {
						return http.StatusForbidden
					}
					return 0
				}
				p, said, _ := join(t, c, token, "living")
				time.Sleep(10 * time.Minute)
				want := 1
				if verb == http.MethodDelete {
					want = 0
				}
				if p.Runs() != 1 || strings.Count(said.String(), "needs list, create, update and delete") != want {
					t.Errorf("it counts %d and said %q", p.Runs(), said)
				}
				if strings.Count(said.String(), "\n") > 2 {
					t.Errorf("it said %q", said)
				}
				p.Leave(t.Context())
			})
		})
	}
}

// project is Hetzner's side: a bucket of limit requests, of which one comes back each second.
type project struct {
	mu      sync.Mutex
	limit   float64
	left    float64
	seen    time.Time
	refused int
}

func (p *project) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(20 * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !p.seen.IsZero() {
		p.left = min(p.limit, p.left+now.Sub(p.seen).Seconds())
	}
	p.seen = now
	reply := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}
	if p.left < 1 {
		p.refused++
		reply.StatusCode = http.StatusTooManyRequests
	} else {
		p.left--
	}
	full := now.Add(time.Duration((p.limit - p.left) * float64(time.Second)))
	reply.Header.Set("Date", now.UTC().Format(http.TimeFormat))
	reply.Header.Set("RateLimit-Limit", strconv.Itoa(int(p.limit)))
	reply.Header.Set("RateLimit-Remaining", strconv.Itoa(int(p.left)))
	reply.Header.Set("RateLimit-Reset", strconv.FormatInt(full.Unix(), 10))
	return reply, nil
}

// Three runs that send as fast as they may for twenty minutes: sharing they stay within the limit, and without it they
// do not.
func TestThreeRunsStayWithinTheLimit(t *testing.T) {
	for _, sharing := range []bool{true, false} {
		t.Run("sharing "+strconv.FormatBool(sharing), func(t *testing.T) {
			c := newCluster(t)
			synctest.Test(t, func(t *testing.T) {
				hetzner := &project{limit: 120, left: 120}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
				defer cancel()
				var all sync.WaitGroup
				var peers []*Peers
				var failed atomic.Int64
				sent := make([]int, 3)
				for i := range sent {
					g := ratelimit.New(nil)
					p, _, _ := join(t, c, token, fmt.Sprint("cluster-", i))
					if peers = append(peers, p); sharing {
						g.Share = p.Runs
					}
					all.Go(func() {
						for ctx.Err() == nil {
							r, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, "http://127.0.0.1", nil)
							if err != nil {
								panic(err)
							}
							if _, err := g.Transport(hetzner).RoundTrip(r); err != nil {
								failed.Add(1)
							}
							sent[i]++
						}
					})
				}
				all.Wait()
				for _, p := range peers {
					p.Leave(t.Context())
				}
				t.Logf("sent %v, refused %d, failed %d, left %.0f", sent, hetzner.refused, failed.Load(), hetzner.left)
				switch {
				case sharing && (hetzner.refused > 0 || failed.Load() > 0):
					t.Errorf("%d requests were refused, %d failed", hetzner.refused, failed.Load())
				case sharing && (slices.Min(sent) < 120 || hetzner.left < 12):
					t.Errorf("they sent %v, and %.0f of %.0f are left: they did not get their parts", sent, hetzner.left,
						hetzner.limit)
				case !sharing && hetzner.refused == 0:
					t.Error("without sharing no request was refused: the test shows nothing")
				}
			})
		})
	}
}
