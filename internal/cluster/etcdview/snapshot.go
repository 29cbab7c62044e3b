package etcdview

import (
	"context"
	"fmt"
	"io"

	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// HasSnapshot tells whether a server has the very snapshot that is to be restored. Another one of the same size may lie
// there, of an earlier recovery, and one that is there already must not be written over: the server may be restoring
// it.
func HasSnapshot(ctx context.Context, t talos.Client, on talos.Route, open func() (io.ReadCloser, int64, error)) (bool,
	error) {
	snapshot, size, err := open()
	if err != nil {
		return false, wait.Final(fmt.Errorf("open the etcd snapshot: %w", err))
	}
	defer snapshot.Close()
	return t.HasSnapshot(ctx, on, snapshot, size)
}
