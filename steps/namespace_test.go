package steps

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// otherCluster puts a cluster with a token of another project into a namespace, and returns what it consists of, as
// bytes.
func otherCluster(t *testing.T, s *kubetest.Server, namespace string) (objects func() string) {
	t.Helper()
	labels := clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "other"}}
	planted := []*unstructured.Unstructured{
		kubetest.Object("v1", "Namespace", "", namespace, clustertest.Map{"metadata": clustertest.Map{
			"labels": clustertest.Map{"app.kubernetes.io/managed-by": "slipway"}}}),
		kubetest.Object("v1", "Secret", namespace, config.TokenSecretName, clustertest.Map{
			"metadata": clustertest.Map{"labels": clustertest.Map{capi.MoveLabel: ""}},
			"data":     clustertest.Map{config.TokenSecretKey: base64.StdEncoding.EncodeToString([]byte("theirs"))}}),
		kubetest.Object(clustertest.CAPI, "Cluster", namespace, "other", nil),
		kubetest.Object(clustertest.CAPI, "Machine", namespace, "other-a", clustertest.Map{"metadata": labels}),
		kubetest.Object(clustertest.CAPH, "HCloudMachine", namespace, "other-a", clustertest.Map{"metadata": labels,
			"spec": clustertest.Map{"providerID": "hcloud://7"}}),
	}
	for _, o := range planted {
		s.Put(o)
	}
	return func() string {
		var all strings.Builder
		for _, o := range planted {
			data, err := json.Marshal(s.Get(o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName()))
			if err != nil {
				t.Fatal(err)
			}
			all.Write(append(data, '\n'))
		}
		return all.String()
	}
}

// Two clusters in one management cluster, each with a namespace and a token of its own: the bootstrap of one leaves the
// other as it is.
func TestBootstrapInItsNamespace(t *testing.T) {
	w := clustertest.New(t)
	w.Namespace = "team-a"
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	inTheirs := otherCluster(t, w.Management, "team-b")
	inDefault := otherCluster(t, w.Management, config.DefaultNamespace)
	before := inTheirs() + inDefault()
	journal := flow.Memory()
	if _, err := runPlan(t, w, w.Config(), journal, nil); err != nil {
		t.Fatal(err)
	}
	if after := inTheirs() + inDefault(); after != before {
		t.Errorf("the other clusters were touched:\n%s\nbefore:\n%s", after, before)
	}
	if o := w.Management.Get("v1", "Namespace", "", "team-a"); o == nil ||
		o.GetLabels()["app.kubernetes.io/managed-by"] != "slipway" {
		t.Errorf("namespace: %v", o)
	}
	if got := capi.Text(w.Management.Get("v1", "Secret", "team-a", config.TokenSecretName), "data",
		config.TokenSecretKey); got != base64.StdEncoding.EncodeToString([]byte(hetznertest.Token)) {
		t.Error("the cluster's own token is not in its namespace")
	}
	for _, o := range []struct{ apiVersion, kind, name string }{{clustertest.CAPI, "Cluster", "k8s"},
		{clustertest.CAPH, "HetznerCluster", "k8s"}, {clustertest.CACPPT, "TalosControlPlane", "k8s-control-plane"}} {
		if w.Management.Get(o.apiVersion, o.kind, "team-a", o.name) == nil ||
			w.Management.Get(o.apiVersion, o.kind, config.DefaultNamespace, o.name) != nil && o.kind != "Cluster" {
			t.Errorf("%s %s is not in the namespace", o.kind, o.name)
		}
	}
	// A second run finds everything there.
	writes := w.Writes()
	report, err := runPlan(t, w, w.Config(), journal, nil)
	if err != nil || len(ran(report)) > 0 || w.Writes() != writes {
		t.Errorf("again: %v ran %v, and wrote %d times", err, ran(report), w.Writes()-writes)
	}
}

// A pivot concerns the cluster's namespace alone.
func TestPivotLeavesOtherNamespaces(t *testing.T) {
	w := newPivotWorld(t)
	other := otherCluster(t, w.source, "team-b")
	before := other()
	mustPivot(t, w)
	if after := other(); after != before {
		t.Errorf("the other cluster was touched:\n%s\nbefore:\n%s", after, before)
	}
	if o := w.target.Get(clustertest.CAPI, "Cluster", "team-b", "other"); o != nil {
		t.Error("the other cluster was moved, too")
	}
}

// givenProvider is a management cluster that was there before.
type givenProvider struct{ deletingProvider }

