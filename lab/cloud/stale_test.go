package cloud

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Lists of all kinds are out of date; a record requested by its id is not, and neither is the check for unique names.
func TestListsLagBehind(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	labelled := func(opts *hcloud.ServerCreateOpts) { opts.Labels = map[string]string{"of": "k8s"} }
	w.server("before", labelled)
	const lag = 300 * time.Millisecond
	id := w.fault(Fault{Kind: FaultStaleLists, Path: "/servers", Delay: Duration(lag)})

	written := time.Now()
	made := w.server("after", labelled)
	if time.Since(written) > lag/2 {
		t.Skip("this machine is too slow for the lag")
	}
	for shape, opts := range map[string]hcloud.ServerListOpts{
		"all": {}, "by label": {ListOpts: hcloud.ListOpts{LabelSelector: "of==k8s"}},
	} {
		if found := must[[]*hcloud.Server](t)(w.Server.List(ctx, opts)); len(found) != 1 || found[0].Name != "before" {
			t.Errorf("%s: a list that lags shows %v", shape, names(found))
		}
	}
	if found := must[*hcloud.Server](t)(w.Server.GetByName(ctx, "after")); found != nil {
		t.Error("a list by name does not lag")
	}
	if found := must[*hcloud.Server](t)(w.Server.GetByID(ctx, made.ID)); found == nil || found.Name != "after" {
		t.Errorf("by its id the server is %+v", found)
	}
	opts := hcloud.ServerCreateOpts{Name: "after", ServerType: &hcloud.ServerType{Name: "cx33"},
		Image: &hcloud.Image{Name: "debian-12"}}
	_, _, err := w.Server.Create(ctx, opts)
	wants(t, "uniqueness_error", err)
	eventually(t, "the list has caught up", func() bool {
		found, err := w.Server.All(ctx)
		return err == nil && len(found) == 2
	})
	if passed := time.Since(written); passed < lag {
		t.Errorf("it caught up after %v", passed)
	}
	log, err := os.ReadFile(w.config.RequestLog)
	if err != nil || !strings.Contains(string(log), `"fault":"stale-lists"`) {
		t.Errorf("the log does not tell of it: %v", err)
	}
	hits, over := w.cloud.FollowFault(id)
	if n := hits(); n < 4 {
		t.Errorf("%d hits", n)
	}
	w.cloud.RemoveFault(id)
	select {
	case <-over:
	default:
		t.Error("a fault that was removed is not over")
	}
	if _, _, err := w.Server.DeleteWithResult(ctx, made); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server is gone", func() bool {
		found, err := w.Server.All(ctx)
		return err == nil && len(found) == 1
	})
}

func names(servers []*hcloud.Server) (names []string) {
	for _, s := range servers {
		names = append(names, s.Name)
	}
	return names
}

func TestPastIsKeptAsLongAsItIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := past{keep: 2 * time.Second}
		for i := range 10 {
			p.add(now(), []byte(strconv.Itoa(i)))
			if i < 9 {
				time.Sleep(time.Second)
			}
		}
		if len(p.moments) != 3 {
			t.Errorf("%d moments are kept", len(p.moments))
		}
		for lag, want := range map[time.Duration]string{0: "9", 500 * time.Millisecond: "8", time.Second: "8",
			2 * time.Second: "7", time.Minute: "7"} {
			if got := string(p.moments[p.last(now().Add(-lag))].state); got != want {
				t.Errorf("%v ago it was %s, want %s", lag, got, want)
			}
		}
	})
}

func TestFaultsOfOneActor(t *testing.T) {
	w := newHarness(t)
	w.fault(Fault{Kind: FaultError, Actor: "somebody-else"})
	if _, _, err := w.Location.List(t.Context(), hcloud.LocationListOpts{}); err != nil {
		t.Errorf("a fault for another actor hits: %v", err)
	}
	w.fault(Fault{Kind: FaultError, Actor: "cloud-test/1"})
	_, _, err := w.Location.List(t.Context(), hcloud.LocationListOpts{})
	wants(t, "server_error", err)
}

// A fault with its own seed has the same chances whatever else happens.
func TestFaultWithItsOwnSeed(t *testing.T) {
	hits := func(seed uint64, before int) (pattern string) {
		s := newHarness(t, func(c *Config) { c.Seed = uint64(before) })
		s.fault(Fault{Kind: FaultError, Probability: 0.5, Seed: seed})
		for range 20 {
			if _, _, err := s.Location.List(t.Context(), hcloud.LocationListOpts{}); err != nil {
				pattern += "x"
			} else {
				pattern += "."
			}
		}
		return pattern
	}
	if first, again := hits(7, 1), hits(7, 2); first != again {
		t.Errorf("the same seed gives %s and %s", first, again)
	}
	if first, other := hits(7, 1), hits(8, 1); first == other {
		t.Errorf("another seed gives the same %s", first)
	}
}

// The end of an exhausted rate limit is that of the fault.
func TestRateLimitSaysUntilWhen(t *testing.T) {
	w := newHarness(t)
	w.fault(Fault{Kind: FaultRateLimit, Delay: Duration(time.Minute), Times: 1})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.endpoint+"/locations", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+testToken)
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	reset, err := strconv.ParseInt(reply.Header.Get("RateLimit-Reset"), 10, 64)
	if in := time.Until(time.Unix(reset, 0)); err != nil || reply.StatusCode != http.StatusTooManyRequests ||
		reply.Header.Get("RateLimit-Remaining") != "0" || in < 50*time.Second || in > time.Minute {
		t.Errorf("%s, reset in %v (%v)", reply.Status, in, err)
	}
}

// The log notes every fault that hits a request, also one that the call itself evaluates.
func TestHitsAreLogged(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	opts := hcloud.ServerCreateOpts{Name: "one", ServerType: &hcloud.ServerType{Name: "cx33"},
		Image: &hcloud.Image{Name: "debian-12"}}
	w.fault(Fault{Kind: FaultOutOfStock, Times: 1})
	_, _, err := w.Server.Create(ctx, opts)
	wants(t, "resource_unavailable", err)
	w.fault(Fault{Kind: FaultActionError, Command: "create_server", Times: 1})
	must[hcloud.ServerCreateResult](t)(w.Server.Create(ctx, opts))
	w.fault(Fault{Kind: FaultRateLimit, Times: 1})
	must[[]*hcloud.Location](t)(w.Location.List(ctx, hcloud.LocationListOpts{}))
	log, err := os.ReadFile(w.config.RequestLog)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []FaultKind{FaultOutOfStock, FaultActionError, FaultRateLimit} {
		if strings.Count(string(log), `"fault":"`+string(kind)+`"`) != 1 {
			t.Errorf("%s is not noted once in %s", kind, log)
		}
	}
}
