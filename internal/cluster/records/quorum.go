package records

import (
	"time"

	"github.com/slipway-k8s/slipway/platform"
)

// QuorumFolder is the folder of a quorum recovery in the state folder: its snapshot, its record and its journal.
const QuorumFolder = "recover-quorum"

// QuorumRecord is the name of the record in that folder.
const QuorumRecord = "recover-quorum.json"

// QuorumFiles is the folder of a recovery in a state folder.
func QuorumFiles(files platform.Files) platform.Files { return files.Folder(QuorumFolder) }

// Quorum is the file that records the operator's consent to a recovery: later runs resume it, and begin no other.
type Quorum struct {
	Cluster string    `json:"cluster"`
	Began   time.Time `json:"began"`
}

// ReadQuorum reads it; nil where there is none.
func ReadQuorum(files platform.Files) (*Quorum, error) {
	return read[Quorum](QuorumFiles(files), QuorumRecord)
}

// Begin records that the recovery of a cluster was agreed to.
func (r Quorum) Begin(files platform.Files) error {
	return write(QuorumFiles(files), QuorumRecord, r)
}
