package steps

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// outcomes tells what became of every step.
func outcomes(r *flow.Report) map[string]flow.Outcome {
	all := map[string]flow.Outcome{}
	for _, s := range r.Steps {
		all[s.Name] = s.Outcome
	}
	return all
}

// ran lists the steps that were not reused.
func ran(r *flow.Report) []string {
	var names []string
	for _, s := range r.Steps {
		if s.Outcome != flow.Reused {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}

func TestPlanIsValid(t *testing.T) {
	w := clustertest.New(t)
	plan, err := New(w.Config(), w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range plan.Graph.Steps() {
		if s.Doc == "" || s.Deadline == 0 {
			t.Errorf("step %s has no description or no deadline", s.Name)
		}
	}
	if w.Writes() > 0 || w.Provider.Ensured > 0 {
		t.Error("planning did something")
	}
}

// A chart's step has time for all that it waits for, each as long as it may take: somebody else's Helm, its own, the
// workloads.
func TestReleasesHaveTimeForHelm(t *testing.T) {
	cfg := config.Defaults()
	plan, err := New(cfg, platform.Tools{Management: &clustertest.Provider{}, Files: platform.FilesIn(t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range plan.Graph.Steps() {
		if !slices.Contains([]string{"cilium", "hcloud-ccm", "talos-ccm"}, s.Name) {
			continue
		}
		if most := 3 * cfg.ReleaseTimeout.D(); s.Deadline < most+wait.RetryFor {
			t.Errorf("step %s ends after %s, and may take %s", s.Name, s.Deadline, most+wait.RetryFor)
		}
	}
}

// defaultSteps is how many steps the default plan runs until the cluster is complete.
const defaultSteps = 19

func TestBootstrapThenNothing(t *testing.T) {
	w := clustertest.New(t)
	journal := flow.Memory()
	var events []flow.Event
	report, err := runPlan(t, w, w.Config(), journal, func(e flow.Event) { events = append(events, e) })
	if err != nil {
		t.Fatalf("%v\n%s", err, w.Log)
	}
	if n := len(report.Steps); n != defaultSteps || len(ran(report)) != defaultSteps {
		t.Fatalf("%d steps, of which %v ran; want %d (defaultSteps)", n, ran(report), defaultSteps)
	}
	plan, err := New(w.Config(), w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	nodes, ok, err := flow.Restore(t.Context(), journal, plan.Nodes)
	if err != nil || !ok || len(nodes.Nodes) != 3 || nodes.Nodes[2].ProviderID != "hcloud://102" ||
		!nodes.Nodes[2].ControlPlane {
		t.Errorf("nodes %+v, %v, %v", nodes, ok, err)
	}
	for _, file := range []string{platform.ManagementKubeconfig, platform.Kubeconfig, platform.Talosconfig} {
		info, err := os.Stat(w.Tools().Files.Path(file))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}

	before := w.Writes()
	again, err := runPlan(t, w, w.Config(), journal, nil)
	if err != nil {
		t.Fatal(err)
	}
	if names := ran(again); len(names) > 0 {
		t.Errorf("the second run ran %v: %v", names, whys(again))
	}
	if n := w.Writes() - before; n > 0 {
		t.Errorf("the second run wrote %d times", n)
	}

	snapshot, err := journal.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for what, v := range map[string]any{"journal": snapshot, "events": events, "log": w.Log.String()} {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), hetznertest.Token) {
			t.Errorf("the token is in the %s", what)
		}
	}
}

func whys(r *flow.Report) map[string]string {
	all := map[string]string{}
	for _, s := range r.Steps {
		all[s.Name] = s.Reason
	}
	return all
}

func TestLostJournalMakesNothingTwice(t *testing.T) {
	w := clustertest.New(t)
	if _, err := runPlan(t, w, w.Config(), flow.Memory(), nil); err != nil {
		t.Fatal(err)
	}
	hosts := 0
	for _, r := range w.Management.Writes() {
		if strings.Contains(r.Path, "/hetznerclusters/") {
			hosts++
		}
	}
	inits := len(w.Inits)
	report, err := runPlan(t, w, w.Config(), flow.Memory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := defaultSteps; len(ran(report)) != want {
		t.Errorf("%d steps ran, want %d: %v", len(ran(report)), want, ran(report))
	}
	if len(w.Inits) != inits {
		t.Error("the providers were installed again")
	}
	if w.Management.Get(clustertest.CAPH, "HetznerCluster", config.DefaultNamespace,
		"k8s").Object["spec"].(clustertest.Map)["controlPlaneEndpoint"].(clustertest.Map)["host"] != clustertest.LoadBalancerIP {
		t.Error("the endpoint was taken back")
	}
	for _, release := range []string{"cilium", "hcloud-cloud-controller-manager", "talos-cloud-controller-manager"} {
		if w.Workload.Get("v1", "Secret", "kube-system", "sh.helm.release.v1."+release+".v2") != nil {
			t.Errorf("release %s was upgraded without a reason", release)
		}
	}
	if hosts != 1 {
		t.Errorf("the HetznerCluster was applied %d times in the first run, in one part it is 1", hosts)
	}
}

func TestClusterNamesItsControlPlaneLast(t *testing.T) {
	t.Run(config.EndpointPrimaryIP, func(t *testing.T) {
		testControlPlaneLast(t, config.EndpointPrimaryIP, "taloscontrolplanes clusters")
	})
	t.Run(config.EndpointLoadBalancer, func(t *testing.T) { // in two parts
		testControlPlaneLast(t, config.EndpointLoadBalancer, "clusters taloscontrolplanes clusters")
	})
}

func testControlPlaneLast(t *testing.T, endpoint, want string) {
	w := clustertest.New(t)
	cfg := w.Config()
	cfg.ControlPlaneEndpoint = endpoint
	if _, err := runPlan(t, w, cfg, flow.Memory(), nil); err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, r := range w.Management.Writes() {
		for _, kind := range []string{"/clusters/", "/taloscontrolplanes/"} {
			if strings.Contains(r.Path, "x-k8s.io") && strings.Contains(r.Path, kind) {
				order = append(order, strings.Trim(kind, "/"))
			}
		}
	}
	if got := strings.Join(order, " "); got != want {
		t.Errorf("applied in the order %s", got)
	}
}

func TestOnlyWhatChangedRuns(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*testing.T, *clustertest.Environment, *config.Config)
		want   []string
	}{
		"values file": {func(t *testing.T, w *clustertest.Environment, _ *config.Config) {
			write(t, w.Tools().Overrides, "bootstrap/"+bootstrap.Cilium().Values, "hubble: {enabled: false}\n")
		}, []string{"cilium", "wait-nodes", "wait-releases"}},
		"release deleted": {func(_ *testing.T, w *clustertest.Environment, _ *config.Config) {
			w.Workload.Remove("v1", "Secret", "kube-system", "sh.helm.release.v1.talos-cloud-controller-manager.v1")
			w.Workload.Remove("apps/v1", "DaemonSet", "kube-system", "talos-cloud-controller-manager")
		}, []string{"talos-ccm"}},
		"workload deleted": {func(_ *testing.T, w *clustertest.Environment, _ *config.Config) {
			w.Workload.Remove("apps/v1", "DaemonSet", "kube-system", "cilium")
		}, []string{"cilium", "wait-nodes", "wait-releases"}},
		"kubeconfig file lost": {func(t *testing.T, w *clustertest.Environment, _ *config.Config) {
			if err := os.Remove(w.Tools().Files.Path(platform.Kubeconfig)); err != nil {
				t.Fatal(err)
			}
		}, []string{"kubeconfig"}},
		"kubeconfig damaged": {func(t *testing.T, w *clustertest.Environment, _ *config.Config) {
			write(t, w.Tools().Files.String(), platform.Kubeconfig, "{{")
		}, []string{"kubeconfig"}},
		"management cluster's kubeconfig damaged": {func(t *testing.T, w *clustertest.Environment, _ *config.Config) {
			write(t, w.Tools().Files.String(), platform.ManagementKubeconfig, "{{")
		}, []string{"kind-create"}},
		"talosconfig damaged": {func(t *testing.T, w *clustertest.Environment, _ *config.Config) {
			write(t, w.Tools().Files.String(), platform.Talosconfig, "context: nowhere\n")
		}, []string{"talosconfig"}},
		"talosconfig rewritten by the provider": {func(_ *testing.T, w *clustertest.Environment, _ *config.Config) {
			w.Management.Change("v1", "Secret", config.DefaultNamespace, "k8s-talosconfig",
				clustertest.Map{"metadata": clustertest.Map{"annotations": clustertest.Map{"touched": "yes"}}})
		}, nil},
		"Secret changed": {func(_ *testing.T, w *clustertest.Environment, _ *config.Config) {
			w.Management.Change("v1", "Secret", config.DefaultNamespace, config.TokenSecretName,
				clustertest.Map{"data": clustertest.Map{config.TokenSecretKey: []byte("another")}})
		}, []string{"secret"}},
		"CCM's Secret gone": {func(_ *testing.T, w *clustertest.Environment, _ *config.Config) {
			w.Workload.Remove("v1", "Secret", "kube-system", "hcloud")
		}, []string{"hcloud-ccm", "wait-nodes", "wait-releases"}},
		"provider's Deployment down": {func(_ *testing.T, w *clustertest.Environment, _ *config.Config) {
			w.Management.Change("apps/v1", "Deployment", "cluster-api", "manager",
				clustertest.Map{"status": clustertest.Map{"availableReplicas": 0}})
		}, []string{"capi-init"}},
		"health check deleted": {func(_ *testing.T, w *clustertest.Environment, _ *config.Config) {
			w.Management.Remove(clustertest.CAPI, "MachineHealthCheck", config.DefaultNamespace, "k8s-control-plane")
		}, []string{"apply"}},
		"longer patience": {func(t *testing.T, _ *clustertest.Environment, c *config.Config) {
			clustertest.Configure(t, c, "RELEASE_TIMEOUT=20m")
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.New(t)
			journal, cfg := flow.Memory(), w.Config()
			if _, err := runPlan(t, w, cfg, journal, nil); err != nil {
				t.Fatal(err)
			}
			tt.change(t, w, &cfg)
			report, err := runPlan(t, w, cfg, journal, func(e flow.Event) {
				if e.Kind == flow.StepStarted && e.Step == "capi-init" {
					w.Install(cfg) // somebody starts the Deployment again
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := ran(report); !slices.Equal(got, tt.want) {
				t.Errorf("ran %v, want %v: %v", got, tt.want, whys(report))
			}
			again, err := runPlan(t, w, cfg, journal, nil)
			if err != nil || len(ran(again)) > 0 {
				t.Errorf("the run after that ran %v: %v", ran(again), err)
			}
		})
	}
}

func TestSilentManagementClusterIsNotRecreated(t *testing.T) {
	w := clustertest.New(t)
	journal := flow.Memory()
	if _, err := runPlan(t, w, w.Config(), journal, nil); err != nil {
		t.Fatal(err)
	}
	w.Management.CloseClientConnections()
	w.Management.Close()
	for name, tt := range map[string]struct {
		exists bool
		err    error
	}{"exists": {true, nil}, "provider cannot tell": {false, errors.New("docker is not running")}} {
		t.Run(name, func(t *testing.T) {
			w.Provider.There, w.Provider.ExistsError = tt.exists, tt.err
			_, err := runPlan(t, w, w.Config(), journal, nil)
			var unverifiable *flow.UnverifiableError
			if !errors.As(err, &unverifiable) || unverifiable.Step != "kind-create" {
				t.Errorf("got %v", err)
			}
			if w.Provider.Ensured != 1 {
				t.Error("it was made again")
			}
		})
	}
}

// After its start an API server takes a while to offer the kinds that it has. Nothing is installed again on that
// ground.
func TestKindsThatAreNotOfferedAreNotGone(t *testing.T) {
	for group, step := range map[string]string{
		"clusterctl.cluster.x-k8s.io/v1alpha3":    "capi-init",
		"cluster.x-k8s.io/v1beta1":                "apply",
		"controlplane.cluster.x-k8s.io/v1alpha3":  "apply",
		"infrastructure.cluster.x-k8s.io/v1beta1": "apply",
	} {
		t.Run(group, func(t *testing.T) {
			t.Parallel() // each waits for the kind
			w := clustertest.New(t)
			var starting atomic.Bool
			w.Management.Fail = func(r *http.Request) (int, string) {
				if starting.Load() && r.URL.Path == "/apis/"+group {
					return http.StatusNotFound, "404 page not found"
				}
				return 0, ""
			}
			journal := flow.Memory()
			if _, err := runPlan(t, w, w.Config(), journal, nil); err != nil {
				t.Fatal(err)
			}
			clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
			starting.Store(true)
			before := w.Writes()
			_, err := runPlan(t, w, w.Config(), journal, nil)
			var unverifiable *flow.UnverifiableError
			if !errors.As(err, &unverifiable) || unverifiable.Step != step || !strings.Contains(err.Error(), "does not serve") {
				t.Errorf("got %v", err)
			}
			if n := w.Writes(); n != before {
				t.Errorf("%d requests changed something", n-before)
			}
			starting.Store(false)
			report, err := runPlan(t, w, w.Config(), journal, nil)
			if err != nil {
				t.Fatal(err)
			}
			if n := w.Writes(); n != before {
				t.Errorf("when the kind is offered again, %d requests changed something: %v", n-before, report)
			}
		})
	}
}

func TestVanishedManagementClusterIsMadeAgain(t *testing.T) {
	w := clustertest.New(t)
	journal := flow.Memory()
	if _, err := runPlan(t, w, w.Config(), journal, nil); err != nil {
		t.Fatal(err)
	}
	other := clustertest.New(t) // everything but what reserves the name is gone, and a new management cluster can be made
	for _, gone := range []*kubetest.Server{w.Management, w.Workload} {
		gone.CloseClientConnections()
		gone.Close()
	}
	w.Provider.There, w.Provider.Kubeconfig = false, other.Management.Kubeconfig()
	w.Management, w.Workload = other.Management, other.Workload
	w.Hetzner.SetNetworks()
	w.Hetzner.SetServers()
	w.Hetzner.SetLoadBalancers()
	w.Management.React, w.Workload.React = w.ReactManagement, w.ReactWorkload
	w.Management.Put(kubetest.Object("v1", "Namespace", "", "kube-system", nil))
	report, err := runPlan(t, w, w.Config(), journal, nil)
	if err != nil {
		t.Fatal(err)
	}
	if w.Provider.Ensured != 2 || !slices.Contains(ran(report), "apply") || !slices.Contains(ran(report), "wait-nodes") {
		t.Errorf("ensured %d times, ran %v", w.Provider.Ensured, ran(report))
	}
}

func TestNoSecondClusterBesideAnUnknownOne(t *testing.T) {
	w := clustertest.New(t)
	w.Hetzner.SetServers(schema.Server{ID: 1, Name: "k8s-control-plane-old",
		Labels: map[string]string{"caph-cluster-k8s": "owned"}})
	_, err := runPlan(t, w, w.Config(), flow.Memory(), nil)
	if err == nil || !strings.Contains(err.Error(), "k8s-control-plane-old") {
		t.Fatalf("got %v", err)
	}
	if w.Management.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s") != nil {
		t.Error("the cluster was made beside the old one")
	}
}

func TestWhatOnlyTheCloudKnows(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*testing.T, *clustertest.Environment, *config.Config, *platform.Tools)
		want   string
	}{
		"server type": {func(t *testing.T, _ *clustertest.Environment, c *config.Config, _ *platform.Tools) {
			clustertest.Configure(t, c, "SERVER_TYPE=cx99")
		}, "cx33"},
		"wrong token": {func(_ *testing.T, w *clustertest.Environment, _ *config.Config, tools *platform.Tools) {
			tools.Hetzner = hcloud.NewClient(hcloud.WithEndpoint(w.Hetzner.URL), hcloud.WithToken("wrong-token"))
		}, "token"},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.New(t)
			cfg, tools := w.Config(), w.Tools()
			tt.change(t, w, &cfg, &tools)
			plan, err := New(cfg, tools)
			if err != nil {
				t.Fatal(err)
			}
			report, err := plan.Graph.Run(t.Context(), flow.Options{Targets: plan.Bootstrap})
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "wrong-token") {
				t.Errorf("got %v", err)
			}
			if outcomes(report)["preflight"] != flow.Failed || w.Provider.Ensured > 0 || w.Writes() > 0 {
				t.Errorf("something was made: %v", outcomes(report))
			}
		})
	}
}

func TestReleaseWaitsForItsKinds(t *testing.T) {
	w := clustertest.New(t)
	var asked atomic.Int32
	w.Workload.Fail = func(r *http.Request) (int, string) {
		if strings.HasPrefix(r.URL.Path, "/apis/talos.dev/") && asked.Add(1) <= 3 {
			return http.StatusNotFound, "not defined yet"
		}
		return 0, ""
	}
	var lines []string
	_, err := runPlan(t, w, w.Config(), flow.Memory(), func(e flow.Event) { lines = append(lines, e.Message) })
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(lines, "\n"), "waiting for release talos-cloud-controller-manager: the cluster "+
		"does not know all kinds of its chart yet") {
		t.Errorf("it did not say what it waits for:\n%s", strings.Join(lines, "\n"))
	}
}

