package remotestate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

// Push writes the content of the state folder into the store, under a lease of its own. Where both have changed, and
// where what is stored is refused, it needs force; what was stored and is authentic stays as a version.
func (p Place) Push(ctx context.Context, within time.Duration, force bool, say flow.Say) (Document, error) {
	read := reader(p.Document)
	if force {
		read = p.replaceable
	}
	s, leased, err := p.hold(ctx, within, read, say)
	if err != nil {
		return Document{}, err
	}
	d := s.document
	is, err := p.Compare(d)
	if err == nil && is != Same && is != Ahead && !force {
		err = &DivergedError{Dir: p.Dir, Store: p.Store.String(), Serial: d.Serial}
	}
	if err == nil {
		err = p.keepVersion(leased, d)
	}
	if err != nil {
		return d, errors.Join(err, s.abandon(context.WithoutCancel(ctx)))
	}
	err = s.Release(context.WithoutCancel(ctx))
	return s.document, err
}

// replaceable is Document for a write that replaces whatever is stored: in place of what is refused it returns the
// folder's own content, with the serial after the highest that is known, so that it is stored with the lease in one
// write.
func (p Place) replaceable(ctx context.Context) (Document, string, bool, error) {
	d, version, exists, err := p.Document(ctx)
	refused := (*RefusedError)(nil)
	if !errors.As(err, &refused) {
		return d, version, exists, err
	}
	c, err := Read(p.Dir)
	if err != nil {
		return d, version, false, err
	}
	if len(c) == 0 {
		return d, version, false, fmt.Errorf("%s has no file to write in its place: %w", p.Dir, refused)
	}
	highest, err := p.highest(ctx)
	if err != nil {
		return d, version, false, err
	}
	next := Document{Format: Format, Cluster: p.Cluster, Environment: p.Environment, Serial: highest}
	if refused.Reason == Older || refused.Reason == Changed { // authentic: so is its lease
		next.Holder, next.Token = d.Holder, d.Token
	}
	return next, version, refused.Reason != Missing, p.fill(&next, c)
}

// reseal writes the content of a document anew, with the keys of now.
func (p Place) reseal(d *Document) error {
	c, err := p.content(*d)
	if err != nil {
		return err
	}
	d.Format = Format
	d.Sealed, err = p.Keys.seal(c, d.head())
	return err
}

// Rekey writes the state and its versions anew with the keys of now: the first encrypts and authenticates. Where accept
// is set, those that an older release wrote without authentication are taken as they are. One that was cut off is begun
// again, as long as the keys that read what is stored are configured. It returns how many versions were written.
func (p Place) Rekey(ctx context.Context, within time.Duration, accept bool, say flow.Say) (Document, int, error) {
	read := reader(p.Document)
	if accept {
		read = p.unauthenticated
	}
	s, leased, err := p.hold(ctx, within, read, say)
	if err != nil {
		return Document{}, 0, err
	}
	written, err := s.rekey(leased, accept, say)
	return s.document, written, errors.Join(err, s.abandon(context.WithoutCancel(ctx)))
}

// unauthenticated is Document, which takes a document of a format without authentication, too.
func (p Place) unauthenticated(ctx context.Context) (Document, string, bool, error) {
	d, version, exists, err := p.Document(ctx)
	if refused := (*RefusedError)(nil); errors.As(err, &refused) && refused.Reason == Unauthenticated {
		return d, version, true, nil
	}
	return d, version, exists, err
}

func (s *Session) rekey(ctx context.Context, accept bool, say flow.Say) (written int, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w; \"state rekey\" again writes the rest anew", err)
		}
	}()
	p := s.place
	s.mu.Lock()
	if s.document.Serial > 0 {
		err = s.write(ctx, p.reseal)
	}
	s.mu.Unlock()
	if err != nil {
		return 0, fmt.Errorf("write the state anew: %w", err)
	}
	serials, err := p.Versions(ctx)
	if err != nil {
		return 0, fmt.Errorf("list the versions of the state: %w", err)
	}
	for _, serial := range serials {
		if err := s.Guard(); err != nil {
			return written, err
		}
		refused := (*RefusedError)(nil)
		err := p.rekeyVersion(ctx, serial, accept)
		switch {
		case err == nil:
			written++
		case errors.As(err, &refused):
			say("version %d is left as it is: %s", serial, refused.Why)
		default:
			return written, fmt.Errorf("write version %d of the state anew: %w", serial, err)
		}
	}
	return written, nil
}

func (p Place) rekeyVersion(ctx context.Context, serial int64, accept bool) error {
	d, version, err := p.version(ctx, serial)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && d.Format < authenticated && !accept {
		_, err = p.Version(ctx, serial)
	}
	if err != nil {
		return err
	}
	if err := p.reseal(&d); err != nil {
		return err
	}
	data, err := p.encode(d)
	if err != nil {
		return err
	}
	_, err = p.Store.Put(ctx, p.versionName(serial), data, version)
	return err
}
