package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/base/keys"
)

// Store is where backups lie. The errors of its methods name the place.
type Store interface {
	// String is the place as people write it.
	String() string
	// List lists the backups of all clusters there, oldest first, and nothing else that is stored beside them.
	List(ctx context.Context) ([]Stored, error)
	// Open reads one of them.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Remove removes one.
	Remove(ctx context.Context, name string) error
	// Begin begins one under a temporary name, until ctx is done.
	Begin(ctx context.Context, name string) (Draft, error)
}

// Draft is a backup that is not one yet: List does not have it. Finish, Open and Publish follow what is written, in
// this order.
type Draft interface {
	io.Writer
	// Finish returns when all of it is kept.
	Finish() error
	// Open reads back what is kept.
	Open() (io.ReadCloser, error)
	// Publish gives it its name, in one piece.
	Publish() error
	// Discard removes what was not published. It works when the context has ended, too.
	Discard() error
}

// Stored is a backup in a Store, as its name tells.
type Stored struct {
	Name    string    `json:"name"`
	Cluster string    `json:"cluster"`
	Taken   time.Time `json:"taken"`
	Size    int64     `json:"size"` // bytes
}

func newStored(name string, size int64) (Stored, bool) {
	cluster, at, ok := ParseName(name)
	return Stored{Name: name, Cluster: cluster, Taken: at, Size: size}, ok
}

func byAge(a, b Stored) int { return cmp.Or(a.Taken.Compare(b.Taken), cmp.Compare(a.Name, b.Name)) }

// Temporary names. What a run left that was killed is removed by a later one of the same cluster, when no run can be at
// work on it any more.
const (
	draftPrefix  = "."
	draftSuffix  = ".partial"
	abandonedAge = 24 * time.Hour
)

func draftName(name string) string { return draftPrefix + name + draftSuffix }

// abandoned tells whether a name is that of a draft of the same cluster as another backup, and left behind.
func abandoned(draft, name string, now time.Time) bool {
	inner, isDraft := strings.CutSuffix(draft, draftSuffix)
	inner, hidden := strings.CutPrefix(inner, draftPrefix)
	theirs, at, ok := ParseName(inner)
	mine, _, _ := ParseName(name)
	return isDraft && hidden && ok && theirs == mine && now.Sub(at) > abandonedAge
}

// Save writes a backup into a store, reads it back from there, checks every sum of it, and only then gives it its name.
// Whatever fails, nothing of it is left.
func Save(ctx context.Context, store Store, seal Seal, c Contents, snapshot io.Reader) (_ Stored, err error) {
	name := Name(c.Header.Cluster, c.Header.Taken)
	var by []keys.Authenticator
	if seal.Authenticator != nil {
		by = append(by, *seal.Authenticator)
	}
	seal, recorder := seal.recorded()
	draft, err := store.Begin(ctx, name)
	if err != nil {
		return Stored{}, err
	}
	defer func() { err = errors.Join(err, draft.Discard()) }()
	counted := &counter{Writer: draft}
	if _, err := Write(counted, seal, c, snapshot); err != nil {
		return Stored{}, err
	}
	if err := draft.Finish(); err != nil {
		return Stored{}, err
	}
	if err := readBack(draft, recorder.identities(), by); err != nil {
		return Stored{}, fmt.Errorf("read the backup back from %s: %w", store, err)
	}
	if err := context.Cause(ctx); err != nil {
		return Stored{}, err
	}
	if err := draft.Publish(); err != nil {
		return Stored{}, err
	}
	stored, _ := newStored(name, counted.n)
	return stored, nil
}

func readBack(draft Draft, identities []age.Identity, by []keys.Authenticator) (err error) {
	file, err := draft.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	a, err := Open(file, identities...)
	if err != nil {
		return err
	}
	c, err := a.Read(io.Discard, by...)
	if err == nil && len(by) > 0 && !c.Origin.Authentic() {
		err = fmt.Errorf("%w: it lacks its authentication", ErrForged)
	}
	return err
}

type counter struct {
	io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n += int64(n)
	return n, err
}

// Prune removes the oldest backups of one cluster, so that keep of them are left, and returns them. It never removes
// the one called newest, whatever the clocks say, and nothing of any other cluster.
func Prune(ctx context.Context, store Store, cluster, newest string, keep int) ([]Stored, error) {
	all, err := store.List(ctx)
	if err != nil {
		return nil, err
	}
	older := slices.DeleteFunc(all, func(s Stored) bool { return s.Cluster != cluster || s.Name == newest })
	surplus := older[:max(0, len(older)-max(0, keep-1))]
	for i, s := range surplus {
		if err := store.Remove(ctx, s.Name); err != nil {
			return surplus[:i], err
		}
	}
	return surplus, nil
}
