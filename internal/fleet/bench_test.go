package fleet

import (
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// benchTakes is long enough that looks at the changes of Jobs and Pods do not fall into one.
const benchTakes = 40 * time.Millisecond

// BenchmarkRollout prepares and advances fleets of more and more clusters, five at once, whose Jobs and Pods change as
// in reality, but soon. The figures include the API in memory, which runs in the same process.
func BenchmarkRollout(b *testing.B) {
	for _, clusters := range []int{5, 10, 25, 50} {
		b.Run(fmt.Sprintf("clusters=%d", clusters), func(b *testing.B) {
			var sum rolloutCost
			for b.Loop() {
				sum.add(rollOut(b, clusters))
			}
			all := float64(b.N * clusters)
			b.ReportMetric(float64(sum.took.Microseconds())/1000/all, "ms/cluster")
			b.ReportMetric(float64((sum.took-time.Duration(b.N)*jobsTake(clusters)).Microseconds())/1000/all, "own-ms/cluster")
			b.ReportMetric(float64(sum.requests)/all, "requests/cluster")
			b.ReportMetric(float64(sum.allocated)/1024/all, "KiB/cluster")
		})
	}
}

// rolloutCost is what a rollout takes.
type rolloutCost struct {
	took      time.Duration
	requests  int64
	allocated uint64 // bytes, the API's in memory included
}

func (c *rolloutCost) add(other rolloutCost) {
	c.took, c.requests, c.allocated = c.took+other.took, c.requests+other.requests, c.allocated+other.allocated
}

// jobsTake is how long the Jobs take: the canary alone, and the others five at once.
func jobsTake(clusters int) time.Duration { return time.Duration(1+(clusters-1+4)/5) * benchTakes }

// rollOut creates a fleet in a management cluster of its own, and advances it to its end.
func rollOut(t testing.TB, clusters int) (cost rolloutCost) {
	t.Helper()
	m := newManager(t)
	m.takes, m.pods = benchTakes, true
	var requests atomic.Int64
	m.Server.Fail = func(*http.Request) (int, string) {
		requests.Add(1)
		return 0, ""
	}
	var names []string
	for i := range clusters {
		names = append(names, fmt.Sprintf("cluster-%02d", i))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	prepare(t, m, Rollout{MaxParallel: 5, Canary: names[:1]}, fleetOf(names...))
	if _, err := advance(t, m); err != nil || len(m.order()) != clusters {
		t.Fatalf("began %v: %v", m.order(), err)
	}
	cost.took = time.Since(began)
	runtime.ReadMemStats(&after)
	cost.requests, cost.allocated = requests.Load(), after.TotalAlloc-before.TotalAlloc
	return cost
}
