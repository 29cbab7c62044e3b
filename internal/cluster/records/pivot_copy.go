package records

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/platform"
)

const (
	// PivotFolder is the folder of the state folder with a copy of every object that the pivot moves.
	PivotFolder = "pivot"
	// PivotRecord is the file in it that says how far the pivot has come.
	PivotRecord = "pivot.json"
)

// PivotPhase is how far a pivot has come. Only this decides whether the steps before it are still looked at; what there
// is to do is read from the two clusters.
type PivotPhase string

const (
	Copied  PivotPhase = "copied"  // every object is in the copy; nothing was changed
	Moving  PivotPhase = "moving"  // from here on only going on, or --abort, is right
	Settled PivotPhase = "settled" // the cluster manages itself
)

// PivotState is the content of the file PivotRecord.
type PivotState struct {
	Phase   PivotPhase `json:"phase"`
	Cluster string     `json:"cluster"` // name
	UID     string     `json:"uid"`     // of the Cluster object at the source; empty: it was not there any more
	Servers []int64    `json:"servers"` // of the cluster, at Hetzner, before anything moved
	Since   time.Time  `json:"since"`

	Changed []int64 `json:"changed,omitempty"` // servers that a run found in place of Servers, and told of
}

// PivotCopy is the folder. It contains secrets: 0700, its files 0600.
type PivotCopy struct{ Files platform.Files }

// PivotCopyOf is the copy in a state folder.
func PivotCopyOf(tools platform.Tools) PivotCopy {
	return PivotCopy{tools.Files.Folder(PivotFolder)}
}

// State is the zero PivotState where there is no copy of this cluster.
func (c PivotCopy) State(cluster string) (PivotState, error) {
	s, err := read[PivotState](c.Files, PivotRecord)
	if err != nil || s == nil || s.Cluster != cluster {
		return PivotState{}, err
	}
	return *s, nil
}

// Underway tells whether the pivot of a cluster has passed its point of no return.
func (c PivotCopy) Underway(cluster string) (bool, error) {
	s, err := c.State(cluster)
	return s.Phase == Moving || s.Phase == Settled, err
}

// SetState records how far the pivot has come.
func (c PivotCopy) SetState(s PivotState) error {
	return write(c.Files, PivotRecord, s)
}

// Put writes one object, as it is to be on the target.
func (c PivotCopy) Put(o *unstructured.Unstructured) error {
	data, err := o.MarshalJSON()
	if err != nil {
		return fmt.Errorf("copy %s: %w", capi.ObjectKeyOf(o), err)
	}
	return c.Files.Write(objectFile(capi.ObjectKeyOf(o)), data)
}

// objectFile is "machine.cluster.x-k8s.io_k8s-control-plane-6f4dm.json".
func objectFile(k capi.ObjectKey) string {
	return strings.ToLower(k.Kind.String()) + "_" + k.Name + ".json"
}

// Get reads one object; nil where the copy does not have it.
func (c PivotCopy) Get(k capi.ObjectKey) (*unstructured.Unstructured, error) {
	return read[unstructured.Unstructured](c.Files, objectFile(k))
}

// All reads every object, by file name.
func (c PivotCopy) All() ([]*unstructured.Unstructured, error) {
	entries, err := os.ReadDir(c.Files.String())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, e := range entries {
		if !strings.Contains(e.Name(), "_") || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		o, err := read[unstructured.Unstructured](c.Files, e.Name())
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// Replace makes these objects the content of the copy. Objects come before the ones that they replace go, so that a
// crash leaves too many and never too few.
func (c PivotCopy) Replace(objects []unstructured.Unstructured) error {
	keep := map[string]bool{}
	for i := range objects {
		keep[objectFile(capi.ObjectKeyOf(&objects[i]))] = true
		if err := c.Put(&objects[i]); err != nil {
			return err
		}
	}
	was, err := c.All()
	if err != nil {
		return err
	}
	for _, o := range was {
		if file := objectFile(capi.ObjectKeyOf(o)); !keep[file] {
			if err := c.Files.Remove(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// RemoveSecrets removes the Secrets, in clear text, from the copy. Nothing needs them once the cluster manages itself.
func (c PivotCopy) RemoveSecrets() error {
	copied, err := c.All()
	if err != nil {
		return err
	}
	for _, o := range copied {
		if o.GetKind() != "Secret" {
			continue
		}
		if err := c.Files.Remove(objectFile(capi.ObjectKeyOf(o))); err != nil {
			return err
		}
	}
	return nil
}

// Forget removes the copy, the record first: without it the rest is nothing.
func (c PivotCopy) Forget() error {
	if err := c.Files.Remove(PivotRecord); err != nil {
		return err
	}
	return c.Files.RemoveFolder()
}

// ForgetPivot removes the pivot's copy and record from a state folder: for when the cluster of that folder is gone.
func ForgetPivot(files platform.Files) error { return PivotCopy{files.Folder(PivotFolder)}.Forget() }
