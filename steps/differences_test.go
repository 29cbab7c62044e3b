package steps

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

// explained runs the bootstrap, lets the files be edited, and tells what a plan then says of each step that would run.
func explained(t *testing.T, editing func(overrides string)) map[string][]string {
	t.Helper()
	w, journal := clustertest.New(t), flow.Memory()
	if _, err := runPlan(t, w, w.Config(), journal, nil); err != nil {
		t.Fatal(err)
	}
	tools := w.Tools()
	before, err := New(w.Config(), tools)
	if err != nil {
		t.Fatal(err)
	}
	if err := changes.KeepSources(t.Context(), before.b.tools, before.b.sources, journal); err != nil {
		t.Fatal(err)
	}
	tools.Overrides = t.TempDir()
	editing(tools.Overrides)
	writes := w.Writes()
	plan, err := New(w.Config(), tools)
	if err != nil {
		t.Fatal(err)
	}
	foreseen, err := plan.Graph.Predict(t.Context(), journal, plan.Bootstrap, true)
	if err != nil {
		t.Fatal(err)
	}
	told := map[string][]string{}
	for _, f := range foreseen {
		if f.Action != flow.ActionRun {
			continue
		}
		for _, c := range f.Changes {
			for _, d := range changes.Explain(plan.b.tools, plan.b.sources, c) {
				told[f.Name] = append(told[f.Name], strings.TrimPrefix(d.String(), tools.Overrides+"/"))
			}
		}
	}
	if w.Writes() != writes {
		t.Error("foreseeing wrote something")
	}
	return told
}

func TestAChangedHelmValueIsToldWithBothValues(t *testing.T) {
	told := explained(t, func(overrides string) {
		clustertest.Edit(t, overrides, "bootstrap/cilium-values.yaml",
			clustertest.Replacing("preallocateMaps: true", "preallocateMaps: false"))
	})
	want := []string{"bootstrap/cilium-values.yaml: bpf.preallocateMaps: true → false"}
	if len(told) != 1 || !slices.Equal(told["cilium"], want) {
		t.Errorf("told %q, want %q of cilium alone", told, want)
	}
}

func TestChangedManifestsAreToldByObject(t *testing.T) {
	told := explained(t, func(overrides string) {
		clustertest.Edit(t, overrides, "manifests/cluster.yaml", func(s string) string {
			return strings.NewReplacer("maxSurge: 1", "maxSurge: 0",
				"allowSchedulingOnControlPlanes: ${CONTROL_PLANE_SCHEDULABLE:=true}", "allowSchedulingOnControlPlanes: false").Replace(s)
		})
	})
	want := []string{
		"manifests/cluster.yaml: TalosControlPlane k8s-control-plane: " +
			"spec.controlPlaneConfig.controlplane.strategicPatches[7].cluster.allowSchedulingOnControlPlanes: true → false",
		"manifests/cluster.yaml: TalosControlPlane k8s-control-plane: spec.rolloutStrategy.rollingUpdate.maxSurge: 1 → 0",
	}
	if !slices.Equal(told["apply"], want) {
		t.Errorf("told %q, want %q", told["apply"], want)
	}
}

// Nothing that is, or looks like, a secret is told; that it changed is.
func TestSecretsInValuesAreNotTold(t *testing.T) {
	const shaped = "q8Zr2vT6yB1nM4kX9sLd"
	told := explained(t, func(overrides string) {
		clustertest.Edit(t, overrides, "bootstrap/cilium-values.yaml", func(s string) string {
			return s + "extraEnv:\n  - name: API_TOKEN\n    value: hunter2\n  - name: PLAIN\n    value: told\nclustermesh:\n  " +
				"password: hunter2\nplain: " + shaped + "\nextraArgs: [\"" + shaped + "\"]\n"
		})
	})
	text := strings.Join(told["cilium"], "\n")
	for _, secret := range []string{"hunter2", shaped} {
		if strings.Contains(text, secret) {
			t.Errorf("%q stands in\n%s", secret, text)
		}
	}
	if !strings.Contains(text, "plain: (none) → [hidden]") {
		t.Errorf("it is not told that a value changed:\n%s", text)
	}
}

