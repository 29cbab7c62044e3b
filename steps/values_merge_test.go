package steps

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

func TestMergeValues(t *testing.T) {
	for name, tc := range map[string]struct{ base, over, want string }{
		"a map is merged":                {`{"a":{"x":1,"y":2}}`, `{"a":{"y":3,"z":4}}`, `{"a":{"x":1,"y":3,"z":4}}`},
		"a list is replaced":             {`{"a":[1,2]}`, `{"a":[3]}`, `{"a":[3]}`},
		"a scalar is replaced":           {`{"a":1}`, `{"a":"x"}`, `{"a":"x"}`},
		"null takes a built-in key away": {`{"a":{"x":1,"y":2},"b":1}`, `{"a":{"x":null},"b":null}`, `{"a":{"y":2}}`},
		"null of the chart's own stays": {`{"a":{"x":1}}`, `{"a":{"z":null},"c":null}`,
			`{"a":{"x":1,"z":null},"c":null}`},
		"an empty map changes nothing": {`{"a":{"x":1}}`, `{"a":{}}`, `{"a":{"x":1}}`},
		"a scalar in a map's place":    {`{"a":{"x":1}}`, `{"a":true}`, `{"a":true}`},
		"a map in a scalar's place":    {`{"a":true}`, `{"a":{"x":null}}`, `{"a":{"x":null}}`},
		"nothing changes nothing":      {`{"a":{"x":1}}`, `{}`, `{"a":{"x":1}}`},
		"what is not named stays, deeply below": {`{"a":{"b":{"c":1,"d":[1]}}}`, `{"a":{"b":{"c":2}}}`,
			`{"a":{"b":{"c":2,"d":[1]}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			read := func(text string) (v map[string]any) {
				if err := json.Unmarshal([]byte(text), &v); err != nil {
					t.Fatal(err)
				}
				return v
			}
			base := read(tc.base)
			if got := render.MergeValues(base, read(tc.over)); !reflect.DeepEqual(got, read(tc.want)) {
				t.Errorf("got %v, want %s", got, tc.want)
			}
			if !reflect.DeepEqual(base, read(tc.base)) {
				t.Errorf("the built-in values were changed to %v", base)
			}
		})
	}
}

// A file with one key keeps every other built-in setting.
func TestPartialValuesKeepTheBuiltInSettings(t *testing.T) {
	built, err := render.CiliumChart(planner(t, "").cfg,
		planner(t, "").sources).Values.Values(render.VariablesOf(config.Defaults()))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, "bootstrap/cilium-values.yaml",
		"hubble:\n  ui:\n    enabled: false\nbandwidthManager: {enabled: true}\n")
	b := planner(t, dir)
	values, err := render.CiliumChart(b.cfg, b.sources).Values.Values(b.sources.Vars)
	if err != nil {
		t.Fatal(err)
	}
	if on, _, _ := unstructured.NestedBool(values, "hubble", "ui", "enabled"); on {
		t.Error("the operator's own value is not used")
	}
	for key, value := range built {
		if key != "hubble" && !reflect.DeepEqual(values[key], value) {
			t.Errorf("%s is %v, built-in: %v", key, values[key], value)
		}
	}
	if found := checks.ChartValues(b.cfg, b.sources, render.CiliumChart(b.cfg, b.sources)); found != nil {
		t.Errorf("refused: %+v", found)
	}
}

// What the charts allow and Talos does not bear is refused from the files alone, and by the step, too.
func TestUnfitValuesAreRefused(t *testing.T) {
	for name, tc := range map[string]struct{ file, text, says string }{
		"a capability": {"cilium-values.yaml", "securityContext: {capabilities: {ciliumAgent: [SYS_MODULE]}}",
			"securityContext.capabilities.ciliumAgent has SYS_MODULE"},
		"a built-in key away": {"cilium-values.yaml", "k8sServicePort: null", "k8sServicePort is missing, not 7445"},
		"the CCM's network":   {"hcloud-ccm-values.yaml", "networking: {enabled: false}", "networking.enabled is false"},
		"two controllers": {"talos-ccm-values.yaml", "enabledControllers: [node-csr-approval, cloud-node]",
			"enabledControllers is [node-csr-approval cloud-node]"},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.New(t)
			write(t, w.Tools().Overrides, "bootstrap/"+tc.file, tc.text)
			plan, err := New(w.Config(), w.Tools())
			if err != nil {
				t.Fatal(err)
			}
			if err := checks.Values(plan.b.cfg, plan.b.sources); err == nil ||
				!strings.Contains(err.Error(), tc.file+": "+tc.says) {
				t.Errorf("the files alone: %v", err)
			}
			_, err = runPlan(t, w, w.Config(), flow.Memory(), nil)
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("the step: %v", err)
			}
		})
	}
	plan, err := New(config.Defaults(), platform.Tools{Management: &clustertest.Provider{}})
	if err != nil || checks.Values(plan.b.cfg, plan.b.sources) != nil {
		t.Errorf("the built-in values: %v, %v", err, checks.Values(plan.b.cfg, plan.b.sources))
	}
}

// ingredientOf is what the journal remembers of Cilium's values.
func ingredientOf(t *testing.T, overrides string, kvs ...string) render.Digest {
	t.Helper()
	b := planner(t, overrides, kvs...)
	i, err := render.CiliumChart(b.cfg, b.sources).Values.Digest(b.sources.Vars)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// The journals of earlier releases have the sum of the file that was used. Where nothing changed in effect it is the
// same.
func TestValuesAreRememberedAsBefore(t *testing.T) {
	asBefore := func(text []byte) render.Digest {
		i, err := (render.Source{Name: "x", Data: text}).Digest(render.VariablesOf(config.Defaults()))
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	builtIn, err := bootstrap.Files.ReadFile(bootstrap.Cilium().Values)
	if err != nil {
		t.Fatal(err)
	}
	whole := strings.Replace(string(builtIn), "preallocateMaps: true", "preallocateMaps: false", 1)
	partial := "hubble: {ui: {enabled: false}}\n"
	for name, tc := range map[string]struct {
		text string
		want render.Digest
	}{
		"the built-in file itself":   {string(builtIn), asBefore(builtIn)},
		"a whole file":               {whole, asBefore([]byte(whole))},
		"comments alone":             {"# nothing\n", asBefore(builtIn)},
		"a built-in value once more": {"bpf: {preallocateMaps: true}\n", asBefore(builtIn)},
	} {
		dir := t.TempDir()
		write(t, dir, "bootstrap/cilium-values.yaml", tc.text)
		if got := ingredientOf(t, dir); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
	if got := ingredientOf(t, ""); !reflect.DeepEqual(got, asBefore(builtIn)) {
		t.Errorf("without a file: %+v", got)
	}

	dir := t.TempDir()
	write(t, dir, "bootstrap/cilium-values.yaml", partial)
	one := ingredientOf(t, dir)
	if before := asBefore([]byte(partial)); one.SHA256 == before.SHA256 || one.SHA256 == asBefore(builtIn).SHA256 {
		t.Error("a partial file is remembered without what it is merged over")
	}
	write(t, dir, "bootstrap/cilium-values.yaml", "# a comment\n"+partial)
	if again := ingredientOf(t, dir); !reflect.DeepEqual(one, again) {
		t.Errorf("a comment changed %+v to %+v", one, again)
	}
	if other := ingredientOf(t, dir, "CONTROL_PLANE_REPLICAS=1"); reflect.DeepEqual(one, other) {
		t.Error("a variable of the built-in file is not remembered")
	}
	b := planner(t, dir)
	b.sources.Cilium.BuiltIn = []byte(strings.Replace(string(builtIn), "hostRoot: /sys/fs/cgroup", "hostRoot: /elsewhere",
		1))
	if i, err := render.CiliumChart(b.cfg, b.sources).Values.Digest(b.sources.Vars); err != nil || i.SHA256 == one.SHA256 {
		t.Errorf("another built-in file: %+v, %v", i, err)
	}
}

// A plan tells the fields that merging changes, not those of one of the two files.
func TestMergedValuesAreExplained(t *testing.T) {
	told := explained(t, func(overrides string) {
		write(t, overrides, "bootstrap/cilium-values.yaml", "hubble: {ui: {enabled: false}}\nbpf: {preallocateMaps: null}\n")
	})
	file := "bootstrap/cilium-values.yaml: "
	want := []string{file + "bpf.preallocateMaps: true → (none)", file + "hubble.ui.enabled: true → false"}
	if !slices.Equal(told["cilium"], want) {
		t.Errorf("told %q, want %q", told["cilium"], want)
	}
}

// A cluster that an earlier release made from a partial file alone gets the built-in settings, and the plan says which.
func TestThePlanTellsWhatAPartialFileLacked(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	partial := "hubble: {enabled: false}\nipam: {mode: kubernetes}\n"
	write(t, w.Tools().Overrides, "bootstrap/cilium-values.yaml", partial)
	plan, err := New(w.Config(), w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	alone := render.Source{Data: []byte(partial)}
	kept, err := json.Marshal(map[string]string{mustEffective(t, alone).Sum(): partial})
	if err == nil {
		err = w.Tools().Files.Write(changes.KeptSourcesFile, kept)
	}
	if err != nil {
		t.Fatal(err)
	}
	is := mustEffective(t, plan.b.sources.Cilium)
	found := changes.Explain(plan.b.tools, plan.b.sources,
		flow.Change{Path: "values.sha256", Was: quotedJSON(mustEffective(t, alone).Sum()), Is: quotedJSON(is.Sum())})
	var told []string
	for _, d := range found {
		told = append(told, d.Field+": "+d.Was+" → "+d.Is)
	}
	for _, want := range []string{"k8sServicePort: (none) → 7445", "bpf.hostLegacyRouting: (none) → true",
		"kubeProxyReplacement: (none) → true"} {
		if !slices.Contains(told, want) {
			t.Errorf("%q is not told in %q", want, told)
		}
	}
	if slices.ContainsFunc(told, func(line string) bool {
		return strings.HasPrefix(line, "ipam") || strings.HasPrefix(line, "hubble.enabled")
	}) {
		t.Errorf("what did not change is told: %q", told)
	}
	if err := changes.KeepSources(t.Context(), plan.b.tools, plan.b.sources, journal); err != nil {
		t.Fatal(err)
	}
	if changes.KeptSources(plan.b.tools)[is.Sum()] != string(is.Data) {
		t.Error("no copy of the merged values is kept")
	}
}

func mustEffective(t *testing.T, s render.Source) render.EffectiveText {
	t.Helper()
	text, err := s.Effective(render.VariablesOf(config.Defaults()))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func quotedJSON(s string) json.RawMessage { return json.RawMessage(`"` + s + `"`) }
