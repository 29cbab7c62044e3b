// Package pivotcopy keeps a copy of every object that a pivot moves, and how far the pivot has come, in the state
// folder.
package pivotcopy

import (
	"encoding/json"
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
	// Folder is the folder of the state folder with a copy of every object that the pivot moves.
	Folder = "pivot"
	// Record is the file in it that says how far the pivot has come.
	Record = "pivot.json"
)

// Phase is how far a pivot has come. Only this decides whether the steps before it are still looked at; what there is
// to do is read from the two clusters.
type Phase string

const (
	Copied  Phase = "copied"  // every object is in the copy; nothing was changed
	Moving  Phase = "moving"  // from here on only going on, or --abort, is right
	Settled Phase = "settled" // the cluster manages itself
)

// State is the content of the file Record.
type State struct {
	Phase   Phase     `json:"phase"`
	Cluster string    `json:"cluster"` // name
	UID     string    `json:"uid"`     // of the Cluster object at the source; empty: it was not there any more
	Servers []int64   `json:"servers"` // of the cluster, at Hetzner, before anything moved
	Since   time.Time `json:"since"`

	Changed []int64 `json:"changed,omitempty"` // servers that a run found in place of Servers, and told of
}

// Copy is the folder. It contains secrets: 0700, its files 0600.
type Copy struct{ Files platform.Files }

// In is the copy in a state folder.
func In(tools platform.Tools) Copy {
	return Copy{tools.Files.Folder(Folder)}
}

// State is the zero State where there is no copy of this cluster.
func (c Copy) State(cluster string) (State, error) {
	data, err := c.Files.Read(Record)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, err
	}
	var s State
	if err := json.Unmarshal(data, &s); err != nil {
		return State{}, fmt.Errorf("read %s: %w", c.Files.Path(Record), err)
	}
	if s.Cluster != cluster {
		return State{}, nil
	}
	return s, nil
}

// Underway tells whether the pivot of a cluster has passed its point of no return.
func (c Copy) Underway(cluster string) (bool, error) {
	s, err := c.State(cluster)
	return s.Phase == Moving || s.Phase == Settled, err
}

// SetState records how far the pivot has come.
func (c Copy) SetState(s State) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return c.Files.Write(Record, append(data, '\n'))
}

// Put writes one object, as it is to be on the target.
func (c Copy) Put(o *unstructured.Unstructured) error {
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
func (c Copy) Get(k capi.ObjectKey) (*unstructured.Unstructured, error) {
	return c.read(objectFile(k))
}

func (c Copy) read(file string) (*unstructured.Unstructured, error) {
	data, err := c.Files.Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(data); err != nil {
		return nil, fmt.Errorf("read %s: %w", c.Files.Path(file), err)
	}
	return o, nil
}

// All reads every object, by file name.
func (c Copy) All() ([]*unstructured.Unstructured, error) {
	entries, err := os.ReadDir(c.Files.String())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, e := range entries {
		if !strings.Contains(e.Name(), "_") || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		o, err := c.read(e.Name())
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// Replace makes these objects the content of the copy. Objects come before the ones that they replace go, so that a
// crash leaves too many and never too few.
func (c Copy) Replace(objects []unstructured.Unstructured) error {
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
func (c Copy) RemoveSecrets() error {
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
func (c Copy) Forget() error {
	if err := c.Files.Remove(Record); err != nil {
		return err
	}
	return c.Files.RemoveFolder()
}

// Forget removes the pivot's copy and record from a state folder: for when the cluster of that folder is gone.
func Forget(files platform.Files) error { return Copy{files.Folder(Folder)}.Forget() }
