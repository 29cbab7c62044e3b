package images

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// ChangedError means that a reference stands for another digest than at its first use.
type ChangedError struct {
	Reference, Was, Is string
	From               string // who says so
	File               string
	Line               int
}

// Error says how to accept the change.
func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s was %s at its first use, and %s says that it is %s: it is refused. If the change is expected, "+
		"remove line %d of %s and try again", e.Reference, e.Was, e.From, e.Is, e.Line, e.File)
}

// lockHead explains the file to who opens it.
const lockHead = "# The digest of each image, manifest and chart at its first use. Slipway refuses one that has " +
	"another digest.\n# To accept a change, remove its line.\n"

// entry is a line of the lock file.
type entry struct {
	reference, digest string
	line              int
}

// Recorded is the digest that a reference had at its first use; empty: it has not been used.
func (s *Store) Recorded(reference string) (string, error) {
	ref, err := parse(reference)
	if err != nil {
		return "", err
	}
	return s.recorded(ref)
}

// recorded is the digest that a reference had at its first use; empty: it has not been used. A digest stands for
// itself.
func (s *Store) recorded(ref name.Reference) (string, error) {
	if byDigest, ok := ref.(name.Digest); ok {
		return byDigest.DigestStr(), nil
	}
	return s.Pinned(ref.Name())
}

// Pin records the digest of something at its first use, and refuses another one later. name is the reference of an
// image, or an address; from says who served it.
func (s *Store) Pin(ctx context.Context, name, digest, from string) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	return exclusively(ctx, s.LockFile+".lock", func() error {
		entries, err := s.readLock()
		if err != nil {
			return err
		}
		for _, e := range entries {
			switch {
			case e.reference != name:
			case e.digest == digest:
				return nil
			default:
				return &ChangedError{Reference: name, Was: e.digest, Is: digest, From: from, File: s.LockFile,
					Line: e.line}
			}
		}
		return s.writeLock(append(entries, entry{reference: name, digest: digest}))
	})
}

// Pinned is the digest that Pin has recorded; empty: none.
func (s *Store) Pinned(name string) (string, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	entries, err := s.readLock()
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.reference == name {
			return e.digest, nil
		}
	}
	return "", nil
}

// readLock reads the lock file: lines of a reference and its digest.
func (s *Store) readLock() ([]entry, error) {
	data, err := os.ReadFile(s.LockFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the digests of images: %w", err)
	}
	var entries []entry
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) != 2 {
			return nil, fmt.Errorf("%s:%d: want a reference and its digest, or a comment that begins with #", s.LockFile, n)
		}
		if _, err := v1.NewHash(words[1]); err != nil {
			return nil, fmt.Errorf("%s:%d: %q is not a digest: want sha256:…", s.LockFile, n, words[1])
		}
		entries = append(entries, entry{reference: words[0], digest: words[1], line: n})
	}
	return entries, lines.Err()
}

func (s *Store) writeLock(entries []entry) error {
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.reference, b.reference) })
	var out strings.Builder
	out.WriteString(lockHead)
	for _, e := range entries {
		fmt.Fprintf(&out, "%s %s\n", e.reference, e.digest)
	}
	if err := replace(s.LockFile, []byte(out.String())); err != nil {
		return fmt.Errorf("record the digest of an image: %w", err)
	}
	return nil
}
