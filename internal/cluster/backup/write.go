package backup

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"filippo.io/age"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/base/keys"
)

// partSize is how much of a snapshot is held in memory: a tar wants to know an entry's size before its content.
const partSize = 8 << 20

// Seal is who can open a backup, and what shows who made it.
type Seal struct {
	Recipients  []age.Recipient // anyone of these; a passphrase's has to be alone
	Unencrypted bool            // everybody
	// Authenticator authenticates it; nil: a passphrase does, or nothing. Its scope has to be the header's.
	Authenticator *keys.Authenticator
}

// Write writes a backup and streams the snapshot into it. Format and Snapshot of the contents are its own to say; it
// returns the latter. Where it fails, what was written is no backup: it lacks its manifest.
func Write(dst io.Writer, seal Seal, c Contents, snapshot io.Reader) (Snapshot, error) {
	out, err := seal.open(dst)
	if err != nil {
		return Snapshot{}, err
	}
	w := &writer{tar: tar.NewWriter(out), contents: c, authenticator: seal.Authenticator}
	if err := w.write(snapshot); err != nil {
		return Snapshot{}, err
	}
	if err := w.tar.Close(); err != nil {
		return Snapshot{}, fmt.Errorf("end the backup: %w", err)
	}
	if err := out.Close(); err != nil {
		return Snapshot{}, fmt.Errorf("end the backup: %w", err)
	}
	return w.manifest.Snapshot, nil
}

// open puts the encryption before dst.
func (s Seal) open(dst io.Writer) (io.WriteCloser, error) {
	switch {
	case s.Unencrypted && len(s.Recipients) > 0:
		return nil, errors.New("a backup is either for recipients or unencrypted")
	case s.Unencrypted:
		return plainWriter{dst}, nil
	case len(s.Recipients) == 0:
		return nil, errors.New("a backup needs a recipient or a passphrase")
	}
	out, err := age.Encrypt(dst, s.Recipients...)
	if err != nil {
		return nil, fmt.Errorf("begin to encrypt the backup: %w", err)
	}
	giveBack()
	return out, nil
}

type plainWriter struct{ io.Writer }

func (plainWriter) Close() error { return nil }

// writer is a tar in the making.
type writer struct {
	tar      *tar.Writer
	contents Contents
	manifest manifest

	authenticator *keys.Authenticator
}

func (w *writer) write(snapshot io.Reader) error {
	c := &w.contents
	c.Header.Format, w.manifest.Format = Format, Format
	if err := w.json(headerEntry, c.Header); err != nil {
		return err
	}
	if err := w.add(configEntry, c.Config); err != nil {
		return err
	}
	for _, f := range slices.SortedFunc(slices.Values(c.Files),
		func(a, b File) int { return cmp.Compare(a.Name, b.Name) }) {
		if !isFile(f.Name) {
			return fmt.Errorf("%q cannot be in a backup: it lies in none of the folders %s", f.Name,
				strings.Join(fileFolders, ", "))
		}
		if err := w.add(f.Name, f.Data); err != nil {
			return err
		}
	}
	if err := w.json(releasesEntry, c.Releases); err != nil {
		return err
	}
	if err := w.json(inventoryEntry, c.Inventory); err != nil {
		return err
	}
	if err := w.objects(c.Objects, objectName); err != nil {
		return err
	}
	if err := w.objects(c.Secrets, secretName); err != nil {
		return err
	}
	if err := w.snapshot(snapshot); err != nil {
		return err
	}
	data, err := encode(w.manifest)
	if err != nil {
		return fmt.Errorf("write %s into the backup: %w", manifestEntry, err)
	}
	if err := w.add(manifestEntry, data); err != nil || w.authenticator == nil {
		return err
	}
	return w.json(authenticationEntry, authenticate(*w.authenticator, data))
}

func isFile(name string) bool {
	return fs.ValidPath(name) && slices.ContainsFunc(fileFolders, func(folder string) bool {
		return strings.HasPrefix(name,
			folder)
	})
}

func objectName(o *unstructured.Unstructured) string {
	kind := o.GroupVersionKind().GroupKind().String()
	return objectsFolder + o.GetNamespace() + "/" + kind + "/" + o.GetName() + ".yaml"
}

func secretName(o *unstructured.Unstructured) string {
	return secretsFolder + o.GetNamespace() + "/" + o.GetName() + ".yaml"
}

func (w *writer) objects(all []unstructured.Unstructured, name func(*unstructured.Unstructured) string) error {
	for i := range all {
		data, err := yaml.Marshal(all[i].Object)
		if err != nil {
			return fmt.Errorf("write %s into the backup: %w", name(&all[i]), err)
		}
		if err := w.add(name(&all[i]), data); err != nil {
			return err
		}
	}
	return nil
}

// snapshot writes the parts, and refuses a snapshot that is not whole.
func (w *writer) snapshot(src io.Reader) error {
	s, part := newSnapshotParts(), make([]byte, partSize)
	for {
		n, err := io.ReadFull(src, part)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("read the etcd snapshot after %d bytes: %w", s.size+int64(n), err)
		}
		if n > 0 {
			if err := w.add(partName(s.n), part[:n]); err != nil {
				return err
			}
			s.add(part[:n])
		}
		if err != nil {
			break
		}
	}
	w.manifest.Snapshot = s.together()
	return s.check()
}

func (w *writer) json(name string, v any) error {
	data, err := encode(v)
	if err != nil {
		return fmt.Errorf("write %s into the backup: %w", name, err)
	}
	return w.add(name, data)
}

func encode(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	return append(data, '\n'), err
}

func (w *writer) add(name string, data []byte) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o600,
		ModTime: w.contents.Header.Taken.UTC()}
	if err := w.tar.WriteHeader(h); err != nil {
		return fmt.Errorf("write %s into the backup: %w", name, err)
	}
	if _, err := io.Copy(w.tar, bytes.NewReader(data)); err != nil {
		return fmt.Errorf("write %s into the backup: %w", name, err)
	}
	sum := sha256.Sum256(data)
	w.manifest.Entries = append(w.manifest.Entries, entry{Name: name, Size: int64(len(data)),
		SHA256: hex.EncodeToString(sum[:])})
	return nil
}
