package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/state/runs"
)

const secret = "s3cr3t-s3cr3t"

// aRun is what a run says, with things in it that must not come through.
func aRun() []flow.Event {
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	return []flow.Event{
		{Time: at, Kind: flow.RunStarted, Run: "r1", Message: "3 steps"},
		{Time: at, Kind: runs.NoteEvent, Run: "r1", Message: "the token is " + secret},
		{Time: at, Kind: flow.StepVerifying, Run: "r1", Step: "image"},
		{Time: at, Kind: flow.StepReused, Run: "r1", Step: "image", Elapsed: 40 * time.Millisecond},
		{Time: at, Kind: flow.StepStarted, Run: "r1", Step: "apply", Attempt: 2, Message: "it failed last time"},
		{Time: at, Kind: flow.StepStarted, Run: "r1", Step: "cilium", Attempt: 1, Message: "it has not run yet"},
		{Time: at, Kind: flow.StepProgress, Run: "r1", Step: "apply", Message: "evil \x1b[2J\r\nnew line\tand " + secret},
		{Time: at, Kind: flow.StepDone, Run: "r1", Step: "cilium", Elapsed: 61 * time.Second, Message: "all there"},
		{Time: at, Kind: flow.StepFailed, Run: "r1", Step: "apply", Elapsed: time.Second, Err: "no way: " + secret},
		{Time: at, Kind: flow.StepInterrupted, Run: "r1", Step: "wait-cp", Message: "waiting for etcd"},
		{Time: at, Kind: flow.StepSkipped, Run: "r1", Step: "wait-nodes", Message: "another step failed"},
		{Time: at, Kind: flow.StepSkipped, Run: "r1", Step: "pivot", Message: "another step failed"},
		{Time: at, Kind: flow.RunFinished, Run: "r1", Elapsed: time.Hour + 2*time.Minute, Err: "no way"},
	}
}

func show(d Display, hide *redact.Redactor) {
	h := &Hub{Hide: hide, Displays: []Display{d}}
	for _, e := range aRun() {
		h.Observe(e)
	}
	h.Close()
}

func TestPlainDisplay(t *testing.T) {
	var out bytes.Buffer
	show(&PlainDisplay{Out: &out}, hiding())
	want := `2026-02-03T04:05:06Z run r1 begins: 3 steps
2026-02-03T04:05:06Z note: the token is [hidden]
2026-02-03T04:05:06Z image: reused, checked in 0.0s
2026-02-03T04:05:06Z apply: begins, attempt 2: it failed last time
2026-02-03T04:05:06Z cilium: begins: it has not run yet
2026-02-03T04:05:06Z apply: evil [2J new line and [hidden]
2026-02-03T04:05:06Z cilium: done in 1m01s
2026-02-03T04:05:06Z apply: FAILED after 1.0s: no way: [hidden]
2026-02-03T04:05:06Z wait-cp: interrupted; last: waiting for etcd
2026-02-03T04:05:06Z 2 steps skipped: another step failed: wait-nodes, pivot
2026-02-03T04:05:06Z run ended after 1h02m
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
	for _, r := range out.String() {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("control character %q", r)
		}
	}
}

func TestJSONDisplay(t *testing.T) {
	var out bytes.Buffer
	show(NewJSONDisplay(&out), hiding())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(aRun()) {
		t.Fatalf("%d lines for %d events", len(lines), len(aRun()))
	}
	for i, line := range lines {
		var e flow.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if e.Kind != aRun()[i].Kind || e.Step != aRun()[i].Step || !e.Time.Equal(aRun()[i].Time) {
			t.Errorf("line %d is %+v", i, e)
		}
	}
	if strings.Contains(out.String(), secret) {
		t.Error("a secret came through")
	}
}

func TestTasksLookLikeSteps(t *testing.T) {
	var all []flow.EventKind
	h := &Hub{Hide: &redact.Redactor{}, Displays: []Display{recorder{&all}}}
	bad := errors.New("no")
	if err := h.Task("lab", "why", func(say flow.Say) error { say("one"); return nil }); err != nil {
		t.Error(err)
	}
	if err := h.Task("lab", "why", func(flow.Say) error { return bad }); !errors.Is(err, bad) {
		t.Errorf("error is %v", err)
	}
	if err := h.Task("lab", "why", func(flow.Say) error { return flow.ErrInterrupted }); !errors.Is(err,
		flow.ErrInterrupted) {
		t.Errorf("error is %v", err)
	}
	want := []flow.EventKind{flow.StepStarted, flow.StepProgress, flow.StepDone, flow.StepStarted, flow.StepFailed,
		flow.StepStarted, flow.StepInterrupted}
	if len(all) != len(want) {
		t.Fatalf("events are %v", all)
	}
	for i := range want {
		if all[i] != want[i] {
			t.Errorf("event %d is %s, want %s", i, all[i], want[i])
		}
	}
}

func hiding() *redact.Redactor {
	var r redact.Redactor
	r.Learn(secret, "short", "")
	return &r
}

type recorder struct{ kinds *[]flow.EventKind }

func (r recorder) Event(e flow.Event) { *r.kinds = append(*r.kinds, e.Kind) }
func (r recorder) Close()             {}
