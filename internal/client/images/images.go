// Package images fetches programs out of OCI images without a container engine: it pulls an image by its reference,
// verifies every digest, keeps what it fetched in a folder that all labs of a user share, unpacks it safely, and finds
// the program that the image's entry point names.
//
// Folders of a store: blobs/sha256/HEX (manifests, configurations and layers as the registry serves them), and
// roots/HEX (an unpacked image, by the digest of its manifest). Both are named by a digest and renamed into place when
// they are whole, so that processes share them without coordination; who fetches a blob or unpacks an image holds a
// lock file meanwhile.
package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-k8s/slipway/flow"
)

// Store fetches images into a folder. Its methods may be called at the same time, also from several processes.
type Store struct {
	// Dir is the folder of the store.
	Dir string
	// LockFile records the digest that each reference had at its first use.
	LockFile string
	// Registries are mirrors and private registries.
	Registries Registries
	// Platform whose image is taken; empty: linux, and the architecture of this machine.
	Platform v1.Platform
	// Transport sends requests to registries whose configuration names no certificate authority; nil: one that uses
	// HTTPS_PROXY.
	Transport http.RoundTripper
	// Keychain has the credentials; nil: Docker's configuration and its credential helpers.
	Keychain authn.Keychain
	// Patience is how long a registry may send nothing; 0: DefaultPatience.
	Patience time.Duration

	// clients has a *client for each repository of an endpoint: a registry's token is for one repository.
	clients sync.Map
	lock    sync.Mutex // serializes this process's access to the lock file
}

// DefaultPatience is how long a registry may send nothing before a request to it fails.
const DefaultPatience = 30 * time.Second

// Image is an image that the store holds, unpacked.
type Image struct {
	Reference string    `json:"image"`    // as it was asked for
	Digest    string    `json:"digest"`   // what the reference stands for, as the lock file records it
	Manifest  string    `json:"manifest"` // of the platform; the same where the registry has the image for one platform
	Root      string    `json:"-"`        // the folder with the image's files
	Config    v1.Config `json:"-"`
}

// Cached returns an image that the store holds. It sends no request. An image whose reference has no record in the lock
// file is not taken for cached, unless the reference is a digest.
func (s *Store) Cached(reference string) (Image, bool, error) {
	ref, err := parse(reference)
	if err != nil {
		return Image{}, false, err
	}
	digest, err := s.recorded(ref)
	if err != nil || digest == "" {
		return Image{}, false, err
	}
	image, err := s.open(reference, digest)
	if err != nil {
		return Image{}, false, nil // it has to be fetched, or fetched anew
	}
	return image, true, nil
}

// Fetch returns an image, and fetches what the store does not hold of it. The first use of a reference records its
// digest; where the registry names another one later, the image is refused.
func (s *Store) Fetch(ctx context.Context, reference string, progress *Progress) (Image, error) {
	if image, cached, err := s.Cached(reference); cached || err != nil {
		return image, err
	}
	ref, err := parse(reference)
	if err != nil {
		return Image{}, err
	}
	pull := &pull{store: s, ref: ref, progress: progress}
	digest, err := pull.resolve(ctx)
	if err != nil {
		return Image{}, fmt.Errorf("fetch the image %s: %w", reference, err)
	}
	if err := pull.contents(ctx, digest); err != nil {
		return Image{}, fmt.Errorf("fetch the image %s: %w", reference, err)
	}
	image, err := s.open(reference, digest)
	if err != nil {
		return Image{}, fmt.Errorf("use the image %s: %w", reference, err)
	}
	return image, nil
}

// refusedError is of an image that was received and is not what it should be.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

func refused(err error) error { return refusedError{err} }

// Refused reports whether an image was received and refused: a digest is not the one that it should be, or its content
// is not one that is unpacked. Any other error of Fetch means that the image could not be fetched.
func Refused(err error) bool {
	_, wrong := errors.AsType[refusedError](err)
	_, changed := errors.AsType[*ChangedError](err)
	return wrong || changed
}

// Reachable asks the registry for an image's manifest and discards the answer. It is how a caller finds out whether
// fetching is worth while.
func (s *Store) Reachable(ctx context.Context, reference string) error {
	ref, err := parse(reference)
	if err != nil {
		return err
	}
	pull := &pull{store: s, ref: ref}
	if _, _, err := pull.manifest(ctx, ref.Identifier()); err != nil {
		return fmt.Errorf("ask for the image %s: %w", reference, err)
	}
	return nil
}

// parse reads a reference, which has to name a tag or a digest.
func parse(reference string) (name.Reference, error) {
	ref, err := name.ParseReference(reference, name.WithDefaultTag(""))
	if err != nil {
		return nil, fmt.Errorf("%q is not the reference of an image: %w", reference, err)
	}
	if ref.Identifier() == "" {
		return nil, fmt.Errorf("%q names no version: add a tag (:v1.2.3) or a digest (@sha256:…)", reference)
	}
	return ref, nil
}

// open finds an unpacked image by what its reference stands for. It verifies what it reads of the cache.
func (s *Store) open(reference, digest string) (Image, error) {
	manifest, hash, err := s.cachedManifest(digest)
	if err != nil {
		return Image{}, err
	}
	config, err := s.cachedConfig(manifest)
	if err != nil {
		return Image{}, err
	}
	root := s.root(hash)
	if _, err := os.Stat(root); err != nil {
		return Image{}, err
	}
	return Image{Reference: reference, Digest: digest, Manifest: hash.String(), Root: root, Config: config.Config}, nil
}

func (s *Store) root(manifest v1.Hash) string { return filepath.Join(s.Dir, "roots", manifest.Hex) }

func (s *Store) platform() v1.Platform {
	if s.Platform.OS != "" {
		return s.Platform
	}
	return v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
}

func (s *Store) patience() time.Duration { return cmp.Or(s.Patience, DefaultPatience) }

// unlessThere has work make a file or a folder where there is none, in one process at a time.
func unlessThere(ctx context.Context, path string, work func() error) error {
	there := func() bool { _, err := os.Stat(path); return err == nil }
	if there() {
		return nil
	}
	return exclusively(ctx, path+".lock", func() error {
		if there() { // by whom we waited for
			return nil
		}
		if err := work(); err != nil {
			return err
		}
		return os.Remove(path + ".lock")
	})
}

// replace writes a file in one piece.
func replace(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	unfinished, err := os.CreateTemp(filepath.Dir(path), "unfinished-")
	if err != nil {
		return err
	}
	defer os.Remove(unfinished.Name())
	_, err = unfinished.Write(data)
	if err = errors.Join(err, unfinished.Close()); err != nil {
		return err
	}
	return os.Rename(unfinished.Name(), path)
}

// exclusively holds a lock file while work runs, and waits for another process that holds it.
func exclusively(ctx context.Context, path string, work func() error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	unlock, err := WaitForLock(ctx, path, func(int) {})
	if err != nil {
		return err
	}
	return errors.Join(work(), unlock())
}

// WaitForLock takes a lock file, and tells once which process has it.
func WaitForLock(ctx context.Context, path string, held func(pid int)) (unlock func() error, err error) {
	const lookEvery = 100 * time.Millisecond
	for said := false; ; said = true {
		unlock, err := flow.LockFile(ctx, path)
		by, locked := errors.AsType[*flow.LockedError](err)
		if !locked {
			return unlock, err
		}
		if !said {
			held(by.PID)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lookEvery):
		}
	}
}
