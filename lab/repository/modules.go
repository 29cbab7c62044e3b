package repository

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/slipway-k8s/slipway/lab/programs"
)

// Module is a Go module at one version, as files on disk. A provider's
// manifests are made from its module's config folder.
type Module struct {
	Path    string // github.com/siderolabs/cluster-api-bootstrap-provider-talos
	Version string // v0.6.12
	Dir     string // absolute folder that holds config/default
}

// keptFolder, in the folder of the programs, holds a copy of the parts of each
// program's module that manifests are made from.
const keptFolder = "modules"

// Modules finds the modules that the provider programs in bin were built from, and those of Cluster API's core in some
// folders.
//
// The programs' build information names their modules and versions, or the list of a set out of images does, so that
// manifest and program always match. The Go module cache had the modules when the programs were built or fetched. The
// first call copies the needed files to bin, so that a lab that is started later, elsewhere or without Go still finds
// them. A version of a module never changes, so the copy stays valid.
func Modules(ctx context.Context, bin string, coreFolders ...string) ([]Module, error) {
	modules, err := coreModules(ctx, coreFolders)
	if err != nil {
		return nil, err
	}
	var wanted []toolModule
	for _, p := range providers[core+1:] {
		wanted = append(wanted, toolModule{program: p.program, module: p.module})
	}
	others, err := modulesOf(ctx, bin, wanted)
	return append(modules, others...), err
}

// coreModules finds the modules of the programs of Cluster API's core in some folders.
func coreModules(ctx context.Context, folders []string) (all []Module, err error) {
	p := providers[core]
	for _, bin := range folders {
		found, err := modulesOf(ctx, bin, []toolModule{{program: p.program, module: p.module}})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// toolModule is a program and the module that it was built from.
type toolModule struct{ program, module string }

// modulesOf finds the modules of programs in bin, in their order.
func modulesOf(ctx context.Context, bin string, wanted []toolModule) ([]Module, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, fmt.Errorf("find the programs' folder: %w", err)
	}
	listed, err := programs.FromImages(bin)
	if err != nil {
		return nil, err
	}
	var found []Module
	for _, p := range wanted {
		version := listed[p.program].Version
		if version == "" {
			if version, err = programVersion(filepath.Join(bin, p.program), p.module); err != nil {
				return nil, err
			}
		}
		m := Module{Path: p.module, Version: version}
		m.Dir = filepath.Join(bin, keptFolder, filepath.FromSlash(m.Path+"@"+m.Version))
		if _, err := os.Stat(m.Dir); errors.Is(err, fs.ErrNotExist) {
			if err := keepModule(ctx, m); err != nil {
				return nil, err
			}
		} else if err != nil {
			return nil, fmt.Errorf("find the manifests of %s: %w", m.Path, err)
		}
		found = append(found, m)
	}
	return found, nil
}

// programVersion reads out of a program's build information at which version
// of the module it was built.
func programVersion(program, module string) (string, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("read the version of %s (\"go install tool\" in the lab's module builds it): %w", program, err)
	}
	version, err := moduleVersion(info, module)
	if err != nil {
		return "", fmt.Errorf("read the version of %s: %w", program, err)
	}
	return version, nil
}

// moduleVersion finds a module's version in build information. The module is
// the main one of a program that was installed as a tool, a dependency of a
// program that embeds it.
func moduleVersion(info *debug.BuildInfo, module string) (string, error) {
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path != module {
			continue
		}
		// A module out of a folder has no version that clusterctl could order.
		if m.Replace != nil || !strings.HasPrefix(m.Version, "v") {
			return "", fmt.Errorf("it was built from %s at %q, which is not a release", module, m.Version)
		}
		return m.Version, nil
	}
	return "", fmt.Errorf("it was built from %s, not from %s", info.Main.Path, module)
}

// keepModule copies what manifests are made from out of Go's module cache to
// m.Dir, completely or not at all.
func keepModule(ctx context.Context, m Module) error {
	cache, err := moduleCache(ctx)
	if err != nil {
		return fmt.Errorf("find the module %s: %w", m.Path, err)
	}
	source := filepath.Join(cache, filepath.FromSlash(m.Path+"@"+m.Version))
	files, err := manifestFiles(os.DirFS(source))
	if err != nil {
		return fmt.Errorf("read the manifests of %s in Go's module cache (\"go mod download %s@%s\" brings them back): %w",
			m.Path, m.Path, m.Version, err)
	}
	parent := filepath.Dir(m.Dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("keep the manifests of %s: %w", m.Path, err)
	}
	partial, err := os.MkdirTemp(parent, ".partial-")
	if err != nil {
		return fmt.Errorf("keep the manifests of %s: %w", m.Path, err)
	}
	defer os.RemoveAll(partial)
	for name, content := range files {
		if err := writeFile(filepath.Join(partial, filepath.FromSlash(name)), content); err != nil {
			return fmt.Errorf("keep the manifests of %s: %w", m.Path, err)
		}
	}
	if err := os.Rename(partial, m.Dir); err != nil {
		// Another lab may have been quicker; its copy is the same.
		if _, statErr := os.Stat(m.Dir); statErr != nil {
			return fmt.Errorf("keep the manifests of %s: %w", m.Path, err)
		}
	}
	return nil
}

// moduleCache is the folder of Go's module cache: what the environment says,
// else what the go command says, else Go's default.
func moduleCache(ctx context.Context) (string, error) {
	if dir := os.Getenv("GOMODCACHE"); dir != "" {
		return dir, nil
	}
	if out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE").Output(); err == nil {
		if dir := strings.TrimSpace(string(out)); dir != "" {
			return dir, nil
		}
	}
	if paths := filepath.SplitList(os.Getenv("GOPATH")); len(paths) > 0 {
		return filepath.Join(paths[0], "pkg", "mod"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("where Go's module cache lies is unknown (set GOMODCACHE): %w", err)
	}
	return filepath.Join(home, "go", "pkg", "mod"), nil
}

// manifestFiles reads the part of a module that its manifests are made from:
// the YAML below config, and the clusterctl metadata beside it.
func manifestFiles(module fs.FS) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(module, "config", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".yaml" {
			return err
		}
		files[name], err = fs.ReadFile(module, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	content, err := fs.ReadFile(module, metadataFile)
	if err == nil {
		files[metadataFile] = content
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return files, nil
}
