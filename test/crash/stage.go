package crash

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/test/judge"
)

// Stage is a part of a cluster's life from nothing to self-management and destruction. The lab is saved between stages,
// so that a case begins a few seconds before its effect.
type Stage struct {
	Name string
	Args []string // of the command
}

// Stages are all stages in their order. Each ends while nothing is in progress: no server boots, no controller is about
// to write.
func Stages() []Stage {
	return []Stage{
		{"image", []string{"image", "kind-create", "--lab"}},
		{"providers", []string{"capi-init", "secret", "--lab"}},
		{"servers", []string{"wait-cp", "kubeconfig", "talosconfig", "--lab"}},
		{"nodes", []string{"wait-machines", "--lab"}},
		{"pivot", []string{"pivot", "--lab"}},
		{"all", []string{"all", "--lab"}},
		{"destroy", []string{"destroy", "--yes", "--images", "--volumes", "--lab"}},
	}
}

// Effect is a call of an undisturbed run that changed something.
type Effect struct {
	Stage string    `json:"stage"`
	Key   string    `json:"key"` // "<environment> <verb> <object>#<nth>"
	Step  string    `json:"step,omitempty"`
	At    time.Time `json:"at"`
}

// Reference is what an undisturbed run of a stage did and left.
type Reference struct {
	Stage   string        `json:"stage"`
	Began   time.Time     `json:"began"`
	Elapsed time.Duration `json:"elapsedNs"`
	Effects []Effect      `json:"effects"`
	Spans   []judge.Span  `json:"spans"`
}

// Rest is how long the undisturbed run continued after a time in it.
func (r Reference) Rest(at time.Time) time.Duration { return r.Began.Add(r.Elapsed).Sub(at) }

// then joins two references: the next as if it had begun when this one ended.
func (r Reference) then(next Reference) Reference {
	if r.Stage == "" {
		return next
	}
	both := Reference{Stage: next.Stage, Began: r.Began, Elapsed: r.Elapsed + next.Elapsed}
	both.Effects, both.Spans = slices.Concat(r.Effects, next.Effects), slices.Clone(r.Spans)
	later := r.Began.Add(r.Elapsed).Sub(next.Began)
	for _, s := range next.Spans {
		both.Spans = append(both.Spans, judge.Span{Step: s.Step, Begin: s.Begin.Add(later), End: s.End.Add(later)})
	}
	return both
}

// unrecorded is the step that every run begins with: the journal has no record of it.
const unrecorded = "lab"

// RestWithout is how long an undisturbed run takes when some steps are done: the verification before the first step of
// the reference, and the steps that are not done. A step that was killed runs again as a whole.
func (r Reference) RestWithout(done []string) time.Duration {
	var all, left time.Duration
	for _, s := range r.Spans {
		if s.Step == unrecorded {
			continue
		}
		all = max(all, r.Rest(s.Begin))
		if !slices.Contains(done, s.Step) {
			left = max(left, r.Rest(s.Begin))
		}
	}
	return r.Elapsed - all + left
}

// newestRun is the folder of the state folder's last run.
func newestRun(state string) (string, error) {
	entries, err := os.ReadDir(filepath.Join(state, "runs"))
	if err != nil {
		return "", err
	}
	newest := ""
	for _, e := range entries {
		newest = max(newest, e.Name()) // they begin with the time
	}
	if newest == "" {
		return "", errors.New("no run has left its folder")
	}
	return filepath.Join(state, "runs", newest), nil
}

// effectLine is the part of a line of effects.jsonl that is read.
type effectLine struct {
	Time   time.Time `json:"time"`
	System string    `json:"world"`
	Verb   string    `json:"verb"`
	Object string    `json:"object"`
	Nth    int       `json:"nth"`
	Phase  string    `json:"phase"`
	Step   string    `json:"step"`
	Error  string    `json:"error"`
}

func (l effectLine) key() string {
	return fmt.Sprintf("%s %s %s#%d", l.System, l.Verb, l.Object, l.Nth)
}

// readLines reads a file of JSON lines, but for a last one that was torn.
func readLines[T any](path string) ([]T, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var found []T
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	var torn error
	for scanner.Scan() {
		if torn != nil {
			return nil, fmt.Errorf("read %s: %w", path, torn)
		}
		var line T
		if torn = json.Unmarshal(scanner.Bytes(), &line); torn == nil {
			found = append(found, line)
		}
	}
	return found, scanner.Err()
}

// readEffects reads the effects of a run that were begun.
func readEffects(stage, run string) ([]Effect, error) {
	lines, err := readLines[effectLine](filepath.Join(run, "effects.jsonl"))
	var found []Effect
	for _, l := range lines {
		if l.Phase == "before" {
			found = append(found, Effect{Stage: stage, Key: l.key(), Step: l.Step, At: l.Time})
		}
	}
	return found, err
}

// readSpans reads when the steps of a run were at work.
func readSpans(run string) ([]judge.Span, error) {
	type event struct {
		Time time.Time `json:"time"`
		Kind string    `json:"kind"`
		Step string    `json:"step"`
	}
	lines, err := readLines[event](filepath.Join(run, "events.jsonl"))
	began := map[string]time.Time{}
	var spans []judge.Span
	for _, e := range lines {
		switch e.Kind {
		case "step-started":
			began[e.Step] = e.Time
		case "step-done":
			if begin, ok := began[e.Step]; ok {
				spans = append(spans, judge.Span{Step: e.Step, Begin: begin, End: e.Time})
			}
		}
	}
	return spans, err
}

