package flux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/base/usage"
)

// Folder is a local folder that gets the tree: a Git working copy, or one that is to become it. It may not exist yet.
type Folder struct {
	path string
	root *os.Root // nil: it does not exist; nothing outside of it is read or written, through no symbolic link either
	Git  bool     // it is a Git working copy
}

// OpenFolder opens a folder. What cannot get the tree is a usage.Error: a file, a folder in the state folder, and one
// that is below the root of a Git working copy, where Flux's paths begin.
func OpenFolder(dir, stateFolder string) (Folder, error) {
	f := Folder{path: filepath.Clean(dir)}
	if inside(resolved(dir), resolved(stateFolder)) {
		return f, usage.Errorf("%s is in the state folder %s, which holds the cluster's keys: name a folder outside of it",
			dir, stateFolder)
	}
	for at := resolved(dir); ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			if f.Git = at == resolved(dir); !f.Git {
				return f, usage.Errorf("%s is a folder of the Git working copy %s, and Flux's paths begin at its root: "+
					"name that, or make %s a working copy of its own (git init)", dir, at, dir)
			}
			break
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, nil
	case err == nil && !info.IsDir():
		return f, usage.Errorf("%s is a file: name a folder, a Git working copy or an empty one", dir)
	case err == nil:
		f.root, err = os.OpenRoot(dir)
	}
	if err != nil {
		return f, usage.Errorf("open the folder for the tree: %w", err)
	}
	return f, nil
}

// Close closes the folder.
func (f Folder) Close() error {
	if f.root == nil {
		return nil
	}
	return f.root.Close()
}

// resolved is an absolute path without symbolic links, as far as it exists.
func resolved(dir string) string {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	rest := ""
	for at := absolute; ; at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if at == filepath.Dir(at) {
			return absolute
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

func inside(dir, of string) bool {
	relative, err := filepath.Rel(of, dir)
	return err == nil && filepath.IsLocal(relative)
}

// state compares a file with what it is to have.
func (f Folder) state(name, content string) (FileState, error) {
	if f.root == nil {
		return New, nil
	}
	data, err := f.root.ReadFile(filepath.FromSlash(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return New, nil
	case err != nil:
		return "", fmt.Errorf("read what is in %s: %w", f.path, err)
	case string(data) != content:
		return Different, nil
	}
	return Same, nil
}

// others are the manifests of a folder that are not the tree's own: those that its kustomization.yaml lists, or,
// without one, all that Flux applies: a kustomization.yaml that did not list them would have Flux delete what they
// have made.
func (f Folder) others(folder string, own []string, top bool) (names []string, err error) {
	if f.root == nil {
		return nil, nil
	}
	for _, name := range otherListFiles {
		if _, err := f.root.Lstat(filepath.FromSlash(path.Join(folder, name))); err == nil {
			return nil, usage.Errorf("%s is there, and kustomize takes one such file in a folder: rename it to %s",
				filepath.Join(f.path, folder, name), listFile)
		}
	}
	data, err := f.root.ReadFile(filepath.FromSlash(path.Join(folder, listFile)))
	if err == nil {
		var is struct {
			Resources []string `json:"resources"`
		}
		if err := yaml.Unmarshal(data, &is); err != nil {
			return nil, usage.Errorf("read %s: %w", filepath.Join(f.path, folder, listFile), err)
		}
		return slices.DeleteFunc(is.Resources, func(name string) bool { return slices.Contains(own, name) }), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read what is in %s: %w", f.path, err)
	}
	err = fs.WalkDir(f.root.FS(), folder, func(at string, e fs.DirEntry, err error) error {
		name := strings.TrimPrefix(at, strings.TrimPrefix(folder+"/", "./"))
		switch {
		case errors.Is(err, fs.ErrNotExist) && at == folder:
			return nil
		case err != nil:
			return err
		case at == folder:
			return nil
		case e.IsDir() && (strings.HasPrefix(e.Name(), ".") || top && slices.Contains([]string{sources, infrastructure, apps},
			name)):
			return fs.SkipDir
		case e.IsDir():
			for _, list := range append([]string{listFile}, otherListFiles...) {
				if _, err := fs.Stat(f.root.FS(), path.Join(at, list)); err == nil {
					names = append(names, name)
					return fs.SkipDir
				}
			}
		case (path.Ext(at) == ".yaml" || path.Ext(at) == ".yml") && !strings.HasPrefix(e.Name(), ".") &&
			!slices.Contains(own, name):
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read what is in %s: %w", f.path, err)
	}
	return names, nil
}

// Write writes the files that are not so already: all of them are written beside their places first, so that a folder
// that cannot be written to stays as it is, which is a usage.Error.
func (t *Tree) Write(f Folder) (err error) {
	if !slices.ContainsFunc(t.Files, func(f TreeFile) bool { return f.State != Same }) {
		return nil
	}
	if f.root == nil {
		if err := os.MkdirAll(f.path, 0o755); err != nil {
			return usage.Errorf("create the folder for the tree: %w", err)
		}
		if f.root, err = os.OpenRoot(f.path); err != nil {
			return usage.Errorf("open the folder for the tree: %w", err)
		}
		defer func() { _ = f.root.Close() }()
	}
	const beside = ".slipway-gitops" // what a killed command left there is replaced
	if err := errors.Join(f.root.RemoveAll(beside), f.root.Mkdir(beside, 0o755)); err != nil {
		return usage.Errorf("write into %s: %w", f.path, err)
	}
	defer func() { err = errors.Join(err, f.root.RemoveAll(beside)) }()
	staged := func(i int) string { return filepath.Join(beside, fmt.Sprint(i)) }
	for i, file := range t.Files {
		if err := f.root.WriteFile(staged(i), []byte(file.Content), 0o644); err != nil {
			return usage.Errorf("write into %s: nothing is written: %w", f.path, err)
		}
		if err := f.root.MkdirAll(filepath.FromSlash(path.Dir(file.Path)), 0o755); err != nil {
			return usage.Errorf("write into %s: no file is written: %w", f.path, err)
		}
	}
	for i, file := range t.Files {
		if file.State == Same {
			continue
		}
		if err := f.root.Rename(staged(i), filepath.FromSlash(file.Path)); err != nil {
			return fmt.Errorf("write %s: run the command again: it writes what is missing: %w", file.Path, err)
		}
	}
	return nil
}
