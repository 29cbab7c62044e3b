package records

import (
	"time"

	"github.com/slipway-k8s/slipway/platform"
)

// QuorumFolder is the folder of a quorum recovery in the state folder: its snapshot, its record and its journal.
const QuorumFolder = "recover-quorum"

// QuorumRecord is the name of the record in that folder.
const QuorumRecord = "recover-quorum.json"

// RotationFolder is the folder of a rotation of the certificate authorities in the state folder: its record and its
// journal. The authorities themselves are in the cluster.
const RotationFolder = "rotate-ca"

// rotationRecord is the name of the record in that folder.
const rotationRecord = "rotate-ca.json"

// QuorumFiles is the folder of a quorum recovery in a state folder.
func QuorumFiles(files platform.Files) platform.Files { return files.Folder(QuorumFolder) }

// RotationFiles is the folder of a rotation in a state folder.
func RotationFiles(files platform.Files) platform.Files { return files.Folder(RotationFolder) }

// Consent is the file that records the operator's consent to a quorum recovery or a rotation: later runs resume it, and
// begin no other.
type Consent struct {
	Cluster string    `json:"cluster"`
	Began   time.Time `json:"began"`
}

// ReadQuorum reads that of a quorum recovery; nil where there is none.
func ReadQuorum(files platform.Files) (*Consent, error) {
	return read[Consent](QuorumFiles(files), QuorumRecord)
}

// ReadRotation reads that of a rotation; nil where there is none.
func ReadRotation(files platform.Files) (*Consent, error) {
	return read[Consent](RotationFiles(files), rotationRecord)
}

// BeginQuorum records that a quorum recovery was agreed to.
func (c Consent) BeginQuorum(files platform.Files) error {
	return write(QuorumFiles(files), QuorumRecord, c)
}

// BeginRotation records that a rotation was agreed to.
func (c Consent) BeginRotation(files platform.Files) error {
	return write(RotationFiles(files), rotationRecord, c)
}