// Suite is the stages of one state of the code, kept in a folder.
type Suite struct {
	*Session
	Dir    string // work folder
	Ledger *Ledger
	Say    func(format string, args ...any)

	// the stage at whose end the lab is: its saved lab was loaded, or a case ended well, and nothing has changed since
	loaded string
}

func (s *Suite) stageDir(stage string) string { return filepath.Join(s.Dir, "stages", stage) }

// Prepare creates or reads every stage's saved lab and reference, in their order.
func (s *Suite) Prepare(ctx context.Context) error {
	before := ""
	for _, stage := range Stages() {
		if _, _, err := s.reference(stage.Name); err != nil {
			if err := s.makeStage(ctx, before, stage); err != nil {
				return fmt.Errorf("stage %s, undisturbed: %w", stage.Name, err)
			}
		}
		before = stage.Name
	}
	return nil
}

// makeStage runs a stage undisturbed and saves the result.
func (s *Suite) makeStage(ctx context.Context, before string, stage Stage) error {
	if s.loaded != before || before == "" {
		if err := s.Load(ctx, before); err != nil {
			return err
		}
	}
	s.Say("stage %s: running it undisturbed", stage.Name)
	o, err := s.Do(ctx, Run{Args: stage.Args})
	if err != nil {
		return err
	}
	if o.Exit != 0 {
		return fmt.Errorf("exit %d: %s", o.Exit, lastLine(o.Output))
	}
	ref, err := s.recorded(Reference{Stage: stage.Name, Began: o.Began, Elapsed: o.Elapsed})
	if err != nil {
		return err
	}
	observed, err := s.settled(ctx)
	if err != nil {
		return err
	}
	dir := s.stageDir(stage.Name)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := s.save(ctx, filepath.Join(dir, "state")); err != nil {
		return err
	}
	if err := keep(filepath.Join(dir, "world.json"), func(f *os.File) error { return observed.Keep(f) }); err != nil {
		return err
	}
	s.loaded = stage.Name
	// The reference last: a stage that has one is whole.
	return keep(filepath.Join(dir, "reference.json"), func(f *os.File) error { return json.NewEncoder(f).Encode(ref) })
}

// recorded adds the records of the last run.
func (s *Suite) recorded(ref Reference) (Reference, error) {
	run, err := newestRun(s.State)
	if err != nil {
		return ref, err
	}
	if ref.Effects, err = readEffects(ref.Stage, run); err != nil {
		return ref, err
	}
	ref.Spans, err = readSpans(run)
	return ref, err
}

// settled observes until two observations in a row are equal and the provider is Ready, so that the reference includes
// what controllers still do after the run.
func (s *Suite) settled(ctx context.Context) (judge.Observation, error) {
	const lookEvery, most = 2 * time.Second, 15
	last, err := judge.Look(ctx, s.Place())
	for range most {
		if err != nil {
			return judge.Observation{}, err
		}
		select {
		case <-ctx.Done():
			return judge.Observation{}, ctx.Err()
		case <-time.After(lookEvery):
		}
		next, err := judge.Look(ctx, s.Place())
		if err != nil {
			return judge.Observation{}, err
		}
		if len(judge.SameEnd(last, next)) == 0 && judge.Settled(next) {
			return next, nil
		}
		last = next
	}
	return judge.Observation{}, errors.New("the state after the run keeps changing")
}

func keep(path string, write func(*os.File) error) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// reference reads the reference of a stage.
func (s *Suite) reference(stage string) (ref Reference, observed judge.Observation, err error) {
	data, err := os.ReadFile(filepath.Join(s.stageDir(stage), "reference.json"))
	if err != nil {
		return ref, observed, err
	}
	if err := json.Unmarshal(data, &ref); err != nil {
		return ref, observed, err
	}
	file, err := os.Open(filepath.Join(s.stageDir(stage), "world.json"))
	if err != nil {
		return ref, observed, err
	}
	defer file.Close()
	observed, err = judge.Read(file)
	return ref, observed, err
}

// before is the previous stage; empty for the first, before which the lab is empty.
func before(stage string) string {
	at := slices.IndexFunc(Stages(), func(s Stage) bool { return s.Name == stage })
	if at <= 0 {
		return ""
	}
	return Stages()[at-1].Name
}

func stageNamed(name string) Stage {
	stages := Stages()
	return stages[slices.IndexFunc(stages, func(s Stage) bool { return s.Name == name })]
}

// Load restores the lab at the end of a stage; after the empty stage it is empty.
func (s *Suite) Load(ctx context.Context, stage string) error {
	s.loaded = ""
	if err := s.lab(ctx, "down"); err != nil {
		return err
	}
	if err := os.RemoveAll(s.State); err != nil {
		return err
	}
	if stage != "" {
		if err := copyFolder(ctx, filepath.Join(s.stageDir(stage), "state"), s.State); err != nil {
			return err
		}
	}
	if err := s.lab(ctx, "up"); err != nil {
		return err
	}
	s.loaded = stage
	return nil
}

// save saves the state folder with its lab, which runs before and afterwards.
func (s *Suite) save(ctx context.Context, to string) error {
	if err := s.lab(ctx, "down"); err != nil {
		return err
	}
	if err := copyFolder(ctx, s.State, to); err != nil {
		return err
	}
	return s.lab(ctx, "up")
}

// lab is `bootstrap lab VERB`.
func (s *Suite) lab(ctx context.Context, verb ...string) error {
	o, err := s.Do(ctx, Run{Args: append([]string{"lab"}, verb...), Timeout: 3 * time.Minute})
	if err == nil && o.Exit != 0 {
		err = fmt.Errorf("lab %s: exit %d: %s", strings.Join(verb, " "), o.Exit, lastLine(o.Output))
	}
	return err
}
