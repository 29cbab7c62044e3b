package flow_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

func oneStep(l *ledger) *flow.Graph {
	g := flow.New("test")
	flow.Add(g, l.task("a"))
	return g
}

func TestFolderIsClosedToOthers(t *testing.T) {
	var l ledger
	dir := filepath.Join(t.TempDir(), "deep", "state")
	mustRun(t, oneStep(&l), flow.Options{Journal: flow.Folder(dir)})
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if info, err := os.Stat(d); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", d, info.Mode(), err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
	wantLines(t, names, "journal.json", "journal.lock") // and nothing left over
}

func TestDamagedJournals(t *testing.T) {
	var l ledger
	whole := filepath.Join(t.TempDir(), "journal.json")
	mustRun(t, oneStep(&l), flow.Options{Journal: flow.Folder(filepath.Dir(whole))})
	l.take()
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	for name, damaged := range map[string]string{
		"empty":         "",
		"torn":          string(data[:len(data)/2]),
		"nearly whole":  strings.TrimRight(string(data), "}\n"),
		"zeros":         string(make([]byte, len(data))),
		"not JSON":      "hello",
		"other JSON":    "[]",
		"no format":     "{}",
		"unknown state": strings.Replace(string(data), `"done"`, `"dome"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "journal.json")
			if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := oneStep(&l).Run(t.Context(), flow.Options{Journal: flow.Folder(dir)})
			if e := errorAs[*flow.CorruptError](t, err); e.Path != path {
				t.Errorf("path is %s", e.Path)
			}
			for _, say := range []string{path, "move it away", "losing it costs time and never correctness"} {
				if !strings.Contains(err.Error(), say) {
					t.Errorf("error %q does not say %q", err, say)
				}
			}
			wantLines(t, l.take())
			// The way out that the error names is one.
			if err := os.Rename(path, path+".damaged"); err != nil {
				t.Fatal(err)
			}
			mustRun(t, oneStep(&l), flow.Options{Journal: flow.Folder(dir)})
			wantLines(t, l.take(), "a")
		})
	}
}

func TestANewerFormatIsRefused(t *testing.T) {
	var l ledger
	dir := t.TempDir()
	newer := `{"format": 2, "graph": "test", "steps": "are a list now"}`
	if err := os.WriteFile(filepath.Join(dir, "journal.json"), []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := oneStep(&l).Run(t.Context(), flow.Options{Journal: flow.Folder(dir)})
	if e := errorAs[*flow.FormatError](t, err); e.Format != 2 || !strings.Contains(err.Error(), dir) {
		t.Errorf("error is %v", err)
	}
	var corrupt *flow.CorruptError
	if errors.As(err, &corrupt) {
		t.Errorf("a newer journal is not a damaged one: %v", err)
	}
	wantLines(t, l.take())
}

func TestTwoRunsAtOnce(t *testing.T) {
	for name, j := range map[string]func(dir string) flow.Journal{
		"folder": flow.Folder,
		"memory": func() func(string) flow.Journal { m := flow.Memory(); return func(string) flow.Journal { return m } }(),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			began, release := make(chan struct{}), make(chan struct{})
			g := flow.New("test")
			flow.Add(g, flow.Task[int]{
				Name: "a",
				Run:  flow.Do(func(context.Context, flow.Say) (int, error) { close(began); <-release; return 0, nil }),
			})
			first := make(chan error, 1)
			go func() {
				_, err := g.Run(context.WithoutCancel(t.Context()), flow.Options{Journal: j(dir)})
				first <- err
			}()
			eventually(t, "the first run's step", began)

			var l ledger
			_, err := oneStep(&l).Run(t.Context(), flow.Options{Journal: j(dir)})
			e := errorAs[*flow.LockedError](t, err)
			if e.PID != os.Getpid() || e.Host == "" || time.Since(e.Since) > enough {
				t.Errorf("error is %+v", e)
			}
			wantLines(t, l.take())
			close(release)
			if err := <-first; err != nil {
				t.Fatal(err)
			}
			report, err := g.Run(t.Context(), flow.Options{Journal: j(dir)})
			if err != nil {
				t.Fatalf("the lock was not given back: %v", err)
			}
			wantOutcome(t, report, "a", flow.Reused)
		})
	}
}

// A reader beside a writer sees one snapshot or the next, never a part of one.
func TestSavingIsAtomic(t *testing.T) {
	j := flow.Folder(t.TempDir())
	steps := map[string]flow.Record{}
	for i := range 200 {
		steps[fmt.Sprintf("s%d", i)] = flow.Record{State: flow.StateDone}
	}
	written := make(chan error, 1)
	go func() {
		for range 50 {
			if err := j.Save(context.Background(), flow.Snapshot{Format: flow.Format, Graph: "test", Steps: steps}); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	for reads := 0; ; reads++ {
		s, err := j.Load(t.Context())
		if err != nil {
			t.Fatalf("read %d: %v", reads, err)
		}
		if n := len(s.Steps); n != 0 && n != len(steps) {
			t.Fatalf("read %d: %d steps", reads, n)
		}
		select {
		case err := <-written:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
	}
}

func TestUnwritableFolder(t *testing.T) {
	var l ledger
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := oneStep(&l).Run(t.Context(), flow.Options{Journal: flow.Folder(filepath.Join(file, "state"))})
	var path *fs.PathError
	if !errors.As(err, &path) {
		t.Errorf("error is %v", err)
	}
	wantLines(t, l.take())
}
