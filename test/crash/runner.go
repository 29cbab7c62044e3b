package crash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/test/judge"
)

const (
	// mostRuns bounds the runs that a chain may need above its kills.
	mostRuns = 4
	// noise is how many times as long as the rest of an undisturbed run a resumed one may take before it counts as stuck
	// in a wait: the machine may be busy.
	noise = 2.0
	// settleWithin is how long controllers may need after the command's end to reach the state of the reference.
	settleWithin = 60 * time.Second
)

// Try runs a case and judges it. The error is one of the suite, not of what it tries.
func (s *Suite) Try(ctx context.Context, c Case) (Entry, error) {
	e := Entry{Case: c.ID, Kind: c.Kind, At: time.Now().UTC()}
	began := time.Now()
	if err := s.ready(ctx, c.Stage); err != nil {
		return e, fmt.Errorf("load the lab before stage %s: %w", c.Stage, err)
	}
	s.Begin()
	s.loaded = "" // from here on it is touched
	trial, err := s.newTrial(ctx, c)
	if err != nil {
		return e, err
	}
	switch c.Kind {
	case Fault:
		err = trial.fault(ctx)
	case Disk:
		err = trial.disk(ctx)
	case Random:
		err = trial.random(ctx)
	case Chain:
		err = trial.chain(ctx)
	case Pair:
		err = trial.pair(ctx)
	default:
		err = trial.one(ctx)
	}
	if err == nil && trial.skipped == "" {
		err = trial.judge(ctx)
	}
	if err != nil && ctx.Err() != nil {
		return e, err
	}
	if err != nil {
		trial.find("the suite", err.Error())
	}
	e.Covered, e.Kills, e.Findings, e.Note = trial.covered, trial.kills, trial.findings, cmp.Or(trial.skipped,
		trial.missed)
	e.Seconds, e.Resumed, e.Rest = time.Since(began).Seconds(), trial.resumed.Seconds(), trial.rest.Seconds()
	e.Result = trial.result()
	if e.Result == Bad {
		if kept, err := s.keepLogs(c); err != nil {
			s.Say("the logs of %q could not be saved: %v", c.ID, err)
		} else {
			s.Say("the logs of %q are in %s", c.ID, kept)
		}
	}
	if e.Result == Good && trial.asReferred() {
		s.loaded = c.Stage
	}
	return e, nil
}

// leastKills is how many kills a case must hit to count.
func leastKills(kind Kind) int {
	switch kind {
	case Fault, Disk:
		return 0
	case Pair, Random:
		return 2
	default:
		return 1
	}
}

// result is the result of a trial.
func (t *trial) result() Result {
	switch {
	case len(t.findings) > 0:
		return Bad
	case t.skipped != "":
		return Skipped
	case t.missed != "", t.kills < leastKills(t.c.Kind):
		return Missed
	}
	return Good
}

// asReferred says whether a good trial left exactly the state of the stage's undisturbed run, without repeated
// requests, so that the next stage's case can begin with it.
func (t *trial) asReferred() bool {
	return slices.Contains([]Kind{Single, Pair, Chain}, t.c.Kind) && t.uploads == 0 && len(t.again) == 0
}

// ready prepares the lab for a stage.
func (s *Suite) ready(ctx context.Context, stage string) error {
	was := before(stage)
	if was != "" && s.loaded == was {
		return nil
	}
	return s.Load(ctx, was)
}

// trial is a case at work.
type trial struct {
	*Suite
	c          Case
	args       []string
	end        string // the stage whose reference is the end
	reference  Reference
	wanted     judge.Observation // at the end of it
	first      judge.Observation // before anything
	since      time.Time         // the undisturbed run was in the same lab, until then; zero: in another lab
	attributed judge.Attribution

	covered, findings []string
	kills             int
	uploads           int            // runs that ended while the image was created
	again             map[string]int // requests that a fault requires again
	forgotten         bool           // the journal was deleted: what is done is not known
	resumed, rest     time.Duration
	skipped           string // why the machine cannot show it
	missed            string // why it proves nothing
}

func (s *Suite) newTrial(ctx context.Context, c Case) (*trial, error) {
	t := &trial{Suite: s, c: c, args: stageNamed(c.Stage).Args, end: c.Stage, attributed: judge.Attribution{}}
	if c.Kind == Random {
		t.end = "all"
		t.args = stageNamed("all").Args
	}
	running := false
	for _, stage := range Stages() {
		running = running || stage.Name == c.Stage
		if !running {
			continue
		}
		ref, observed, err := s.reference(stage.Name)
		if err != nil {
			return nil, err
		}
		for what, steps := range judge.Attribute(observed, ref.Spans) {
			t.attributed[what] = append(t.attributed[what], steps...)
		}
		t.reference = t.reference.then(ref)
		t.wanted = observed
		if stage.Name == t.end {
			break
		}
	}
	var err error
	t.first, err = judge.Look(ctx, s.Place())
	return t, err
}

