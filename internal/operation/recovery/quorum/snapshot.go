package quorum

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
)

// Snapshot is the snapshot in the state folder.
type Snapshot struct {
	SHA256   string `json:"sha256"`   // of the file, hexadecimal
	Size     int64  `json:"size"`     // of the file, in bytes
	UID      string `json:"uid"`      // of the namespace kube-system in it
	Revision int64  `json:"revision"` // etcd's
	Keys     int    `json:"keys"`
}

// takeSnapshot takes a snapshot of the survivor's etcd, before anything is wiped anywhere, and has etcd's library read
// it.
func (q inputs) takeSnapshot(ctx context.Context, say flow.Say, s etcdview.Survey) (Snapshot, error) {
	folder := records.QuorumFiles(q.tools.Files)
	if err := os.MkdirAll(folder.String(), 0o700); err != nil {
		return Snapshot{}, fmt.Errorf("make the folder of the recovery: %w", err)
	}
	t, nodes, err := etcdview.AskControlPlane(ctx, q.cfg, q.tools)
	if err != nil {
		return Snapshot{}, err
	}
	survivor, err := recovery.TargetAmong(nodes, recovery.Target{Server: s.Survivor})
	if err != nil {
		return Snapshot{}, err
	}
	say("taking a snapshot of the etcd of %s", s.Survivor)
	stream, err := t.EtcdSnapshot(ctx, survivor.Route)
	if err != nil {
		return Snapshot{}, err
	}
	defer stream.Close()
	const temporary = records.SnapshotFile + ".new"
	out, err := receive(folder.Path(temporary), stream)
	if err != nil {
		return Snapshot{}, fmt.Errorf("take a snapshot of the etcd of %s: %w", s.Survivor, err)
	}
	if err := q.inspectSnapshot(folder, temporary, &out); err != nil {
		return Snapshot{}, fmt.Errorf("the snapshot of %s: %w", s.Survivor, err)
	}
	say("it holds %d keys at revision %d (%d MiB)", out.Keys, out.Revision, out.Size>>20)
	return out, folder.Move(temporary, records.SnapshotFile)
}

// receive writes a stream to a file, flushed.
func receive(path string, stream io.Reader) (Snapshot, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return Snapshot{}, err
	}
	sum := sha256.New()
	size, err := io.Copy(io.MultiWriter(file, sum), stream)
	return Snapshot{SHA256: hex.EncodeToString(sum.Sum(nil)), Size: size}, errors.Join(err, file.Sync(),
		file.Close())
}

// inspectSnapshot restores it into a scratch folder: what is cut off, damaged or of no cluster is found before anything
// is wiped.
func (q inputs) inspectSnapshot(folder platform.Files, name string, out *Snapshot) (err error) {
	scratch := folder.Path("scratch")
	if err := os.RemoveAll(scratch); err != nil { // an earlier run may have left half of it
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	is, err := q.inspect(folder.Path(name), scratch)
	if err != nil {
		return err
	}
	if is.UID == "" {
		return errors.New("it holds no namespace kube-system: this is no cluster's etcd")
	}
	out.UID, out.Revision, out.Keys = is.UID, is.Revision, is.Keys
	return nil
}

func (q inputs) verifySnapshot(_ context.Context, was Snapshot) flow.Verdict {
	switch err := q.snapshotWhole(was); {
	case errors.Is(err, fs.ErrNotExist):
		return flow.Gone("the snapshot is not in the state folder")
	case err != nil:
		return flow.Unknown(err)
	}
	return flow.Holds()
}

// snapshotWhole reads the snapshot to its end and compares its sum.
func (q inputs) snapshotWhole(was Snapshot) error {
	path := records.QuorumFiles(q.tools.Files).Path(records.SnapshotFile)
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, file)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if is := hex.EncodeToString(sum.Sum(nil)); is != was.SHA256 {
		return fmt.Errorf("%s was changed: it has %d bytes with the SHA-256 %s instead of %d with %s", path, size, is,
			was.Size, was.SHA256)
	}
	return nil
}
