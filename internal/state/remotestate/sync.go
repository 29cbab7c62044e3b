package remotestate

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

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
	known := last.Store == p.Store.String()
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
// since. What the folder had is set aside then: what a run learns it finds out again, from what exists.
func (p Place) bring(d Document) (Relation, error) {
	is, err := p.Compare(d)
	if err != nil {
		return is, err
	}
	switch is {
	case Behind:
		return is, p.unpack(d, statedir.ReplacedName)
	case Overtaken:
		return is, p.Overwrite(d)
	case Diverged:
		return is, &DivergedError{Dir: p.Dir, Store: p.Store.String(), Serial: d.Serial}
	case Same:
		if d.Serial > 0 {
			return is, p.remember(d, synced{})
		}
	}
	return is, nil
}

// unpack makes the folder's content that of a stored document. What it had is set aside first, as a whole; from the
// mark on, one that is cut off is made again.
func (p Place) unpack(d Document, aside string) error {
	c, err := p.content(d)
	if err != nil {
		return err
	}
	was, err := readSynced(p.Dir)
	if err != nil {
		return err
	}
	if !was.Pulling { // else what is there is a part of either content, and the whole was set aside
		if err := p.setAside(c, aside); err != nil {
			return err
		}
	}
	if err := p.remember(d, synced{Pulling: true}); err != nil {
		return err
	}
	if err := c.write(p.Dir); err != nil {
		return err
	}
	return p.remember(d, synced{})
}

// setAside copies the folder's files into a folder in it, in place of what was there, unless they are the new content.
func (p Place) setAside(becomes Content, name string) error {
	is, err := Read(p.Dir)
	if err != nil || len(is) == 0 || is.Digest() == becomes.Digest() {
		return err
	}
	files := statedir.Dir(p.Dir).Files()
	half := files.Folder(name + statedir.UnfinishedSuffix)
	if err := half.RemoveFolder(); err != nil {
		return err
	}
	for _, file := range is.names() {
		if err := is.writeOne(half, file); err != nil {
			return err
		}
	}
	if err := files.Folder(name).RemoveFolder(); err != nil {
		return err
	}
	return files.Move(name+statedir.UnfinishedSuffix, name)
}

// Pull brings the state folder up to date without the lease. The caller holds the folder's lock.
func (p Place) Pull(ctx context.Context) (Document, Relation, error) {
	d, _, ok, err := p.Document(ctx)
	if err != nil || !ok {
		return d, "", err
	}
	is, err := p.bring(d)
	return d, is, err
}

// Inspect is for what only looks: it returns the folder to read, and removes and replaces no file of the state folder.
// Where the store has another content, that is in a folder of its own, which has the records of this machine, too; an
// empty state folder is filled. The caller holds the state folder's lock.
func (p Place) Inspect(ctx context.Context) (dir string, d Document, is Relation, err error) {
	d, _, ok, err := p.Document(ctx)
	if err != nil || !ok {
		return p.Dir, d, "", err
	}
	if is, err = p.Compare(d); err != nil {
		return p.Dir, d, is, err
	}
	view := statedir.Dir(p.Dir).View()
	switch is {
	case Behind, Overtaken:
		var c Content
		if c, err = p.content(d); err != nil {
			return p.Dir, d, is, err
		}
		has, err := Read(p.Dir)
		if err != nil {
			return p.Dir, d, is, err
		}
		if len(has) == 0 {
			return p.Dir, d, is, p.unpack(d, statedir.ReplacedName)
		}
		if err := errors.Join(view.Link(p.Dir), c.write(string(view)), p.see(d)); err != nil {
			return p.Dir, d, is, fmt.Errorf("write what the store has into %s: %w", view, err)
		}
		return string(view), d, is, nil
	case Diverged:
		return p.Dir, d, is, &DivergedError{Dir: p.Dir, Store: p.Store.String(), Serial: d.Serial}
	case Same:
		if d.Serial > 0 {
			err = errors.Join(p.remember(d, synced{}), os.RemoveAll(string(view)))
		}
	case Ahead:
	}
	return p.Dir, d, is, err
}

// Overwrite makes the folder's content that of a stored document, whatever it was; its files are set aside.
func (p Place) Overwrite(d Document) error { return p.unpack(d, statedir.AsideName) }

// Accept is Overwrite with the newest document, also where the folder has seen a newer one.
func (p Place) Accept(ctx context.Context) (Document, error) {
	d, _, ok, err := p.read(ctx)
	switch {
	case err == nil && !ok:
		err = fmt.Errorf("%s has no state of cluster %s (%s)", p.Store, p.Cluster, p.Environment)
	case err == nil:
		err = p.recall(d, true)
	}
	refused := (*RefusedError)(nil)
	older := errors.As(err, &refused) && (refused.Reason == Older || refused.Reason == Changed)
	if err != nil && !older {
		return d, err
	}
	if err := p.Overwrite(d); err != nil || !older {
		return d, err
	}
	return d, p.forget(d)
}

// GoBack makes the folder's content that of an older version, as a change that the store has not: the next run, or a
// push, makes it the newest. Cut off before its end it leaves a folder that is brought up to date again.
func (p Place) GoBack(version, newest Document) error {
	if err := p.Overwrite(version); err != nil {
		return err
	}
	return p.remember(newest, synced{})
}
