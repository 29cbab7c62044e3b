package steps

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// ownAddon is an add-on of the operator's own.
func ownAddon(w *clustertest.Environment) config.Addon {
	return config.Addon{Name: "shop", Chart: clustertest.OwnChart, Repository: w.Charts, Version: clustertest.OwnVersion,
		Namespace: clustertest.OwnNamespace}
}

// deployed tells whether a release has a record of a revision.
func deployed(w *clustertest.Environment, namespace, release, revision string) bool {
	return w.Workload.Get("v1", "Secret", namespace, "sh.helm.release.v1."+release+".v"+revision) != nil
}

// Add-ons are installed in their order, into namespaces that are created, found again, upgraded when their version or
// values change, and left where they are, and named, when they leave the configuration.
func TestAddons(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	cfg := w.Config()
	own := ownAddon(w)
	own.After, own.PodSecurity = []string{config.AddonCSI}, "privileged"
	cfg.Addons = config.Addons{own, {Name: config.AddonCSI}, {Name: config.AddonMetricsServer}}
	var done []string
	var said []string
	run := func() *flow.Report {
		t.Helper()
		done, said = nil, nil
		report, err := runPlan(t, w, cfg, journal, func(e flow.Event) {
			if e.Kind == flow.StepDone {
				done = append(done, e.Step)
			}
			if e.Message != "" {
				said = append(said, e.Message)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	run()
	for _, order := range [][]string{{"cilium", "addon-hcloud-csi", "addon-shop", "addons", "wait-releases"},
		{"hcloud-ccm", "addon-hcloud-csi"}, {"wait-workers", "addon-metrics-server", "addons"}} {
		for i := 1; i < len(order); i++ {
			if a, b := slices.Index(done, order[i-1]), slices.Index(done, order[i]); a < 0 || b < a {
				t.Errorf("%s is not done after %s: %v", order[i], order[i-1], done)
			}
		}
	}
	if !slices.Contains(done, "addon-metrics-server") || !deployed(w, clustertest.OwnNamespace, "shop", "1") ||
		!deployed(w, "kube-system", "hcloud-csi", "1") {
		t.Errorf("done: %v", done)
	}
	namespace := w.Workload.Get("v1", "Namespace", "", clustertest.OwnNamespace)
	if namespace == nil || namespace.GetLabels()[podSecurityLabel] != "privileged" {
		t.Errorf("namespace %v", namespace)
	}

	if got := ran(run()); len(got) > 0 {
		t.Errorf("nothing changed, and %v ran", got)
	}
	cfg.Addons[0].Version = clustertest.NextVersion
	if got := ran(run()); !slices.Equal(got, []string{"addon-shop", "addons", "wait-releases"}) ||
		!deployed(w, clustertest.OwnNamespace, "shop", "2") {
		t.Errorf("the version changed, and %v ran", got)
	}
	write(t, w.Tools().Overrides, "bootstrap/addons/shop-values.yaml", "colour: red\n")
	if got := ran(run()); !slices.Contains(got, "addon-shop") || !deployed(w, clustertest.OwnNamespace, "shop", "3") {
		t.Errorf("the operator's values changed, and %v ran", got)
	}
	write(t, w.Tools().Overrides, "bootstrap/addons/hcloud-csi-values.yaml", "controller: {replicaCount: 2}\n")
	if got := ran(run()); !slices.Contains(got, "addon-hcloud-csi") || slices.Contains(got, "addon-shop") {
		t.Errorf("the values of a shipped add-on changed, and %v ran", got)
	}
	w.Workload.Remove("apps/v1", "Deployment", "kube-system", "hcloud-csi")
	if got := ran(run()); !slices.Contains(got, "addon-hcloud-csi") ||
		w.Workload.Get("apps/v1", "Deployment", "kube-system", "hcloud-csi") == nil {
		t.Errorf("a Deployment is gone, and %v ran", got)
	}

	cfg.Addons = cfg.Addons[1:2]
	if err := os.Remove(filepath.Join(w.Tools().Overrides, "bootstrap/addons/shop-values.yaml")); err != nil {
		t.Fatal(err)
	}
	run()
	all := strings.Join(said, "\n")
	for _, want := range []string{"note: Helm release shop in namespace shop-system is no add-on of the configuration any " +
		"more", "helm uninstall metrics-server --namespace kube-system --kubeconfig "} {
		if !strings.Contains(all, want) {
			t.Errorf("it does not say %q:\n%s", want, all)
		}
	}
	if strings.Contains(all, "uninstall hcloud-csi") || strings.Contains(all, "uninstall cilium") ||
		!deployed(w, clustertest.OwnNamespace, "shop", "3") {
		t.Errorf("it would remove what is wanted, or did:\n%s", all)
	}
}

// With wait: false the run ends although the workloads are not ready, and does not verify them.
func TestAddonThatIsNotWaitedFor(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	w.Workload.React = func(o *unstructured.Unstructured) {
		if o.GetName() != "shop" {
			w.ReactWorkload(o)
		}
	}
	cfg := w.Config()
	own := ownAddon(w)
	no := false
	own.Wait = &no
	cfg.Addons = config.Addons{own}
	for _, want := range []flow.Outcome{flow.Ran, flow.Reused} {
		report, err := runPlan(t, w, cfg, journal, nil)
		if err != nil {
			t.Fatal(err)
		}
		if step, _ := report.Step("addon-shop"); step.Outcome != want {
			t.Errorf("%s, not %s", step.Outcome, want)
		}
	}
}

// The time-out of an add-on is its own, and its error says what is not ready.
func TestAddonTimeout(t *testing.T) {
	w := clustertest.New(t)
	w.Workload.React = func(o *unstructured.Unstructured) {
		if o.GetName() != "shop" {
			w.ReactWorkload(o)
		}
	}
	cfg := w.Config()
	own := ownAddon(w)
	if err := own.Timeout.UnmarshalText([]byte("1s")); err != nil {
		t.Fatal(err)
	}
	cfg.Addons = config.Addons{own}
	_, err := runPlan(t, w, cfg, flow.Memory(), nil)
	if err == nil || !strings.Contains(err.Error(), "waited 1s for shop; last seen: Deployment shop") {
		t.Errorf("error is %v", err)
	}
}

// The cluster autoscaler is left out, with the reason, until the cluster manages itself, and installed then.
func TestAutoscalerIsInstalledAfterThePivot(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	cfg := w.Config()
	cfg.Addons = config.Addons{{Name: config.AddonAutoscaler}}
	var notes []string
	for _, want := range []flow.Outcome{flow.Ran, flow.Reused} {
		report, err := runPlan(t, w, cfg, journal, func(e flow.Event) { notes = append(notes, e.Message) })
		if err != nil {
			t.Fatal(err)
		}
		if step, _ := report.Step("addon-cluster-autoscaler"); step.Outcome != want {
			t.Errorf("before the pivot: %s, not %s", step.Outcome, want)
		}
	}
	if all := strings.Join(notes, "\n"); !strings.Contains(all,
		"note: cluster-autoscaler is not installed: it scales the "+
			"cluster's MachineDeployments, which are in the management cluster until the pivot") {
		t.Errorf("it says\n%s", all)
	}
	if deployed(w, "kube-system", config.AddonAutoscaler, "1") {
		t.Error("it is installed before the pivot")
	}
	plan, err := New(cfg, w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range plan.Graph.Steps() {
		if s.Name == "addon-cluster-autoscaler" && slices.Contains(s.Needs, "pivot") {
			t.Error("the target bootstrap would pivot")
		}
	}

	pivoted, _ := selfManaged(t) // what was the management cluster is the cluster itself now
	clustertest.Define(pivoted.Management, clustertest.ClusterAPIKinds())
	pivoted.Management.SetReact(func(o *unstructured.Unstructured) {
		if o.GetKind() == "Deployment" {
			pivoted.Management.Change("apps/v1", "Deployment", o.GetNamespace(), o.GetName(), clustertest.Map{
				"status": clustertest.Map{"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}})
		}
	})
	cfg = pivoted.Config()
	cfg.Addons = config.Addons{{Name: config.AddonAutoscaler}}
	set, err := NewSet(cfg, pivoted.Tools())
	if err != nil {
		t.Fatal(err)
	}
	step := newAddonStep(set, cfg.Addon(cfg.Addons[0]))
	out, err := step.run(t.Context(), t.Logf, workloadOf(t, set))
	if err != nil || out.Deferred != "" || out.Release.Revision != 1 || len(out.Release.Workloads) != 1 {
		t.Errorf("after the pivot: %+v, %v", out, err)
	}
	if v := step.verify(t.Context(), workloadOf(t, set), Addon{Deferred: "because"}); v.Answer() != flow.AnswerGone ||
		!strings.Contains(v.String(), "manages itself now") {
		t.Errorf("one that was left out, in a cluster that manages itself: %v", v)
	}
}

// After the pivot add-ons are upgraded, and nothing is asked of the management cluster.
func TestAddonsAfterThePivot(t *testing.T) {
	w, journal := afterPivot(t)
	cfg := w.Config()
	cfg.Addons = config.Addons{ownAddon(w)}
	plan, err := New(cfg, w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	for _, all := range [][]string{plan.All, plan.Managed} {
		if !slices.Contains(all, "addons") || !slices.Contains(all, "addon-shop") {
			t.Errorf("%v lacks the add-ons, which nothing brings after the pivot", all)
		}
	}
	if got := ran(runSteps(t, w, cfg, journal, "addons")); !slices.Equal(got, []string{"addon-shop", "addons"}) {
		t.Errorf("ran %v", got)
	}
	cfg.Addons[0].Version = clustertest.NextVersion
	if got := ran(runSteps(t, w, cfg, journal, "addon-shop")); !slices.Equal(got, []string{"addon-shop"}) ||
		!deployed(w, clustertest.OwnNamespace, "shop", "2") {
		t.Errorf("the version changed, and %v ran", got)
	}
}

// A run that ended in the middle of an add-on's installation is recovered by the next.
func TestAddonInstallationIsRecovered(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	cfg := w.Config()
	cfg.Addons = config.Addons{ownAddon(w)}
	var failing atomic.Bool
	failing.Store(true)
	w.Workload.Fail = func(r *http.Request) (int, string) {
		if failing.Load() && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/deployments") &&
			strings.Contains(r.URL.Path, clustertest.OwnNamespace) {
			return http.StatusForbidden, "refused by a quota"
		}
		return 0, ""
	}
	if _, err := runPlan(t, w, cfg, journal, nil); err == nil || !strings.Contains(err.Error(), "refused by a quota") {
		t.Fatalf("error is %v", err)
	}
	failing.Store(false)
	if _, err := runPlan(t, w, cfg, journal, nil); err != nil {
		t.Fatal(err)
	}
	if w.Workload.Get("apps/v1", "Deployment", clustertest.OwnNamespace, "shop") == nil {
		t.Error("the Deployment is missing")
	}
}

// Values files that are missing, that no add-on uses and that cannot work are refused before anything is made.
func TestAddonFilesAreChecked(t *testing.T) {
	for what, tt := range map[string]struct {
		file, text string
		values     string
		says       string
	}{
		"missing":     {values: "shop.yaml", says: "addons[0].values: there is no file bootstrap/addons/shop.yaml"},
		"a neighbour": {"bootstrap/addons/shops.yaml", "a: 1\n", "shop.yaml", "(did you mean shops.yaml?)"},
		"of no add-on": {file: "bootstrap/addons/ship-values.yaml", text: "a: 1\n",
			says: "ship-values.yaml is the values file of no add-on of the configuration (did you mean shop-values.yaml?)"},
		"a folder": {file: "bootstrap/addons/shop/values.yaml", text: "a: 1\n", says: "is a folder"},
		"not YAML": {file: "bootstrap/addons/shop-values.yaml", text: "a: [\n", says: "shop-values.yaml"},
		"an unknown variable": {file: "bootstrap/addons/shop-values.yaml", text: "a: ${NO_SUCH_VARIABLE}\n",
			says: "there is no variable NO_SUCH_VARIABLE"},
	} {
		t.Run(what, func(t *testing.T) {
			w := clustertest.New(t)
			cfg := w.Config()
			own := ownAddon(w)
			own.Values = tt.values
			cfg.Addons = config.Addons{own}
			if tt.file != "" {
				write(t, w.Tools().Overrides, tt.file, tt.text)
			}
			if _, err := New(cfg, w.Tools()); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v does not say %q", err, tt.says)
			}
		})
	}
}

// The shipped values follow the configuration.
func TestShippedValues(t *testing.T) {
	cfg := config.Defaults()
	cfg.ClusterName, cfg.KubernetesVersion = "shop", "v1.33.13"
	cfg.Addons = config.Addons{{Name: config.AddonAutoscaler}, {Name: config.AddonCSI}, {Name: config.AddonMetricsServer}}
	sources, err := render.Read(render.VariablesOf(cfg), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range render.AllCharts(cfg, sources) {
		values, err := in.Values.Values(sources.Vars)
		if err != nil || len(values) == 0 {
			t.Errorf("%s: %v, %v", in.Release, values, err)
		}
		if in.Release != config.AddonAutoscaler {
			continue
		}
		name, _, _ := unstructured.NestedString(values, "autoDiscovery", "clusterName")
		tag, _, _ := unstructured.NestedString(values, "image", "tag")
		if name != "shop" || tag != "v1.33.1" {
			t.Errorf("the autoscaler is %s for cluster %s", tag, name)
		}
	}
}

// What others installed with helm is none of Slipway's business.
func TestForeignReleasesAreNotNamed(t *testing.T) {
	w := clustertest.New(t)
	w.Workload.Put(kubetest.Object("v1", "Secret", "kube-system", "sh.helm.release.v1.other.v1", clustertest.Map{
		"metadata": clustertest.Map{"labels": clustertest.Map{"owner": "helm", "name": "other", "version": "1",
			"status": "deployed"}}}))
	var said []string
	if _, err := runPlan(t, w, w.Config(), flow.Memory(), func(e flow.Event) {
		said = append(said,
			e.Message)
	}); err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(said, "\n"); strings.Contains(all, "uninstall") {
		t.Errorf("it says\n%s", all)
	}
}
