// Package remotestate keeps the state of a cluster in a store that other machines reach, too. A run holds it under a
// lease: one run at a time writes, and one that has lost its lease can neither write nor go on.
package remotestate

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/internal/objectstore"
	"github.com/slipway-k8s/slipway/internal/text"
)

// Format is the version of a Document's JSON that this package writes. It refuses newer ones.
const Format = 1

// Document is the state of a cluster as it is stored, in one object: so a write changes all of it or nothing.
type Document struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	World   string `json:"world"` // "hetzner" or "lab"
	// Serial counts the changes of the content.
	Serial int64 `json:"serial"`
	// Token is the fencing token: it grows with every holder, and when a lease is taken away. A writer that finds another
	// one than its own has lost its lease.
	Token  int64   `json:"token"`
	Holder *Holder `json:"holder,omitempty"` // nil: no run holds it
	// Written is when the content changed, by the writer's clock; By who wrote it.
	Written time.Time `json:"written,omitzero"`
	By      string    `json:"by,omitempty"`
	Digest  string    `json:"digest,omitempty"` // of the content: Content.Digest
	Sealed  []byte    `json:"sealed,omitempty"` // the content, encrypted: seal
}

// stored is the digest of the content; of one that was never written it is that of no file.
func (d Document) stored() string {
	if d.Serial == 0 {
		return Content{}.Digest()
	}
	return d.Digest
}

// Holder is the run that holds a lease.
type Holder struct {
	ID      string        `json:"id"` // random
	Host    string        `json:"host"`
	Machine string        `json:"machine,omitempty"` // Who.Machine
	PID     int           `json:"pid"`
	Command string        `json:"command"` // the targets, as the operator wrote them
	Since   time.Time     `json:"since"`
	Renewed time.Time     `json:"renewed"` // by the holder's clock
	Lease   time.Duration `json:"leaseNs"` // how long after its last sign it may be taken for gone
}

func (h *Holder) String() string {
	return fmt.Sprintf("process %d on %s (%s), since %s", h.PID, h.Host, h.Command, h.Since.UTC().Format(time.RFC3339))
}

// Who is a process, as a Document names it.
type Who struct {
	Host    string
	Machine string // where its process id is unique; empty: unknown
	PID     int
	Command string
}

func (w Who) String() string { return fmt.Sprintf("process %d on %s (%s)", w.PID, w.Host, w.Command) }

// Name is the name of a cluster's object; world keeps a rehearsal's state from that of a real cluster.
func Name(world, cluster string) string { return world + "/" + cluster + "/state" }

// prefixOfVersions is that of the names of a cluster's kept versions.
func prefixOfVersions(world, cluster string) string { return world + "/" + cluster + "/versions/" }

func nameOfVersion(world, cluster string, serial int64) string {
	return fmt.Sprintf("%s%08d", prefixOfVersions(world, cluster), serial)
}

func encode(d Document) ([]byte, error) {
	d.Format = Format
	data, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode the state: %w", err)
	}
	return append(data, '\n'), nil
}

func decode(s objectstore.Store, name string, data []byte) (Document, error) {
	var d Document
	if err := json.Unmarshal(data, &d); err != nil {
		return d, fmt.Errorf("the state %s in %s is damaged (%w): restore the object from a version of it (state list), or "+
			"delete it; a run then begins with what is in its state folder", name, s, err)
	}
	if d.Format > Format {
		return d, fmt.Errorf("the state %s in %s is of format %d and this program reads formats up to %d: use the newer "+
			"program that wrote it", name, s, d.Format, Format)
	}
	if d.Format < 1 {
		return d, fmt.Errorf("the object %s in %s is no state of a cluster", name, s)
	}
	// Other machines have written these, and they are printed.
	d.Cluster, d.World, d.By = text.Printable(d.Cluster), text.Printable(d.World), text.Printable(d.By)
	if d.Holder != nil {
		d.Holder.Host, d.Holder.Command = text.Printable(d.Holder.Host), text.Printable(d.Holder.Command)
	}
	return d, nil
}
