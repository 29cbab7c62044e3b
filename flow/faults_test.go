package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

// diskFaults are what a machine does to a save: at one of its calls, before or
// after the call has changed something.
var diskFaults = map[string]struct {
	call string
	when when
	err  error
}{
	"the disk is full":                         {"write", before, syscall.ENOSPC},
	"the disk fills up in the middle":          {"write", half, syscall.ENOSPC},
	"a short write":                            {"write", half, io.ErrShortWrite},
	"no new file":                              {"create", before, syscall.EROFS},
	"the file's flush fails":                   {"sync", before, syscall.EIO},
	"the file's flush fails and has flushed":   {"sync", after, syscall.EIO},
	"the rename fails":                         {"rename", before, syscall.EACCES},
	"the rename fails and has renamed":         {"rename", after, syscall.EIO},
	"the folder's flush fails":                 {"sync the folder", before, syscall.EIO},
	"the folder's flush fails, having flushed": {"sync the folder", after, syscall.EIO},
	"no space for a change":                    {"append", before, syscall.ENOSPC},
	"the disk fills up in a change":            {"append", half, syscall.ENOSPC},
	"a change is written, and fails":           {"append", after, syscall.EIO},
	"a change's flush fails":                   {"sync the log", before, syscall.EIO},
	"a change's flush fails, having flushed":   {"sync the log", after, syscall.EIO},
}

// Whatever a save fails with, and whichever save it is, the run says so and stops, and the next one resumes and creates
// nothing twice; also when the power fails in between. Only the snapshot at the run's end may fail: what it would say
// is on the disk.
func TestFaultsOfTheDisk(t *testing.T) {
	const changes = 8 // two of each of the diamond's steps, of which the first comes with a snapshot
	for name, fault := range diskFaults {
		appending := fault.call == "append" || fault.call == "sync the log"
		times := 2 // the first change, and the run's end
		if appending {
			times = changes - 1
		}
		for at := range times {
			t.Run(fmt.Sprintf("%s, time %d", name, at+1), func(t *testing.T) {
				var world sync.Map
				var made ledger
				g, d, n := diamond(&world, &made), newSimDisk(), 0
				d.moment = func(call string, w when) error {
					if call != fault.call || w != fault.when {
						return nil
					}
					if n++; n-1 != at {
						return nil
					}
					return &fs.PathError{Op: call, Path: "journal.json.tmp", Err: fault.err}
				}
				j := flow.FolderOn(simDir, d)
				_, err := g.Run(t.Context(), flow.Options{Journal: j, Parallel: 1})
				if n <= at {
					t.Fatalf("the fault did not happen: %d calls", n)
				}
				if atTheEnd := !appending && at == 1; atTheEnd {
					if err != nil {
						t.Fatalf("the run is done, and its error is %v", err)
					}
				} else {
					wantSaveError(t, err, fault.err)
				}
				d.powerFails(false, 0.5)
				mustLoad(t, j)
				mustRun(t, g, flow.Options{Journal: j})
				wantLines(t, made.sorted(), "a", "b", "c", "d")
			})
		}
	}
}

func wantSaveError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v", err)
	}
	errorAs[*flow.StepError](t, err)
	for _, say := range []string{"write the journal in " + simDir, want.Error(), "is kept", "run again"} {
		if !strings.Contains(err.Error(), say) {
			t.Errorf("error %q does not say %q", err, say)
		}
	}
}

// lockedOut is a disk on which nothing can be written.
type lockedOut struct{ *simDisk }

func (lockedOut) Lock(context.Context, string) (func() error, error) {
	return nil, &fs.PathError{Op: "open", Path: "state/journal.lock", Err: syscall.EROFS}
}

// In a folder that cannot be written no step begins, and it can be read.
func TestAReadOnlyFolder(t *testing.T) {
	var world sync.Map
	var made ledger
	g, d := diamond(&world, &made), newSimDisk()
	mustRun(t, g, flow.Options{Journal: flow.FolderOn(simDir, d)})
	made.take()
	world.Clear()
	_, err := g.Run(t.Context(), flow.Options{Journal: flow.FolderOn(simDir, lockedOut{d})})
	if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), "can be written") {
		t.Errorf("error is %v", err)
	}
	wantLines(t, made.take())
	if all, err := g.Check(t.Context(), flow.FolderOn(simDir, lockedOut{d})); err != nil ||
		all[0].Verdict.Answer() != flow.AnswerGone {
		t.Errorf("it cannot be looked at: %+v, %v", all, err)
	}
}

// The machine's own full disk, where it has a stand-in for one.
func TestAFullDiskForReal(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("this machine has no /dev/full")
	}
	dir := t.TempDir()
	temporary := filepath.Join(dir, "journal.json.tmp")
	var world sync.Map
	var made ledger
	g, j := diamond(&world, &made), flow.Folder(dir)
	mustRun(t, g, flow.Options{Journal: j, Targets: []string{"b"}})
	if err := os.Symlink("/dev/full", temporary); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Run(t.Context(), flow.Options{Journal: j}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("error is %v", err)
	}
	wantLines(t, made.sorted(), "a", "b")
	if err := os.Remove(temporary); err != nil {
		t.Fatal(err)
	}
	mustRun(t, g, flow.Options{Journal: j})
	wantLines(t, made.sorted(), "c", "d")
}

// A clock that jumps, back or forth, changes what records say of time, and
// nothing else: no step is run for it, and none is left out.
func TestAClockThatJumps(t *testing.T) {
	var world sync.Map
	var made ledger
	g, j := diamond(&world, &made), flow.Memory()
	mustRun(t, g, flow.Options{Journal: j})
	made.take()
	for name, at := range map[string]time.Time{
		"the future": time.Now().AddDate(40, 0, 0), "the past": time.Unix(0, 0), "no time at all": {},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustLoad(t, j)
			s.Updated = at
			for step, rec := range s.Steps {
				rec.Started, rec.Ended = at, at.Add(-time.Hour)
				if step == "c" {
					rec.State = flow.StateStarted
				}
				s.Steps[step] = rec
			}
			if err := j.Save(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			var seen events
			report := mustRun(t, g, flow.Options{Journal: j, Observe: seen.observe})
			for _, step := range []string{"a", "b", "d"} {
				wantOutcome(t, report, step, flow.Reused)
			}
			wantOutcome(t, report, "c", flow.Ran)
			for _, e := range seen.all {
				if e.Elapsed < 0 {
					t.Errorf("%s %s took %s", e.Kind, e.Step, e.Elapsed)
				}
			}
			if rec := mustLoad(t, j).Steps["c"]; rec.Ended.Before(rec.Started) || time.Since(rec.Started) > time.Hour {
				t.Errorf("c began %s and ended %s", rec.Started, rec.Ended)
			}
			wantLines(t, made.take()) // adopted, not made again
		})
	}
}

// A journal that an earlier program wrote, without a sum, is resumed.
func TestAJournalOfBeforeTheSums(t *testing.T) {
	var l ledger
	d := newSimDisk()
	j := flow.FolderOn(simDir, d)
	mustRun(t, oneStep(&l), flow.Options{Journal: j})
	var members map[string]json.RawMessage
	if err := json.Unmarshal(d.onDisk(simDir), &members); err != nil {
		t.Fatal(err)
	}
	delete(members, "sum")
	old := flow.FolderOn(simDir, diskWith([]byte(mustJSON(t, members))))
	report := mustRun(t, oneStep(&l), flow.Options{Journal: old})
	wantOutcome(t, report, "a", flow.Reused)
}
