package crash

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLedger is a suite that was killed while it wrote a line.
func TestLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	l, err := OpenLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []Entry{{Case: "a", Result: Bad}, {Case: "b", Result: Good},
		{Case: "a", Result: Good, Covered: []string{"before x"}}} {
		if err := l.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"case":"c","res`); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = OpenLedger(path); err != nil || len(l.Entries) != 3 {
		t.Fatalf("%d entries, %v", len(l.Entries), err)
	}
	if e, ok := l.Last("a"); !ok || e.Result != Good || len(e.Covered) != 1 {
		t.Errorf("the last of a is %+v", e)
	}
	if err := l.Add(Entry{Case: "c", Result: Good}); err != nil {
		t.Fatal(err)
	}
	if l, err = OpenLedger(path); err != nil || len(l.Entries) != 4 {
		t.Errorf("after the next one: %d entries, %v", len(l.Entries), err)
	}
}

func someEffects() []Effect {
	var all []Effect
	for _, stage := range Stages() {
		for i := range 6 { // a multiple of the points
			all = append(all,
				Effect{Stage: stage.Name, Step: stage.Name, Key: fmt.Sprintf("workload create deployments.apps/ns/%s%d#1",
					stage.Name, i)})
		}
		all = append(all, Effect{Stage: stage.Name, Key: "journal save " + stage.Name + "/done#1"})
	}
	return all
}

// A journal that is not written any more has no write to be killed in.
func TestNoKillsInWritesThatNeverCome(t *testing.T) {
	var effects []Effect
	for _, key := range []string{"file write a#1", "journal save b/done#1", "file remove c#1"} {
		effects = append(effects, Effect{Stage: "image", Key: key})
	}
	singles := map[string]int{}
	for _, c := range Enumerate(effects, Full()) {
		if c.Kind == Single {
			_, key, _ := strings.Cut(c.Kills[0], " ")
			singles[key]++
		}
	}
	for i, want := range []int{5, 5, 3} {
		if key := effects[i].Key; singles[key] != want {
			t.Errorf("%s has %d points, want %d", key, singles[key], want)
		}
	}
}

func TestEnumerate(t *testing.T) {
	effects := someEffects()
	cases := Enumerate(effects, Full())
	ids, count, chained := map[string]bool{}, map[Kind]int{}, map[string]bool{}
	for _, c := range cases {
		if ids[c.ID] {
			t.Errorf("two cases are called %q", c.ID)
		}
		ids[c.ID] = true
		count[c.Kind]++
		if c.Kind == Chain {
			for _, k := range c.Kills {
				chained[k] = true
			}
		}
	}
	if count[Single] != len(effects)*len(Points()) || count[Chain] != len(Stages())*len(Points()) ||
		count[Random] != Full().Random || count[Pair] != Full().Pairs {
		t.Errorf("there are %v", count)
	}
	for _, e := range effects {
		for _, p := range chainPoints(e.Key) {
			if !chained[kill(p, e.Key)] {
				t.Errorf("no chain goes through %s %s", p, e.Key)
			}
		}
	}
	if again := Enumerate(effects, Full()); fmt.Sprint(again) != fmt.Sprint(cases) {
		t.Error("the same effects gave other cases")
	}
	place := map[string]int{}
	for i, e := range effects {
		for _, p := range Points() {
			place[kill(p, e.Key)] = i
		}
	}
	for _, c := range cases {
		if c.Kind != Random {
			continue
		}
		if n := len(c.Kills); n < 2 || n > 5 {
			t.Errorf("%s has %d kills", c.ID, n)
		}
		last := -1
		for _, k := range c.Kills {
			if i, ok := place[k]; ok && i < last {
				t.Errorf("%s: %s comes after an effect that is later", c.ID, k)
			} else if ok {
				last = i
			}
		}
	}
	if cases[0].Kind != Kinds()[0] {
		t.Errorf("first comes %s", cases[0].Kind)
	}
	// Each single kill begins where the one before has ended, round by round.
	first := slices.IndexFunc(cases, func(c Case) bool { return c.Kind == Single })
	for i, c := range cases[first : first+2*len(Stages())] {
		if c.Kind != Single || c.Stage != Stages()[i%len(Stages())].Name {
			t.Errorf("single kill %d is %q", i, c.ID)
		}
	}
}

