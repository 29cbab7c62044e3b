package flow_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

// fullSnapshot has every field of a journal.
func fullSnapshot() flow.Snapshot {
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	rec := flow.Record{
		State: flow.StateDone, Hash: strings.Repeat("0a", 32), Spec: json.RawMessage(`{"type":"cx33","count":3}`),
		Inputs: map[string]string{"image": strings.Repeat("f1", 32)}, Attempt: 2, Run: "20260301T120000.000Z-17",
		Started: at, Ended: at.Add(time.Minute), Said: "2 of 3 servers exist; \"cx33\" <is> out of stock",
		Output: json.RawMessage(`{"id":4711,"uid":"5f1c7a0e-9d0b-4e0e-8f7f-2b8f2f1f9c11","ratio":1.50,"none":null}`),
	}
	steps := map[string]flow.Record{"apply": rec}
	for _, state := range []flow.State{flow.StateStarted, flow.StateFailed} {
		other := rec
		other.State, other.Ended, other.Error = state, time.Time{}, "server 4711: größer als erlaubt"
		steps["step-"+string(state)] = other
	}
	return flow.Snapshot{Format: flow.Format, Graph: "slipway", Run: rec.Run, Updated: at, Steps: steps}
}

// diskWith has a journal with this content.
func diskWith(data []byte) *simDisk {
	d := newSimDisk()
	d.names[filepath.Join(simDir, "journal.json")] = &inode{data: data}
	return d
}

