package remotestate

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/internal/client/objectstore"
)

var (
	alpha = map[string]string{"hetzner/alpha/state": "state", "hetzner/alpha/versions/00000001": "first",
		"hetzner/alpha/versions/00000002": "second"}
	beta = map[string]string{"hetzner/beta/state": "of another cluster"}
)

func filled(t *testing.T, contents ...map[string]string) objectstore.Store {
	t.Helper()
	s := objectstore.Folder(t.TempDir())
	for _, content := range contents {
		for name, data := range content {
			if _, err := s.Put(t.Context(), name, []byte(data), objectstore.None); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

func has(t *testing.T, s objectstore.Store, contents ...map[string]string) {
	t.Helper()
	count := 0
	for _, content := range contents {
		for name, want := range content {
			count++
			if data, _, err := s.Get(t.Context(), name); err != nil || string(data) != want {
				t.Errorf("%s of %s is %q, %v", name, s, data, err)
			}
		}
	}
	if names, err := s.List(t.Context(), ""); err != nil || len(names) != count {
		t.Errorf("%s has %v, %v", s, names, err)
	}
}

// errCut is where a move is cut off.
var errCut = errors.New("cut off")

// cutting is a store that takes some writes, and then none.
type cutting struct {
	objectstore.Store
	left *int
}

func (c cutting) allow() error {
	if *c.left--; *c.left < 0 {
		return errCut
	}
	return nil
}

func (c cutting) Put(ctx context.Context, name string, data []byte, version string) (string, error) {
	if err := c.allow(); err != nil {
		return "", err
	}
	return c.Store.Put(ctx, name, data, version)
}

func (c cutting) Delete(ctx context.Context, name string) error {
	if err := c.allow(); err != nil {
		return err
	}
	return c.Store.Delete(ctx, name)
}

// The state of one cluster is moved, wherever an earlier move was cut off.
func TestMove(t *testing.T) {
	writes := 2 * len(alpha)
	for cut := range writes + 1 {
		from, to, left := filled(t, alpha, beta), filled(t), cut
		err := Move(t.Context(), cutting{from, &left}, cutting{to, &left}, "hetzner", "alpha")
		if cut < writes && !errors.Is(err, errCut) || cut == writes && err != nil {
			t.Fatalf("cut off after %d writes: %v", cut, err)
		}
		whole := slices.ContainsFunc([]objectstore.Store{from, to}, func(s objectstore.Store) bool {
			_, _, err := s.Get(t.Context(), "hetzner/alpha/state")
			return err == nil
		})
		if !whole {
			t.Errorf("cut off after %d writes: no place has the state", cut)
		}
		if err := Move(t.Context(), from, to, "hetzner", "alpha"); err != nil {
			t.Errorf("again, after %d writes: %v", cut, err)
		}
		has(t, to, alpha)
		if _, _, err := from.Get(t.Context(), "hetzner/alpha/state"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after %d writes the state is still in the old place: %v", cut, err)
		}
		has2, _, err := from.Get(t.Context(), "hetzner/beta/state")
		if err != nil || string(has2) != beta["hetzner/beta/state"] {
			t.Errorf("the state of the other cluster is %q, %v", has2, err)
		}
	}
}

// What a run has written in the new place is not replaced by what is in the old one.
func TestMoveKeepsTheNewPlace(t *testing.T) {
	newer := map[string]string{"hetzner/alpha/state": "newer"}
	from, to := filled(t, alpha, beta), filled(t, newer)
	if err := Move(t.Context(), from, to, "hetzner", "alpha"); err != nil {
		t.Fatal(err)
	}
	has(t, to, newer)
	has(t, from, beta)
	if err := Move(t.Context(), from, to, "hetzner", "none"); err != nil {
		t.Error(err)
	}
}
