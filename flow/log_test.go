package flow_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

// withChanges is the text of a journal with changes after its snapshot, as a killed run leaves it, and what it says
// after each.
func withChanges(t testing.TB, changes int) (text []byte, says []flow.Snapshot) {
	t.Helper()
	d := newSimDisk()
	j := flow.FolderOn(simDir, d).(flow.Appender)
	for i := range changes + 1 { // the first is written with a snapshot
		s := fullSnapshot()
		rec := s.Steps["apply"]
		rec.Attempt = i + 1
		s.Run, s.Steps = fmt.Sprintf("run-%d", i), map[string]flow.Record{"apply": rec, fmt.Sprintf("step-%d", i): rec}
		if err := j.Append(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		now, err := j.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		says = append(says, now)
	}
	return d.onDisk(simDir), says
}

// A change that was written in part is dropped, wherever it ends, and also where blocks of it were never written; those
// before it count.
func TestAnIncompleteChangeIsDropped(t *testing.T) {
	text, says := withChanges(t, 3)
	whole := bytes.Index(text, []byte("\n}\n")) + len("\n}\n")
	ends := []int{whole}
	for at := whole; at < len(text); at++ {
		if text[at] == '\n' {
			ends = append(ends, at+1)
		}
	}
	if len(ends) != 4 {
		t.Fatalf("the text has %d changes, want 3:\n%s", len(ends)-1, text)
	}
	for size := whole; size <= len(text); size++ {
		complete := 0
		for complete+1 < len(ends) && ends[complete+1] <= size {
			complete++
		}
		zeros := bytes.Repeat([]byte{0}, ends[min(complete+1, 3)]-size)
		for name, data := range map[string][]byte{
			"cut": text[:size], "the rest reads as zeros": append(bytes.Clone(text[:size]), zeros...),
		} {
			got, err := flow.FolderOn(simDir, diskWith(data)).Load(t.Context())
			if err != nil || !reflect.DeepEqual(got, says[complete]) {
				t.Fatalf("%s after %d bytes: %v, %+v, want change %d", name, size, err, got, complete)
			}
		}
	}
	// The beginning of the last change is on a block that was not written, its end is.
	data := bytes.Clone(text)
	copy(data[ends[2]:], make([]byte, 40))
	got, err := flow.FolderOn(simDir, diskWith(data)).Load(t.Context())
	if err != nil || !reflect.DeepEqual(got, says[2]) {
		t.Errorf("a last change that begins with zeros: %v", err)
	}
}

// A bit that flips in a change is noticed: no change is dropped for it.
func TestAFlippedBitInAChangeIsNoticed(t *testing.T) {
	text, says := withChanges(t, 2)
	whole := bytes.Index(text, []byte("\n}\n")) + len("\n}\n")
	lastFeed := len(text) - 1
	for at := whole * 8; at < len(text)*8; at++ {
		data := bytes.Clone(text)
		data[at/8] ^= 1 << (at % 8)
		got, err := flow.FolderOn(simDir, diskWith(data)).Load(t.Context())
		var corrupt *flow.CorruptError
		var newer *flow.FormatError
		switch {
		case errors.As(err, &corrupt), errors.As(err, &newer):
		case err != nil || !reflect.DeepEqual(got, says[2]) || at/8 == lastFeed:
			t.Fatalf("bit %d of byte %d (%.30q) is not noticed: %v", at%8, at/8, data[at/8:], err)
		}
	}
}

func TestDamagedChanges(t *testing.T) {
	text, _ := withChanges(t, 3)
	lines := strings.SplitAfter(string(text), "\n")
	n := len(lines) - 1 // the last is empty
	head, one, two, three := strings.Join(lines[:n-3], ""), lines[n-3], lines[n-2], lines[n-1]
	for name, damaged := range map[string]string{
		"one is missing":               head + one + three,
		"the first is missing":         head + two + three,
		"two are exchanged":            head + two + one + three,
		"one is there twice":           head + one + one + two,
		"one is cut in the middle":     head + one[:len(one)/2] + two + three,
		"cut, and the last torn":       head + one[:len(one)/2] + two + three[:9],
		"its line feed is lost":        head + strings.TrimSuffix(one, "\n") + "x" + two[:20],
		"text after it":                head + one + "hello\n",
		"an edited record, not summed": head + strings.Replace(one, "4711", "4712", 1),
	} {
		t.Run(name, func(t *testing.T) {
			d := diskWith([]byte(damaged))
			_, err := flow.FolderOn(simDir, d).Load(t.Context())
			if e := errorAs[*flow.CorruptError](t, err); !strings.Contains(e.Error(), "move it away") {
				t.Errorf("error is %v", err)
			}
			var l ledger
			if _, err := oneStep(&l).Run(t.Context(), flow.Options{Journal: flow.FolderOn(simDir, d)}); err == nil {
				t.Error("a run does not refuse it")
			}
			wantLines(t, l.take())
			if string(d.names[filepath.Join(simDir, "journal.json")].data) != damaged {
				t.Error("the file is changed")
			}
		})
	}
}

// Killed, or without power, at any moment of any of its calls, a run leaves a journal that loads, has every step whose
// work began and, where the run ended well, every step as done; the next run finishes it.
func TestKilledAtAnyMomentOfTheDisk(t *testing.T) {
	for at := 1; ; at++ {
		over := false
		for _, files := range []float64{-1, 0, 0.5, 1} { // -1: the power stays
			for _, names := range []bool{false, true} {
				var world sync.Map
				var made ledger
				g, d, n := diamond(&world, &made), newSimDisk(), 0
				d.moment = func(string, when) error {
					if n++; n >= at {
						return errDied
					}
					return nil
				}
				_, err := g.Run(t.Context(), flow.Options{Journal: flow.FolderOn(simDir, d), Parallel: 1})
				over = n < at
				d.moment = func(string, when) error { return nil }
				if files >= 0 {
					d.powerFails(names, files)
				}
				after := flow.FolderOn(simDir, d)
				s, loadErr := after.Load(t.Context())
				if loadErr != nil {
					t.Fatalf("moment %d, files %v, names %v: %v", at, files, names, loadErr)
				}
				for _, name := range made.sorted() { // "started" was on the disk before the work
					if s.Steps[name].State == "" {
						t.Fatalf("moment %d: %s was made and is not recorded", at, name)
					}
				}
				if err == nil {
					for name, rec := range s.Steps {
						if rec.State != flow.StateDone {
							t.Fatalf("moment %d: the run ended well, and %s is %s", at, name, rec.State)
						}
					}
				}
				mustRun(t, g, flow.Options{Journal: after})
				for name, rec := range mustLoad(t, after).Steps {
					if rec.State != flow.StateDone {
						t.Fatalf("moment %d: after the next run %s is %s", at, name, rec.State)
					}
				}
			}
		}
		if over {
			if at < 11+7*5+11 {
				t.Errorf("a run has %d moments only", at-1)
			}
			return
		}
	}
}

// A reader without the lock, beside a run that appends, sees what one of its changes left.
func TestReadingBesideARunThatAppends(t *testing.T) {
	dir := t.TempDir()
	var l ledger
	g := chainOf(300, &l)
	ended := make(chan error, 1)
	go func() {
		_, err := g.Run(context.WithoutCancel(t.Context()), flow.Options{Journal: flow.Folder(dir)})
		ended <- err
	}()
	known := 0
	for {
		s, err := flow.Folder(dir).Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Steps) < known {
			t.Fatalf("after %d steps there are %d", known, len(s.Steps))
		}
		known = len(s.Steps)
		for i := range known - 1 { // in a chain each step before the last is done
			if state := s.Steps[fmt.Sprintf("s%d", i)].State; state != flow.StateDone {
				t.Fatalf("of %d steps s%d is %q", known, i, state)
			}
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
	}
}

// The journals of each form that a release wrote are read: a snapshot alone, and one with changes after it.
func TestGoldenForms(t *testing.T) {
	text, says := withChanges(t, 3)
	for file, now := range map[string][]byte{
		"snapshot.json": journalOf(t, fullSnapshot()),
		"changes.json":  text,
	} {
		path := filepath.Join("testdata", file)
		golden, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(golden, now) {
			t.Errorf("%s is not what is written today: keep it, and add one of today's form", path)
		}
		want := fullSnapshot()
		if file == "changes.json" {
			want = says[3]
		}
		got, err := flow.FolderOn(simDir, diskWith(golden)).Load(t.Context())
		if err != nil || mustJSON(t, got) != mustJSON(t, want) && file == "changes.json" || len(got.Steps) != len(want.Steps) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
