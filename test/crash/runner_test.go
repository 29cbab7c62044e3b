package crash

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/judge"
)

// standIn opens a session whose command is a shell script that is run in the state folder: $n is the number of the run.
func standIn(t *testing.T, script string) *Session {
	t.Helper()
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	for _, folder := range []string{"lab", "runs/0"} { // of the stage that the case begins with
		if err := os.MkdirAll(filepath.Join(state, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(state, "runs", "0", "effects.jsonl"), "")
	head := fmt.Sprintf(
		"#!/bin/sh\ncd %s || exit 99\nif [ \"$1\" = lab ]; then exit 0; fi\nn=$(($(cat n 2>/dev/null || echo 0) + "+
			"1)); echo $n >n\n", state)
	command := filepath.Join(dir, "bootstrap")
	if err := os.WriteFile(command, []byte(head+script), 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := Open(command, dir, state, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// The second of three runs of a chain makes a firewall once more, whose step is done, and is
// killed: the runs after it do nothing wrong.
func TestChainJudgesEveryRun(t *testing.T) {
	const script = `
echo '{"steps":{"firewall":{"state":"done"}}}' >journal.json
if [ $n -eq 2 ]; then
	echo '{"time":"'$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)'","method":"POST","path":"/v1/firewalls","status":201,"actor":"slipway/1","write":true}' >>lab/hetzner-requests.jsonl
fi
if [ $n -eq 3 ]; then exit 0; fi
mkdir -p runs/$n
echo '{"phase":"killed","error":"'$(echo "$SLIPWAY_CRASH" | head -n 1)'"}' >runs/$n/effects.jsonl
kill -KILL $$
`
	s := standIn(t, script)
	tr := &trial{
		Suite:      &Suite{Session: s},
		c:          Case{Kind: Chain, Kills: []string{kill("before", "a b c#1"), kill("before", "a b d#1")}},
		args:       []string{"all"},
		reference:  Reference{Elapsed: time.Minute},
		attributed: judge.Attribution{"cloud POST /v1/firewalls": {"firewall"}},
	}
	if err := tr.chain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if tr.kills != 2 || len(tr.covered) != 2 {
		t.Errorf("%d kills at %q", tr.kills, tr.covered)
	}
	if len(tr.findings) != 1 || !strings.Contains(tr.findings[0], "not repeated: cloud POST /v1/firewalls") {
		t.Errorf("it finds %q", tr.findings)
	}
}

// A resumed run may take as long as an undisturbed one takes for the steps that are not done and for its verification
// of the others.
func TestRestWithout(t *testing.T) {
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	span := func(step string, began time.Time, from, to int) judge.Span {
		return judge.Span{Step: step, Begin: began.Add(time.Duration(from) * time.Second),
			End: began.Add(time.Duration(to) * time.Second)}
	}
	later := noon.Add(time.Hour)
	first := Reference{Stage: "image", Began: noon, Elapsed: 30 * time.Second, Spans: []judge.Span{
		span("lab", noon, 0, 1), span("reserve", noon, 2, 5), span("image", noon, 5, 25), span("kind-create", noon, 6, 30)}}
	both := Reference{}.then(first).then(Reference{Stage: "providers", Began: later, Elapsed: 20 * time.Second,
		Spans: []judge.Span{
			span("lab", later, 0, 1), span("capi-init", later, 3, 20)}})
	if both.Stage != "providers" {
		t.Errorf("it ends with %s", both.Stage)
	}
	for _, tc := range []struct {
		of   Reference
		done string
		want time.Duration
	}{
		{first, "", 30 * time.Second},
		{first, "reserve", 27 * time.Second},
		{first, "reserve image", 26 * time.Second},
		{first, "image kind-create", 30 * time.Second},
		{first, "reserve image kind-create", 2 * time.Second},
		{both, "", 50 * time.Second},
		{both, "reserve kind-create", 47 * time.Second},
		{both, "reserve image kind-create", 19 * time.Second},
		{both, "reserve image kind-create capi-init", 2 * time.Second},
	} {
		if got := tc.of.RestWithout(strings.Fields(tc.done)); got != tc.want {
			t.Errorf("up to %s, with %q done: %s, want %s", tc.of.Stage, tc.done, got, tc.want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// killedAt is the end of a stand-in that is killed at the last of the places that it was given.
const killedAt = "mkdir -p runs/$n; echo '{\"phase\":\"killed\",\"error\":\"'$(echo \"$SLIPWAY_CRASH\" | tail -n " +
	"1)'\"}' >runs/$n/effects.jsonl; kill -KILL $$\n"

// The second kill of a pair comes at whichever of its places is reached first.
func TestPairIsKilledTwice(t *testing.T) {
	first, never, second := kill("before", "a b c#1"), kill("applied", "a b c#1"), kill("torn", "a b d#1")
	tr := &trial{
		Suite: &Suite{Session: standIn(t, "if [ -z \"$SLIPWAY_CRASH\" ]; then exit 0; fi\n"+killedAt)},
		c:     Case{Kind: Pair, Kills: []string{first, never, second}},
		args:  []string{"all"}, reference: Reference{Elapsed: time.Minute},
	}
	if err := tr.pair(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(tr.covered, []string{first, second}) || tr.kills != 2 {
		t.Errorf("%d kills, at %q", tr.kills, tr.covered)
	}
}

// An effect that does not come keeps those behind it from nothing, and a time counts only once it is the next.
func TestScheduleGoesOn(t *testing.T) {
	never, a, b := kill("before", "a b never#1"), kill("before", "a b d#1"), kill("torn", "a b e#1")
	for name, tc := range map[string]struct {
		schedule, covered []string
		script            string
		kills             int
	}{
		"an effect that never comes": {[]string{never, "after 50 ms", a, b}, []string{b, a},
			"if [ $n -ge 3 ]; then exit 0; fi\n", 2},
		"a time": {[]string{"after 50 ms", a}, []string{a},
			"if [ -z \"$SLIPWAY_CRASH\" ]; then exit 0; fi\nif [ $n -eq 1 ]; then sleep 30; fi\n", 2},
	} {
		t.Run(name, func(t *testing.T) {
			tr := &trial{
				Suite: &Suite{Session: standIn(t, tc.script+killedAt)}, c: Case{Kind: Random, Kills: tc.schedule},
				args:      []string{"all"},
				reference: Reference{Elapsed: time.Minute},
			}
			if err := tr.random(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(tr.covered, tc.covered) || tr.kills != tc.kills {
				t.Errorf("%d kills, at %q, want %d at %q", tr.kills, tr.covered, tc.kills, tc.covered)
			}
		})
	}
}
