package claims

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/platform"
)

// stateFolder is a state folder with a provider of management clusters of its own.
type stateFolder struct {
	cfg   config.Config
	tools platform.Tools
}

func newStateFolder(t *testing.T, w *clustertest.Environment, provider *clustertest.Provider) *stateFolder {
	t.Helper()
	tools := w.Tools()
	tools.Files, tools.Management = platform.FilesIn(t.TempDir()), provider
	return &stateFolder{w.Config(), tools.WithDefaults()}
}

func (f *stateFolder) reserve(t *testing.T) (*hetzner.Reservation, error) {
	return Reserve(t.Context(), f.cfg, f.tools, clustertest.Silent)
}

func (f *stateFolder) verify(t *testing.T, r *hetzner.Reservation) flow.Verdict {
	return VerifyName(t.Context(), f.cfg, f.tools, r.ID, r.By)
}

// Of two state folders that begin at the same moment one gets the name, and the other is told by whom it was taken.
func TestOneOfTwoReserves(t *testing.T) {
	for range 12 {
		w := clustertest.New(t)
		both := []*stateFolder{newStateFolder(t, w, &clustertest.Provider{}), newStateFolder(t, w, &clustertest.Provider{})}
		var group sync.WaitGroup
		began := make(chan struct{})
		errs := make([]error, len(both))
		for i, b := range both {
			group.Go(func() {
				<-began
				_, errs[i] = b.reserve(t)
			})
		}
		close(began)
		group.Wait()
		won := slices.IndexFunc(errs, func(err error) bool { return err == nil })
		if won < 0 {
			t.Fatalf("neither has it: %v", errs)
		}
		var reserved *ReservedError
		winner, err := ownership.Identity(both[won].tools)
		if lost := errs[1-won]; err != nil || !errors.As(lost, &reserved) || !strings.Contains(lost.Error(), winner) {
			t.Fatalf("the other is told %v; the winner is %s, %v", lost, winner, err)
		}
		if groups := w.Hetzner.PlacementGroups(); len(groups) != 1 || groups[0].Name != "slipway-k8s" ||
			groups[0].Labels[clustertest.ReservedBy] != winner {
			t.Fatalf("the reservations are %+v", groups)
		}
	}
}

