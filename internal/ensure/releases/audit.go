package releases

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// AuditAnnotation of a HelmRelease says how Slipway recovered it, and keeps it from being recovered again in the same
// generation.
const AuditAnnotation = "slipway.dev/recovered"

// Kind is in which way a HelmRelease is stuck.
type Kind string

// The kinds.
const (
	Pending Kind = "pending" // a controller that died has left a pending record of Helm
	Status  Kind = "status"  // the release is deployed, and the report of that was lost
)

// State is how far a recovery is.
type State string

// The states.
const (
	Begun State = "begun" // where the process ended then, the next run finishes it
	Done  State = "done"
)

// Audit is the content of AuditAnnotation.
type Audit struct {
	State      State     `json:"state"`
	Kind       Kind      `json:"kind"`
	What       string    `json:"what"`
	Generation int64     `json:"generation"` // of the object after the recovery's own write
	At         time.Time `json:"at"`         // by the API server's clock
	By         string    `json:"by"`         // the program and its version
	Record     string    `json:"record,omitempty"`
	// RecordUID tells the record from a later one of its name: the first revision after an installation that was undone.
	RecordUID types.UID `json:"recordUID,omitempty"`
}

// String is the annotation's value.
func (a Audit) String() string {
	data, err := json.Marshal(a)
	if err != nil {
		panic(err) // it has nothing but texts, a number and a time of this program
	}
	return string(data)
}

// auditOf reads the annotation of an object; nil: it has none.
func auditOf(annotations map[string]string) (*Audit, error) {
	value, ok := annotations[AuditAnnotation]
	if !ok {
		return nil, nil
	}
	a := &Audit{}
	if err := json.Unmarshal([]byte(value), a); err != nil {
		return nil, fmt.Errorf("its annotation %s cannot be read (%w): see who wrote it, and remove it", AuditAnnotation, err)
	}
	return a, nil
}

// guards reports whether the annotation forbids to recover an object of this generation.
func (a *Audit) guards(generation int64) bool {
	return a != nil && a.State == Done && a.Generation == generation
}

// same reports whether the annotation is that of another one's recovery, as far as that came.
func (a *Audit) same(other Audit) bool {
	return a != nil && a.State == other.State && a.Kind == other.Kind && a.Generation == other.Generation &&
		a.At.Equal(other.At) && a.By == other.By
}
