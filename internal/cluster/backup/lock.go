package backup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"filippo.io/age"
)

// ErrLocked is wrapped by the error about a backup that none of the given keys opens.
var ErrLocked = errors.New("the backup cannot be opened")

// What files begin with.
const (
	ageIntro   = "age-encryption.org/"
	tarMagic   = "ustar"
	magicPlace = 257 // of tarMagic, in bytes
)

// workFactor is the logarithm of how hard a passphrase is to try: 17 takes 128 MB and half a second. age's own 18 takes
// 256 MB, more than all else in a backup, and no more than that is what it makes up for: one letter more.
const workFactor = 17

// maxWorkFactor bounds what a file may ask for: each step doubles the memory, and age itself would take 4 GB of it.
const maxWorkFactor = 18

// PassphraseSeal lets everybody open a backup who knows a passphrase.
func PassphraseSeal(passphrase string) (Seal, error) {
	r, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return Seal{}, fmt.Errorf("seal with a passphrase: %w", err)
	}
	r.SetWorkFactor(workFactor)
	return Seal{Recipients: []age.Recipient{r}}, nil
}

// ByPassphrase reports whether a passphrase alone opens what is sealed.
func (s Seal) ByPassphrase() bool {
	if len(s.Recipients) != 1 {
		return false
	}
	_, is := s.Recipients[0].(*age.ScryptRecipient)
	return is
}

// PassphraseIdentity opens what PassphraseSeal sealed.
func PassphraseIdentity(passphrase string) (age.Identity, error) {
	i, err := age.NewScryptIdentity(passphrase)
	if err != nil {
		return nil, fmt.Errorf("open with a passphrase: %w", err)
	}
	i.SetMaxWorkFactor(maxWorkFactor)
	return i, nil
}

// fileKeyRecorder notes the key of the one file that is encrypted through it: with that the file is read back and
// checked where it was written, by a machine that holds no key to open backups with.
type fileKeyRecorder struct {
	age.Recipient
	fileKey []byte
}

// Wrap implements age.Recipient.
func (w *fileKeyRecorder) Wrap(fileKey []byte) ([]*age.Stanza, error) {
	stanzas, _, err := w.WrapWithLabels(fileKey)
	return stanzas, err
}

// WrapWithLabels implements age.RecipientWithLabels, for a recipient that does and for one that does not.
func (w *fileKeyRecorder) WrapWithLabels(fileKey []byte) ([]*age.Stanza, []string, error) {
	w.fileKey = slices.Clone(fileKey)
	if labelled, ok := w.Recipient.(age.RecipientWithLabels); ok {
		return labelled.WrapWithLabels(fileKey)
	}
	stanzas, err := w.Recipient.Wrap(fileKey)
	return stanzas, nil, err
}

// identities open what the seal sealed, once.
func (w *fileKeyRecorder) identities() []age.Identity {
	if w == nil {
		return nil
	}
	return []age.Identity{age.NewInjectedFileKeyIdentity(w.fileKey)}
}

// recorded is the seal with a fileKeyRecorder; nil where nothing is encrypted.
func (s Seal) recorded() (Seal, *fileKeyRecorder) {
	if len(s.Recipients) == 0 {
		return s, nil
	}
	w := &fileKeyRecorder{Recipient: s.Recipients[0]}
	s.Recipients = append([]age.Recipient{w}, s.Recipients[1:]...)
	return s, w
}

// unlock takes the encryption off a file, where it has one, and says what it was.
func unlock(file *bufio.Reader, identities []age.Identity) (io.Reader, Origin, error) {
	is := Origin{Sealed: Plain, Authenticated: ByNothing}
	start, err := file.Peek(magicPlace + len(tarMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, is, fmt.Errorf("read the backup: %w", err)
	}
	switch {
	case len(start) >= magicPlace && string(start[magicPlace:]) == tarMagic:
		return file, is, nil
	case !bytes.HasPrefix(start, []byte(ageIntro)):
		return nil, is, damaged("", "it is neither encrypted by age nor a tar")
	case len(identities) == 0:
		return nil, is, fmt.Errorf("%w: it is encrypted, and there is no key or passphrase to open it with", ErrLocked)
	}
	var seen stanzas
	noting := make([]age.Identity, len(identities))
	for i, identity := range identities {
		noting[i] = observer{identity, &seen}
	}
	plain, err := age.Decrypt(file, noting...)
	if errors.As(err, new(*age.NoIdentityMatchError)) {
		return nil, is, fmt.Errorf("%w: %s", ErrLocked, wrongKey(seen))
	}
	if err != nil {
		return nil, is, damaged("", "%w", err)
	}
	is.Sealed, is.Recipients = ForKeys, seen
	if seen.passphrase() {
		giveBack()
		is = Origin{Sealed: ByPassphrase, Authenticated: ByThePassphrase}
	}
	return plain, is, nil
}

// stanzas are what a file was sealed for: the types of age, one for each recipient.
type stanzas []string

// observer is an identity that notes what the file is sealed for.
type observer struct {
	age.Identity
	seen *stanzas
}

// Unwrap implements age.Identity.
func (o observer) Unwrap(all []*age.Stanza) ([]byte, error) {
	*o.seen = nil
	for _, one := range all {
		*o.seen = append(*o.seen, one.Type)
	}
	return o.Identity.Unwrap(all)
}

// passphrase reports whether a passphrase alone opens the file: age refuses one beside other recipients.
func (s stanzas) passphrase() bool { return len(s) == 1 && s[0] == "scrypt" }

// giveBack returns what a passphrase took. Otherwise the collector, which lets a heap double, would let it double that.
func giveBack() { debug.FreeOSMemory() }

// wrongKey says what a backup was sealed for, in answer to a key that it was not.
func wrongKey(sealedFor stanzas) string {
	if sealedFor.passphrase() {
		return "it was sealed with a passphrase, and no key but that one opens it"
	}
	return fmt.Sprintf("it was sealed for %d keys (%s), and none of them was given", len(sealedFor),
		strings.Join(sealedFor, ", "))
}