func journalOf(t testing.TB, s flow.Snapshot) []byte {
	t.Helper()
	d := newSimDisk()
	if err := flow.FolderOn(simDir, d).Save(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return d.onDisk(simDir)
}

// A bit that flips anywhere in a journal is noticed, unless the journal still
// means the same: in none of its outputs, nowhere.
func TestAFlippedBitIsNoticed(t *testing.T) {
	whole := journalOf(t, fullSnapshot())
	want, err := flow.FolderOn(simDir, diskWith(whole)).Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	noticed := 0
	for at := range len(whole) * 8 {
		data := bytes.Clone(whole)
		data[at/8] ^= 1 << (at % 8)
		got, err := flow.FolderOn(simDir, diskWith(data)).Load(t.Context())
		var corrupt *flow.CorruptError
		switch {
		case errors.As(err, &corrupt):
			noticed++
		case err != nil:
			t.Errorf("bit %d: %v", at, err)
		case !reflect.DeepEqual(got, want):
			t.Errorf("bit %d of %q is believed", at%8, whole[max(0, at/8-20):min(len(whole), at/8+20)])
		}
	}
	if noticed < len(whole)*7 {
		t.Errorf("only %d of %d bits were noticed", noticed, len(whole)*8)
	}
}

func TestSums(t *testing.T) {
	whole := string(journalOf(t, fullSnapshot()))
	at := strings.Index(whole, `,
  "sum": "`)
	if at < 0 {
		t.Fatalf("there is no sum in\n%s", whole)
	}
	bare := whole[:at] + "\n}\n"
	edited := strings.Replace(whole, "4711", "4712", 1)
	for name, tt := range map[string]struct {
		journal string
		says    string // empty: it loads
	}{
		"as written":                    {whole, ""},
		"of a program before the sums":  {bare, ""},
		"in other white space":          {strings.ReplaceAll(whole, "\n  ", "\n\t"), ""},
		"with a member of tomorrow":     {strings.Replace(bare, `"format"`, `"later": {"a": [1]}, "format"`, 1), ""},
		"edited":                        {edited, "taken out"},
		"edited, and the sum taken out": {strings.Replace(bare, "4711", "4712", 1), ""},
		"with a sum of an unknown kind": {strings.Replace(whole, "sha256:", "shake:", 1), "no sum of a kind"},
		"with an empty sum":             {bare[:len(bare)-3] + `, "sum": ""}`, "no sum of a kind"},
		"with another number":           {strings.Replace(whole, "1.50", "1.5", 1), "does not match its sum"},
		"a newer format":                {strings.Replace(bare, `"format": 1`, `"format": 2`, 1), "newer program"},
		"a newer format, another sum": {strings.Replace(strings.Replace(whole, `"format": 1`, `"format": 2`, 1),
			"sha256:", "tree:", 1), "newer program"},
		"the format itself has flipped": {strings.Replace(whole, `"format": 1`, `"format": 3`, 1),
			"does not match its sum"},
		"a step's name was taken twice": {strings.Replace(whole, `"step-started"`, `"step-failed"`, 1),
			"does not match its sum"},
		"the same twice, one after another": {whole + whole, "after top-level value"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := flow.FolderOn(simDir, diskWith([]byte(tt.journal))).Load(t.Context())
			if tt.says == "" {
				if err != nil {
					t.Errorf("it does not load: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "journal.json") {
				t.Errorf("error is %v, want something about %q", err, tt.says)
			}
		})
	}
}

// FuzzJournal reads any bytes as a journal. What loads is saved and loaded as
// the same again, and a run on it ends in good order: with its steps done, or
// with an error that says why not.
func FuzzJournal(f *testing.F) {
	whole := journalOf(f, fullSnapshot())
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte(`{"format":1,"graph":"random","steps":{"s0":{"state":"done","hash":"","output":{"step":0,"id":1}},"s1":{"state":"started"}}}`))
	f.Add([]byte(`{"format":1,"steps":{"s0":{"state":"done","hash":"x","spec":null,"output":null,"inputs":{"s0":""}}}}`))
	f.Add([]byte(`{"format":2,"steps":[]}`))
	f.Add([]byte(`{"format":1,"sum":"sha256:"}`))
	f.Add([]byte("{\n\"format\":1\n}\n99999999999999999999 00000000 {}\n"))
	changes, _ := withChanges(f, 2)
	f.Add(changes)
	f.Add(changes[:len(changes)-7])
	f.Fuzz(func(t *testing.T, data []byte) {
		j := flow.FolderOn(simDir, diskWith(data))
		s, err := j.Load(t.Context())
		if err != nil {
			var corrupt *flow.CorruptError
			var newer *flow.FormatError
			if !errors.As(err, &corrupt) && !errors.As(err, &newer) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		if err := j.Save(t.Context(), s); err != nil {
			t.Fatalf("what was loaded cannot be saved: %v", err)
		}
		again, err := j.Load(t.Context())
		if err != nil {
			t.Fatalf("what was saved cannot be loaded: %v", err)
		}
		if was, is := mustJSON(t, s), mustJSON(t, again); was != is {
			t.Fatalf("loaded as\n%s\nand again as\n%s", was, is)
		}
		runOn(t, j, s)
	})
}

// runOn runs two steps on a journal that may say anything of them.
func runOn(t *testing.T, j flow.Journal, s flow.Snapshot) {
	var l ledger
	g := flow.New("random")
	s0 := flow.Add(g, l.task("s0"))
	flow.Add(g, flow.Task[thing]{Name: "s1", Run: flow.With1(l.grow("s1"), s0), Spec: 1})
	_, err := g.Run(t.Context(), flow.Options{Journal: j})
	if other := s.Graph != "" && s.Graph != "random"; other != (err != nil) {
		t.Fatalf("the journal is of %q and the error is %v", s.Graph, err)
	}
	if err != nil {
		return
	}
	after, err := j.Load(t.Context())
	if err != nil || after.Steps["s0"].State != flow.StateDone || after.Steps["s1"].State != flow.StateDone {
		t.Fatalf("after the run: %+v, %v", after, err)
	}
	for name, rec := range s.Steps { // what is not of the graph is kept
		if _, kept := after.Steps[name]; !kept {
			t.Fatalf("the record of %q (%s) is lost", name, rec.State)
		}
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(fmt.Errorf("%w: %+v", err, v))
	}
	return string(data)
}
