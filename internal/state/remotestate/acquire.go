package remotestate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/objectstore"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// How often who waits for a lease looks at it: the stores cannot be watched.
const (
	lookFastest = 50 * time.Millisecond
	lookSlowest = 2 * time.Second
)

// Acquire takes the lease of a cluster's state, and brings its content into the state folder. While another run holds
// it, it waits, and says who that is; it takes over where the holder is a process of this machine that has ended, or
// has given no sign for as long as its lease says, by this machine's clock. The context that it returns ends with the
// lease, with a *LostError as its cause.
func Acquire(ctx context.Context, p Place, within time.Duration, say flow.Say) (context.Context, *Session, error) {
	s, leased, err := p.hold(ctx, within, p.Document, say)
	if err != nil {
		return nil, nil, err
	}
	if err := s.settle(leased, say); err != nil {
		return nil, nil, errors.Join(err, s.abandon(context.WithoutCancel(ctx)))
	}
	return leased, s, nil
}

// hold takes the lease, and leaves the folder as it is.
func (p Place) hold(ctx context.Context, within time.Duration, read reader, say flow.Say) (*Session, context.Context,
	error) {
	if err := p.Keys.Check(); err != nil {
		return nil, nil, err
	}
	if err := objectstore.CheckConditions(ctx, p.Store); err != nil {
		return nil, nil, fmt.Errorf("look whether the state can be locked: %w", err)
	}
	d, version, at, err := p.take(ctx, within, read, say)
	if err != nil {
		return nil, nil, err
	}
	leased, s := begin(ctx, p, d, version, at)
	return s, leased, nil
}

// settle keeps a version of what the lease begins with, and brings folder and store together.
func (s *Session) settle(ctx context.Context, say flow.Say) error {
	s.mu.Lock()
	d := s.document
	s.mu.Unlock()
	if err := s.place.keepVersion(ctx, d); err != nil {
		return err
	}
	is, err := s.place.bring(d)
	if err != nil {
		return err
	}
	switch is {
	case Behind:
		say("the state folder has the state of serial %d now, written by %s", d.Serial, d.By)
	case Overtaken:
		say("another run has worked since this folder was last the same as the store: it has the state of serial %d now, and "+
			"what it had is in %s", d.Serial, filepath.Join(s.place.Dir, statedir.AsideName))
	}
	return s.Push(ctx)
}

// reader reads what is stored, as Place.Document does.
type reader func(context.Context) (d Document, version string, ok bool, err error)

// take makes this process the holder of what a reader returns.
func (p Place) take(ctx context.Context, within time.Duration, read reader, say flow.Say) (Document, string, time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("it was not given back within %s", within))
	defer cancel()
	tick := time.Tick(min(max(p.lease()/60, lookFastest), lookSlowest))
	var lives, who string // any write changes the version, and so says that a holder lives
	var since time.Time   // by this machine's clock
	for {
		d, version, exists, err := read(ctx)
		if err != nil {
			return d, "", time.Time{}, fmt.Errorf("read the state of cluster %s: %w", p.Cluster, p.waited(ctx, who, err))
		}
		if version != lives || since.IsZero() {
			lives, since = version, time.Now()
		}
		if free, why := p.free(d, since); free {
			if why != "" {
				say("taking the lease of %s over: %s", d.Holder, why)
			}
			if exists && d.Format < authenticated {
				say("the state in %s is of an older release, which did not authenticate it; it is written anew", p.Store)
			}
			taken, version, at, err := p.claim(ctx, d, version)
			if !errors.Is(err, objectstore.ErrConflict) {
				return taken, version, at, err
			}
		} else if is := d.Holder.String(); is != who {
			who = is
			say("the state of cluster %s in %s is held by %s; waiting until it is given back, or the holder has given no sign "+
				"for %s", p.Cluster, p.Store, who, d.Holder.Lease)
		}
		select {
		case <-ctx.Done():
			return d, "", time.Time{}, fmt.Errorf("lock the state of cluster %s: %w", p.Cluster,
				p.waited(ctx, who, context.Cause(ctx)))
		case <-tick:
		}
	}
}

// waited adds who was waited for to an error.
func (p Place) waited(ctx context.Context, who string, err error) error {
	if who == "" || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w (%s holds it; wait longer with STATE_WAIT, or see what takes its lease away: state unlock)", err,
		who)
}

// mostFirstToken bounds the token that an object begins with. JSON numbers are exact up to 2^53.
const mostFirstToken = 1 << 48

// free reports whether the lease can be taken, and why where it has a holder.
func (p Place) free(d Document, since time.Time) (free bool, why string) {
	h := d.Holder
	switch {
	case h == nil:
		return true, ""
	case h.Machine != "" && h.Machine == p.Who.Machine && (h.PID == os.Getpid() || !statedir.Lives(h.PID)):
		// A process with this one's own id has ended, too: the id was given again.
		return true, "the process has ended"
	case time.Since(since) > h.Lease:
		return true, fmt.Sprintf("it has given no sign for %s", h.Lease)
	}
	return false, ""
}

// claim writes this process into the document, with a new token. The content of a format without authentication is
// written anew.
func (p Place) claim(ctx context.Context, d Document, version string) (Document, string, time.Time, error) {
	now := time.Now()
	if d.Format < authenticated && d.Serial > 0 {
		if err := p.reseal(&d); err != nil {
			return d, "", now, err
		}
	}
	if d.Token == 0 {
		first, err := rand.Int(rand.Reader, big.NewInt(mostFirstToken))
		if err != nil {
			return d, "", now, fmt.Errorf("draw a fencing token: %w", err)
		}
		d.Token = first.Int64()
	}
	d.Format, d.Cluster, d.Environment, d.Token = Format, p.Cluster, p.Environment, d.Token+1
	d.Holder = &Holder{ID: rand.Text(), Host: p.Who.Host, Machine: p.Who.Machine, PID: p.Who.PID, Command: p.Who.Command,
		Since: now.UTC().Round(time.Second), Renewed: now.UTC().Round(0), Lease: p.lease()}
	data, err := p.encode(d)
	if err != nil {
		return d, "", now, err
	}
	written, err := p.Store.Put(ctx, p.name(), data, version)
	if err == nil {
		return d, written, now, nil
	}
	// The request may have been done all the same.
	is, version, ok, readErr := p.Document(ctx)
	if readErr == nil && ok && is.Holder != nil && is.Holder.ID == d.Holder.ID {
		return is, version, now, nil
	}
	if !errors.Is(err, objectstore.ErrConflict) {
		err = fmt.Errorf("lock the state of cluster %s: %w", p.Cluster, err)
	}
	return d, "", now, err
}

// Unlock takes the lease away from whoever holds it, by a new token: a holder that lives is stopped at its next write,
// and what it does at Hetzner and in the cluster until then it does beside another run. It returns the former holder;
// nil: there was none.
func (p Place) Unlock(ctx context.Context) (*Holder, error) {
	d, version, ok, err := p.Document(ctx)
	if err != nil || !ok || d.Holder == nil {
		return nil, err
	}
	was := d.Holder
	d.Holder, d.Token = nil, d.Token+1
	data, err := p.encode(d)
	if err != nil {
		return nil, err
	}
	if _, err := p.Store.Put(ctx, p.name(), data, version); err != nil {
		return nil, fmt.Errorf("take the lease away: %w", err)
	}
	return was, nil
}
