package records

import (
	"time"

	"github.com/slipway-k8s/slipway/platform"
)

// RotationFolder is the folder of a rotation of the certificate authorities in the state folder: its record and its
// journal. The authorities themselves are in the cluster.
const RotationFolder = "rotate-ca"

// rotationRecord is the name of the record in that folder.
const rotationRecord = "rotate-ca.json"

// RotationFiles is the folder of a rotation in a state folder.
func RotationFiles(files platform.Files) platform.Files { return files.Folder(RotationFolder) }

// Rotation is the file that records the operator's consent to a rotation: later runs resume it, and begin no other.
type Rotation struct {
	Cluster string    `json:"cluster"`
	Began   time.Time `json:"began"`
}

// ReadRotation reads it; nil where there is none.
func ReadRotation(files platform.Files) (*Rotation, error) {
	return read[Rotation](RotationFiles(files), rotationRecord)
}

// Begin records that the rotation was agreed to.
func (r Rotation) Begin(files platform.Files) error {
	return write(RotationFiles(files), rotationRecord, r)
}
