package crash

import (
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/judge"
	"github.com/slipway-k8s/slipway/test/stores"
)

// lineWriter hands lines to a test's log.
type lineWriter struct{ t *testing.T }

func (w lineWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// dayVariable chooses another day's sample.
const dayVariable = "CRASH_DAY"

// today is the number of the day by which the sample's points rotate.
func today(t *testing.T) int {
	t.Helper()
	if chosen := os.Getenv(dayVariable); chosen != "" {
		var day int
		if _, err := fmt.Sscan(chosen, &day); err != nil {
			t.Fatalf("%s: %v", dayVariable, err)
		}
		return day
	}
	return stores.Today()
}

// TestSample runs the whole first day and its end twice in one lab: once undisturbed, which tells the effects and
// what they come to, and then killed at one effect of about half of the sorts, one after the other, each time resumed
// up to the next. The judge finds no difference. Where the state is stored rotates by the day, too.
func TestSample(t *testing.T) {
	s := newSample(t)
	ctx := t.Context()
	if err := s.lab(ctx, "up"); err != nil {
		t.Fatal(err)
	}
	day := today(t)
	store := stores.OfDay(t, day)
	t.Logf("the sample of day %d, its state in the store %s (%s and %s choose others)", day, store, dayVariable, stores.Variable)
	s.Environment = stores.Environment(t, store)
	var references []Reference
	var observations []judge.Observation
	for _, name := range []string{"all", "destroy"} {
		ref, observed := s.undisturbed(t, name)
		references, observations = append(references, ref), append(observations, observed)
	}
	again, uploads := time.Now(), 0
	for i, ref := range references {
		s.Begin()
		kills := sample(ref.Effects, day)
		tr := &trial{
			Suite: s, c: Case{Kind: Chain, Stage: ref.Stage, Kills: kills}, args: stageNamed(ref.Stage).Args, reference: ref,
			wanted: observations[i], attributed: judge.Attribute(observations[i], ref.Spans), since: again,
			uploads: uploads, // the requests of both are counted together
		}
		began := time.Now()
		if err := tr.chain(ctx); err != nil {
			t.Fatalf("%s: after %d kills: %v", ref.Stage, tr.kills, err)
		}
		if err := tr.judge(ctx); err != nil {
			t.Fatal(err)
		}
		for _, finding := range tr.findings {
			t.Errorf("%s: %s", ref.Stage, finding)
		}
		uploads = tr.uploads
		hit := len(tr.covered)
		t.Logf("%s: %d effects; killed at %d of %d sorts in %.0fs", ref.Stage, len(ref.Effects), hit, len(kills),
			time.Since(began).Seconds())
		for _, k := range kills {
			if !slices.Contains(tr.covered, k) {
				t.Logf("%s: not come by: %s", ref.Stage, k)
			}
		}
		// A kill takes the effects of other steps at work with it, so that some never come again. Most do.
		if hit*10 < len(kills)*7 {
			t.Errorf("%s: only %d of %d sorts were killed at", ref.Stage, hit, len(kills))
		}
	}
}

func newSample(t *testing.T) *Suite {
	t.Helper()
	if testing.Short() {
		t.Skip("it kills a whole bootstrap some thirty times; make test-all runs it")
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	source, err := Source(here)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	command := filepath.Join(dir, "bootstrap")
	if err := Build(t.Context(), source, command); err != nil {
		t.Fatal(err)
	}
	check := exec.Command(command, "lab", "build", "--check")
	check.Dir, check.Env = source, append(os.Environ(), "LAB_PROGRAMS=source")
	if out, err := check.CombinedOutput(); err != nil {
		t.Fatalf("not run, because the lab's programs are not built: build them (go run ./cmd/bootstrap lab build, about "+
			"seven minutes) and run the tests again, or leave this one out with go test -short\n%s", out)
	}
	log, err := os.Create(filepath.Join(dir, "suite.log"))
	if err != nil {
		t.Fatal(err)
	}
	session, err := Open(command, source, filepath.Join(dir, "state"), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := session.Close(); err != nil {
			t.Error(err)
		}
		if data, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the end of what the runs said:\n%s", data[max(0, len(data)-20000):])
		}
		log.Close()
	})
	return &Suite{Session: session, Dir: dir, Say: func(format string, args ...any) {
		fmt.Fprintf(lineWriter{t}, format, args...)
	}}
}

// undisturbed runs a stage and tells what it did and left.
func (s *Suite) undisturbed(t *testing.T, stage string) (Reference, judge.Observation) {
	t.Helper()
	o, err := s.Do(t.Context(), Run{Args: stageNamed(stage).Args})
	if err != nil || o.Exit != 0 {
		t.Fatalf("%s, undisturbed: exit %d, %v\n%s", stage, o.Exit, err, o.Output)
	}
	ref, err := s.recorded(Reference{Stage: stage, Began: o.Began, Elapsed: o.Elapsed})
	if err != nil {
		t.Fatal(err)
	}
	observed, err := s.settled(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s, undisturbed: %d effects in %.0fs", stage, len(ref.Effects), o.Elapsed.Seconds())
	return ref, observed
}

// sample is a chain for a short run: one effect of about half of the sorts, and of the others the next day. The
// selected effect of a sort and its point change each time.
func sample(effects []Effect, day int) (kills []string) {
	turn := day / 2
	var order []string
	bySort := map[string][]Effect{}
	for _, e := range effects {
		sort := e.sort()
		if len(bySort[sort]) == 0 {
			order = append(order, sort)
		}
		bySort[sort] = append(bySort[sort], e)
	}
	for i, sort := range order {
		// By its name: steps run at once, so the order of sorts differs from run to run.
		if crc32.ChecksumIEEE([]byte(sort))%2 != uint32(day%2) {
			continue
		}
		// A second call of one name comes in a run that made the first one itself. In a chain most runs begin behind that.
		all := slices.DeleteFunc(slices.Clone(bySort[sort]), func(e Effect) bool { return !strings.HasSuffix(e.Key, "#1") })
		if len(all) == 0 {
			all = bySort[sort]
		}
		one := all[turn%len(all)].Key
		points := chainPoints(one)
		// The point moves on when all effects have had their turn with one.
		kills = append(kills, kill(points[(turn/len(all)+i)%len(points)], one))
	}
	return kills
}

// sort is the group of effects that the same lines of code make: in one step the same verb to the same cluster, for any
// object. Calls to Hetzner, files and commands are each a sort, and the journal's writes of one state.
func (e Effect) sort() string {
	words := strings.Fields(e.Key)
	if len(words) < 3 {
		return e.Key
	}
	system, verb, object := words[0], words[1], words[2]
	switch system {
	case "management", "workload":
		return strings.Join([]string{e.Step, system, verb}, " ")
	case "journal":
		_, state, _ := strings.Cut(object, "/")
		state, _, _ = strings.Cut(state, "#")
		return strings.Join([]string{system, verb, state}, " ")
	}
	object, _, _ = strings.Cut(object, "#")
	return strings.Join([]string{e.Step, system, verb, object}, " ")
}