// A case that was to kill while a kill is recovered from shows nothing with one kill alone.
func TestLeastKills(t *testing.T) {
	for kind, want := range map[Kind]int{Single: 1, Chain: 1, Pair: 2, Random: 2, Fault: 0, Disk: 0} {
		if got := leastKills(kind); got != want {
			t.Errorf("%s: %d kills are enough, not %d", kind, got, want)
		}
	}
}

// A secret that is passed as an argument is seen, though the process lives for a moment only.
func TestArgumentsAreSeen(t *testing.T) {
	s := &Session{arguments: map[string]bool{}}
	stop := s.lookAtArguments()
	marked := exec.CommandContext(t.Context(), "sh", "-c", "sleep 1; :", "sh", "--token=marked")
	if err := marked.Run(); err != nil {
		t.Fatal(err)
	}
	stop()
	if !strings.Contains(string(s.Seen()["a process's arguments"]), "--token=marked") {
		t.Error("an argument of a process that was there for a second was not seen")
	}
}

// The sample goes through every sort of effect in two days, and over the days through every effect and point.
func TestSampleRotates(t *testing.T) {
	effects := someEffects()
	seen := map[string]bool{}
	for day := 0; day < 400; day += 2 {
		one, other := sample(effects, day), sample(effects, day+1)
		if sorts := 1 + len(Stages()); len(one)+len(other) != sorts || len(one) == 0 || len(other) == 0 {
			t.Fatalf("days %d and %d: %d sorts, kills %v and %v", day, day+1, sorts, one, other)
		}
		for _, k := range slices.Concat(one, other) {
			seen[k] = true
		}
	}
	for _, e := range effects {
		for _, p := range chainPoints(e.Key) {
			if !seen[kill(p, e.Key)] {
				t.Errorf("no day has %s %s", p, e.Key)
			}
		}
	}
}

// TestMutationsApply holds the mutations to the code: each text that one replaces is there once.
func TestMutationsApply(t *testing.T) {
	root, err := Source(".")
	if abs, absErr := filepath.Abs("."); absErr == nil {
		root, err = Source(abs)
	}
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range Mutations() {
		if names[m.Name] {
			t.Errorf("two mutations are called %q", m.Name)
		}
		names[m.Name] = true
		data, err := os.ReadFile(filepath.Join(root, m.File))
		if n := strings.Count(string(data), m.Old); err != nil || n != 1 || m.Old == m.New {
			t.Errorf("mutation %q is stale: its text is %d times in %s (%v)", m.Name, n, m.File, err)
		}
		if _, err := regexp.Compile(m.Run); err != nil {
			t.Error(err)
		}
	}
	if len(names) < 10 {
		t.Errorf("only %d mutations", len(names))
	}
}

// A mutation that is caught, one that survives and one that is stale are told apart.
func TestMutationResults(t *testing.T) {
	shop := newWorkshop(t)
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"a/a.go": "package a\n\nfunc Sum(a, b int) int { return a + b } // sums\n",
		"a/a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif Sum(1, 2) != 3 {\n" +
			"\t\tt.Fatal(1)\n\t}\n}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(shop.root, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(shop.root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		old, new string
		want     MutationResult
	}{
		"caught":         {"a + b", "a - b", Caught},
		"survived":       {"// sums", "// adds", Survived},
		"not there":      {"a * b", "a", Stale},
		"no code at all": {"a + b", "a +", Stale},
	} {
		m := Mutation{Name: name, File: "a/a.go", Package: "a", Old: tc.old, New: tc.new}
		if result, why := shop.try(t.Context(), m); result != tc.want || why == "" {
			t.Errorf("%s: %s (%s), want %s", name, result, why, tc.want)
		}
	}
	if data, err := os.ReadFile(filepath.Join(shop.root, "a/a.go")); err != nil ||
		!strings.Contains(string(data), "a + b } // sums") {
		t.Errorf("afterwards the code is %s, %v", data, err)
	}
}

