package backup

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/base/keys"
)

// ErrNewer is wrapped by the error about a backup of a format that this version does not know.
var ErrNewer = errors.New("written by a newer Slipway")

// DamagedError tells that a file is not the backup that was written.
type DamagedError struct {
	Entry string // of the tar; empty: the file as a whole
	Err   error
}

// Error implements error.
func (e *DamagedError) Error() string {
	if e.Entry == "" {
		return "the backup is damaged: " + e.Err.Error()
	}
	return "the backup is damaged at " + e.Entry + ": " + e.Err.Error()
}

// Unwrap gives the reason.
func (e *DamagedError) Unwrap() error { return e.Err }

// UnreadError tells that nothing is known of a file: its store did not give it, or not all of it.
type UnreadError struct{ Err error }

// Error implements error.
func (e *UnreadError) Error() string { return e.Err.Error() }

// Unwrap gives the reason.
func (e *UnreadError) Unwrap() error { return e.Err }

func damaged(entry, format string, args ...any) error {
	return &DamagedError{entry, fmt.Errorf(format, args...)}
}

// Archive is a backup that is open.
type Archive struct {
	file     *source
	plain    io.Reader // of tar
	tar      *tar.Reader
	contents Contents
	limits   limits
	seen     []entry
	manifest *manifest // nil: it has not come yet
	written  []byte    // the manifest as it was read

	room     []byte // for one part of the snapshot
	snapshot *snapshotParts
}

// Open begins to read a backup: it decrypts and reads the header, and nothing else yet. Without an identity only an
// unencrypted one opens. errors.Is finds ErrLocked and ErrNewer, errors.As a *DamagedError and an *UnreadError.
func Open(file io.Reader, identities ...age.Identity) (*Archive, error) {
	a := &Archive{file: &source{Reader: file}, snapshot: newSnapshotParts(), limits: limits{names: map[string]bool{}}}
	if err := a.open(identities); err != nil {
		return nil, a.file.explain(err)
	}
	return a, nil
}

// source remembers why a file could not be read, which the layers above would take for damage.
type source struct {
	io.Reader
	err error
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

func (s *source) explain(err error) error {
	if s.err != nil {
		return &UnreadError{fmt.Errorf("read the backup: %w", s.err)}
	}
	return err
}

func (a *Archive) open(identities []age.Identity) (err error) {
	a.plain, a.contents.Origin, err = unlock(bufio.NewReaderSize(a.file, 64<<10), identities)
	if err != nil {
		return err
	}
	a.tar = tar.NewReader(a.plain)
	name, data, err := a.next()
	if err != nil {
		return err
	}
	if name != headerEntry {
		return damaged(name, "a backup begins with %s", headerEntry)
	}
	if err := a.limits.weigh(name, data); err != nil {
		return err
	}
	// Not strictly: a newer header may say more.
	if err := json.Unmarshal(data, &a.contents.Header); err != nil {
		return damaged(name, "%w", err)
	}
	switch f := a.contents.Header.Format; {
	case f > Format:
		return fmt.Errorf("the backup has format %d, and this version reads up to %d: it was %w: use Slipway %s", f, Format,
			ErrNewer, a.contents.Header.Slipway)
	case f < 1:
		return damaged(name, "there is no format %d", f)
	}
	return nil
}

// Header is what the backup says of itself. Nothing shows yet that it is true.
func (a *Archive) Header() Header { return a.contents.Header }

// Sealed is how the file is encrypted.
func (a *Archive) Sealed() Sealing { return a.contents.Origin.Sealed }

// Read reads all the rest, streams the snapshot to a writer (io.Discard, where it is not wanted), and checks every sum.
// What the writer got is worth something only when Read returns no error. An Archive is read once. by are the keys of
// the cluster that the header names; the Origin of the contents says whether one of them authenticates it. errors.Is
// finds ErrForged.
func (a *Archive) Read(snapshot io.Writer, by ...keys.Authenticator) (*Contents, error) {
	if err := a.read(snapshot, by); err != nil {
		return nil, a.file.explain(err)
	}
	return &a.contents, nil
}

func (a *Archive) read(snapshot io.Writer, by []keys.Authenticator) error {
	for a.manifest == nil {
		name, data, err := a.next()
		if err != nil {
			return err
		}
		if err := a.take(name, data, snapshot); err != nil {
			return err
		}
	}
	authenticated, err := a.last()
	if err != nil {
		return err
	}
	// The end of the tar is not that of the file: age tells only there that nothing was cut off.
	if _, err := io.Copy(io.Discard, a.plain); err != nil {
		return damaged("", "%w", err)
	}
	if err := a.check(); err != nil {
		return err
	}
	a.contents.Origin, err = authenticated.judge(a.contents.Origin, a.written, by)
	return err
}

// last reads what may follow the manifest; nil: it is not authenticated.
func (a *Archive) last() (*authentication, error) {
	h, err := a.tar.Next()
	var found *authentication
	if err == nil && h.Name == authenticationEntry && a.contents.Header.Format >= authenticated {
		data, err := a.content(h)
		if err != nil {
			return nil, err
		}
		found = &authentication{}
		if err := a.decode(h.Name, data, found); err != nil {
			return nil, err
		}
		if _, err = a.tar.Next(); !errors.Is(err, io.EOF) {
			return nil, damaged("", "something follows %s", authenticationEntry)
		}
		return found, nil
	}
	if !errors.Is(err, io.EOF) {
		return nil, damaged("", "something follows %s", manifestEntry)
	}
	return nil, nil
}

// next reads one entry.
func (a *Archive) next() (name string, data []byte, err error) {
	h, err := a.tar.Next()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "", nil, damaged("", "it ends before %s: it was cut off", manifestEntry)
	}
	if err != nil {
		return "", nil, damaged("", "%w", err)
	}
	if data, err = a.content(h); err != nil {
		return "", nil, err
	}
	sum := sha256.Sum256(data)
	a.seen = append(a.seen, entry{Name: h.Name, Size: h.Size, SHA256: hex.EncodeToString(sum[:])})
	return h.Name, data, nil
}

