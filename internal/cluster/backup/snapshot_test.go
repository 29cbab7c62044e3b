package backup

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

// streams opens a snapshot by the address that is asked.
type streams struct {
	clustertest.HealthyTalos
	open map[string]func(ctx context.Context) (io.ReadCloser, error)
}

func (s streams) EtcdSnapshot(ctx context.Context, r talos.Route) (io.ReadCloser, error) {
	return s.open[r.Endpoint](ctx)
}

// TestSnapshotStandsStill gives a stream up that says nothing more, and bears a reader that takes its time.
func TestSnapshotStandsStill(t *testing.T) {
	synctest.Test(t, snapshotStandsStill)
}

func snapshotStandsStill(t *testing.T) {
	hang := streams{open: map[string]func(context.Context) (io.ReadCloser, error){
		"a": func(ctx context.Context) (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader("begin"), waiting{ctx})), nil
		},
		"b": func(ctx context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("all")), nil },
	}}
	stream, err := openSnapshot(t.Context(), clustertest.Silent, hang, talos.Route{Endpoint: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if data, err := io.ReadAll(stream); err == nil || !strings.Contains(err.Error(), "stood still") {
		t.Errorf("got %q, %v", data, err)
	}
	if stream, err = openSnapshot(t.Context(), clustertest.Silent, hang, talos.Route{Endpoint: "b"}); err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	time.Sleep(3 * snapshotStall) // of synctest's clock: a store that takes its time
	if data, err := io.ReadAll(stream); err != nil || string(data) != "all" {
		t.Errorf("a slow reader got %q, %v", data, err)
	}
}

type waiting struct{ ctx context.Context }

func (w waiting) Read([]byte) (int, error) {
	<-w.ctx.Done()
	return 0, context.Cause(w.ctx)
}
