package flow_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

// Programs read these values in plans, graphs and journals: they stay when a name in Go changes.
func TestWordsForProgramsStay(t *testing.T) {
	for name, words := range map[string][2]string{
		"run": {string(flow.ActionRun), "run"}, "may run": {string(flow.ActionMayRun), "may-run"},
		"reuse": {string(flow.ActionReuse), "reuse"},
		"skip":  {string(flow.ActionSkip), "pass"}, "refuse": {string(flow.ActionRefuse), "refuse"},
		"unknown": {string(flow.ActionUnknown), "unknown"}, "not reached": {string(flow.ActionNotReached), "not-reached"},
	} {
		if words[0] != words[1] {
			t.Errorf("%s: %q, programs read %q", name, words[0], words[1])
		}
	}
	var l ledger
	g := flow.New("words")
	a := flow.Add(g, flow.Task[thing]{
		Name: "a",
		Run:  flow.Do(func(context.Context, flow.Say) (thing, error) { return thing{}, nil }),
	})
	flow.Add(g, flow.Task[thing]{
		Name:       "b",
		Run:        flow.With1(l.grow("b"), a),
		After:      flow.Of(a),
		OrderAfter: flow.Of(a),
		RerunAfter: flow.Of(a),
		Seal:       true,
	})
	raw, err := json.Marshal(g.Steps())
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"name":"a"},{"name":"b","needs":["a"],"sealed":true,"behind":[{"step":"a","kind":"argument"},` +
		`{"step":"a","kind":"follows"},{"step":"a","kind":"after"},{"step":"a","kind":"yields"}]}]`
	if string(raw) != want {
		t.Errorf("got  %s\nwant %s", raw, want)
	}
}
