package operations

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// WriteBuiltInFiles writes the built-in files below a folder, and returns their names. It writes none where one is
// there already.
func WriteBuiltInFiles(dir string) ([]string, error) {
	files, err := render.BuiltInFiles()
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(files))
	for _, name := range names {
		if err := refuseToReplace(dir, filepath.FromSlash(name)); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, fmt.Errorf("write the built-in files: %w", err)
		}
		if err := writeNew(path, files[name]); err != nil {
			return nil, fmt.Errorf("write the built-in files: %w", err)
		}
	}
	return names, nil
}

// refuseToReplace refuses to write a file where something is in its way.
func refuseToReplace(dir, name string) error {
	for below := filepath.Dir(name); below != "."; below = filepath.Dir(below) {
		folder := filepath.Join(dir, below)
		if info, err := os.Stat(folder); err == nil && !info.IsDir() {
			return usage.Errorf("%s is a file, and the built-in files need a folder of this name: nothing is written; name "+
				"another folder with --out", folder)
		}
	}
	path := filepath.Join(dir, name)
	switch _, err := os.Lstat(path); {
	case err == nil:
		return usage.Errorf("%s is there already: nothing is written; remove it, or name another folder with --out", path)
	case !errors.Is(err, fs.ErrNotExist):
		return usage.Errorf("write the built-in files: %w", err)
	}
	return nil
}

// writeNew writes a file that is not there yet.
func writeNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
