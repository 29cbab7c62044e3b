package remotestate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/objectstore"
	"github.com/slipway-k8s/slipway/internal/statedir"
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
}

func readSynced(dir string) (*synced, error) {
	data, err := os.ReadFile(filepath.Join(dir, statedir.SyncedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var s synced
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, statedir.SyncedFile), err)
	}
	return &s, nil
}

// StoreOf is the store that a state folder was last the same as; empty: none, or that cannot be read.
func StoreOf(dir string) string {
	s, err := readSynced(dir)
	if err != nil || s == nil {
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

// remember writes down that the folder's content is in the store, and whether the run that wrote it holds the lease.
func (p Place) remember(d Document, open bool) error {
	return synced{Store: p.Store.String(), Serial: d.Serial, Digest: d.Digest, Open: open}.write(p.Dir)
}

// Relation is how the content of a state folder and of its store are related.
type Relation string

// The relations.
const (
	Same      Relation = "same"
	Behind    Relation = "behind"    // the store has changed, the folder has not
	Ahead     Relation = "ahead"     // the folder has changed, the store has not
	Overtaken Relation = "overtaken" // both have, the folder by a run that lost its lease, or was killed
	Diverged  Relation = "diverged"  // both have, or the folder's was never in this store
)

// Compare finds out how a state folder is related to what is stored.
func (p Place) Compare(d Document) (Relation, error) {
	is, err := Read(p.Dir)
	if err != nil {
		return "", err
	}
	last, err := readSynced(p.Dir)
	if err != nil {
		return "", err
	}
	known := last != nil && last.Store == p.Store.String()
	digest := is.Digest()
	switch {
	case known && last.Pulling:
		return Behind, nil
	case digest == d.stored():
		return Same, nil
	case d.Serial == 0:
		return Ahead, nil
	case is.blank(), known && digest == last.Digest && d.Serial > last.Serial:
		return Behind, nil
	case known && d.Serial == last.Serial && d.Digest == last.Digest:
		return Ahead, nil
	case known && last.Open && d.Serial > last.Serial:
		return Overtaken, nil
	}
	return Diverged, nil
}

// DivergedError means that a state folder and its store both have changed since they were last the same.
type DivergedError struct {
	Dir, Store string
	Serial     int64
}

func (e *DivergedError) Error() string {
	return fmt.Sprintf("the state folder %s and the state in %s (serial %d) have both changed since they were last the "+
		"same, or never were: keep the store's with \"state pull --force\" (the folder's files are set aside in it), or the folder's "+
		"with \"state push --force\" (the store keeps its own as a version)", e.Dir, e.Store, e.Serial)
}

// bring makes the folder's content that of the store, where only the store has changed, or another run has worked
// since. What the folder had alone is set aside then: what a run learns it finds out again, from what exists.
func (p Place) bring(d Document) (Relation, error) {
	is, err := p.Compare(d)
	if err != nil {
		return is, err
	}
	switch is {
	case Behind:
		return is, p.unpack(d)
	case Overtaken:
		return is, p.Overwrite(d)
	case Diverged:
		return is, &DivergedError{Dir: p.Dir, Store: p.Store.String(), Serial: d.Serial}
	case Same:
		if d.Serial > 0 {
			return is, p.remember(d, false)
		}
	}
	return is, nil
}

// unpack writes a stored content into the folder. One that is cut off is made again.
func (p Place) unpack(d Document) error {
	c, err := p.Keys.open(d.Sealed)
	if err != nil {
		return err
	}
	if c.Digest() != d.Digest {
		return fmt.Errorf("the state of cluster %s in %s is damaged: its files are not those that were written", p.Cluster,
			p.Store)
	}
	mark := synced{Store: p.Store.String(), Serial: d.Serial, Digest: d.Digest, Pulling: true}
	if err := mark.write(p.Dir); err != nil {
		return err
	}
	if err := c.write(p.Dir); err != nil {
		return err
	}
	return p.remember(d, false)
}

// Pull brings the state folder up to date without the lease, for what only looks. The caller holds the folder's lock.
func (p Place) Pull(ctx context.Context) (Document, Relation, error) {
	d, _, ok, err := p.Document(ctx)
	if err != nil || !ok {
		return d, "", err
	}
	is, err := p.bring(d)
	return d, is, err
}

// Overwrite makes the folder's content that of a stored document, whatever it was; its files are set aside.
func (p Place) Overwrite(d Document) error {
	is, err := Read(p.Dir)
	if err != nil {
		return err
	}
	if len(is) > 0 && is.Digest() != d.Digest {
		aside := statedir.Dir(p.Dir).Files().Folder(statedir.AsideName)
		if err := aside.RemoveFolder(); err != nil {
			return err
		}
		for _, name := range is.names() {
			if err := is.writeOne(aside, name); err != nil {
				return err
			}
		}
	}
	return p.unpack(d)
}

// GoBack makes the folder's content that of an older version, as a change that the store has not: the next run, or a push,
// makes it the newest. Cut off before its end it leaves a folder that is brought up to date again.
func (p Place) GoBack(version, newest Document) error {
	if err := p.Overwrite(version); err != nil {
		return err
	}
	return p.remember(newest, false)
}

// versionsKept is how many versions of a state a store keeps besides the state itself.
const versionsKept = 20

// keepVersion keeps a copy of a document's content under a name of its own, once.
func (p Place) keepVersion(ctx context.Context, d Document) error {
	if d.Serial == 0 {
		return nil
	}
	d.Holder = nil
	data, err := encode(d)
	if err != nil {
		return err
	}
	_, err = p.Store.Put(ctx, nameOfVersion(p.World, p.Cluster, d.Serial), data, objectstore.None)
	if err != nil && !errors.Is(err, objectstore.ErrConflict) {
		return fmt.Errorf("keep a version of the state: %w", err)
	}
	serials, err := p.Versions(ctx)
	if err != nil {
		return err
	}
	for _, serial := range serials[:max(0, len(serials)-versionsKept)] {
		if err := p.Store.Delete(ctx, nameOfVersion(p.World, p.Cluster, serial)); err != nil {
			return fmt.Errorf("delete an old version of the state: %w", err)
		}
	}
	return nil
}

// Versions are the serials of the versions that the store keeps, the oldest first.
func (p Place) Versions(ctx context.Context) ([]int64, error) {
	prefix := prefixOfVersions(p.World, p.Cluster)
	names, err := p.Store.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	var serials []int64
	for _, name := range names {
		if serial, err := strconv.ParseInt(strings.TrimPrefix(name, prefix), 10, 64); err == nil {
			serials = append(serials, serial)
		}
	}
	slices.Sort(serials)
	return serials, nil
}

// Version reads a version that the store keeps.
func (p Place) Version(ctx context.Context, serial int64) (Document, error) {
	name := nameOfVersion(p.World, p.Cluster, serial)
	data, _, err := p.Store.Get(ctx, name)
	if err != nil {
		return Document{}, err
	}
	return decode(p.Store, name, data)
}
