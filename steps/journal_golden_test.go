package steps

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/flow/flowtest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

func goldenJournal(plan string) string { return filepath.Join("testdata", "journals", plan+".json") }

// A journal of an older release restores: no output type has lost a field.
func TestGoldenJournals(t *testing.T) {
	w := clustertest.New(t)
	p, err := New(w.Config(), w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	flowtest.GoldenJournal(t, p.Graph, goldenJournal("bootstrap"), *update)
	cfg := w.Config()
	cfg.Gitea, cfg.GitOps = "true", config.GitOpsFlux
	if p, err = New(cfg, w.Tools()); err != nil {
		t.Fatal(err)
	}
	flowtest.GoldenJournal(t, p.Graph, goldenJournal("bootstrap-gitops"), *update)
}

// An output of the pivot, or of a step before it, that lacks a field of today is an older release's: it counts, and
// nothing behind the point of no return is run again for it.
func TestAnOlderJournalCountsBehindThePivot(t *testing.T) {
	w := clustertest.New(t)
	p, err := New(w.Config(), w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	golden, err := flowtest.Read(goldenJournal("bootstrap"))
	if err != nil {
		t.Fatal(err)
	}
	for step, field := range map[string]string{p.Pivot.Name(): "servers", p.Cluster.Name(): "endpoint"} {
		rec := golden.Steps[step]
		var output map[string]any
		if err := json.Unmarshal(rec.Output, &output); err != nil || output[field] == nil {
			t.Fatalf("step %s has no field %s: %s, %v", step, field, rec.Output, err)
		}
		delete(output, field)
		rec.Output, _ = json.Marshal(output)
		golden.Steps[step] = rec
	}
	j := flowtest.Save(t, golden)
	pivot, done, err := flow.Restore(t.Context(), j, p.Pivot)
	if err != nil || !done || pivot.Cluster == "" || pivot.Servers != nil {
		t.Errorf("the pivot's output: %+v, %v, %v", pivot, done, err)
	}
	all, err := p.Graph.Predict(t.Context(), j, p.All, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.Name == p.Pivot.Name() && (!f.Asked || strings.Contains(f.Why, "does not restore")) ||
			f.Name == p.Cluster.Name() && f.Sealed == "" {
			t.Errorf("%s: %s: %s", f.Name, f.Action, f.Why)
		}
	}
}
