package flow_test

import (
	"context"
	"fmt"
	"io/fs"
	"sync/atomic"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

// chainOf is a graph of n steps of which each takes the output of the one before it.
func chainOf(n int, l *ledger) *flow.Graph {
	g := flow.New("chain")
	last := flow.Add(g, l.task("s0"))
	for i := range n - 1 {
		name := fmt.Sprintf("s%d", i+1)
		last = flow.Add(g, flow.Task[thing]{Name: name, Run: flow.With1(l.grow(name), last)})
	}
	return g
}

// wideOf is a graph of n steps: one, the others beside each other after it, and a last one after all of those.
func wideOf(n int, l *ledger) *flow.Graph {
	g := flow.New("wide")
	first := flow.Add(g, l.task("s0"))
	var middle []flow.Node
	for i := range n - 2 {
		name := fmt.Sprintf("s%d", i+1)
		middle = append(middle, flow.Add(g, flow.Task[thing]{Name: name, Run: flow.With1(l.grow(name), first)}))
	}
	flow.Add(g, flow.Task[thing]{Name: "last", Run: flow.Do(l.make("last")), After: middle})
	return g
}

// countingDisk counts what is written and flushed. Without flush nothing is flushed.
type countingDisk struct {
	flow.LocalDisk
	noFlush        bool
	written, syncs *atomic.Int64
}

func newCountingDisk(noFlush bool) countingDisk {
	return countingDisk{noFlush: noFlush, written: new(atomic.Int64), syncs: new(atomic.Int64)}
}

func (d countingDisk) Create(path string, mode fs.FileMode) (flow.DiskFile, error) {
	file, err := d.LocalDisk.Create(path, mode)
	return countingFile{file, d}, err
}

func (d countingDisk) SyncDir(dir string) error {
	d.syncs.Add(1)
	if d.noFlush {
		return nil
	}
	return d.LocalDisk.SyncDir(dir)
}

type countingFile struct {
	flow.DiskFile
	disk countingDisk
}

func (f countingFile) Write(data []byte) (int, error) {
	f.disk.written.Add(int64(len(data)))
	return f.DiskFile.Write(data)
}

func (f countingFile) Sync() error {
	f.disk.syncs.Add(1)
	if f.disk.noFlush {
		return nil
	}
	return f.DiskFile.Sync()
}

// A run makes each step's two changes durable with one flush each, and what it writes grows as the number of steps
// does: ten times the steps, at most about ten times the bytes. Both are counts, which no load of the machine changes.
func TestWhatARunWritesGrowsWithItsSteps(t *testing.T) {
	for shape, build := range map[string]func(int, *ledger) *flow.Graph{"chain": chainOf, "wide": wideOf} {
		t.Run(shape, func(t *testing.T) {
			perStep := map[int]float64{}
			for _, n := range []int{200, 2000} {
				var l ledger
				d := newCountingDisk(true)
				mustRun(t, build(n, &l), flow.Options{Journal: flow.FolderOn(t.TempDir(), d), Parallel: 8})
				perStep[n] = float64(d.written.Load()) / float64(n)
				if most := int64(2*n + 30); d.syncs.Load() > most {
					t.Errorf("%d steps: %d flushes, want at most %d", n, d.syncs.Load(), most)
				}
			}
			t.Logf("bytes a step: %v", perStep)
			if perStep[2000] > 2*perStep[200] {
				t.Errorf("a step of 2,000 writes %.0f bytes, and one of 200 %.0f", perStep[2000], perStep[200])
			}
		})
	}
}

// Memory, a folder, and a folder on a disk that flushes nothing: the difference of the last two is what durability
// costs.
func BenchmarkRun(b *testing.B) {
	for shape, build := range map[string]func(int, *ledger) *flow.Graph{"chain": chainOf, "wide": wideOf} {
		for _, n := range []int{100, 1000, 10000} {
			for name, journal := range map[string]func() flow.Journal{
				"memory":          flow.Memory,
				"folder":          func() flow.Journal { return flow.Folder(b.TempDir()) },
				"folder-no-fsync": func() flow.Journal { return flow.FolderOn(b.TempDir(), newCountingDisk(true)) },
			} {
				b.Run(fmt.Sprintf("%s/%d/%s", shape, n, name), func(b *testing.B) {
					for b.Loop() {
						var l ledger
						if _, err := build(n, &l).Run(context.Background(), flow.Options{Journal: journal(), Parallel: 16}); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/step")
				})
			}
		}
	}
}
