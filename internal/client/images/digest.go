package images

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
)

// ErrReference is about a text that names no version of an image.
var ErrReference = errors.New("the image is not named as it has to be")

// Digest asks the registry which digest an image's reference stands for at this moment: that of the index, where the
// image is for several platforms. It fetches the manifest alone, and neither reads nor writes the lock file and the
// cache. The digest of a reference that names one is that, and nothing is asked. The error about what is no reference
// of a version of an image wraps ErrReference.
func (s *Store) Digest(ctx context.Context, reference string) (string, error) {
	ref, err := parse(reference)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrReference, err)
	}
	if byDigest, is := ref.(name.Digest); is {
		return byDigest.DigestStr(), nil
	}
	pull := &pull{store: s, ref: ref}
	data, _, err := pull.manifest(ctx, ref.Identifier())
	if err != nil {
		return "", fmt.Errorf("ask for the digest of the image %s: %w", reference, err)
	}
	return hashOf(data).String(), nil
}
