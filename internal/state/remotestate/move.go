package remotestate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/slipway-k8s/slipway/internal/client/objectstore"
)

// Move moves the state of a cluster from one store to another, as it is: sealed, with its versions and its lease. It
// changes nothing where there is none to move, and goes on where an earlier move was cut off: the state itself is
// written last and deleted first, so that at every moment one of the places has all of it. Where both have a state
// the new place counts. A run that still writes to the old place loses its lease.
func Move(ctx context.Context, from, to objectstore.Store, environment, cluster string) error {
	name := Name(environment, cluster)
	if _, _, err := from.Get(ctx, name); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("look for the state of cluster %s: %w", cluster, err)
	}
	all, err := from.List(ctx, environment+"/"+cluster+"/")
	if err != nil {
		return fmt.Errorf("list the state of cluster %s: %w", cluster, err)
	}
	_, _, err = to.Get(ctx, name)
	arrived := err == nil
	if !arrived && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for the state of cluster %s: %w", cluster, err)
	}
	others := slices.DeleteFunc(all, func(one string) bool { return one == name })
	copies := append(slices.Clone(others), name)
	if arrived {
		copies = nil
	}
	for _, object := range copies {
		if err := copyOne(ctx, from, to, object); err != nil {
			return fmt.Errorf("move the state of cluster %s from %s to %s: %w", cluster, from, to, err)
		}
	}
	for _, object := range append([]string{name}, others...) {
		if err := from.Delete(ctx, object); err != nil {
			return fmt.Errorf("delete the state of cluster %s in %s, which is in %s now: %w", cluster, from, to, err)
		}
	}
	return nil
}

// copyOne copies an object that is not there yet. One that is there has to be the same.
func copyOne(ctx context.Context, from, to objectstore.Store, name string) error {
	data, _, err := from.Get(ctx, name)
	if err != nil {
		return err
	}
	_, err = to.Put(ctx, name, data, objectstore.None)
	if !errors.Is(err, objectstore.ErrConflict) {
		return err
	}
	is, _, err := to.Get(ctx, name)
	if err == nil && !bytes.Equal(is, data) {
		err = fmt.Errorf("%s has another %s: %w", to, name, objectstore.ErrConflict)
	}
	return err
}
