package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// dataLink is the link that turns a folder of files over at once. The names are those of real kubelets, which some
// programs that watch their certificates look for.
const dataLink = "..data"

// replaceFiles gives a folder exactly these files, atomically for readers that open them through the folder: the files
// are in a folder of their own, ..data is a link to it, and each name a link through ..data. Files have mode 0600,
// folders 0700, whatever mode a volume requests: other users of this machine are not part of the Pod.
func replaceFiles(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(dir, "..files-") // 0700 by contract
	if err != nil {
		return err
	}
	if err := writeFiles(fresh, files); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	link := filepath.Join(dir, dataLink)
	old, err := os.Readlink(link)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	if err := turnLink(link, filepath.Base(fresh)); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	if err := linkNames(dir, files); err != nil {
		return err
	}
	if old != "" {
		return os.RemoveAll(filepath.Join(dir, old))
	}
	return nil
}

func writeFiles(dir string, files map[string][]byte) error {
	for name, content := range files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("file name %q leads out of the volume", name)
		}
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// turnLink replaces a link's target atomically.
func turnLink(link, target string) error {
	next := link + "_tmp"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a run that was killed
		return err
	}
	if err := os.Symlink(target, next); err != nil {
		return err
	}
	return os.Rename(next, link)
}

// linkNames gives every top-level name a link through ..data and removes those that lead nowhere now.
func linkNames(dir string, files map[string][]byte) error {
	var names []string
	for file := range files {
		name, _, _ := strings.Cut(filepath.ToSlash(file), "/")
		names = append(names, name)
		err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 || e.Name() == dataLink || slices.Contains(names, e.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
