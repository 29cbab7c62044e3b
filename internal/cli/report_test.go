package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/ratelimit"
	"github.com/slipway-k8s/slipway/internal/report"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// jsonLines writes values as the files of a run have them.
func jsonLines[T any](t *testing.T, values ...T) string {
	t.Helper()
	var b strings.Builder
	for _, v := range values {
		if err := json.NewEncoder(&b).Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// leaveRun leaves the files of a run in a state folder.
func leaveRun(t *testing.T, state statedir.Dir, id string, s runs.Setup, events []flow.Event, effects ...effect.Line) {
	t.Helper()
	files := state.Files().Folder(statedir.RunsFolder).Folder(id)
	for name, text := range map[string]string{
		statedir.EventsFile: jsonLines(t, events...) + `{"time":"2026-01-`, statedir.EffectsFile: jsonLines(t, effects...),
		runs.SetupFile: jsonLines(t, s),
	} {
		if err := files.Write(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
}

// clockwork makes events of a run that begins at a minute.
func clockwork(minute int) func(second int, kind flow.EventKind, step, text string) flow.Event {
	return func(second int, kind flow.EventKind, step, text string) flow.Event {
		e := flow.Event{Time: time.Date(2026, 1, 2, 3, minute, second, 0, time.UTC), Kind: kind, Step: step, Message: text}
		if kind == flow.StepFailed || kind == flow.RunFinished {
			e.Err, e.Message = text, ""
		}
		return e
	}
}

// TestStory tells three runs, of which one was killed and one failed, on one clock.
func TestStory(t *testing.T) {
	state := statedir.Dir(t.TempDir())
	leaveRun(t, state, "1", runs.Setup{Cluster: "k8s"}, []flow.Event{clockwork(0)(0, flow.RunStarted, "", ""),
		clockwork(0)(1, flow.RunFinished, "", "")})
	at := clockwork(10)
	leaveRun(t, state, "2", runs.Setup{Cluster: "k8s"}, []flow.Event{
		at(0, flow.RunStarted, "", ""), at(0, flow.StepStarted, "preflight", "it has not run yet"),
		at(2, flow.StepDone, "preflight", ""),
		at(2, flow.StepStarted, "kind-create", "it has not run yet"),
		at(5, flow.StepProgress, "kind-create", "waiting for kind"),
	})
	at = clockwork(20)
	leaveRun(t, state, "3", runs.Setup{Cluster: "k8s"}, []flow.Event{
		at(0, flow.RunStarted, "", ""), at(0, flow.StepVerifying, "preflight", ""), at(1, flow.StepReused, "preflight", ""),
		at(1, flow.StepStarted, "kind-create", "its run died"),
		at(2, flow.StepProgress, "kind-create", "waiting: quota of 3 reached"),
		at(8, flow.StepProgress, "kind-create", "waiting: quota of 4 reached"),
		at(9, flow.StepFailed, "kind-create", "no Docker"), at(9, flow.RunFinished, "", "no Docker"),
	})
	leaveRun(t, state, "4", runs.Setup{Cluster: "k8s", Targets: []string{"leftovers"}},
		[]flow.Event{clockwork(25)(0, runs.NoteEvent, "", "looked")})
	at = clockwork(30)
	leaveRun(t, state, "5", runs.Setup{Cluster: "k8s"}, []flow.Event{
		at(0, flow.RunStarted, "", ""), at(0, flow.StepStarted, "kind-create", "it failed"),
		at(4, flow.StepDone, "kind-create", ""),
		at(4, flow.StepStarted, "capi-init", "it has not run yet"), at(10, flow.StepDone, "capi-init", ""),
		at(10, flow.RunFinished, "", ""),
	}, effect.Line{Time: at(5, "", "", "").Time, System: effect.Hetzner, Verb: "create", Object: "servers/a",
		Phase: effect.Failed, Error: "conflict"})
	runs, err := runs.Story(state, "", runsNoSteps)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range runs {
		ids = append(ids, r.ID)
	}
	if !slices.Equal(ids, []string{"2", "3", "5"}) {
		t.Fatalf("the story has the runs %v", ids)
	}
	link := func(steps ...string) (l []flow.Link) {
		for _, s := range steps {
			l = append(l, flow.Link{Step: s})
		}
		return l
	}
	runs[0].Requests, runs[2].Requests = &ratelimit.Counts{Requests: 30}, &ratelimit.Counts{Requests: 27, Slowed: 12,
		Waited: 34 * time.Second}
	s := report.New(runs, []flow.Info{{Name: "preflight", Doc: "looks"}, {Name: "kind-create", Behind: link("preflight")},
		{Name: "capi-init", Behind: link("kind-create")}, {Name: "never", Behind: link("capi-init")}})
	if facts := fmt.Sprint(s.Page().Facts); !strings.Contains(facts, "{Hetzner API, this command 57 requests, 12 waited 34s "+
		"in total for the rate limit, and those of 1 run that did not count them}") {
		t.Errorf("the facts are %s", facts)
	}
	if s.Work != 24*time.Second || !slices.Equal(s.From, []time.Duration{0, 5 * time.Second, 14 * time.Second}) {
		t.Errorf("at work for %s, from %v", s.Work, s.From)
	}
	if got := s.CriticalSteps(); !slices.Equal(got, []string{"preflight", "kind-create", "capi-init"}) {
		t.Errorf("critical path %v", got)
	}
	p := s.Page()
	if p.State != report.Done || !strings.HasPrefix(p.Lead[0],
		"It took 3 runs. Run 1 was killed after 5.0s (at work: kind-create). Run 2 failed after 9.0s") {
		t.Errorf("%s: %q", p.State, p.Lead)
	}
	kind := p.Rows[1]
	if kind.Name != "kind-create" || kind.Attempts != 3 || kind.Took != "15.0s" || kind.State != report.Done ||
		kind.Error != "no Docker" || !kind.Critical {
		t.Errorf("%+v", kind)
	}
	var states []report.State
	for _, b := range kind.Bars {
		states = append(states, b.State)
	}
	if !slices.Equal(states, []report.State{report.Killed, report.Failed, report.Done}) {
		t.Errorf("its tries are %v", states)
	}
	if p.Rows[0].State != report.Done || p.Rows[0].Attempts != 1 {
		t.Errorf("what was done and then reused: %+v", p.Rows[0])
	}
	var troubles []string
	for _, in := range p.Trouble {
		troubles = append(troubles, in.At+" "+in.What+": "+in.Text)
	}
	want := []string{
		"5.0s run killed: it wrote no end: it was killed, or is still at work; at work: kind-create",
		"7.0s kind-create waited: waiting: quota of 3 reached (it named this for 7.0s)",
		"14.0s kind-create failed: no Docker",
		"19.0s call failed: hetzner create servers/a: conflict",
	}
	if !slices.Equal(troubles, want) {
		t.Errorf("troubles\n%s\nwant\n%s", strings.Join(troubles, "\n"), strings.Join(want, "\n"))
	}
	if len(p.Waits) == 0 || p.Waits[0].Text != "waiting: quota of 3 reached" || p.Waits[0].For != "6.0s" {
		t.Errorf("waits %+v", p.Waits)
	}
	for _, row := range p.Rows {
		for _, b := range row.Bars {
			if b.Left < 0 || b.Width < 0 || b.Left+b.Width > 100.001 {
				t.Errorf("%s lies outside of the time line: %+v", row.Name, b)
			}
		}
	}
}

// TestStoryOfRunsThatCameToNothing tells, of runs that ended before their first step, only what ended badly.
func TestStoryOfRunsThatCameToNothing(t *testing.T) {
	at := clockwork(10)
	began, examined := at(0, flow.StepStarted, "plan", "asked for"), at(2, flow.StepDone, "plan", "")
	deleted := func(p effect.Phase) effect.Line {
		return effect.Line{Time: at(1, "", "", "").Time, System: effect.Hetzner, Verb: "delete", Object: "servers/*", Phase: p}
	}
	late := "the run is not done within its deadline of 1m0s"
	for name, c := range map[string]struct {
		setup   runs.Setup
		events  []flow.Event
		effects []effect.Line
		story   []string // of the runs 1, which failed, and 2, which is this one
		end     runs.End // of the last of them
		why     string
	}{
		"declined": {runs.Setup{Cluster: "k8s"}, []flow.Event{began, examined}, nil, []string{"1"}, runs.Failed,
			"no Docker"},
		"pruned images": {runs.Setup{Cluster: "k8s", Targets: []string{targetImage}},
			[]flow.Event{at(0, runs.NoteEvent, "", "nothing to delete")}, nil, []string{"1"}, runs.Failed, "no Docker"},
		"killed": {runs.Setup{Cluster: "k8s"}, []flow.Event{began}, nil, []string{"1", "2"}, runs.Killed, ""},
		"failed": {runs.Setup{Cluster: "k8s"}, []flow.Event{began, at(2, flow.StepFailed, "plan", "no token")}, nil,
			[]string{"1", "2"}, runs.Failed, "plan: no token"},
		"stopped": {runs.Setup{Cluster: "k8s"}, []flow.Event{began, at(2, flow.StepInterrupted, "plan", "")}, nil,
			[]string{"1", "2"}, runs.Interrupted, ""},
		"late": {runs.Setup{Cluster: "k8s"}, []flow.Event{at(0, flow.RunStarted, "", ""), began,
			at(2, flow.StepInterrupted, "plan", ""), at(2, flow.RunFinished, "", late)}, nil, []string{"1", "2"}, runs.Failed,
			late},
		"interrupted": {runs.Setup{Cluster: "k8s"}, []flow.Event{at(0, flow.RunStarted, "", ""), began,
			at(2, flow.StepInterrupted, "plan", ""), at(2, flow.RunFinished, "", flow.ErrInterrupted.Error()+
				": context canceled")}, nil, []string{"1", "2"}, runs.Interrupted, ""},
		"destroy, no": {runs.Setup{Cluster: "k8s", Targets: []string{targetDestroy}}, []flow.Event{began, examined}, nil,
			[]string{"1"}, runs.Failed, "no Docker"},
		"destroy, begun": {runs.Setup{Cluster: "k8s", Targets: []string{targetDestroy}}, []flow.Event{began},
			[]effect.Line{deleted(effect.Leaves), deleted(effect.Applied)}, nil, "", "since run 2 destroyed the cluster"},
		"destroy, all gone before": {runs.Setup{Cluster: "k8s", Targets: []string{targetDestroy}},
			[]flow.Event{began, examined},
			[]effect.Line{{Time: at(1, "", "", "").Time, System: effect.File, Verb: statedir.VerbRetire,
				Object: statedir.JournalFile, Phase: effect.Leaves}}, nil, "", "since run 2 destroyed the cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			state := statedir.Dir(t.TempDir())
			leaveRun(t, state, "1", runs.Setup{Cluster: "k8s"}, []flow.Event{clockwork(0)(0, flow.RunStarted, "", ""),
				clockwork(0)(1, flow.RunFinished, "", "no Docker")})
			leaveRun(t, state, "2", c.setup, c.events, c.effects...)
			past, err := runs.Story(state, "", runsNoSteps)
			if c.story == nil {
				if err == nil || !strings.Contains(err.Error(), c.why) {
					t.Errorf("it says %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, r := range past {
				ids = append(ids, r.ID)
			}
			if end, why := past[len(past)-1].Outcome(); !slices.Equal(ids, c.story) || end != c.end || why != c.why {
				t.Errorf("the story has the runs %v, of which the last %s: %q", ids, end, why)
			}
			if failures := report.New(past, nil).Troubles(); c.end == runs.Failed &&
				!strings.Contains(fmt.Sprint(failures), strings.TrimPrefix(c.why, "plan: ")) {
				t.Errorf("of what went wrong it says %v", failures)
			}
		})
	}
}

// TestReportShowsNoSecretAndRunsNothing plants a token, which a run did not know to be one, and texts that would be
// markup.
func TestReportShowsNoSecretAndRunsNothing(t *testing.T) {
	const planted = "planted-token-0123456789"
	const hostile = `</title><script>alert(1)</script><img src="https://evil.example/x" onerror=alert(1)>"'; background:url(https://evil.example)`
	dir := t.TempDir()
	t.Chdir(dir)
	state := statedir.Dir(filepath.Join(dir, "state"))
	at := clockwork(0)
	leaveRun(t, state, "20260102-a", runs.Setup{
		Cluster: hostile, Version: hostile, Targets: []string{hostile + planted}, Environment: planted,
		Settings: []settings.Setting{{Variable: hostile, Value: planted + hostile, Source: hostile + planted},
			{Variable: "X_VERSION", Value: planted}},
	}, []flow.Event{
		at(0, flow.RunStarted, "", hostile), at(0, runs.NoteEvent, "", hostile+planted),
		at(1, flow.StepStarted, hostile, planted),
		at(2, flow.StepProgress, hostile, "denied: "+planted+hostile+"\x1b[31m"),
		at(8, flow.StepFailed, hostile, planted+hostile), at(9, flow.RunFinished, "", planted+hostile),
	}, effect.Line{Time: at(3, "", "", "").Time, System: effect.Hetzner, Verb: hostile, Object: planted,
		Phase: effect.Leaves},
		effect.Line{Time: at(3, "", "", "").Time, System: effect.Hetzner, Verb: hostile, Object: planted, Phase: effect.Failed,
			Error: hostile + planted})
	r := execute(t, t.Context(), dir, settings.TokenVariable+"="+planted, "report", "--state-dir", "state", "--output",
		"json")
	var told struct{ File, Run string }
	if err := json.Unmarshal([]byte(r.stdout), &told); err != nil || told.Run != "20260102-a" {
		t.Fatalf("%+v: %v", r, err)
	}
	data, err := state.Files().Folder(statedir.RunsFolder).Folder("20260102-a").Read(report.File)
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	if strings.Contains(page, planted) || strings.Contains(page, "planted") {
		t.Error("the secret is in the report")
	}
	for _, markup := range []string{"<script", "<img", "onerror=alert(1)>", "\x1b"} {
		if strings.Contains(page, markup) {
			t.Errorf("the report has %q", markup)
		}
	}
	if !strings.Contains(page, "&lt;script&gt;alert(1)&lt;/script&gt;") || !strings.Contains(page, "[hidden]") {
		t.Error("the report does not have the texts at all")
	}
}

// The list also has runs of other targets, one without any event and one that cannot be read.
func TestReportListsRunsOfEveryKind(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	state := statedir.Dir(filepath.Join(dir, "state"))
	if r := execute(t, t.Context(), dir, "", "report", "--list", "--state-dir", "state"); r.code != ExitDone ||
		!strings.HasPrefix(r.stdout, "RUN ") {
		t.Errorf("of none: %+v", r)
	}
	at := clockwork(0)
	leaveRun(t, state, "20260102T030000.000Z-1", runs.Setup{Cluster: "k8s", Targets: []string{targetDestroy}},
		[]flow.Event{at(0, flow.StepStarted, "servers", ""), at(2, flow.StepDone, "servers", "")},
		effect.Line{Time: at(1, "", "", "").Time, System: effect.Hetzner, Verb: "delete", Object: "servers/*",
			Phase: effect.Leaves})
	leaveRun(t, state, "20260102T030100.000Z-2", runs.Setup{Cluster: "k8s", Targets: []string{"replace-machine", "m"}},
		[]flow.Event{at(0, flow.StepStarted, "replace-machine", ""), at(2, flow.StepFailed, "replace-machine", "refused")})
	leaveRun(t, state, "20260102T030200.000Z-3", runs.Setup{Cluster: "k8s"}, nil)
	if err := state.Files().Folder(statedir.RunsFolder).Folder("20260102T030300.000Z-4").Write(runs.SetupFile,
		[]byte("{")); err != nil {
		t.Fatal(err)
	}
	r := execute(t, t.Context(), dir, "", "report", "--list", "--state-dir", "state")
	for i, want := range []string{"1        destroy            finished",
		"0        replace-machine m  failed: replace-machine: refused", "2026-01-02 03:02:00", "unreadable"} {
		if lines := strings.Split(r.stdout, "\n"); r.code != ExitDone || len(lines) < 5 ||
			!strings.Contains(lines[i+1], want) {
			t.Errorf("line %d does not have %q: %s%s", i+1, want, r.stdout, r.stderr)
		}
	}
	for _, args := range []string{"report 2026 --list", "report --list --out x", "status --list"} {
		if r := execute(t, t.Context(), dir, "",
			append(strings.Fields(args), "--state-dir", "state")...); r.code != ExitUsage {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

func TestReportMistakes(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if r := execute(t, t.Context(), dir, "", "report", "--state-dir", "state"); r.code != ExitFailed ||
		!strings.Contains(r.stderr, "no run in") {
		t.Errorf("of nothing: %+v", r)
	}
	state := statedir.Dir(filepath.Join(dir, "state"))
	for _, id := range []string{"20260102-a", "20260102-b"} {
		leaveRun(t, state, id, runs.Setup{}, []flow.Event{clockwork(0)(0, flow.RunStarted, "", "")})
	}
	leaveRun(t, state, "20260103-c", runs.Setup{Targets: []string{targetDestroy}},
		[]flow.Event{clockwork(0)(0, runs.NoteEvent, "", "")})
	for _, run := range []string{"2026", "1999", "20260103"} {
		if r := execute(t, t.Context(), dir, "", "report", run, "--state-dir", "state"); r.code != ExitUsage {
			t.Errorf("run %s: %+v", run, r)
		}
	}
}
