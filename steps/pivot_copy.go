package steps

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/clusterapi"
	"github.com/slipway-k8s/slipway/platform"
)

// Folder of the state folder that keeps a copy of every object that the pivot moves, and how far the pivot has come.
const (
	pivotFolder = "pivot"
	pivotRecord = "pivot.json"
)

// How far a pivot has come. Only this decides whether the steps before it are still looked at; what there is to do is
// read from the two clusters.
type pivotPhase string

const (
	pivotCopied  pivotPhase = "copied"  // every object is in the copy; nothing was changed
	pivotMoving  pivotPhase = "moving"  // from here on only going on, or --abort, is right
	pivotSettled pivotPhase = "settled" // the cluster manages itself
)

// pivotState is the file pivotRecord.
type pivotState struct {
	Phase   pivotPhase `json:"phase"`
	Cluster string     `json:"cluster"` // name
	UID     string     `json:"uid"`     // of the Cluster object at the source; empty: it was not there any more
	Servers []int64    `json:"servers"` // of the cluster, at Hetzner, before anything moved
	Since   time.Time  `json:"since"`

	Changed []int64 `json:"changed,omitempty"` // servers that a run found in place of Servers, and told of
}

// pivotCopy is the folder. It holds secrets: 0700, its files 0600.
type pivotCopy struct{ files platform.Files }

func pivotCopyIn(tools platform.Tools) pivotCopy {
	return pivotCopy{tools.Files.Folder(pivotFolder)}
}

// state is the zero pivotState where there is no copy of this cluster.
func (c pivotCopy) state(cluster string) (pivotState, error) {
	data, err := c.files.Read(pivotRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return pivotState{}, nil
	}
	if err != nil {
		return pivotState{}, err
	}
	var s pivotState
	if err := json.Unmarshal(data, &s); err != nil {
		return pivotState{}, fmt.Errorf("read %s: %w", c.files.Path(pivotRecord), err)
	}
	if s.Cluster != cluster {
		return pivotState{}, nil
	}
	return s, nil
}

func (c pivotCopy) setState(s pivotState) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return c.files.Write(pivotRecord, append(data, '\n'))
}

// put writes one object, as it is to be on the target.
func (c pivotCopy) put(o *unstructured.Unstructured) error {
	data, err := o.MarshalJSON()
	if err != nil {
		return fmt.Errorf("copy %s: %w", clusterapi.KeyOf(o), err)
	}
	return c.files.Write(objectFile(clusterapi.KeyOf(o)), data)
}

// objectFile is "machine.cluster.x-k8s.io_k8s-control-plane-6f4dm.json".
func objectFile(k clusterapi.Key) string {
	return strings.ToLower(k.Kind.String()) + "_" + k.Name + ".json"
}

// get reads one object; nil where the copy does not have it.
func (c pivotCopy) get(k clusterapi.Key) (*unstructured.Unstructured, error) {
	return c.read(objectFile(k))
}

func (c pivotCopy) read(file string) (*unstructured.Unstructured, error) {
	data, err := c.files.Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(data); err != nil {
		return nil, fmt.Errorf("read %s: %w", c.files.Path(file), err)
	}
	return o, nil
}

// all reads every object, by file name.
func (c pivotCopy) all() ([]*unstructured.Unstructured, error) {
	entries, err := os.ReadDir(c.files.String())
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

// replace makes the copy hold exactly these objects. Objects come before the ones that they replace go, so that a crash
// leaves too many and never too few.
func (c pivotCopy) replace(objects []unstructured.Unstructured) error {
	keep := map[string]bool{}
	for i := range objects {
		keep[objectFile(clusterapi.KeyOf(&objects[i]))] = true
		if err := c.put(&objects[i]); err != nil {
			return err
		}
	}
	was, err := c.all()
	if err != nil {
		return err
	}
	for _, o := range was {
		if file := objectFile(clusterapi.KeyOf(o)); !keep[file] {
			if err := c.files.Remove(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeSecrets removes the Secrets, in clear text, from the copy. Nothing needs them once the cluster manages itself.
func (c pivotCopy) removeSecrets() error {
	copied, err := c.all()
	if err != nil {
		return err
	}
	for _, o := range copied {
		if o.GetKind() != "Secret" {
			continue
		}
		if err := c.files.Remove(objectFile(clusterapi.KeyOf(o))); err != nil {
			return err
		}
	}
	return nil
}

// RemovePivotSecrets removes the Secrets that the pivot of an older release, which kept them, left in the state folder. The copy of a
// pivot that is not over is left as it is.
func (p *Plan) RemovePivotSecrets() error {
	c := pivotCopyIn(p.b.tools)
	state, err := c.state(p.b.cfg.ClusterName)
	if err != nil || state.Phase != pivotSettled {
		return err
	}
	return c.removeSecrets()
}

// forget removes the copy, the record first: without it the rest is nothing.
func (c pivotCopy) forget() error {
	if err := c.files.Remove(pivotRecord); err != nil {
		return err
	}
	return c.files.RemoveFolder()
}

// ForgetPivot removes the pivot's copy and record from a state folder: for when the cluster of that folder is gone.
func ForgetPivot(files platform.Files) error { return pivotCopy{files.Folder(pivotFolder)}.forget() }

// underway tells flow that the point of no return was passed although the journal does not say so.
func (p pivotStep) underway() (bool, error) {
	s, err := pivotCopyIn(p.tools).state(p.cfg.ClusterName)
	return s.Phase == pivotMoving || s.Phase == pivotSettled, err
}