func (p *givenProvider) Given() bool { return true }

// A management cluster that was there before is left alone, whatever it holds; one that Slipway created and that holds
// another cluster is not deleted.
func TestCleanLeavesAGivenManagementCluster(t *testing.T) {
	w := newPivotWorld(t)
	mustPivot(t, w)
	other := otherCluster(t, w.source, "team-b")
	before := other()
	p := &deletingProvider{Provider: w.provider}
	w.b.tools.Management = p
	if _, err := w.b.runClean(t.Context(), w.say); err == nil || !strings.Contains(err.Error(), "team-b/other") ||
		p.deleted {
		t.Errorf("one that Slipway created: %v, deleted: %v", err, p.deleted)
	}
	given := &givenProvider{deletingProvider{Provider: w.provider}}
	w.b.tools.Management = given
	out, err := w.b.runClean(t.Context(), w.say)
	if err != nil || !out.Left || given.deleted {
		t.Errorf("a given one: %+v, %v, deleted: %v", out, err, given.deleted)
	}
	if after := other(); after != before {
		t.Errorf("the other cluster was touched:\n%s\nbefore:\n%s", after, before)
	}
}

// foundProvider is a management cluster that its provider found, and that another state folder created.
type foundProvider struct{ deletingProvider }

func (p *foundProvider) Created(context.Context, string) (bool, error) { return false, nil }

// One that another state folder created is left alone, also where the operator agrees to a deletion.
func TestCleanLeavesAnothersManagementCluster(t *testing.T) {
	w := newPivotWorld(t)
	mustPivot(t, w)
	other := otherCluster(t, w.source, "team-b")
	before := other()
	p := &foundProvider{deletingProvider{Provider: w.provider}}
	w.b.tools.Management, w.b.tools.Consent = p, true
	out, err := w.b.runClean(t.Context(), w.say)
	if err != nil || !out.Left || p.deleted {
		t.Errorf("%+v, %v, deleted: %v", out, err, p.deleted)
	}
	if after := other(); after != before {
		t.Errorf("what is in it was touched:\n%s\nbefore:\n%s", after, before)
	}
}

// After the pivot the namespace that Slipway created in a given management cluster is empty, and deleted.
func TestCleanDeletesTheEmptyNamespace(t *testing.T) {
	w := newPivotWorld(t)
	mustPivot(t, w)
	w.b.cfg.Namespace = "team-a"
	for _, s := range []*kubetest.Server{w.source, w.target} { // as after a pivot in that namespace
		s.Put(kubetest.Object("v1", "Namespace", "", "team-a", clustertest.Map{"metadata": clustertest.Map{
			"labels": clustertest.Map{"app.kubernetes.io/managed-by": "slipway"}}}))
	}
	w.target.Put(kubetest.Object(clustertest.CAPI, "Cluster", "team-a", "k8s", nil))
	w.b.tools.Management = &givenProvider{deletingProvider{Provider: w.provider}}
	if _, err := w.b.runClean(t.Context(), w.say); err != nil {
		t.Fatal(err)
	}
	if w.source.Get("v1", "Namespace", "", "team-a") != nil || w.target.Get("v1", "Namespace", "", "team-a") == nil {
		t.Errorf("namespaces: %v, %v; said %q", w.source.Get("v1", "Namespace", "", "team-a"),
			w.target.Get("v1", "Namespace", "", "team-a"), w.said)
	}
}

// A given management cluster that cannot be opened is left with what is in it, which is said before its kubeconfig is
// forgotten.
func TestCleanNamesWhatIsLeftInASilentManagementCluster(t *testing.T) {
	for _, namespace := range []string{"team-a", config.DefaultNamespace} {
		t.Run(namespace, func(t *testing.T) {
			w := newPivotWorld(t)
			mustPivot(t, w)
			w.b.cfg.Namespace = namespace
			if namespace != config.DefaultNamespace { // as after a pivot in that namespace
				w.target.Put(kubetest.Object("v1", "Namespace", "", namespace, nil))
				for _, o := range w.target.All() {
					if o.GetNamespace() == config.DefaultNamespace {
						o.SetNamespace(namespace)
						w.target.Put(o)
					}
				}
			}
			w.b.tools.Management = &givenProvider{deletingProvider{Provider: w.provider}}
			w.b.tools.Consent = true
			w.source.Close()
			out, err := w.b.runClean(t.Context(), w.say)
			if err != nil || !out.Left {
				t.Fatalf("%+v, %v", out, err)
			}
			said := fmt.Sprint(w.said)
			for _, part := range []string{"namespace " + namespace + " ", "Secret " + config.TokenSecretName, w.b.cfg.ManagementName(),
				w.source.URL, "does not answer", "Hetzner token"} {
				if !strings.Contains(said, part) {
					t.Errorf("%q is not in %s", part, said)
				}
			}
			if strings.Contains(said, "delete the namespace") != (namespace != config.DefaultNamespace) {
				t.Errorf("of namespace %s it says %s", namespace, said)
			}
			if _, err := w.files.Read(platform.ManagementKubeconfig); err == nil {
				t.Error("the kubeconfig is still there")
			}
		})
	}
}

