package steps

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// A file called bootstrap or manifests is not the folder of that name, and does not turn the other folder off.
func TestAFileNamedAsAFolderIsNotOne(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "bootstrap", "the built command")
	write(t, dir, "manifests/clusterctl.yaml", "providers: []\n")
	s, err := render.Read(nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	if string(s.Clusterctl.Data) != "providers: []\n" || s.Cilium.Own {
		t.Errorf("clusterctl.yaml is %q, Cilium's values are the operator's: %t", s.Clusterctl.Data, s.Cilium.Own)
	}
}

func TestFilesThatAreNotReadAreRefused(t *testing.T) {
	for name, tc := range map[string]struct{ file, says string }{
		"a typo in bootstrap": {"bootstrap/cilium-value.yaml", "did you mean cilium-values.yaml?"},
		"another file in bootstrap": {"bootstrap/prometheus.yaml", "is none of the files that are read from bootstrap/: " +
			"cilium-values.yaml, "},
		"another ending": {"manifests/cluster.yml", "manifests/cluster.yml is not read: only files ending in " +
			".yaml are (did you mean cluster.yaml?)"},
		"JSON":                      {"manifests/pools.json", "only files ending in .yaml are"},
		"a folder":                  {"manifests/pools/a.yaml", "manifests/pools is a folder"},
		"a folder of a file's name": {"manifests/cluster.yaml/x", "manifests/cluster.yaml is a folder"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, tc.file, "x: 1\n")
			_, err := render.Read(nil, dir)
			if err == nil || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v does not say %q", err, tc.says)
			}
		})
	}
	dir := t.TempDir()
	write(t, dir, "bootstrap/schematic.yaml", "customization: {}\n")
	unreadable := filepath.Join(dir, "bootstrap", "cilium-values.yaml")
	if err := os.Symlink(filepath.Join(dir, "nowhere"), unreadable); err != nil {
		t.Fatal(err)
	}
	if _, err := render.Read(nil, dir); err == nil || !strings.Contains(err.Error(), unreadable) {
		t.Errorf("a file that cannot be read: %v", err)
	}
}

func TestFilesOfNoConcernAreNotInTheWay(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"embed.go", "README.md", ".cluster.yaml.swp", "cluster.yaml~", "#cluster.yaml#",
		"cluster.yaml.orig", ".git/config.yaml", "Makefile"} {
		write(t, dir, "manifests/"+name, "x")
		write(t, dir, "bootstrap/"+name, "x")
	}
	s, err := render.Read(nil, dir)
	if err != nil || len(s.Added) > 0 {
		t.Errorf("%v, added %d", err, len(s.Added))
	}
	// The project's own folders, which a run in a clone of it uses.
	files, err := render.SourceFiles("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Use == render.FileBuiltIn || f.Use == render.FileAdded || !f.Same {
			t.Errorf("%+v", f)
		}
	}
}

const healthCheckOfWorkers = `apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineHealthCheck
metadata: {name: "${CLUSTER_NAME}-workers", namespace: default}
spec: {clusterName: "${CLUSTER_NAME}", nodeStartupTimeout: 20m}
`

// Further files are applied, in the order of their names, and are moved by the pivot.
func TestAddedManifestsAreApplied(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	write(t, w.Tools().Overrides, "manifests/b.yaml", strings.ReplaceAll(healthCheckOfWorkers, "-workers", "-b"))
	write(t, w.Tools().Overrides, "manifests/a.yaml", "# first\n---\n"+healthCheckOfWorkers)
	if _, err := runPlan(t, w, w.Config(), journal, nil); err != nil {
		t.Fatal(err)
	}
	plan, err := New(w.Config(), w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	r := withIP(t, plan.b)
	var names []string
	for _, o := range r.Now {
		if o.GetKind() == "MachineHealthCheck" {
			names = append(names, o.GetName())
		}
	}
	if want := []string{"k8s-control-plane", "k8s-workers", "k8s-b"}; !slices.Equal(names[len(names)-2:], want[1:]) {
		t.Errorf("applied in the order %q, want %q", names, want)
	}
	mgmt, err := connect.Cluster(plan.b.tools, platform.ManagementKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	live, err := capi.Get(t.Context(), mgmt, config.DefaultNamespace, capi.ClusterKind.GroupVersion().WithKind("MachineHealthCheck"), "k8s-workers")
	if err != nil {
		t.Fatal(err)
	}
	if _, found := live.GetLabels()[capi.MoveLabel]; !found {
		t.Errorf("its labels are %v: the pivot would leave it behind where nothing owns it", live.GetLabels())
	}
	if err := os.Remove(filepath.Join(w.Tools().Overrides, "manifests/b.yaml")); err != nil {
		t.Fatal(err)
	}
	write(t, w.Tools().Overrides, "manifests/c.yaml", strings.ReplaceAll(healthCheckOfWorkers, "-workers", "-c"))
	if plan, err = New(w.Config(), w.Tools()); err != nil {
		t.Fatal(err)
	}
	foreseen, err := plan.Graph.Predict(t.Context(), journal, plan.Bootstrap, false)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, f := range foreseen {
		if f.Name == "apply" {
			for _, c := range f.Changes {
				for _, d := range changes.Explain(plan.b.tools, plan.b.sources, c) {
					told = append(told, d.String())
				}
			}
		}
	}
	if want := []string{"manifests/b.yaml: removed", "manifests/c.yaml: added"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestAddedManifestsThatAreNotClusterAPIAreRefused(t *testing.T) {
	for name, tc := range map[string]struct{ text, says string }{
		"another kind": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: default}\n",
			"is not of Cluster API (apiVersion v1)"},
		"a lookalike": {"apiVersion: mycluster.x-k8s.io/v1\nkind: X\nmetadata: {name: x, namespace: default}\n",
			"is not of Cluster API"},
		"another namespace": {strings.Replace(healthCheckOfWorkers, "namespace: default", "namespace: other", 1),
			`is in namespace "other"`},
		"no namespace": {strings.Replace(healthCheckOfWorkers, ", namespace: default", "", 1), ""},
		"an object of ours": {strings.Replace(healthCheckOfWorkers, "-workers", "-control-plane", 1),
			"is in manifests/machine-health-check.yaml already"},
		"a second cluster": {"apiVersion: cluster.x-k8s.io/v1beta1\nkind: Cluster\nmetadata: {name: other, namespace: " +
			"default}\n", "is a second cluster"},
		"no object": {"machine: {}\n", "pools.yaml"},
		"an unset variable": {strings.ReplaceAll(healthCheckOfWorkers, "CLUSTER_NAME", "NOBODY_SETS_THIS"),
			"NOBODY_SETS_THIS"},
		"not even YAML": {"a: [\n", "pools.yaml"},
		"one of a provider": {"apiVersion: infrastructure.cluster.x-k8s.io/v1beta1\nkind: " +
			"HCloudMachineTemplate\nmetadata: {name: x, namespace: default}\nspec: {}\n", ""},
		"comments and space": {"# later\n---\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "manifests/pools.yaml", tc.text)
			_, err := New(config.Defaults(), platform.Tools{Overrides: dir, Management: &clustertest.Provider{}})
			if tc.says == "" && err != nil || tc.says != "" &&
				(err == nil || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), "pools.yaml")) {
				t.Errorf("%v does not say %q", err, tc.says)
			}
		})
	}
}
