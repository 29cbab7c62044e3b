package images

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// A layer deletes what lower layers have by files with these names.
const (
	whiteoutPrefix = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// whiteout deletes what lower layers have, and not what the present layer has written.
func (u *unpacker) whiteout(dir, base string) error {
	if base == whiteoutOpaque {
		return u.removeLower(dir)
	}
	name := strings.TrimPrefix(base, whiteoutPrefix)
	if name == "" || name == "." || name == ".." {
		return errors.New("it deletes nothing that has a name: it is refused")
	}
	name = path.Join(dir, name)
	if u.layed[name] {
		return u.removeLower(name)
	}
	return u.root.RemoveAll(name)
}

// removeLower empties a folder of what lower layers have put there: once in a layer, which adds nothing of theirs.
func (u *unpacker) removeLower(dir string) error {
	if u.emptied[dir] {
		return nil
	}
	u.emptied[dir] = true
	info, err := u.root.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := fs.ReadDir(u.root.FS(), dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if u.layed[name] {
			err = u.removeLower(name)
		} else {
			err = u.root.RemoveAll(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkLinks refuses an image with a symbolic link that leaves the folder when it is followed, as a link below another
// one can, whose own target does not show it.
func (u *unpacker) checkLinks() error {
	return fs.WalkDir(u.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink == 0 {
			return err
		}
		if _, err := u.root.Stat(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the symbolic link %q: %w: it is refused", name, err)
		}
		return nil
	})
}
