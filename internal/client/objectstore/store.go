// Package objectstore keeps small objects in a folder, in an S3 store or in Secrets of a Kubernetes cluster. A write
// names the version that it replaces: of two writers who have read the same version only one writes.
// It also opens the bucket of an S3 store.
package objectstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// ErrConflict means that the object has another version than the one that a write was to replace.
var ErrConflict = errors.New("it was changed by another writer meanwhile")

// ErrTooLarge means that a store does not take an object of this size.
var ErrTooLarge = errors.New("it is too large for the store")

// mostBytes is the largest object of a store (bytes). That of a cluster's state has some ten thousand.
const mostBytes = 16 << 20

// None is the version of an object that does not exist.
const None = ""

// Store is a place for objects. The names are lower-case words of letters, digits, '-' and '.', with slashes between
// them. A request that fails may have been done all the same.
type Store interface {
	// String is the place as it is written in a configuration.
	String() string
	// Get reads an object and its version. Where there is none, errors.Is(err, fs.ErrNotExist) holds.
	Get(ctx context.Context, name string) (data []byte, version string, err error)
	// Put writes an object as a whole, in place of a version of it; None creates it. Where it has another version the
	// error wraps ErrConflict and nothing is written; where it is larger than the store takes, ErrTooLarge.
	Put(ctx context.Context, name string, data []byte, version string) (written string, err error)
	// List returns the names that begin with a prefix, sorted. The prefix is empty or ends with a slash.
	List(ctx context.Context, prefix string) ([]string, error)
	// Delete deletes an object, whatever its version. One that does not exist is no error.
	Delete(ctx context.Context, name string) error
}

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[a-z0-9]([-a-z0-9.]*[a-z0-9])?)*$`)

func checkName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%q is no name of an object", name)
	}
	return nil
}

// checked is a store that gets valid names and objects of at most so many bytes, and lists valid names, sorted.
type checked struct {
	Store
	most int
}

func (s checked) Get(ctx context.Context, name string) ([]byte, string, error) {
	if err := checkName(name); err != nil {
		return nil, None, err
	}
	return s.Store.Get(ctx, name)
}

func (s checked) Put(ctx context.Context, name string, data []byte, version string) (string, error) {
	if err := checkName(name); err != nil {
		return None, err
	}
	if len(data) > s.most {
		return None, fmt.Errorf("write %s: %w: it has %d bytes, and at most %d are taken", name, ErrTooLarge, len(data),
			s.most)
	}
	return s.Store.Put(ctx, name, data, version)
}

func (s checked) List(ctx context.Context, prefix string) ([]string, error) {
	names, err := s.Store.List(ctx, prefix)
	names = slices.DeleteFunc(names, func(name string) bool { return checkName(name) != nil })
	slices.Sort(names)
	return names, err
}

func (s checked) Delete(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	return s.Store.Delete(ctx, name)
}
