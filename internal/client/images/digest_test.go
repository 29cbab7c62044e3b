package images

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/random"
)

// The digest of a tag is what the registry says at this moment, and nothing is recorded.
func TestDigest(t *testing.T) {
	r := newRegistry(t)
	s := r.store()
	other, err := random.Image(10, 1)
	if err != nil {
		t.Fatal(err)
	}
	r.push("slipway:v1", empty.Image)
	was, err := s.Digest(t.Context(), "example.org/slipway:v1")
	if want, digestErr := empty.Image.Digest(); err != nil || digestErr != nil || was != want.String() {
		t.Errorf("the digest is %s, not %s: %v", was, want, err)
	}
	r.push("slipway:v1", other)
	is, err := s.Digest(t.Context(), "example.org/slipway:v1")
	if want, digestErr := other.Digest(); err != nil || digestErr != nil || is != want.String() {
		t.Errorf("after a push the digest is %s, not %s: %v", is, want, err)
	}
	r.asked("")
	if byDigest, err := s.Digest(t.Context(), "example.org/slipway@"+was); err != nil || byDigest != was || len(r.asked("")) > 0 {
		t.Errorf("the digest of a digest is %s, %v", byDigest, err)
	}
	if _, err := os.Stat(s.LockFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it has written the lock file: %v", err)
	}
}
