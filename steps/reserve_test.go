package steps

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/claims"
	"github.com/slipway-k8s/slipway/internal/clustertest"
	"github.com/slipway-k8s/slipway/internal/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/situation"
	"github.com/slipway-k8s/slipway/platform"
)

// reserver is a state folder with a management cluster of its own, in the project of a world.
func reserver(t *testing.T, w *clustertest.Environment, provider *clustertest.Provider) *Set {
	t.Helper()
	tools := w.Tools()
	tools.Files, tools.Management = platform.FilesIn(t.TempDir()), provider
	plan, err := New(w.Config(), tools)
	if err != nil {
		t.Fatal(err)
	}
	return plan.b
}

// Of two state folders that begin at the same moment one gets the name, and the other is told by whom it was taken.
func TestOneOfTwoReserves(t *testing.T) {
	for range 12 {
		w := clustertest.New(t)
		both := []*Set{reserver(t, w, &clustertest.Provider{}), reserver(t, w, &clustertest.Provider{})}
		var group sync.WaitGroup
		began := make(chan struct{})
		errs := make([]error, len(both))
		for i, b := range both {
			group.Go(func() {
				<-began
				_, errs[i] = newReserveStep(b).run(t.Context(), clustertest.Silent)
			})
		}
		close(began)
		group.Wait()
		won := slices.IndexFunc(errs, func(err error) bool { return err == nil })
		if won < 0 {
			t.Fatalf("nobody won: %v", errs)
		}
		var reserved *claims.ReservedError
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
		s.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.Namespace, "k8s", clustertest.Map{}))
	}
	for name, tt := range map[string]struct {
		Environment func(*clustertest.Environment)
		folder      func(*testing.T, *clustertest.Environment, *Set)
		Provider    func(*clustertest.Environment) *clustertest.Provider
		says        string // of the refusal; empty: it is reserved
		writes      int    // at Hetzner
	}{
		"nothing is there": {writes: 1},
		"reserved by another": {Environment: reserved, says: "0123456789abcdef reserved the name in this " +
			"project on host laptop"},
		"reserved by another, who made things": {Environment: func(w *clustertest.Environment) { reserved(w); traces(w) },
			says: "there are network k8s (77)"},
		"made, and reserved by nobody": {Environment: traces, says: "was not made from this state folder; this one's " +
			"management cluster, if it has one, does not hold it; of it there are network k8s (77)"},
		"the state folder was lost, its management cluster holds the objects": {
			Environment: func(w *clustertest.Environment) { reserved(w); holds(w.Management) },
			Provider:    func(w *clustertest.Environment) *clustertest.Provider { return w.Provider }, writes: 1},
		"made before names were reserved": {
			Environment: func(w *clustertest.Environment) { traces(w); holds(w.Management) },
			Provider:    func(w *clustertest.Environment) *clustertest.Provider { return w.Provider }, writes: 1},
		"another management cluster of the same name": {
			Environment: reserved, Provider: func(w *clustertest.Environment) *clustertest.Provider { return w.Provider },
			says: "belongs to another state folder"},
		"the cluster manages itself, and the state folder opens it": {
			Environment: func(w *clustertest.Environment) { reserved(w); holds(w.Workload) }, writes: 1,
			folder: func(t *testing.T, w *clustertest.Environment, b *Set) {
				if err := b.tools.Files.Write(platform.Kubeconfig, w.Workload.Kubeconfig()); err != nil {
					t.Fatal(err)
				}
			}},
		"a silent management cluster is no answer": {
			Environment: reserved, Provider: func(*clustertest.Environment) *clustertest.Provider {
				return &clustertest.Provider{ExistsError: errors.New("no Docker")}
			}, says: "cannot be found out"},
		"a placement group of somebody else's": {
			Environment: func(w *clustertest.Environment) {
				w.Hetzner.SetPlacementGroups(schema.PlacementGroup{ID: 9, Name: "slipway-k8s", Type: "spread"})
			}, says: "so it is not touched"},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.New(t)
			w.Workload.Close()
			w.Workload = kubetest.New("workload", clusters)
			if tt.Environment != nil {
				tt.Environment(w)
			}
			provider := &clustertest.Provider{}
			if tt.Provider != nil {
				provider = tt.Provider(w)
			}
			b := reserver(t, w, provider)
			if tt.folder != nil {
				tt.folder(t, w, b)
			}
			out, err := newReserveStep(b).run(t.Context(), clustertest.Silent)
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
			if again, err := newReserveStep(b).run(t.Context(), clustertest.Silent); err != nil || again != out ||
				len(w.Hetzner.Writes()) != tt.writes {
				t.Errorf("again %+v, %v; wrote %v", again, err, w.Hetzner.Writes())
			}
			if v := newReserveStep(b).verify(t.Context(), out); v.Answer() != flow.AnswerHolds {
				t.Errorf("it does not stand: %s", v.Reason())
			}
			w.Hetzner.SetPlacementGroups(others)
			if v := newReserveStep(b).verify(t.Context(), out); v.Answer() != flow.AnswerGone ||
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
	b := reserver(t, w, &clustertest.Provider{})
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
	out, err := newReserveStep(b).run(t.Context(), clustertest.Silent)
	if err != nil || !lost || len(w.Hetzner.PlacementGroups()) != 1 || out.ID != w.Hetzner.PlacementGroups()[0].ID {
		t.Errorf("reserved %+v, %v; at Hetzner %+v", out, err, w.Hetzner.PlacementGroups())
	}
}