// find records a finding. A finding of every run of a chain is recorded once.
func (t *trial) find(verdict string, findings ...string) {
	for _, f := range findings {
		if line := verdict + ": " + f; !slices.Contains(t.findings, line) {
			t.findings = append(t.findings, line)
		}
	}
}

// run runs the command once, and checks that it repeats nothing. A kill that hit
// is counted, and what it left looked at.
func (t *trial) run(ctx context.Context, r Run) (Outcome, error) {
	r.Args = t.args
	done, err := t.done()
	if err != nil {
		return Outcome{}, err
	}
	at := time.Now()
	o, err := t.Do(ctx, r)
	switch {
	case err != nil:
		return o, err
	case o.Exit == 2:
		return o, fmt.Errorf("exit 2: %s", lastLine(o.Output))
	case t.forgotten && !o.Killed:
		return o, nil // nothing is known to have been done, and the journal may be a damaged one
	}
	left, err := judge.Records(t.Place())
	if err != nil {
		return o, err
	}
	t.find("not repeated", judge.NotRepeated(left, at, done, t.attributed)...)
	if o.Killed {
		err = t.killed(ctx, r, left)
	}
	return o, err
}

// done are the steps that the journal records as done.
func (t *trial) done() ([]string, error) {
	if t.forgotten {
		return nil, nil
	}
	states, err := judge.Steps(t.Place())
	var done []string
	for step, state := range states {
		if state == "done" {
			done = append(done, step)
		}
	}
	return done, err
}

// killed notes which of the kills hit. left is what the killed run left.
func (t *trial) killed(ctx context.Context, r Run, left judge.Observation) error {
	t.kills++
	run, err := newestRun(t.State)
	if err != nil {
		return err
	}
	lines, err := readLines[effectLine](filepath.Join(run, "effects.jsonl"))
	if err != nil {
		return err
	}
	if len(r.Crash) > 0 {
		last := effectLine{}
		if len(lines) > 0 {
			last = lines[len(lines)-1]
		}
		switch at := last.Phase == "killed" && slices.Contains(r.Crash, last.Error); {
		case at:
			t.covered = append(t.covered, last.Error)
		case r.KillAt == 0:
			return fmt.Errorf("killed, and not at any of the %d places asked for; the run's last line is %+v", len(r.Crash),
				last)
		}
	}
	// A temporary server without its record is made again: one that was, and a journal that does not have the image yet.
	if left.Journal["image"] == "started" {
		t.uploads++
	}
	if left.Journal["kubeconfig"] != "done" || t.first.Clusters[judge.Workload].Known() {
		return nil
	}
	// From here on the cluster must stay the same.
	seen, err := judge.Look(ctx, t.Place())
	if err == nil && seen.Clusters[judge.Workload].Known() {
		t.first = seen
	}
	return nil // one that does not answer now is examined after the next kill
}

// finish runs to the end, and checks that this waits for nothing.
func (t *trial) finish(ctx context.Context) error {
	done, err := t.done()
	if err != nil {
		return err
	}
	o, err := t.run(ctx, Run{})
	if err != nil {
		return err
	}
	if o.Exit != 0 {
		t.find("the next run", fmt.Sprintf("exit %d: %s", o.Exit, lastLine(o.Output)))
		return nil
	}
	t.resumed, t.rest = o.Elapsed, t.reference.RestWithout(done)
	t.find("in time", judge.InTime(t.resumed, t.rest, noise)...)
	return nil
}

// one kills at one place.
func (t *trial) one(ctx context.Context) error {
	if _, err := t.killedAt(ctx, t.c.Kills); err != nil {
		return err
	}
	return t.finish(ctx)
}

// pair kills at one place, and the next run at the first of the others that it comes to.
func (t *trial) pair(ctx context.Context) error {
	killed, err := t.killedAt(ctx, t.c.Kills[:1])
	if err == nil && killed {
		_, err = t.killedAt(ctx, t.c.Kills[1:])
	}
	if err != nil {
		return err
	}
	return t.finish(ctx)
}