func TestReserve(t *testing.T) {
	owned := map[string]string{"caph-cluster-k8s": "owned"}
	others := schema.PlacementGroup{ID: 7, Name: "slipway-k8s", Type: "spread", Labels: map[string]string{
		"slipway-cluster": "k8s", clustertest.ReservedBy: "0123456789abcdef", "slipway-host": "laptop",
	}}
	traces := func(w *clustertest.Environment) {
		w.Hetzner.SetNetworks(schema.Network{ID: 77, Name: "k8s", Labels: owned, IPRange: "10.10.0.0/16"})
	}
	reserved := func(w *clustertest.Environment) { w.Hetzner.SetPlacementGroups(others) }
	clusters := clustertest.Resource("Cluster", "clusters", "cluster.x-k8s.io", "v1beta1")
	holds := func(s *kubetest.Server) {
		clustertest.Define(s, []kubetest.Resource{clusters})
		s.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s", clustertest.Map{}))
	}
	for name, tt := range map[string]struct {
		environment func(*clustertest.Environment)
		folder      func(*testing.T, *clustertest.Environment, *stateFolder)
		provider    func(*clustertest.Environment) *clustertest.Provider
		says        string // of the refusal; empty: it is reserved
		writes      int    // at Hetzner
	}{
		"nothing is there": {writes: 1},
		"reserved by another": {environment: reserved, says: "0123456789abcdef reserved the name in this " +
			"project on host laptop"},
		"reserved by another, who made things": {environment: func(w *clustertest.Environment) { reserved(w); traces(w) },
			says: "there are network k8s (77)"},
		"created, and not reserved": {environment: traces, says: "was not made from this state folder; this one's " +
			"management cluster, if it has one, does not hold it; of it there are network k8s (77)"},
		"the state folder was lost, its management cluster holds the objects": {
			environment: func(w *clustertest.Environment) { reserved(w); holds(w.Management) },
			provider:    func(w *clustertest.Environment) *clustertest.Provider { return w.Provider }, writes: 1},
		"made before names were reserved": {
			environment: func(w *clustertest.Environment) { traces(w); holds(w.Management) },
			provider:    func(w *clustertest.Environment) *clustertest.Provider { return w.Provider }, writes: 1},
		"another management cluster of the same name": {
			environment: reserved, provider: func(w *clustertest.Environment) *clustertest.Provider { return w.Provider },
			says: "belongs to another state folder"},
		"the cluster manages itself, and the state folder opens it": {
			environment: func(w *clustertest.Environment) { reserved(w); holds(w.Workload) }, writes: 1,
			folder: func(t *testing.T, w *clustertest.Environment, b *stateFolder) {
				if err := b.tools.Files.Write(platform.Kubeconfig, w.Workload.Kubeconfig()); err != nil {
					t.Fatal(err)
				}
			}},
		"a silent management cluster is no answer": {
			environment: reserved, provider: func(*clustertest.Environment) *clustertest.Provider {
				return &clustertest.Provider{ExistsError: errors.New("no Docker")}
			}, says: "cannot be found out"},
		"a placement group of another program": {
			environment: func(w *clustertest.Environment) {
				w.Hetzner.SetPlacementGroups(schema.PlacementGroup{ID: 9, Name: "slipway-k8s", Type: "spread"})
			}, says: "so it is not touched"},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.New(t)
			w.Workload.Close()
			w.Workload = kubetest.New("workload", clusters)
			if tt.environment != nil {
				tt.environment(w)
			}
			provider := &clustertest.Provider{}
			if tt.provider != nil {
				provider = tt.provider(w)
			}
			b := newStateFolder(t, w, provider)
			if tt.folder != nil {
				tt.folder(t, w, b)
			}
			out, err := b.reserve(t)
			if n := len(w.Hetzner.Writes()); n != tt.writes {
				t.Errorf("wrote %v", w.Hetzner.Writes())
			}
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("error %v does not say %q", err, tt.says)
				}
				return
			}
			by, identityErr := ownership.Identity(b.tools)
			if err != nil || identityErr != nil || out.By != by ||
				w.Hetzner.PlacementGroups()[0].Labels[clustertest.ReservedBy] != by {
				t.Fatalf("reserved %+v for %s, %v, %v; at Hetzner %+v", out, by, err, identityErr, w.Hetzner.PlacementGroups())
			}
			// Once more, without a journal: it is found.
			if again, err := b.reserve(t); err != nil || again.ID != out.ID ||
				len(w.Hetzner.Writes()) != tt.writes {
				t.Errorf("again %+v, %v; wrote %v", again, err, w.Hetzner.Writes())
			}
			if v := b.verify(t, out); v.Answer() != flow.AnswerHolds {
				t.Errorf("it does not stand: %s", v.Reason())
			}
			w.Hetzner.SetPlacementGroups(others)
			if v := b.verify(t, out); v.Answer() != flow.AnswerGone ||
				!strings.Contains(v.Reason(), "0123456789abcdef") {
				t.Errorf("taken by another it is said to be %v: %s", v.Answer(), v.Reason())
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A reply that is lost after the reservation was made leaves it to be found.
func TestReserveFindsWhatItMade(t *testing.T) {
	w := clustertest.New(t)
	b := newStateFolder(t, w, &clustertest.Provider{})
	lost := false
	through := roundTripper(func(r *http.Request) (*http.Response, error) {
		reply, err := http.DefaultTransport.RoundTrip(r)
		if r.Method == http.MethodPost && !lost && err == nil {
			lost = true
			reply.Body.Close()
			return nil, errors.New("connection reset by peer")
		}
		return reply, err
	})
	b.tools.Hetzner = hcloud.NewClient(hcloud.WithEndpoint(w.Hetzner.URL), hcloud.WithToken(hetznertest.Token),
		hcloud.WithHTTPClient(&http.Client{Transport: through}), hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}))
	out, err := b.reserve(t)
	if err != nil || !lost || len(w.Hetzner.PlacementGroups()) != 1 || out.ID != w.Hetzner.PlacementGroups()[0].ID {
		t.Errorf("reserved %+v, %v; at Hetzner %+v", out, err, w.Hetzner.PlacementGroups())
	}
}

// A token of another project is found before a target that does not go through the reservation.
func TestCheckProject(t *testing.T) {
	w := clustertest.New(t)
	tools := w.Tools().WithDefaults()
	folder := stateFolder{w.Config(), tools}
	check := func() error { return CheckProject(t.Context(), w.Config(), tools) }
	if err := check(); err != nil {
		t.Errorf("before the first run: %v", err)
	}
	record := ownership.Record{Cluster: "k8s"}
	if err := record.Write(tools.Files); err != nil {
		t.Fatal(err)
	}
	if _, err := folder.reserve(t); err != nil {
		t.Fatal(err)
	}
	if err := check(); err != nil {
		t.Errorf("in its project: %v", err)
	}
	empty := hetznertest.NewEmpty()
	defer empty.Close()
	tools.Hetzner = empty.Client(nil)
	if err := check(); err != nil {
		t.Errorf("with nothing of the cluster alive: %v", err)
	}
	if err := tools.Files.Write(platform.ManagementKubeconfig, w.Management.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	var other *OtherProjectError
	if err := check(); !errors.As(err, &other) || !strings.Contains(err.Error(), "the token is of another project") {
		t.Errorf("with another project's token: %v", err)
	}
	empty.Put("networks", 9, schema.Network{Name: "k8s", Labels: map[string]string{"caph-cluster-k8s": "owned"}})
	if err := check(); err != nil {
		t.Errorf("where only the reservation was deleted: %v", err)
	}
}
