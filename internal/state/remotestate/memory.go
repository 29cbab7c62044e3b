package remotestate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// synced is the file of a state folder that says what of it is in a store.
type synced struct {
	Store  string `json:"store"`
	Serial int64  `json:"serial"`
	Digest string `json:"digest"`
	// Pulling is true while the content of this serial is being written: what the folder has is neither one.
	Pulling bool `json:"pulling,omitempty"`
	// Open is true while a run holds the lease, and stays so where it ended without giving it back: what the folder has
	// that the store has not is that run's.
	Open bool `json:"open,omitempty"`
	// Seen is the newest document that was seen of each object, by store and name.
	Seen map[string]seen `json:"seen,omitempty"`
}

// seen is what a state folder remembers of a stored document.
type seen struct {
	Serial int64  `json:"serial"`
	Digest string `json:"digest"`
	Format int    `json:"format"`
}

// readSynced reads what a folder remembers; nothing where it was never the same as a store.
func readSynced(dir string) (s synced, err error) {
	data, err := os.ReadFile(filepath.Join(dir, statedir.SyncedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("read %s: %w", filepath.Join(dir, statedir.SyncedFile), err)
	}
	return s, nil
}

// StoreOf is the store that a state folder was last the same as; empty: none, or that cannot be read.
func StoreOf(dir string) string {
	s, err := readSynced(dir)
	if err != nil {
		return ""
	}
	return s.Store
}

func (s synced) write(dir string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return statedir.Dir(dir).Files().Write(statedir.SyncedFile, append(data, '\n'))
}

// object names the state in Seen.
func (p Place) object() string { return p.Store.String() + " " + p.name() }

// seen is the newest document that the folder has seen; nothing: of serial 0. Folders of releases that did not write it
// down have seen what they were last the same as, without an authentication.
func (p Place) seen() (seen, error) {
	s, err := readSynced(p.Dir)
	if err != nil {
		return seen{}, err
	}
	newest := s.Seen[p.object()]
	if s.Store == p.Store.String() && s.Serial > newest.Serial {
		newest = seen{s.Serial, s.Digest, max(newest.Format, 1)}
	}
	return newest, nil
}

// with is what the folder remembers once it has seen a document, which may be an older one.
func (s synced) with(object string, d Document) synced {
	all := maps.Clone(s.Seen)
	if all == nil {
		all = map[string]seen{}
	}
	if was := all[object]; d.Serial >= was.Serial {
		all[object] = seen{d.Serial, d.Digest, max(d.Format, was.Format)}
	}
	s.Seen = all
	return s
}

// see remembers a document, in a folder that exists.
func (p Place) see(d Document) error {
	if _, err := os.Stat(p.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	was, err := readSynced(p.Dir)
	if err != nil {
		return err
	}
	now := was.with(p.object(), d)
	if now.Seen[p.object()] == was.Seen[p.object()] {
		return nil
	}
	return now.write(p.Dir)
}

// forget has the folder, which has an older document now, take it for the newest: the operator says so.
func (p Place) forget(d Document) error {
	s, err := readSynced(p.Dir)
	if err != nil {
		return err
	}
	format := s.Seen[p.object()].Format // an authentication is not forgotten
	delete(s.Seen, p.object())
	d.Format = max(d.Format, format)
	return s.with(p.object(), d).write(p.Dir)
}

// remember writes down that the folder's content is that of a document in the store, and what else of it: that the run
// which wrote it holds the lease (Open), or that it is becoming that (Pulling).
func (p Place) remember(d Document, how synced) error {
	was, err := readSynced(p.Dir)
	if err != nil {
		return err
	}
	how.Store, how.Serial, how.Digest, how.Seen = p.Store.String(), d.Serial, d.Digest, was.Seen
	return how.with(p.object(), d).write(p.Dir)
}
