package remotestate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/client/objectstore"
)

// DefaultLease is how long a holder may give no sign before another run may take its place. A store that is away for a
// minute ends no run: see stopAfter.
const DefaultLease = 2 * time.Minute

// renewEvery is the part of a lease after which it is renewed, stopAfter that after which a holder without a renewal
// stops. What is left in between is for a call that has just left.
const (
	renewEvery = 8
	stopAfter  = 0.75
)

// Place is where the state of a cluster is, and what opens it.
type Place struct {
	Store                objectstore.Store
	Cluster, Environment string
	Keys                 Keys
	Dir                  string // the state folder
	Who                  Who
	Lease                time.Duration // 0: DefaultLease
}

// LostError means that a run no longer holds the lease of its cluster's state. What it has done is in its state folder.
type LostError struct {
	Store string
	Why   string
}

func (e *LostError) Error() string {
	return fmt.Sprintf("this run has stopped: it has lost the lease of the state in %s: %s", e.Store, e.Why)
}

// Session is a lease that is held. Its methods can be called at once from several goroutines.
type Session struct {
	place   Place
	cancel  context.CancelCauseFunc
	stopped chan struct{} // closed when the lease is renewed no more
	stop    func()

	mu       sync.Mutex
	document Document
	version  string
	renewed  time.Time // when the last write began that succeeded
	failed   error     // of the last write; nil: it succeeded
	lost     error
}

func (p Place) lease() time.Duration { return cmp.Or(p.Lease, DefaultLease) }

func (p Place) name() string { return Name(p.Environment, p.Cluster) }

// Document reads what is stored; ok is false where there is nothing. What is not authentic, and what contradicts that
// which the state folder has seen before, is a *RefusedError.
func (p Place) Document(ctx context.Context) (d Document, version string, ok bool, err error) {
	d, version, ok, err = p.read(ctx)
	if err == nil {
		err = p.recall(d, ok)
	}
	return d, version, ok && err == nil, err
}

// read is Document without the memory of the state folder.
func (p Place) read(ctx context.Context) (d Document, version string, ok bool, err error) {
	data, version, err := p.Store.Get(ctx, p.name())
	if errors.Is(err, fs.ErrNotExist) {
		return Document{Cluster: p.Cluster, Environment: p.Environment}, objectstore.None, false, nil
	}
	if err != nil {
		return d, version, false, err
	}
	d, err = p.decode(p.name(), data)
	return d, version, err == nil, err
}

// Listed reads what is stored for a list of states: ok is false where there is nothing. Where it is refused, or the
// keys are not those of its cluster, d is what the document says of itself, and refused says why it is not believed.
func (p Place) Listed(ctx context.Context) (d Document, ok bool, refused, err error) {
	data, _, err := p.Store.Get(ctx, p.name())
	if errors.Is(err, fs.ErrNotExist) {
		return d, false, nil, nil
	}
	if err != nil {
		return d, false, nil, err
	}
	if d, refused = p.decode(p.name(), data); d.Cluster == "" {
		d.Cluster, d.Environment = p.Cluster, p.Environment
	}
	if refused == nil && d.Format < authenticated {
		refused = p.refuse(p.name(), Unauthenticated, "an older release wrote it, without authentication")
	}
	return d.printable(), true, refused, nil
}

// begin makes the session of a lease that was just taken. The context that it returns ends with the lease.
func begin(ctx context.Context, p Place, d Document, version string, at time.Time) (context.Context, *Session) {
	ctx, cancel := context.WithCancelCause(ctx)
	stopping, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Session{place: p, cancel: cancel, stopped: make(chan struct{}), stop: stop, document: d, version: version,
		renewed: at}
	go s.renew(stopping)
	return ctx, s
}

// renew keeps the lease until it is lost or the context ends.
func (s *Session) renew(ctx context.Context) {
	defer close(s.stopped)
	tick := time.Tick(s.place.lease() / renewEvery)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		if s.Guard() != nil {
			return
		}
		s.mu.Lock()
		if s.fresh() < s.place.lease()/renewEvery/2 { // a change was written meanwhile
			s.mu.Unlock()
			continue
		}
		// Where it fails, the next tick tries again, until Guard gives up.
		_ = s.write(ctx, func(*Document) error { return nil })
		s.mu.Unlock()
	}
}

// fresh is how long ago the lease was renewed, by the clock that says more: the monotonic one stands still while a
// machine sleeps, the other can be set back.
func (s *Session) fresh() time.Duration {
	return max(time.Since(s.renewed), time.Now().Round(0).Sub(s.renewed.Round(0)))
}

// Guard returns why the run must change nothing any more; nil: it holds the lease. Once it has returned an error it
// always does, and the session's context has ended.
func (s *Session) Guard() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guard()
}

func (s *Session) guard() error {
	if limit := time.Duration(stopAfter * float64(s.place.lease())); s.lost == nil && s.fresh() > limit {
		why := "this machine stood still, or the store did not answer"
		if s.failed != nil {
			why = s.failed.Error()
		}
		s.lose(fmt.Sprintf("it could not be renewed for %s: %s", s.fresh().Round(time.Second), why))
	}
	return s.lost
}

func (s *Session) lose(why string) {
	s.lost = &LostError{Store: s.place.Store.String(), Why: why + "; run the same command again to resume"}
	s.cancel(s.lost)
}

