package records

import (
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/platform"
)

// RestoreFolder is the folder of a restore in the state folder: its record, its journal and the snapshot.
const RestoreFolder = "restore"

// RestoreRecord is the name of the record in that folder.
const RestoreRecord = "restore.json"

// SnapshotFile is the path of the etcd snapshot in it while a restore is under way.
const SnapshotFile = "etcd.snapshot"

// Restore is the file that says whose restore a state folder is in the middle of.
type Restore struct {
	backup.ClusterIdentity
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"` // zero: it is under way
	// Firewall is the one that was taken off the servers; 0: none was.
	Firewall int64 `json:"firewall,omitempty"`
}

// RestoreFiles is the folder of a restore in a state folder.
func RestoreFiles(files platform.Files) platform.Files { return files.Folder(RestoreFolder) }

// ReadRestore reads it; nil where there is none.
func ReadRestore(files platform.Files) (*Restore, error) {
	return read[Restore](RestoreFiles(files), RestoreRecord)
}

// Write writes the record into the state folder.
func (r Restore) Write(files platform.Files) error {
	return write(RestoreFiles(files), RestoreRecord, r)
}

// PrepareRestore makes room for a restore in a state folder: an earlier one that came to its end is set aside, and what
// a rotation of the certificate authorities remembers is removed, because the servers that it has changed are lost. It
// refuses where RoomForRestore does.
func PrepareRestore(files platform.Files, source backup.Cluster) error {
	r, err := roomForRestore(files, source)
	if err != nil {
		return err
	}
	if err := RotationFiles(files).RemoveFolder(); err != nil || r == nil {
		return err
	}
	return setAside(files, RestoreFolder, r.Ended)
}

// RoomForRestore refuses where the restore of another backup is under way in a state folder. It changes nothing.
func RoomForRestore(files platform.Files, source backup.Cluster) error {
	_, err := roomForRestore(files, source)
	return err
}

// roomForRestore gives the record of the restore that is there, if one is.
func roomForRestore(files platform.Files, source backup.Cluster) (*Restore, error) {
	r, err := ReadRestore(files)
	if err == nil && r != nil && r.Ended.IsZero() && r.ClusterIdentity != source.Identity() {
		err = fmt.Errorf("the restore of another backup of cluster %s (snapshot %.12s…, begun %s) is under way in "+
			"this folder: run that to its end, or destroy what it made", r.Cluster, r.Snapshot, r.Began.Format(time.RFC3339))
	}
	return r, err
}

// EndRestore records that a restore came to its end, and removes the snapshot, which contains every secret of the
// cluster.
func EndRestore(files platform.Files) error {
	r, err := ReadRestore(files)
	if err != nil || r == nil {
		return err
	}
	if err := RestoreFiles(files).Remove(SnapshotFile); err != nil {
		return err
	}
	r.Ended = time.Now().UTC()
	return r.Write(files)
}
