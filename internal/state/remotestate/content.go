package remotestate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// mostFile bounds a file of a state (bytes). The largest that Slipway writes, a copy of the objects that a pivot moves,
// stays below a tenth of it.
const mostFile = 4 << 20

// Content are the files of a state folder that belong to the cluster, by their paths with slashes.
type Content map[string][]byte

func (c Content) names() []string { return slices.Sorted(maps.Keys(c)) }

// Digest is a hash of all names and contents.
func (c Content) Digest() string {
	hash := sha256.New()
	for _, name := range c.names() {
		fmt.Fprintf(hash, "%d %s %d\n", len(name), name, len(c[name]))
		hash.Write(c[name])
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// blank reports whether a folder has nothing of a cluster but whose it is.
func (c Content) blank() bool {
	for name := range c {
		if name != statedir.EnvironmentFile && name != ownership.File {
			return false
		}
	}
	return true
}

// checkPath refuses what is not the path of a file in a state folder.
func checkPath(name string) error {
	if !filepath.IsLocal(filepath.FromSlash(name)) || !statedir.Shared(name) {
		return fmt.Errorf("%q is no file of a cluster's state", name)
	}
	return nil
}

// Read reads the content of a state folder. There is none in a folder that does not exist.
func Read(dir string) (Content, error) {
	c := Content{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // removed while it was listed, or no folder
			return nil
		}
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		switch {
		case !statedir.Shared(name) && d.IsDir():
			return fs.SkipDir
		case !statedir.Shared(name) || !d.Type().IsRegular():
			return nil
		}
		data, err := readFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		c[name] = data
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the state folder %s: %w", dir, err)
	}
	return c, nil
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > mostFile {
		return nil, fmt.Errorf("%s has %d bytes, more than a file of a cluster's state: move it out of the folder", path,
			info.Size())
	}
	return os.ReadFile(path)
}

// write makes the content of a state folder this one: files that are not in it are removed.
func (c Content) write(dir string) error {
	is, err := Read(dir)
	if err != nil {
		return err
	}
	files := statedir.Dir(dir).Files()
	for _, name := range c.names() {
		if err := c.writeOne(files, name); err != nil {
			return err
		}
	}
	for _, name := range is.names() {
		if _, stays := c[name]; !stays {
			if err := files.Remove(filepath.FromSlash(name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeOne writes a file of the content into a folder.
func (c Content) writeOne(to platform.Files, name string) error {
	if within := filepath.Dir(filepath.FromSlash(name)); within != "." {
		to = to.Folder(within)
	}
	return to.Write(filepath.Base(filepath.FromSlash(name)), c[name])
}
