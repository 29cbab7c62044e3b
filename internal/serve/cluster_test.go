package serve

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

const secret = "s3cr3t-of-a-token-s3cr3t"

func options(t *testing.T, dir string) clusterOptions {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	hide := &redact.Redactor{}
	hide.Learn(secret)
	state := statedir.Dir(filepath.Join(dir, "state"))
	return clusterOptions{Name: "desk", Dir: dir, State: state, Environment: statedir.EnvironmentLab, Executable: self,
		Arguments: []string{"--state-dir", string(state)}, Env: commandEnv(secretVariable + "=" + secret),
		Targets: targetsOfCommand(), Hide: hide, Log: slog.New(slog.DiscardHandler)}
}

func opened(t *testing.T, dir string) *cluster {
	t.Helper()
	c, err := openCluster(t.Context(), options(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func closeCluster(t *testing.T, c *cluster) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// until waits until a run is in a state.
func until(t *testing.T, c *cluster, id string, is func(Run) bool) Run {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		r, err := c.Find(id)
		if err == nil && is(r) {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("run %s is %+v, %v", id, r, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// refusedWith reports whether an error is a refusal with a status.
func refusedWith(err error, status int) bool {
	var p *problem
	return errors.As(err, &p) && p.status == status
}

func start(t *testing.T, c *cluster, target string) Run {
	t.Helper()
	r, err := c.Start([]string{target}, "someone")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestARunIsStartedAndEnds(t *testing.T) {
	c := opened(t, t.TempDir())
	r := until(t, c, start(t, c, quickTarget).ID, inState(Finished))
	if r.Run == "" || r.By != "someone" || r.Steps != (Counts{Wanted: 2, Done: 2}) || r.Ended == nil || r.Resumable || r.Cancel {
		t.Errorf("%+v", r)
	}
	if by, err := c.Find(r.Run); err != nil || by.ID != r.ID {
		t.Errorf("by its id in the state folder it is %+v, %v", by, err)
	}
	failed := until(t, c, start(t, c, failingTarget).ID, inState(Failed))
	if failed.Run != "" || !strings.Contains(failed.Message, "the configuration is wrong: [hidden]") || !failed.Resumable {
		t.Errorf("%+v", failed)
	}
	if all, err := c.Runs(); err != nil || len(all) != 2 || all[0].ID != failed.ID {
		t.Errorf("all runs: %+v, %v", all, err)
	}
	for _, wrong := range [][]string{nil, {"destroy"}, {"--yes"}, {quickTarget, quickTarget}} {
		if _, err := c.Start(wrong, "someone"); !refusedWith(err, http.StatusBadRequest) {
			t.Errorf("targets %q: %v", wrong, err)
		}
	}
	closeCluster(t, c)
}

func TestOneRunAtATimeAndCancel(t *testing.T) {
	o := options(t, t.TempDir())
	log := &bytes.Buffer{}
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	c, err := openCluster(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, c, stuckTarget)
	until(t, c, r.ID, waits)
	if _, err := c.Start([]string{quickTarget}, "someone"); !refusedWith(err, http.StatusConflict) {
		t.Errorf("a second run: %v", err)
	}
	if _, err := c.Resume(r.ID, "someone"); !refusedWith(err, http.StatusConflict) {
		t.Errorf("resume of a run at work: %v", err)
	}
	for range 2 { // the second does not count as a second Ctrl-C
		if asked, err := c.Cancel(r.ID, "other", false); err != nil || !asked.Cancelled || asked.State != Running {
			t.Fatalf("%+v, %v", asked, err)
		}
	}
	c.mu.Lock() // others write into the log while they hold it
	signals := strings.Count(log.String(), "run cancelled")
	c.mu.Unlock()
	if signals != 1 {
		t.Errorf("%d signals were sent:\n%s", signals, log)
	}
	until(t, c, r.ID, func(r Run) bool { // two signals that come at once are one
		path, _ := c.Events(r)
		data, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(data), "does not end yet")
	})
	if _, err := c.Cancel(r.ID, "other", true); err != nil {
		t.Fatal(err)
	}
	ended := until(t, c, r.ID, inState(Cancelled))
	if !ended.Resumable {
		t.Errorf("%+v", ended)
	}
	if _, err := c.Cancel(r.ID, "other", false); !refusedWith(err, http.StatusConflict) {
		t.Errorf("cancel of a run that has ended: %v", err)
	}
	if _, err := c.Cancel("20260101T000000.000Z-1", "other", false); !refusedWith(err, http.StatusNotFound) {
		t.Errorf("cancel of an unknown run: %v", err)
	}
	if _, resumed, err := c.ResumeInterrupted(); resumed || err != nil {
		t.Errorf("what a person cancelled is resumed: %t, %v", resumed, err)
	}
	closeCluster(t, c)
}

// A run that works while serve does not run is found again, and its end is known although serve did not wait for it.
func TestARunOutlivesServe(t *testing.T) {
	dir := t.TempDir()
	c := opened(t, dir)
	r := start(t, c, waitingTarget)
	until(t, c, r.ID, waits)
	closeCluster(t, c)
	again := opened(t, dir)
	if found := until(t, again, r.ID, waits); !found.Cancel {
		t.Errorf("%+v", found)
	}
	if _, resumed, err := again.ResumeInterrupted(); resumed || err != nil {
		t.Errorf("a run at work is resumed: %t, %v", resumed, err)
	}
	if err := os.WriteFile(filepath.Join(dir, gate), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := until(t, again, r.ID, inState(Finished)); r.Steps.Done != 2 {
		t.Errorf("%+v", r)
	}
	again.working.Wait() // the follower has written the end down
	closeCluster(t, again)
	third := opened(t, dir)
	if r, err := third.Find(r.ID); err != nil || r.State != Finished {
		t.Errorf("%+v, %v", r, err)
	}
	closeCluster(t, third)
}

// A run that was killed with serve is interrupted, and resumed a bounded number of times; its process's id counts for
// nothing once another process has it.
func TestAKilledRunIsResumed(t *testing.T) {
	dir := t.TempDir()
	c := opened(t, dir)
	r := start(t, c, waitingTarget)
	until(t, c, r.ID, waits)
	closeCluster(t, c)
	killRun(t, c, r.ID)
	for i := range resumedInARow {
		c = opened(t, dir)
		before, err := c.Find(r.ID)
		if err != nil || before.State != Interrupted || !before.Resumable || before.Ended == nil {
			t.Fatalf("resume %d: the killed run is %+v, %v", i, before, err)
		}
		next, resumed, err := c.ResumeInterrupted()
		if err != nil || !resumed || next.Resumes != r.ID || next.By != byItself || !slices.Equal(next.Targets, r.Targets) {
			t.Fatalf("resume %d: %+v, %t, %v", i, next, resumed, err)
		}
		until(t, c, next.ID, waits)
		if before, err = c.Find(r.ID); err != nil || before.ResumedBy != next.ID || before.Resumable {
			t.Fatalf("resume %d: the run that was resumed is %+v, %v", i, before, err)
		}
		closeCluster(t, c)
		killRun(t, c, next.ID)
		r = next
	}
	c = opened(t, dir)
	if next, resumed, err := c.ResumeInterrupted(); resumed || err != nil {
		t.Errorf("it is resumed again and again: %+v, %v", next, err)
	}
	if err := os.WriteFile(filepath.Join(dir, gate), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	byHand, err := c.Resume(r.ID, "someone")
	if err != nil {
		t.Fatal(err)
	}
	until(t, c, byHand.ID, inState(Finished))
	if _, err := c.Resume(r.ID, "someone"); !refusedWith(err, http.StatusConflict) {
		t.Errorf("resume of a run behind which there is another: %v", err)
	}
	closeCluster(t, c)
}

// killRun kills the process of a run, and waits until it is gone.
func killRun(t *testing.T, c *cluster, id string) {
	t.Helper()
	c.mu.Lock()
	r, ok := c.record(id)
	c.mu.Unlock()
	if !ok || !isProcess(r.PID, r.Process) {
		t.Fatalf("run %s has no process: %+v", id, r)
	}
	if err := syscall.Kill(r.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); isProcess(r.PID, r.Process); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is not gone")
		}
	}
	c.working.Wait()
	// As if serve had been killed with it: what it learned of the end is not written down.
	r.Ended, r.Exit, r.Signal, r.Message = time.Time{}, nil, "", ""
	if err := c.store.Save(r); err != nil {
		t.Fatal(err)
	}
}

// A record whose process id another process has now, here or on another machine, is of a run that was interrupted, and that process is left alone.
func TestAnotherProcessWithTheSameID(t *testing.T) {
	dir := t.TempDir()
	other := exec.Command("sleep", "60")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = other.Process.Kill(), other.Wait() }()
	c := opened(t, dir)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	r := record{ID: "20260101T000000.000Z-aaaaaaaa", Targets: []string{quickTarget}, Host: host, PID: other.Process.Pid,
		Started: time.Now().Add(-time.Hour), Process: time.Now().Add(-time.Hour)}
	if err := c.store.Save(r); err != nil {
		t.Fatal(err)
	}
	began, _ := processStarted(other.Process.Pid)
	elsewhere := record{ID: "20260101T000000.000Z-bbbbbbbb", Targets: []string{quickTarget}, Host: "other-" + host,
		PID: other.Process.Pid, Started: began, Process: began}
	if err := c.store.Save(elsewhere); err != nil {
		t.Fatal(err)
	}
	closeCluster(t, c)
	c = opened(t, dir)
	for _, id := range []string{r.ID, elsewhere.ID} {
		if found, err := c.Find(id); err != nil || found.State != Interrupted {
			t.Errorf("%+v, %v", found, err)
		}
		if _, err := c.Cancel(id, "someone", false); !refusedWith(err, http.StatusConflict) {
			t.Errorf("%v", err)
		}
	}
	if !processBefore(other.Process.Pid, time.Now()) {
		t.Error("the other process is gone")
	}
	closeCluster(t, c)
}

// A rehearsal that was interrupted is not continued at Hetzner.
func TestARehearsalStaysOne(t *testing.T) {
	dir := t.TempDir()
	c := opened(t, dir)
	r := start(t, c, waitingTarget)
	until(t, c, r.ID, waits)
	c.Interrupt(30 * time.Second)
	until(t, c, r.ID, inState(Interrupted))
	closeCluster(t, c)
	o := options(t, dir)
	o.Environment = statedir.EnvironmentHetzner
	c, err := openCluster(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if next, resumed, err := c.ResumeInterrupted(); resumed || err != nil {
		t.Errorf("it is resumed: %+v, %v", next, err)
	}
	if _, err := c.Resume(r.ID, "someone"); !refusedWith(err, http.StatusConflict) {
		t.Errorf("it is resumed by hand: %v", err)
	}
	if found, err := c.Find(r.ID); err != nil || found.Resumable || found.Environment != statedir.EnvironmentLab {
		t.Errorf("%+v, %v", found, err)
	}
	closeCluster(t, c)
}

func TestInterruptAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	c := opened(t, dir)
	r := start(t, c, waitingTarget)
	until(t, c, r.ID, waits)
	c.Interrupt(30 * time.Second)
	until(t, c, r.ID, inState(Interrupted))
	closeCluster(t, c)
	c = opened(t, dir)
	if _, resumed, err := c.ResumeInterrupted(); !resumed || err != nil {
		t.Errorf("a run that was interrupted with serve is not resumed: %v", err)
	}
	c.Interrupt(30 * time.Second)
	c.working.Wait()
	closeCluster(t, c)
}

// A run that does not end keeps no run of another cluster from being interrupted.
func TestInterruptAllAtOnce(t *testing.T) {
	first, second := opened(t, t.TempDir()), opened(t, t.TempDir())
	stuck, waiting := start(t, first, stuckTarget), start(t, second, waitingTarget)
	until(t, first, stuck.ID, waits)
	until(t, second, waiting.ID, waits)
	ended := make(chan struct{})
	go func() {
		interruptAll([]*cluster{first, second}, 5*time.Minute)
		close(ended)
	}()
	defer func() {
		for over := false; !over; {
			_, _ = first.Cancel(stuck.ID, "someone", true)
			select {
			case <-ended:
				over = true
			case <-time.After(50 * time.Millisecond):
			}
		}
		closeCluster(t, first)
		closeCluster(t, second)
	}()
	until(t, second, waiting.ID, inState(Interrupted))
	select {
	case <-ended:
		t.Error("a run still works, and is not waited for")
	default:
	}
}

func TestAFolderIsServedOnce(t *testing.T) {
	dir := t.TempDir()
	c := opened(t, dir)
	_, err := openCluster(t.Context(), options(t, dir))
	if bad := (*usage.Error)(nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), "serves cluster desk already") {
		t.Errorf("%v", err)
	}
	closeCluster(t, c)
}

func TestABrokenRecordHidesNoOther(t *testing.T) {
	dir := t.TempDir()
	c := opened(t, dir)
	r := until(t, c, start(t, c, quickTarget).ID, inState(Finished))
	c.working.Wait()
	closeCluster(t, c)
	broken := c.State.Path(filepath.Join(statedir.ServeFolder, "runs", "20260101T000000.000Z-bbbbbbbb.json"))
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	c = opened(t, dir)
	if _, broken := c.store.Load(); broken == nil {
		t.Error("nothing is said of it")
	}
	if all, err := c.Runs(); err != nil || len(all) != 1 || all[0].ID != r.ID {
		t.Errorf("%+v, %v", all, err)
	}
	closeCluster(t, c)
}

// A run of a terminal is shown, is not started over, and is not ended from here.
func TestARunFromElsewhere(t *testing.T) {
	dir := t.TempDir()
	c := opened(t, dir)
	cmd := exec.Command(c.Executable, waitingTarget, "--state-dir", string(c.State))
	cmd.Dir, cmd.Env = dir, commandEnv()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var r Run
	for deadline := time.Now().Add(30 * time.Second); !waits(r); time.Sleep(5 * time.Millisecond) {
		if all, err := c.Runs(); err == nil && len(all) > 0 {
			r = all[0]
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", r)
		}
	}
	if r.By != "" || r.Cancel {
		t.Errorf("%+v", r)
	}
	if _, err := c.Start([]string{quickTarget}, "someone"); !refusedWith(err, http.StatusConflict) {
		t.Errorf("a second run: %v", err)
	}
	if _, err := c.Cancel(r.ID, "someone", false); !refusedWith(err, http.StatusConflict) {
		t.Errorf("cancel: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if r, err := c.Find(r.ID); err != nil || r.State != Interrupted || !r.Resumable {
		t.Errorf("%+v, %v", r, err)
	}
	if _, resumed, _ := c.ResumeInterrupted(); resumed {
		t.Error("a run that a person started elsewhere is resumed without one")
	}
	closeCluster(t, c)
}

func TestAsk(t *testing.T) {
	c := opened(t, t.TempDir())
	within := 20 * time.Second
	if out, err := c.Ask(t.Context(), within, "doctor"); err != nil || !strings.Contains(string(out), `"failed":1`) {
		t.Errorf("a document with an exit code: %s, %v", out, err)
	}
	_, err := c.Ask(t.Context(), within, failingTarget)
	if asked := (*problem)(nil); !errors.As(err, &asked) || asked.exit != 2 || strings.Contains(asked.message, secret) {
		t.Errorf("%v", err)
	}
	if _, err := c.Ask(t.Context(), within, "large"); err == nil || !strings.Contains(err.Error(), "more than 8 MB") {
		t.Errorf("%.200v", err)
	}
	if _, err := c.Ask(t.Context(), 50*time.Millisecond, "slow"); !refusedWith(err, http.StatusGatewayTimeout) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Ask(ctx, within, "slow"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	closeCluster(t, c)
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines")
	if lines, next, err := tail(path, 7); err != nil || len(lines) != 0 || next != 0 {
		t.Errorf("no file: %q %d %v", lines, next, err)
	}
	if err := os.WriteFile(path, []byte("one\ntwo\nhal"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		from, next int64
		first      string
		lines      int
	}{
		"beginning":         {0, 8, "one\n", 2},
		"behind a line":     {4, 8, "two\n", 1},
		"end":               {8, 8, "", 0},
		"inside a line":     {2, 8, "one\n", 2},
		"behind the end":    {99, 8, "one\n", 2},
		"before everything": {-1, 8, "one\n", 2},
	} {
		lines, next, err := tail(path, tc.from)
		if err != nil || next != tc.next || len(lines) != tc.lines || len(lines) > 0 && string(lines[0]) != tc.first {
			t.Errorf("%s: %q %d %v", name, lines, next, err)
		}
	}
}
