// Package remotestate keeps the state of a cluster in a store that other machines reach, too. A run holds it under a
// lease: one run at a time writes, and one that has lost its lease can neither write nor go on. What is stored is
// encrypted, and authenticated with a key of the cluster: who can write the store can delete it, and not change it. It
// opens the store, with the keys that the configuration names.
package remotestate

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/text"
)

// Format is the version of a Document's JSON that this package writes: each field that is added is a new version,
// because a Document is authenticated with all of its fields. It refuses newer ones. Documents of format 1 have no
// authentication.
const Format = 2

// authenticated is the first format whose documents are authenticated.
const authenticated = 2

// mostStored bounds a stored document (bytes): the largest that a store takes.
const mostStored = 16 << 20

// Document is the state of a cluster as it is stored, in one object: so a write changes all of it or nothing.
type Document struct {
	Format      int    `json:"format"`
	Cluster     string `json:"cluster"`
	Environment string `json:"world"` // "hetzner" or "lab"
	// Serial counts the changes of the content.
	Serial int64 `json:"serial"`
	// Token is the fencing token: it begins at a random number, and grows with every holder and when a lease is taken
	// away. A writer that finds another one than its own, or another holder, has lost its lease.
	Token  int64   `json:"token"`
	Holder *Holder `json:"holder,omitempty"` // nil: no run holds it
	// Written is when the content changed, by the writer's clock; By who wrote it.
	Written time.Time `json:"written,omitzero"`
	By      string    `json:"by,omitempty"`
	Digest  string    `json:"digest,omitempty"` // of the content: Content.Digest
	Sealed  []byte    `json:"sealed,omitempty"` // the content, encrypted: seal
	// Authentication is the sum of the document without this field: keys.Authenticator, for keys.State.
	Authentication []byte `json:"authentication,omitempty"`
}

// WrittenAt is when the content changed, for people.
func (d Document) WrittenAt() string {
	if d.Written.IsZero() {
		return "-"
	}
	return d.Written.UTC().Format(time.RFC3339)
}

// stored is the digest of the content; of one that was never written it is that of no file.
func (d Document) stored() string {
	if d.Serial == 0 {
		return Content{}.Digest()
	}
	return d.Digest
}

// message is what is authenticated.
func (d Document) message() ([]byte, error) {
	d.Authentication = nil
	message, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode the state: %w", err)
	}
	return message, nil
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

// Name is the name of a cluster's object; environment keeps a rehearsal's state from that of a real cluster.
func Name(environment, cluster string) string { return environment + "/" + cluster + "/state" }

// versionPrefix is that of the names of the cluster's kept versions.
func (p Place) versionPrefix() string { return p.Environment + "/" + p.Cluster + "/versions/" }

func (p Place) versionName(serial int64) string {
	return fmt.Sprintf("%s%08d", p.versionPrefix(), serial)
}

// encode authenticates a document, with the first key of the cluster.
func (p Place) encode(d Document) ([]byte, error) {
	d.Format = Format
	message, err := d.message()
	if err != nil {
		return nil, err
	}
	if d.Authentication, err = p.Keys.sum(message); err != nil {
		return nil, err
	}
	data, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode the state: %w", err)
	}
	return append(data, '\n'), nil
}

// decode reads a stored document of any known format and authenticates it where its format is authenticated. What it
// returns with a nil error and a Format below authenticated was possibly written without a key: see recall.
func (p Place) decode(name string, data []byte) (Document, error) {
	d, err := p.parse(name, data)
	if err != nil {
		return d, err
	}
	if d.Format >= authenticated {
		message, err := d.message()
		if err != nil {
			return d, err
		}
		if !p.Keys.authentic(message, d.Authentication) {
			return d, p.refuse(name, NotAuthentic, "it was not written with the key of this cluster, or was changed since; or "+
				"STATE_IDENTITY_FILE has another key than the machine that wrote it")
		}
	}
	switch {
	case d.Cluster != p.Cluster || d.Environment != p.Environment:
		return d, p.refuse(name, NotAuthentic, fmt.Sprintf("it is the state of %q (%q)", d.Cluster, d.Environment))
	case d.Serial < 0, d.Serial == 0 && len(d.Sealed)+len(d.Digest) > 0:
		return d, p.refuse(name, NotAuthentic, fmt.Sprintf("content with serial %d is none that a run writes", d.Serial))
	case d.Serial > 0 && (len(d.Sealed) == 0 || d.Digest == Content{}.Digest()):
		return d, p.refuse(name, Empty, fmt.Sprintf("it has serial %d and no content", d.Serial))
	}
	return d.printable(), nil
}

// parse reads a document, and takes its word for everything.
func (p Place) parse(name string, data []byte) (Document, error) {
	var d Document
	if len(data) > mostStored {
		return d, p.refuse(name, Damaged, fmt.Sprintf("it is longer than %d bytes", mostStored))
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return d, p.refuse(name, Damaged, err.Error())
	}
	if d.Format > Format {
		return d, fmt.Errorf("the state %s in %s is of format %d and this program reads formats up to %d: use the newer "+
			"program that wrote it", name, p.Store, d.Format, Format)
	}
	if d.Format < 1 {
		return d, p.refuse(name, Damaged, "it is no state of a cluster")
	}
	return d, nil
}

// printable is the document with texts that can be printed: other machines have written them.
func (d Document) printable() Document {
	d.Cluster, d.Environment, d.By = text.Printable(d.Cluster), text.Printable(d.Environment), text.Printable(d.By)
	if d.Holder != nil {
		holder := *d.Holder
		holder.Host, holder.Command = text.Printable(holder.Host), text.Printable(holder.Command)
		d.Holder = &holder
	}
	return d
}
