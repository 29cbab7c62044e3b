package remotestate

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"filippo.io/age"
)

// Bounds of a content, so that unpacking one takes a limited amount of memory. A content has some twenty files.
const (
	mostContent = 64 << 20 // bytes of the whole archive
	mostFiles   = 4096
)

// headName is the name of an archive's first entry, a head. It is known by its place, not by its name.
const headName = "state.json"

// head says whose content an archive has, and which one: it is encrypted with the content.
type head struct {
	Cluster     string    `json:"cluster"`
	Environment string    `json:"environment"`
	Serial      int64     `json:"serial"`
	Written     time.Time `json:"written"`
	By          string    `json:"by"`
}

func (d Document) head() head { return head{d.Cluster, d.Environment, d.Serial, d.Written, d.By} }

// seal packs and encrypts a content, for the document that it becomes a part of.
func (k Keys) seal(c Content, of head) ([]byte, error) {
	recipients, err := k.recipients()
	if err != nil {
		return nil, err
	}
	first, err := json.Marshal(of)
	if err != nil {
		return nil, fmt.Errorf("encode the state: %w", err)
	}
	var sealed bytes.Buffer
	encrypted, err := age.Encrypt(&sealed, recipients...)
	if err != nil {
		return nil, fmt.Errorf("encrypt the state: %w", err)
	}
	packed := gzip.NewWriter(encrypted)
	count := &bounded{left: mostContent, next: packed}
	archive := tar.NewWriter(count)
	if err := pack(archive, headName, first); err != nil {
		return nil, err
	}
	if len(c) > mostFiles {
		return nil, fmt.Errorf("the state folder has more than %d files", mostFiles)
	}
	for _, name := range c.names() {
		if err := pack(archive, name, c[name]); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(archive.Close(), packed.Close(), encrypted.Close()); err != nil {
		return nil, fmt.Errorf("encrypt the state: %w", err)
	}
	return sealed.Bytes(), nil
}

func pack(archive *tar.Writer, name string, data []byte) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o600}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("pack the state: %w", err)
	}
	if _, err := archive.Write(data); err != nil {
		return fmt.Errorf("pack the state: %w", err)
	}
	return nil
}

// bounded passes on a number of bytes and then fails.
type bounded struct {
	left int
	from io.Reader
	next io.Writer
}

var errTooMuch = fmt.Errorf("it has more than %d bytes", mostContent)

func (b *bounded) Write(data []byte) (int, error) {
	if b.left -= len(data); b.left < 0 {
		return 0, errTooMuch
	}
	return b.next.Write(data)
}

func (b *bounded) Read(data []byte) (int, error) {
	n, err := b.from.Read(data)
	if b.left -= n; b.left < 0 {
		return 0, errTooMuch
	}
	return n, err
}

// content decrypts and unpacks the content of a document, which is authentic or was accepted.
func (p Place) content(d Document) (Content, error) {
	if d.Serial == 0 {
		return Content{}, nil
	}
	c, err := p.Keys.open(d)
	if err != nil {
		return nil, err
	}
	if c.Digest() != d.Digest {
		return nil, p.refuse(p.name(), Damaged, "its files are not those that were written")
	}
	return c, nil
}

// open decrypts and unpacks a content.
func (k Keys) open(d Document) (Content, error) {
	identities, err := k.identities()
	if err != nil {
		return nil, fmt.Errorf("decrypt the state: %w", err)
	}
	decrypted, err := age.Decrypt(bytes.NewReader(d.Sealed), identities...)
	if none := (*age.NoIdentityMatchError)(nil); errors.As(err, &none) && len(k.Identities) == 0 {
		return nil, fmt.Errorf("decrypt the state: it was written with post-quantum keys (age1pq1…) alone, and the key of one "+
			"cluster does not open it: use the secret key of the operator: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("decrypt the state: %w (the secret key is in STATE_IDENTITY_FILE, or in STATE_IDENTITY)", err)
	}
	c, err := unpackArchive(decrypted, d)
	if err != nil {
		return nil, fmt.Errorf("unpack the state: %w", err)
	}
	return c, nil
}

func unpackArchive(from io.Reader, d Document) (Content, error) {
	packed, err := gzip.NewReader(from)
	if err != nil {
		return nil, err
	}
	archive, c := tar.NewReader(&bounded{left: mostContent, from: packed}), Content{}
	if d.Format >= authenticated {
		if err := readHead(archive, d); err != nil {
			return nil, err
		}
	}
	for {
		name, data, err := next(archive)
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return nil, err
		}
		if err := checkPath(name); err != nil {
			return nil, err
		}
		if _, twice := c[name]; twice || len(c) == mostFiles {
			return nil, fmt.Errorf("it has %q twice, or more than %d files", name, mostFiles)
		}
		c[name] = data
	}
}

// readHead checks that an archive is that of the document.
func readHead(archive *tar.Reader, d Document) error {
	_, data, err := next(archive)
	if err != nil {
		return fmt.Errorf("read what it is: %w", err)
	}
	var is head
	if err := json.Unmarshal(data, &is); err != nil {
		return fmt.Errorf("read what it is: %w", err)
	}
	if is.Cluster != d.Cluster || is.Environment != d.Environment || is.Serial != d.Serial || !is.Written.Equal(d.Written) {
		return fmt.Errorf("it is serial %d of %q (%q), and not serial %d of %s (%s)", is.Serial, is.Cluster, is.Environment, d.Serial,
			d.Cluster, d.Environment)
	}
	return nil
}

// next reads the next entry, which has to be a plain file: a sparse one becomes larger than what was read.
func next(archive *tar.Reader) (name string, data []byte, err error) {
	header, err := archive.Next()
	if err != nil {
		return "", nil, err
	}
	if header.Typeflag != tar.TypeReg {
		return "", nil, fmt.Errorf("%q is no plain file", header.Name)
	}
	for record := range header.PAXRecords {
		if strings.HasPrefix(record, "GNU.sparse.") {
			return "", nil, fmt.Errorf("%q is a sparse file", header.Name)
		}
	}
	if header.Size > mostFile {
		return "", nil, fmt.Errorf("%q has %d bytes, more than a file of a cluster's state", header.Name, header.Size)
	}
	data, err = io.ReadAll(archive)
	return header.Name, data, err
}
