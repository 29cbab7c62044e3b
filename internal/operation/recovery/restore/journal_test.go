package restore

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow/flowtest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

var update = flag.Bool("update", false, "write the golden files again")

// A journal of an older release restores: no output type has lost a field.
func TestGoldenJournal(t *testing.T) {
	for _, selfManaged := range []bool{true, false} {
		source := lostBackup(t)
		source.Contents.Header.SelfManaged = selfManaged
		p, err := New(config.Defaults(), clustertest.New(t).Tools(), source)
		if err != nil {
			t.Fatal(err)
		}
		flowtest.GoldenJournal(t, p.Graph, filepath.Join("testdata", "journal.json"), *update)
	}
}