// Push writes the content of the state folder, where it has changed. While the store does not answer it tries again,
// for as long as the lease is held.
func (s *Session) Push(ctx context.Context) error {
	for pause := pushFirst; ; pause = min(2*pause, pushLast) {
		again, err := s.tryPush(ctx)
		if err == nil || !again {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// The first and the longest pause before a write that failed is made again.
const (
	pushFirst = 200 * time.Millisecond
	pushLast  = 5 * time.Second
)

// tryPush makes the write once, and reports whether one that failed may succeed later.
func (s *Session) tryPush(ctx context.Context) (again bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.guard(); err != nil {
		return false, err
	}
	c, err := Read(s.place.Dir)
	if err != nil {
		return false, err
	}
	err = s.push(ctx, c)
	final := (*finalError)(nil)
	return s.lost == nil && !errors.As(err, &final), err
}

// finalError is one that no repetition mends.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

func (s *Session) push(ctx context.Context, c Content) error {
	digest := c.Digest()
	if digest != s.document.stored() {
		if len(c) == 0 {
			return &finalError{fmt.Errorf("write the state: %s has no file any more, and the store keeps what it has", s.place.Dir)}
		}
		if err := s.write(ctx, func(d *Document) error { return s.place.fill(d, c) }); err != nil {
			return fmt.Errorf("write the state: %w", err)
		}
	}
	return s.place.remember(s.document, synced{Open: true})
}

// fill makes a content the next one of a document.
func (p Place) fill(d *Document, c Content) (err error) {
	d.Serial, d.Digest = d.Serial+1, c.Digest()
	d.Written, d.By = time.Now().UTC().Round(time.Second), p.Who.String()
	if d.Sealed, err = p.Keys.seal(c, d.head()); err != nil {
		return &finalError{err}
	}
	return nil
}

// write changes the stored document, renewing the lease. The caller holds s.mu.
func (s *Session) write(ctx context.Context, change func(*Document) error) error {
	if s.lost != nil {
		return s.lost
	}
	ctx, cancel := context.WithTimeout(ctx, s.place.lease()/renewEvery)
	defer cancel()
	for {
		d := s.document
		now := time.Now()
		holder := *d.Holder
		holder.Renewed = now.UTC().Round(0)
		d.Holder = &holder
		if err := change(&d); err != nil {
			return err
		}
		data, err := s.place.encode(d)
		if err != nil {
			return &finalError{err}
		}
		version, err := s.place.Store.Put(ctx, s.place.name(), data, s.version)
		s.failed = err
		switch {
		case err == nil:
			s.document, s.version, s.renewed = d, version, now
			return nil
		case errors.Is(err, objectstore.ErrTooLarge):
			return &finalError{err}
		case !errors.Is(err, objectstore.ErrConflict):
			return err
		}
		again, err := s.conflict(ctx, data)
		if err != nil {
			return err
		}
		if !again {
			s.document, s.renewed = d, now
			return nil
		}
	}
}

// conflict finds out who has written the version that is there: this session, whose request failed and was done all the
// same, or another run. It reports whether the write has to be made again.
func (s *Session) conflict(ctx context.Context, wrote []byte) (again bool, err error) {
	data, version, err := s.place.Store.Get(ctx, s.place.name())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.lose("the object was deleted")
		return false, s.lost
	case err != nil:
		return false, err
	}
	if bytes.Equal(data, wrote) {
		s.version = version
		return false, nil
	}
	is, err := s.place.decode(s.place.name(), data)
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		s.lose("the object was replaced: " + refused.Why)
		return false, s.lost
	}
	if err != nil {
		return false, err
	}
	mine := s.document.Holder.ID
	switch {
	case is.Holder != nil && is.Holder.ID != mine:
		s.lose(is.Holder.String() + " holds it")
	case is.Holder == nil || is.Token != s.document.Token:
		s.lose("its lease was taken away (state unlock)")
	case is.Format < authenticated || is.Serial < s.document.Serial:
		s.lose("an older version of the object was put in its place")
	default: // an earlier write of its own
		s.document, s.version = is, version
		return true, nil
	}
	return false, s.lost
}

// Release writes what has changed and gives the lease back. A lease that was lost is no error here: Guard has told.
func (s *Session) Release(ctx context.Context) error {
	s.end()
	pushed := s.Push(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost != nil {
		return nil
	}
	if err := s.giveBack(ctx); err != nil {
		return errors.Join(pushed, fmt.Errorf("give back the lease of the state in %s, which ends %s after its last sign: %w",
			s.place.Store, s.place.lease(), err))
	}
	if pushed != nil {
		return pushed
	}
	return s.place.remember(s.document, synced{})
}

// abandon gives the lease back, and leaves what is stored as it is.
func (s *Session) abandon(ctx context.Context) error {
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost != nil {
		return nil
	}
	return s.giveBack(ctx)
}

// end stops the renewals.
func (s *Session) end() {
	s.stop()
	<-s.stopped
}

// giveBack leaves the stored document without a holder, and ends the session's context. The caller holds s.mu.
func (s *Session) giveBack(ctx context.Context) error {
	defer s.cancel(nil)
	return s.write(ctx, func(d *Document) error { d.Holder = nil; return nil })
}

// Here is this process, for Who.
func Here(command string) Who {
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	return Who{Host: strings.ToValidUTF8(host, "?"), Machine: machine(), PID: os.Getpid(),
		Command: strings.ToValidUTF8(command, "?")}
}

// machine identifies what a process id is unique in: a boot of a machine, and a PID namespace of it. Two containers may
// have one host name. It is empty where the system does not tell.
func machine() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + namespace
}
