package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/redact"
)

// BenchmarkFleetRender reads fleets of more and more clusters, checks every configuration with the files that it is
// made from, plans each cluster's graph, and makes the objects: all that apply does before it asks the management
// cluster anything.
func BenchmarkFleetRender(b *testing.B) {
	for _, clusters := range []int{5, 10, 25, 50} {
		b.Run(fmt.Sprintf("clusters=%d", clusters), func(b *testing.B) {
			dir := b.TempDir()
			var file strings.Builder
			file.WriteString("name: demo\nimage: i\ndefaults: {controlPlaneReplicas: 1}\nclusters:\n")
			for i := range clusters {
				fmt.Fprintf(&file, "  - name: cluster-%02d\n    networkCidr: 10.%d.0.0/16\n    controlPlaneCidr: 10.%d.0.0/24\n"+
					"    serviceCidr: 10.%d.32.0/19\n    podCidr: 10.%d.128.0/17\n", i, i+1, i+1, i+1, i+1)
			}
			if err := os.WriteFile(filepath.Join(dir, "fleet.yaml"), []byte(file.String()), 0o600); err != nil {
				b.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			for b.Loop() {
				var stdout, stderr strings.Builder
				c := &console{charts: loopbackCharts, stdout: &stdout, stderr: &stderr, environment: map[string]string{}, workDir: dir,
					size: func() (int, int) { return 0, 0 }, hide: &redact.Redactor{}}
				if code := c.execute(b.Context(), []string{"fleet", "render"}); code != ExitDone {
					b.Fatalf("exit %d: %s", code, stderr.String())
				}
				if jobs := strings.Count(stdout.String(), "kind: Job\n"); jobs < clusters {
					b.Fatalf("it rendered %d Jobs", jobs)
				}
			}
			took := time.Since(began)
			runtime.ReadMemStats(&after)
			all := float64(b.N * clusters)
			b.ReportMetric(float64(took.Microseconds())/1000/all, "ms/cluster")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/1024/all, "KiB/cluster")
		})
	}
}
