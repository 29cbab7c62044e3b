package records

import (
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/platform"
)

// ReadoptFolder is the folder of a readoption in the state folder: its record and its journal.
const ReadoptFolder = "readopt"

// ReadoptRecord is the name of the record in that folder.
const ReadoptRecord = "readopt.json"

// Readopt is the file that says whose readoption a state folder is in the middle of.
type Readopt struct {
	backup.ClusterIdentity
	Began    time.Time `json:"began"`
	Ended    time.Time `json:"ended,omitzero"`     // zero: it is under way
	Accepted []string  `json:"accepted,omitempty"` // differences
}

// ReadoptFiles is the folder of a readoption in a state folder.
func ReadoptFiles(files platform.Files) platform.Files { return files.Folder(ReadoptFolder) }

// ReadReadopt reads it; nil where there is none.
func ReadReadopt(files platform.Files) (*Readopt, error) {
	return read[Readopt](ReadoptFiles(files), ReadoptRecord)
}

// Write writes the record into the state folder.
func (r Readopt) Write(files platform.Files) error {
	return write(ReadoptFiles(files), ReadoptRecord, r)
}

// PrepareReadopt makes room for a readoption in a state folder: an earlier one that came to its end is set aside. It
// refuses where RoomForReadopt does.
func PrepareReadopt(files platform.Files, source backup.Cluster) error {
	r, err := roomForReadopt(files, source)
	if err != nil || r == nil {
		return err
	}
	return setAside(files, ReadoptFolder, r.Ended)
}

// RoomForReadopt refuses where the readoption of another backup, or another recovery, is under way in a state folder.
// It changes nothing.
func RoomForReadopt(files platform.Files, source backup.Cluster) error {
	_, err := roomForReadopt(files, source)
	return err
}

// roomForReadopt gives the record of the readoption that is there, if one is.
func roomForReadopt(files platform.Files, source backup.Cluster) (*Readopt, error) {
	restoring, err := ReadRestore(files)
	if err != nil {
		return nil, err
	}
	if restoring != nil && restoring.Ended.IsZero() {
		return nil, fmt.Errorf("a restore of cluster %s, begun %s, is under way in this folder: run that to its end, or "+
			"destroy what it made",
			restoring.Cluster, restoring.Began.Format(time.RFC3339))
	}
	quorum, err := ReadQuorum(files)
	if err != nil {
		return nil, err
	}
	if quorum != nil {
		return nil, fmt.Errorf("recover-quorum, begun %s, is under way in this folder: run that to its end",
			quorum.Began.Format(time.RFC3339))
	}
	r, err := ReadReadopt(files)
	if err != nil || r == nil || !r.Ended.IsZero() {
		return r, err
	}
	if mine := source.Identity(); r.ClusterIdentity != mine {
		return nil, fmt.Errorf("the readoption of cluster %s from another backup (snapshot %.12s…, begun %s) is under way "+
			"in this folder: run that to its end", r.Cluster, r.Snapshot, r.Began.Format(time.RFC3339))
	}
	return r, nil
}

// EndReadopt records that a readoption came to its end.
func EndReadopt(files platform.Files) error {
	r, err := ReadReadopt(files)
	if err != nil || r == nil {
		return err
	}
	r.Ended = time.Now().UTC()
	return r.Write(files)
}