// content reads what an entry holds.
func (a *Archive) content(h *tar.Header) ([]byte, error) {
	if err := a.limits.admit(h); err != nil {
		return nil, err
	}
	data := a.roomFor(h)
	_, err := io.ReadFull(a.tar, data)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return nil, damaged(h.Name, "it was cut off")
	}
	if err != nil {
		return nil, damaged(h.Name, "%w", err)
	}
	return data, nil
}

// roomFor is for the content of an entry: the same for all parts of a snapshot, which are not kept.
func (a *Archive) roomFor(h *tar.Header) []byte {
	if !strings.HasPrefix(h.Name, snapshotPrefix) {
		return make([]byte, h.Size)
	}
	if int64(cap(a.room)) < h.Size {
		a.room = make([]byte, h.Size) // the first part is the largest
	}
	return a.room[:h.Size]
}

// take puts an entry where it belongs.
func (a *Archive) take(name string, data []byte, snapshot io.Writer) error {
	c := &a.contents
	switch {
	case name == configEntry:
		c.Config = data
	case name == releasesEntry:
		return a.decode(name, data, &c.Releases)
	case name == inventoryEntry:
		return a.decode(name, data, &c.Inventory)
	case name == manifestEntry:
		a.manifest, a.written = &manifest{}, data
		if err := decode(name, data, a.manifest); err != nil {
			return err
		}
		// Nothing has a sum of the sums: they are to be what was written to the letter.
		if again, err := encode(a.manifest); err != nil || !bytes.Equal(again, data) {
			return damaged(name, "it is not in the form in which it was written")
		}
	case isFile(name):
		c.Files = append(c.Files, File{name, data})
	case strings.HasPrefix(name, objectsFolder):
		return a.takeObject(&c.Objects, name, data, objectName)
	case strings.HasPrefix(name, secretsFolder):
		return a.takeObject(&c.Secrets, name, data, secretName)
	case name == partName(a.snapshot.n):
		a.snapshot.add(data)
		if _, err := io.Copy(snapshot, bytes.NewReader(data)); err != nil {
			return fmt.Errorf("write the etcd snapshot of the backup: %w", err)
		}
	default:
		return damaged(name, "it has no place in a backup of format %d", a.contents.Header.Format)
	}
	return nil
}

func (a *Archive) takeObject(to *[]unstructured.Unstructured, name string, data []byte,
	nameOf func(*unstructured.Unstructured) string) error {
	o := unstructured.Unstructured{}
	if err := a.limits.weigh(name, data); err != nil {
		return err
	}
	if err := noAnchors(data); err != nil {
		return damaged(name, "%w", err)
	}
	j, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return damaged(name, "%w", err)
	}
	if err := o.UnmarshalJSON(j); err != nil { // keeps whole numbers whole
		return damaged(name, "%w", err)
	}
	if nameOf(&o) != name {
		return damaged(name, "it holds another object, %s", nameOf(&o))
	}
	*to = append(*to, o)
	return nil
}

func (a *Archive) decode(name string, data []byte, to any) error {
	if err := a.limits.weigh(name, data); err != nil {
		return err
	}
	return decode(name, data, to)
}

func decode(name string, data []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return damaged(name, "%w", err)
	}
	return nil
}

// check holds what was read against the manifest.
func (a *Archive) check() error {
	seen := a.seen[:len(a.seen)-1] // the last is the manifest itself
	for i, want := range a.manifest.Entries {
		if i >= len(seen) || seen[i].Name != want.Name {
			return damaged(want.Name, "it is missing, or out of its order")
		}
		if seen[i] != want {
			return damaged(want.Name, "its %d bytes do not have the checksum in %s", seen[i].Size, manifestEntry)
		}
	}
	if extra := len(a.manifest.Entries); extra < len(seen) {
		return damaged(seen[extra].Name, "%s does not know it", manifestEntry)
	}
	s := a.snapshot.together()
	if s != a.manifest.Snapshot || a.manifest.Format != a.contents.Header.Format {
		return damaged(manifestEntry, "what it says of the etcd snapshot is not so")
	}
	if err := a.snapshot.check(); err != nil {
		return damaged(snapshotPrefix+"*", "%w", err)
	}
	a.contents.Snapshot = s
	return nil
}
