package remotestate

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"

	"filippo.io/age"
)

// mostContent bounds what a content becomes when it is unpacked (bytes).
const mostContent = 64 << 20

// Keys encrypt and decrypt a content.
type Keys struct {
	Recipients []age.Recipient
	Identities []age.Identity
}

// With adds the recipients of the identities, so that who writes a state can read it.
func (k Keys) With() Keys {
	k.Recipients = slices.Clone(k.Recipients)
	for _, identity := range k.Identities {
		switch i := identity.(type) {
		case *age.X25519Identity:
			k.Recipients = append(k.Recipients, i.Recipient())
		case *age.HybridIdentity:
			k.Recipients = append(k.Recipients, i.Recipient())
		}
	}
	return k
}

// seal packs and encrypts a content.
func (k Keys) seal(c Content) ([]byte, error) {
	if len(k.Recipients) == 0 {
		return nil, errors.New("there is no public key to encrypt the state with")
	}
	var sealed bytes.Buffer
	encrypted, err := age.Encrypt(&sealed, k.Recipients...)
	if err != nil {
		return nil, fmt.Errorf("encrypt the state: %w", err)
	}
	packed := gzip.NewWriter(encrypted)
	archive := tar.NewWriter(packed)
	for _, name := range c.names() {
		data := c[name]
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o600}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(data); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(archive.Close(), packed.Close(), encrypted.Close()); err != nil {
		return nil, fmt.Errorf("encrypt the state: %w", err)
	}
	return sealed.Bytes(), nil
}

// open decrypts and unpacks a content.
func (k Keys) open(sealed []byte) (Content, error) {
	if len(sealed) == 0 {
		return Content{}, nil
	}
	if len(k.Identities) == 0 {
		return nil, errors.New("decrypt the state: no secret key is configured (STATE_IDENTITY_FILE, or STATE_IDENTITY in the " +
			"environment)")
	}
	decrypted, err := age.Decrypt(bytes.NewReader(sealed), k.Identities...)
	if err != nil {
		return nil, fmt.Errorf("decrypt the state: %w (the secret key is in STATE_IDENTITY_FILE, or in STATE_IDENTITY)", err)
	}
	packed, err := gzip.NewReader(decrypted)
	if err != nil {
		return nil, fmt.Errorf("unpack the state: %w", err)
	}
	archive, c, left := tar.NewReader(packed), Content{}, int64(mostContent)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return nil, fmt.Errorf("unpack the state: %w", err)
		}
		if left -= header.Size; left < 0 {
			return nil, fmt.Errorf("unpack the state: it has more than %d bytes", mostContent)
		}
		if err := checkPath(header.Name); err != nil {
			return nil, fmt.Errorf("unpack the state: %w", err)
		}
		if c[header.Name], err = io.ReadAll(archive); err != nil {
			return nil, fmt.Errorf("unpack the state: %w", err)
		}
	}
}