func newWorkshop(t *testing.T) workshop {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "mutations")
	g, err := startGuard("", folderScript, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.end(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the copy of the code is left: %v", err)
		}
	})
	return workshop{filepath.Join(dir, "copy"), g}
}

// guardChild is a process that stands for a suite: it opens a session, starts a run, says so, and waits to be killed.
const guardChild = "SLIPWAY_CRASH_GUARD_CHILD"

func TestGuardChild(t *testing.T) {
	dir := os.Getenv(guardChild)
	if dir == "" {
		t.Skip("it is started by TestGuard")
	}
	s, err := Open(filepath.Join(dir, "bootstrap"), dir, filepath.Join(dir, "state"), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Do(context.Background(), Run{Args: []string{"all"}}); err != nil {
		t.Fatal(err)
	}
}

// TestGuard kills a suite in the middle of a run with SIGKILL: the run is killed, and the lab ends.
func TestGuard(t *testing.T) {
	dir := t.TempDir()
	lab := filepath.Join(dir, "state", "lab")
	if err := os.MkdirAll(lab, 0o700); err != nil {
		t.Fatal(err)
	}
	// The command: `all` starts something that stands for the lab in a session of its
	// own, and goes on; `lab down` ends that.
	script := fmt.Sprintf(`#!/bin/sh
if [ "$1" = all ]; then
	echo "$@" >%[1]s/started
	setsid sleep 300 & echo $! >%[1]s/lab.lock
	echo $$ >%[1]s/run
	exec sleep 300
fi
kill "$(cat %[1]s/lab.lock)"
echo "$@" >%[1]s/asked
`, lab)
	if err := os.WriteFile(filepath.Join(dir, "bootstrap"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	suite := exec.Command(os.Args[0], "-test.run=^TestGuardChild$")
	suite.Env = append(os.Environ(), guardChild+"="+dir)
	if err := suite.Start(); err != nil {
		t.Fatal(err)
	}
	pid := func(name string) (pid int) {
		data, _ := os.ReadFile(filepath.Join(lab, name)) // not there yet: 0
		_, _ = fmt.Fscan(bufio.NewReader(strings.NewReader(string(data))), &pid)
		return pid
	}
	await(t, "the run to be at work", func() bool { return pid("run") > 0 && pid("lab.lock") > 0 })
	run, daemon := pid("run"), pid("lab.lock")
	started, err := os.ReadFile(filepath.Join(lab, "started"))
	if until := fmt.Sprintf("--lab-until-gone %d", suite.Process.Pid); err != nil ||
		!strings.Contains(string(started), until) {
		t.Errorf("a lab that is only just starting would outlive the suite: the run was started with %q (%v), without %s",
			started, err, until)
	}
	if err := suite.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = suite.Wait() // it was killed
	await(t, "the run to be dead", func() bool { return gone(run) })
	await(t, "the lab to be ended", func() bool { return gone(daemon) })
	await(t, "lab down to be asked of the right folder", func() bool {
		asked, _ := os.ReadFile(filepath.Join(lab, "asked")) // not there yet: empty
		return strings.TrimSpace(string(asked)) == "lab down --state-dir "+filepath.Join(dir, "state")
	})
}

func TestWorkshopChild(t *testing.T) {
	dir := os.Getenv(guardChild)
	if dir == "" {
		t.Skip("it is started by TestMutationsEndWithTheSuite")
	}
	g, err := startGuard("", folderScript, dir)
	if err != nil {
		t.Fatal(err)
	}
	// A test that has started something, and hangs.
	out, err := workshop{dir, g}.run(t.Context(), dir, "sh", "-c", "sleep 300 & echo $! >child; echo $$ >test; wait")
	t.Fatalf("it ended: %s, %v", out, err)
}

// A suite that is killed while it tries a mutation leaves neither the tests nor the copy of the code behind.
func TestMutationsEndWithTheSuite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mutations")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	suite := exec.Command(os.Args[0], "-test.run=^TestWorkshopChild$")
	suite.Env = append(os.Environ(), guardChild+"="+dir)
	if err := suite.Start(); err != nil {
		t.Fatal(err)
	}
	pid := func(name string) (pid int) {
		data, _ := os.ReadFile(filepath.Join(dir, name)) // not there yet: 0
		_, _ = fmt.Sscan(string(data), &pid)
		return pid
	}
	await(t, "the mutation's tests to be at work", func() bool { return pid("child") > 0 && pid("test") > 0 })
	processes := []int{pid("child"), pid("test")}
	if err := suite.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = suite.Wait() // it was killed
	for _, p := range processes {
		await(t, "the tests to be dead", func() bool { return gone(p) })
	}
	await(t, "the copy of the code to be gone", func() bool {
		_, err := os.Stat(dir)
		return errors.Is(err, os.ErrNotExist)
	})
}

// gone tells whether a process has ended; one that nobody has waited for yet has.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, ok := strings.Cut(string(data), ") ")
	return ok && strings.HasPrefix(state, "Z")
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestCount(t *testing.T) {
	effects := []Effect{{Stage: "image", Key: "a b c#1"}, {Stage: "image", Key: "a b d#1"}}
	cases := []Case{{ID: "1", Kind: Single}, {ID: "2", Kind: Chain}, {ID: "3", Kind: Chain}, {ID: "4", Kind: Pair},
		{ID: "5", Kind: Pair}}
	l := &Ledger{Entries: []Entry{
		{Case: "1", Kind: Single, Result: Good, Covered: []string{"before a b c#1"}, Kills: 1, Resumed: 12, Rest: 10},
		{Case: "2", Kind: Chain, Result: Good, Covered: []string{"before a b c#1", "applied a b c#1"}, Kills: 2},
		{Case: "3", Kind: Chain, Result: Bad, Covered: []string{"before a b d#1"}, Kills: 1},
		{Case: "4", Kind: Pair, Result: Missed},
	}}
	f := Count(effects, cases, l)
	if f.Effects != 2 || f.Touched != 1 || f.Points != 2 || f.Singly != 1 || f.Kills != 4 || f.Missed != 1 ||
		len(f.Failed) != 1 || f.Slower != 2 {
		t.Errorf("figures are %+v", f)
	}
	if f.Cases[Chain] != 1 || f.Of[Chain] != 2 || f.Of[Pair] != 2 {
		t.Errorf("cases are %v of %v", f.Cases, f.Of)
	}
	var out strings.Builder
	if err := f.Print(&out); err != nil || !strings.Contains(out.String(), "1 good of 2") {
		t.Errorf("%s, %v", out.String(), err)
	}
}

func TestShiftYears(t *testing.T) {
	journal := []byte("{\n  \"updated\": \"2026-05-04T12:00:00Z\",\n  \"sum\": \"sha256:abc\"\n}")
	if got := string(shiftYears(1)(slices.Clone(journal))); got != "{\n  \"updated\": \"2027-05-04T12:00:00Z\"\n}" {
		t.Errorf("got %s", got)
	}
}

// What a failed case leaves is overwritten by the next one's lab, but for its logs.
func TestKeepLogs(t *testing.T) {
	s := &Suite{Session: &Session{State: t.TempDir()}, Dir: t.TempDir()}
	for _, name := range []string{"lab/logs/k8s/etcd.log", "runs/1/events.jsonl", "runs/1/log", "kubeconfig",
		"lab/servers/1/etcd/member.db"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(s.State, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.State, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	into, err := s.keepLogs(Case{ID: "single pivot: saved workload create services/a/b#1"})
	if err != nil || filepath.Dir(filepath.Dir(into)) != s.Dir {
		t.Fatalf("kept in %s: %v", into, err)
	}
	for name, want := range map[string]string{
		"lab/logs/k8s/etcd.log": "lab/logs/k8s/etcd.log", "runs/1/events.jsonl": "runs/1/events.jsonl",
		"runs/1/log": "runs/1/log", "kubeconfig": "", "lab/servers/1/etcd/member.db": "",
	} {
		if is, _ := os.ReadFile(filepath.Join(into, name)); string(is) != want {
			t.Errorf("%s holds %q", name, is)
		}
	}
}
