package talos

import (
	"fmt"
	"os"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/slipway-k8s/slipway/lab/plane"
)

// restore makes the member's data from the uploaded snapshot, with this member as the only one, and deletes the
// snapshot. skipHashCheck is for a database file that was copied instead of snapshotted.
func (e *etcdService) restore(config *plane.EtcdConfig, skipHashCheck bool) (err error) {
	defer func() {
		if p := recover(); p != nil { // the error of etcd's library for a damaged database
			err = fmt.Errorf("restore the uploaded snapshot: %v", p)
		}
	}()
	manager := snapshot.NewV3(zap.NewNop())
	content, err := manager.Status(e.snapshotFile())
	if err != nil {
		return fmt.Errorf("verify the uploaded snapshot: %w", err)
	}
	e.system.log.Info("etcd is restored from a snapshot", "hash", fmt.Sprintf("%08x", content.Hash),
		"revision", content.Revision, "keys", content.TotalKey, "bytes", content.TotalSize)
	err = manager.Restore(snapshot.RestoreConfig{
		SnapshotPath:        e.snapshotFile(),
		Name:                config.Name,
		OutputDataDir:       e.dataDir(),
		PeerURLs:            []string{config.PeerURL()},
		InitialCluster:      config.Name + "=" + config.PeerURL(),
		InitialClusterToken: "etcd-cluster", // etcd's default, which the member starts with
		SkipHashCheck:       skipHashCheck,
	})
	if err != nil && e.hasData() {
		return fmt.Errorf("restore the uploaded snapshot: %w; %w", err, errHalfRestored)
	} else if err != nil {
		return fmt.Errorf("restore the uploaded snapshot: %w", err)
	}
	if err := os.Remove(e.snapshotFile()); err != nil {
		return fmt.Errorf("remove the uploaded snapshot: %w", err)
	}
	return nil
}