// A whole bootstrap from another state folder makes nothing: no image, no management cluster, no object.
func TestASecondStateFolderMakesNothing(t *testing.T) {
	w := clustertest.New(t)
	if _, err := runPlan(t, w, w.Config(), flow.Memory(), nil); err != nil {
		t.Fatal(err)
	}
	before, provider := w.Writes(), &clustertest.Provider{}
	plan, err := New(w.Config(), func() platform.Tools {
		tools := w.Tools()
		tools.Files, tools.Management = platform.FilesIn(t.TempDir()), provider
		return tools
	}())
	if err != nil {
		t.Fatal(err)
	}
	report, err := plan.Graph.Run(t.Context(), flow.Options{Targets: plan.All})
	var reserved *claims.ReservedError
	if !errors.As(err, &reserved) || provider.Ensured > 0 || w.Writes() != before {
		t.Errorf("the second run: %v; %d management clusters, %d writes", err, provider.Ensured, w.Writes()-before)
	}
	for step, outcome := range outcomes(report) {
		if want := map[string]flow.Outcome{"preflight": flow.Ran, "reserve": flow.Failed}[step]; outcome != cmp.Or(want,
			flow.Skipped) {
			t.Errorf("step %s: %s", step, outcome)
		}
	}
}

// Another project's token is not handed to the management cluster: its Cluster API would make the whole cluster there,
// a second time.
func TestTheTokenOfAnotherProjectMakesNothing(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	if _, err := runPlan(t, w, w.Config(), journal, nil); err != nil {
		t.Fatal(err)
	}
	reserved := w.Hetzner.PlacementGroups()[0].ID
	w.Hetzner.SetPlacementGroups()
	w.Hetzner.SetNetworks()
	w.Hetzner.SetLoadBalancers()
	w.Hetzner.SetServers()
	before := w.Writes()
	tools := w.Tools()
	tools.Token = platform.NewSecret("of another project")
	plan, err := New(w.Config(), tools)
	if err != nil {
		t.Fatal(err)
	}
	_, err = plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.Bootstrap})
	want := fmt.Sprintf("placement group %d, which reserves k8s for this state folder, is not in the token's project",
		reserved)
	if err == nil || !strings.Contains(err.Error(), want) || w.Writes() != before {
		t.Errorf("with the token of another project: %v; %d writes", err, w.Writes()-before)
	}
	if err := situation.CheckEndpoint(t.Context(), plan.b.cfg, plan.b.tools, plan.b.sources,
		clustertest.LoadBalancerIP); !situation.IsLost(err) || !strings.Contains(err.Error(), "nothing of cluster k8s is "+
		"in the token's project") {
		t.Errorf("of the address it says %v", err)
	}

	// Nobody is left who has made the cluster.
	w.Provider.There = false
	if v := newReserveStep(plan.b).verify(t.Context(),
		Reservation{ID: reserved, By: "x"}); v.Answer() != flow.AnswerUnknown ||
		!strings.Contains(v.Reason(), "but cluster k8s is there") {
		t.Errorf("while the cluster answers it is said to be %v: %s", v.Answer(), v.Reason())
	}
	w.Workload.CloseClientConnections()
	w.Workload.Close()
	if v := newReserveStep(plan.b).verify(t.Context(), Reservation{ID: reserved, By: "x"}); v.Answer() != flow.AnswerGone {
		t.Errorf("where nothing is left it is said to be %v: %s", v.Answer(), v.Reason())
	}
	w.Provider.There = true

	// Before there was anybody who could make the cluster, a reservation that was deleted is made again.
	early := reserver(t, w, &clustertest.Provider{})
	if v := newReserveStep(early).verify(t.Context(), Reservation{ID: reserved, By: "x"}); v.Answer() != flow.AnswerGone {
		t.Errorf("early it is said to be %v: %s", v.Answer(), v.Reason())
	}
	w.Hetzner.SetNetworks(schema.Network{ID: 77, Name: "k8s", Labels: clustertest.OwnedByCAPH, IPRange: "10.10.0.0/16"})
	if v := newReserveStep(plan.b).verify(t.Context(), Reservation{ID: reserved, By: "x"}); v.Answer() != flow.AnswerGone {
		t.Errorf("with a network of the cluster it is said to be %v: %s", v.Answer(), v.Reason())
	}
}
