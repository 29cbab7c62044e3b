// Package ownership records which cluster a state folder belongs to.
package ownership

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
)

// File is the name of the record in the state folder.
const File = "cluster.json"

// Format is the newest version of the record's JSON that this package writes. It reads this one and older ones.
const Format = 3

// plainFormat is that of a record without a namespace, which older releases read as well.
const plainFormat = 1

// namespaceFormat is that of a record with a namespace, and with no version set that older releases do not use by
// default.
const namespaceFormat = 2

// Record says which cluster a state folder belongs to.
type Record struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"` // CLUSTER_NAME
	// Namespace is the one of the cluster's objects in its management cluster; empty: default, as in older releases.
	Namespace string `json:"namespace,omitempty"`
	// Versions is the version set that the cluster was made with, or upgraded to last; empty: an older release made it,
	// which recorded none.
	Versions string `json:"versions,omitempty"`
	// Reservation is the ID of the placement group that reserves the cluster's name. IDs are unique in all of Hetzner
	// Cloud, so it identifies the project. 0: the name has not been reserved yet.
	Reservation int64 `json:"reservation,omitempty"`
	// Management is the management cluster that this state folder created or adopted; nil: none, or it was deleted.
	Management *Management `json:"management,omitempty"`
}

// Management identifies a management cluster.
type Management struct {
	Provider string `json:"provider"` // "kind", "kubeconfig" or "lab"
	Name     string `json:"name"`
	UID      string `json:"uid,omitempty"` // of its namespace kube-system; empty: its API has not answered yet
	// Engine is the container engine that a kind cluster is in; empty: an older release created it, or none did yet.
	Engine string `json:"engine,omitempty"`
	// Adopted is the container of a kind cluster that this state folder did not create, and the operator agreed to use.
	Adopted string `json:"adopted,omitempty"`
}

// Files is the part of a state folder that this package needs.
type Files interface {
	// Read returns an error that wraps fs.ErrNotExist where the file does not exist.
	Read(name string) ([]byte, error)
	Write(name string, data []byte) error
	Remove(name string) error
}

// Read reads the record; nil where the folder has none.
func Read(files Files) (*Record, error) {
	data, err := files.Read(File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which cluster the state folder belongs to: %w", err)
	}
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("read which cluster the state folder belongs to: %s: %w", File, err)
	}
	switch {
	case r.Format > Format:
		return nil, fmt.Errorf("%s has format %d, which a newer release wrote; this one reads up to %d", File, r.Format,
			Format)
	case r.Cluster == "":
		return nil, fmt.Errorf("%s does not name a cluster", File)
	}
	return r, nil
}

// Write writes the record.
func (r Record) Write(files Files) error {
	switch {
	case r.Versions != "" && r.Versions != config.Shipped().Earlier.Default:
		r.Format = Format // older releases would take the cluster for one of their default
	case r.Namespace != "":
		r.Format = namespaceFormat
	default:
		r.Format = plainFormat
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return files.Write(File, append(data, '\n'))
}

// updating is held by Update: two steps of one run may change the record at the same time, and no other process does.
var updating sync.Mutex

// Update changes the record. A folder without one, which only an older release or a test leaves, stays without one.
func Update(files Files, change func(*Record)) error {
	updating.Lock()
	defer updating.Unlock()
	r, err := Read(files)
	if err != nil || r == nil {
		return err
	}
	change(r)
	return r.Write(files)
}

// Remove makes the folder belong to no cluster.
func Remove(files Files) error { return files.Remove(File) }

// MixedError says that the journal of a folder without a record, of a release that did not write one, has steps of
// several clusters.
type MixedError struct{ Clusters []string }

// Error implements error.
func (e *MixedError) Error() string {
	return "the journal has records of several clusters: " + strings.Join(e.Clusters, ", ")
}

// FromJournal derives the record of a folder that an older release used; nil where the journal names no cluster. Where
// steps of several clusters are in one journal the error is a *MixedError.
func FromJournal(s flow.Snapshot) (*Record, error) {
	r := &Record{}
	var clusters []string
	add := func(name string) {
		if name != "" && !slices.Contains(clusters, name) {
			clusters = append(clusters, name)
		}
	}
	var reserved struct{ ClusterName string }
	if decode(s.Steps["reserve"].Spec, &reserved) {
		add(reserved.ClusterName)
	}
	var reservation struct{ ID int64 }
	if decode(s.Steps["reserve"].Output, &reservation) {
		r.Reservation = reservation.ID
	}
	var applied struct{ Name string }
	if decode(s.Steps["apply"].Output, &applied) {
		add(applied.Name)
	}
	var management Management
	if decode(s.Steps["kind-create"].Output, &management) && management.Name != "" {
		add(strings.TrimSuffix(management.Name, "-mgmt"))
		if s.Steps["clean"].State != flow.StateDone {
			r.Management = &management
		}
	}
	switch len(clusters) {
	case 0:
		return nil, nil
	case 1:
		r.Cluster = clusters[0]
		return r, nil
	}
	slices.Sort(clusters)
	return nil, &MixedError{clusters}
}

// adminContext is the context of a kubeconfig that Cluster API generates: "k8s-admin@k8s".
var adminContext = regexp.MustCompile(`^(.+)-admin@(.+)$`)

// FromKubeconfig derives the record of a folder from the kubeconfig of the cluster that an earlier release left in it;
// nil where there is none, or where it names no cluster as Cluster API names it.
func FromKubeconfig(files Files) (*Record, error) {
	data, err := files.Read("kubeconfig")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which cluster the state folder belongs to: %w", err)
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, nil // it opens no cluster, and tells of none
	}
	if names := adminContext.FindStringSubmatch(config.CurrentContext); names != nil && names[1] == names[2] {
		return &Record{Cluster: names[1]}, nil
	}
	return nil, nil
}

func decode(raw json.RawMessage, to any) bool {
	return len(raw) > 0 && json.Unmarshal(raw, to) == nil
}