// killedAt is a run that is killed at the first of some places. It may come to its end without reaching one.
func (t *trial) killedAt(ctx context.Context, places []string) (bool, error) {
	o, err := t.run(ctx, Run{Crash: places})
	if err == nil && !o.Killed && o.Exit != 0 {
		t.find("the run that was to be killed", fmt.Sprintf("exit %d: %s", o.Exit, lastLine(o.Output)))
	}
	return o.Killed, err
}

// chain kills at every place that has not been hit yet, whichever comes first, until none comes any more.
func (t *trial) chain(ctx context.Context) error {
	left := slices.Clone(t.c.Kills)
	for range len(left) + mostRuns {
		if len(left) == 0 {
			break
		}
		o, err := t.run(ctx, Run{Crash: left})
		if err != nil {
			return err
		}
		if !o.Killed {
			if o.Exit != 0 {
				t.find("a run of the chain", fmt.Sprintf("after %d kills exit %d: %s", t.kills, o.Exit, lastLine(o.Output)))
			}
			break
		}
		last := t.covered[len(t.covered)-1]
		left = slices.DeleteFunc(left, func(k string) bool { return k == last })
	}
	return t.finish(ctx)
}

// random kills by a schedule, and finishes.
func (t *trial) random(ctx context.Context) error {
	left := t.c.Kills
	for len(left) > 0 {
		r, err := armed(left)
		if err != nil {
			return err
		}
		hits := len(t.covered)
		o, err := t.run(ctx, r)
		if err != nil {
			return err
		}
		if !o.Killed {
			if o.Exit != 0 {
				t.find("a run of the schedule", fmt.Sprintf("exit %d: %s", o.Exit, lastLine(o.Output)))
			}
			break
		}
		came := left[0] // the time, where it was at no effect
		if len(t.covered) > hits {
			came = t.covered[hits]
		}
		left = slices.DeleteFunc(slices.Clone(left), func(k string) bool { return k == came })
	}
	return t.finish(ctx)
}

// armed is a run that is killed by what is left of a schedule: by the next kill where that is a time, and at any of the
// effects, because one of them may never come.
func armed(left []string) (r Run, err error) {
	for i, k := range left {
		ms, isTime := strings.CutPrefix(k, "after ")
		if !isTime {
			r.Crash = append(r.Crash, k)
			continue
		}
		n, err := strconv.Atoi(strings.TrimSuffix(ms, " ms"))
		if err != nil {
			return Run{}, err
		}
		if i == 0 {
			r.KillAt = time.Duration(n) * time.Millisecond
		}
	}
	return r, nil
}

// judge judges the end of the case.
func (t *trial) judge(ctx context.Context) error {
	is, err := t.settle(ctx)
	if err != nil {
		return err
	}
	t.find("same end", judge.SameEnd(t.wanted, is)...)
	more := judge.Upload(t.uploads)
	maps.Copy(more, t.again)
	undisturbed, since := t.wanted.Requests, is.Requests
	if !t.since.IsZero() {
		undisturbed = slices.DeleteFunc(slices.Clone(undisturbed),
			func(r judge.Request) bool { return !r.Time.Before(t.since) })
		since = slices.DeleteFunc(slices.Clone(since), func(r judge.Request) bool { return r.Time.Before(t.since) })
	}
	t.find("made once", judge.MadeOnce(undisturbed, since, more)...)
	t.find("same identity", judge.SameIdentity(t.first, is)...)
	t.find("one manager", judge.OneManager(is.Writes)...)
	secrets := is.Secrets()
	for what, secret := range t.first.Secrets() {
		secrets["earlier "+what] = secret
	}
	secrets["the planted token"] = planted
	if token, err := os.ReadFile(filepath.Join(t.Place().Lab(), "token")); err == nil {
		secrets["the lab's token"] = strings.TrimSpace(string(token))
	} else {
		return err
	}
	t.find("no secret", judge.NoSecret(is, secrets, t.Seen())...)
	return nil
}

// settle observes until there is no finding, or for as long as controllers may need, and returns the last observation.
// It retries an observation that fails: the machine may be busy.
func (t *trial) settle(ctx context.Context) (judge.Observation, error) {
	const (
		lookEvery   = time.Second
		failedLooks = 5
	)
	deadline, failed := time.Now().Add(settleWithin), 0
	for {
		is, err := judge.Look(ctx, t.Place())
		switch {
		case err != nil:
			if failed++; failed > failedLooks && time.Now().After(deadline) {
				return is, err
			}
		case len(judge.SameEnd(t.wanted, is)) == 0, time.Now().After(deadline):
			return is, nil
		}
		select {
		case <-ctx.Done():
			return is, errors.Join(err, ctx.Err())
		case <-time.After(lookEvery):
		}
	}
}
