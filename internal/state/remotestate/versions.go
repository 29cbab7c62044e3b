package remotestate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/client/objectstore"
)

// versionsKept is how many versions of a state a store keeps besides the state itself.
const versionsKept = 20

// keepVersion keeps a copy of a document's content under a name of its own, once.
func (p Place) keepVersion(ctx context.Context, d Document) error {
	if d.Serial == 0 {
		return nil
	}
	d.Holder = nil
	data, err := p.encode(d)
	if err != nil {
		return err
	}
	_, err = p.Store.Put(ctx, p.versionName(d.Serial), data, objectstore.None)
	if err != nil && !errors.Is(err, objectstore.ErrConflict) {
		return fmt.Errorf("keep a version of the state: %w", err)
	}
	serials, err := p.Versions(ctx)
	if err != nil {
		return err
	}
	for _, serial := range serials[:max(0, len(serials)-versionsKept)] {
		if err := p.Store.Delete(ctx, p.versionName(serial)); err != nil {
			return fmt.Errorf("delete an old version of the state: %w", err)
		}
	}
	return nil
}

// Versions are the serials of the versions that the store keeps, the oldest first.
func (p Place) Versions(ctx context.Context) ([]int64, error) {
	prefix := p.versionPrefix()
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
	d, _, err := p.version(ctx, serial)
	if err == nil && d.Format < authenticated {
		err = p.refuse(p.versionName(serial), Unauthenticated, "an older release wrote it, without "+
			"authentication: whoever can write the store can have changed it")
	}
	return d, err
}

// version reads a version of any format, and refuses one that is authenticated and of another serial than its name.
func (p Place) version(ctx context.Context, serial int64) (d Document, version string, err error) {
	name := p.versionName(serial)
	data, version, err := p.Store.Get(ctx, name)
	if err != nil {
		return Document{}, version, err
	}
	d, err = p.decode(name, data)
	if err == nil && d.Serial != serial {
		err = p.refuse(name, NotAuthentic, fmt.Sprintf("it is version %d, under the name of another", d.Serial))
	}
	return d, version, err
}

// highest is the highest serial that this state is known to have had: what the folder has seen, and the newest version
// that is authentic.
func (p Place) highest(ctx context.Context) (int64, error) {
	last, err := p.seen()
	if err != nil {
		return 0, err
	}
	serials, err := p.Versions(ctx)
	if err != nil {
		return 0, err
	}
	slices.Reverse(serials)
	for _, serial := range serials[:min(len(serials), versionsKept)] {
		if serial <= last.Serial {
			break
		}
		if _, err := p.Version(ctx, serial); err == nil {
			return serial, nil
		}
	}
	return last.Serial, nil
}