// While control plane machines join, an API server has no leader of etcd for a moment, or is silent. A Secret is
// written then.
func TestSecretsAreWrittenOnceTheAPIServerIsWell(t *testing.T) {
	for path, of := range map[string]func(*clustertest.Environment) *kubetest.Server{
		"/api/v1/namespaces/default/secrets/hetzner":    func(w *clustertest.Environment) *kubetest.Server { return w.Management },
		"/api/v1/namespaces/kube-system/secrets/hcloud": func(w *clustertest.Environment) *kubetest.Server { return w.Workload },
	} {
		t.Run(path, func(t *testing.T) {
			w := clustertest.New(t)
			var refused atomic.Int32
			status := http.StatusInternalServerError
			of(w).Fail = func(r *http.Request) (int, string) {
				if r.Method == http.MethodPatch && r.URL.Path == path && refused.Load() < 2 {
					refused.Add(1)
					return status, "etcdserver: leader changed"
				}
				return 0, ""
			}
			if _, err := runPlan(t, w, w.Config(), flow.Memory(), nil); err != nil || refused.Load() != 2 {
				t.Errorf("after %d refusals: %v", refused.Load(), err)
			}
			refused.Store(0)
			status = http.StatusForbidden
			if _, err := runPlan(t, w, w.Config(), flow.Memory(), nil); err == nil || refused.Load() != 1 {
				t.Errorf("not allowed, it was tried %d times: %v", refused.Load(), err)
			}
		})
	}
}