func TestDiffer(t *testing.T) {
	read := func(text string) (v any) {
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for name, tc := range map[string]struct {
		was, is string
		want    []string
	}{
		"scalars": {`{"a":1,"b":"x","c":null}`, `{"a":2,"b":"","d":null}`,
			[]string{`a: 1 → 2`, `b: x → ""`, `c: (none) → (none)`, `d: (none) → (none)`}},
		"lists of one length":    {`{"l":[1,{"x":1}]}`, `{"l":[1,{"x":2}]}`, []string{`l[1].x: 1 → 2`}},
		"lists of other lengths": {`{"l":["a"]}`, `{"l":["a","b"]}`, []string{`l: ["a"] → ["a","b"]`}},
		"secret names": {`{"password":"old","tlsOn":true}`, `{"password":"new","tlsOn":false}`,
			[]string{`password: [hidden] → [hidden]`, `tlsOn: true → false`}},
		"below a secret": {`{"token":{"x":["a"]}}`, `{"token":{"x":["b"]}}`,
			[]string{`token.x[0]: [hidden] → [hidden]`}},
		"an environment's entry": {`{"env":[{"name":"DB_PASSWORD","value":"a"}]}`,
			`{"env":[{"name":"DB_PASSWORD","value":"b"}]}`, []string{`env[0].value: [hidden] → [hidden]`}},
		"a list with a secret": {`{"env":[]}`, `{"env":[{"name":"DB_PASSWORD","value":"b"}]}`,
			[]string{`env: [] → [1 items]`}},
		"an address with a secret": {`{"url":""}`, `{"url":"https://user:pass@example.com"}`,
			[]string{`url: "" → [hidden]`}},
		"text with YAML in it":  {`{"p":"a: 1\nb: 2\n"}`, `{"p":"a: 1\nb: 3\n"}`, []string{`p.b: 2 → 3`}},
		"text of several lines": {`{"p":"one\ntwo"}`, `{"p":"one\ntwo\nthree"}`, []string{`p: (2 lines) → (3 lines)`}},
		"a small object is added": {`{}`, `{"p":{"x":1,"y":{"z":true}}}`,
			[]string{`p.x: (none) → 1`, `p.y.z: (none) → true`}},
		"a small object goes":       {`{"p":{"x":1}}`, `{}`, []string{`p.x: 1 → (none)`}},
		"an object becomes a value": {`{"p":{"x":1}}`, `{"p":4}`, []string{`p: {1 fields} → 4`}},
	} {
		t.Run(name, func(t *testing.T) {
			var d changes.Differ
			d.Compare("", read(tc.was), read(tc.is), false)
			var got []string
			for _, one := range d.Found {
				got = append(got, one.String())
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestOldCopiesAreDropped(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	tools := w.Tools()
	keep := func(overrides string) map[string]string {
		t.Helper()
		tools.Overrides = overrides
		plan, err := New(w.Config(), tools)
		if err == nil {
			err = changes.KeepSources(t.Context(), plan.b.tools, plan.b.sources, journal)
		}
		if err != nil {
			t.Fatal(err)
		}
		return changes.KeptSources(plan.b.tools)
	}
	first := keep("")
	for range 3 {
		overrides := t.TempDir()
		clustertest.Edit(t, overrides, "bootstrap/cilium-values.yaml", func(s string) string {
			return s + "x: " + filepath.Base(filepath.Dir(overrides)) + filepath.Base(overrides) + "\n"
		})
		if got := keep(overrides); len(got) != len(first) {
			t.Errorf("%d copies are kept, %d are of use", len(got), len(first))
		}
	}
	info, err := os.Stat(tools.Files.Path(changes.KeptSourcesFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the copies are open to others: %v, %v", info.Mode(), err)
	}
}