// A run that is interrupted while the management cluster is asked forgets nothing.
func TestCleanInterruptedKeepsTheKubeconfig(t *testing.T) {
	w := newPivotWorld(t)
	w.b.tools.Management = &givenProvider{deletingProvider{Provider: w.provider}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.b.leaveManagement(ctx, w.say); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// With PIVOT=false the whole first day is the bootstrap and the firewall.
func TestPlanWithoutPivot(t *testing.T) {
	w := clustertest.New(t)
	cfg := w.Config()
	cfg.Pivot = config.PivotFalse
	if plan, err := New(cfg, w.Tools()); err != nil || !strings.Contains(plan.AllRefused, "FIREWALL_ALLOW") {
		t.Errorf("a firewall that lets the management cluster not in: %q, %v", plan.AllRefused, err)
	}
	cfg.FirewallAllow = "auto"
	plan, err := New(cfg, w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	if plan.AllRefused != "" {
		t.Error(plan.AllRefused)
	}
	for _, name := range plan.Bootstrap {
		if !slices.Contains(plan.All, name) {
			t.Errorf("all has no %s", name)
		}
	}
	steps, err := plan.Graph.Predict(context.Background(), flow.Memory(), plan.All, false)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range steps {
		names = append(names, s.Name)
	}
	if !slices.Contains(names, "firewall-apply") || !slices.Contains(names, "wait-releases") {
		t.Errorf("all is %v", names)
	}
	for _, step := range []string{"pivot", "access", "token", "clean", "providers"} {
		if slices.Contains(names, step) {
			t.Errorf("all runs %s", step)
		}
	}
	if want := []string{"pivot", "access", "token", "clean"}; !slices.Equal(plan.Refused, want) {
		t.Errorf("refused: %v", plan.Refused)
	}
}

// The files name the namespace by its variable. For the default namespace that is the digest of the files of older
// releases, which named it: no step runs again for it.
func TestNamespaceInFiles(t *testing.T) {
	digest := func(text, namespace string) string {
		cfg := config.Defaults()
		cfg.Namespace = namespace
		d, err := (render.Source{Name: "x", Data: []byte(text)}).Digest(render.VariablesOf(cfg))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(d)
	}
	const now, older = "namespace: ${NAMESPACE:=default}\n", "namespace: default\n"
	if digest(now, config.DefaultNamespace) != digest(older, config.DefaultNamespace) {
		t.Error("the default namespace has another digest than before")
	}
	if digest(now, "team-a") == digest(now, config.DefaultNamespace) {
		t.Error("another namespace has the same digest")
	}
	for _, set := range []string{"NAMESPACE=team-a", "NAMESPACE=default"} {
		b := planner(t, "", set, "WORKERS=1")
		v := render.ManifestVariables(b.sources, "image", "eu-central", render.MadeUp(b.cfg))
		r, err := render.Manifests(b.cfg, b.sources, v)
		if err != nil {
			t.Fatal(err)
		}
		workers, err := render.Workers(b.cfg, b.sources, v, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range append(r.Now, workers...) {
			if o.GetNamespace() != b.cfg.Namespace {
				t.Errorf("%s: %s %s is in namespace %s", set, o.GetKind(), o.GetName(), o.GetNamespace())
			}
		}
		// A file of the operator that names a namespace itself.
		b.sources.HealthCheck.Data = []byte(strings.ReplaceAll(string(b.sources.HealthCheck.Data), "${NAMESPACE:=default}",
			"elsewhere"))
		if _, err := render.Manifests(b.cfg, b.sources, v); err == nil || !strings.Contains(err.Error(), `in namespace "elsewhere"`) {
			t.Errorf("%s: an object elsewhere: %v", set, err)
		}
	}
}
