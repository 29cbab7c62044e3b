package crash

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
)

// copyFolder copies a folder with modes and links; blocks are shared and holes kept where the file system can.
func copyFolder(ctx context.Context, from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", from, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// partsOfCode are the folders and files that the command and the lab are made from, and those that judge them.
func partsOfCode() []string {
	return []string{"cmd", "flow", "internal", "steps", "manifests", "bootstrap", "lab", "go.mod", "go.sum", "test/crash",
		"test/judge"}
}

// Key identifies a state of the code: results of another one do not count.
func Key(source string) (string, error) {
	hash := sha256.New()
	for _, part := range partsOfCode() {
		err := filepath.WalkDir(filepath.Join(source, part), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(source, path)
			fmt.Fprintf(hash, "%s %d\n%s", name, len(data), data)
			return err
		})
		if err != nil {
			return "", fmt.Errorf("hash the code: %w", err)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:12], nil
}

// Build builds the command with fault injection.
func Build(ctx context.Context, source, to string) error {
	build := exec.CommandContext(ctx, "go", "build", "-tags", "crash,kustomize_disable_go_plugin_support", "-o", to,
		"./cmd/bootstrap")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the command: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Source finds the repository above a folder.
func Source(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "lab", "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no folder above %s holds lab/go.mod", dir)
		}
	}
}

// Claim holds the work folder for this process until it is released, and tidies it: a second suite
// would pull the labs away from under the first. Where one is at work the error wraps a
// *flow.LockedError, which says who it is and since when.
func Claim(ctx context.Context, work, key string) (release func() error, err error) {
	if err := os.MkdirAll(filepath.Join(work, key), 0o700); err != nil {
		return nil, err
	}
	release, err = flow.LockFile(ctx, filepath.Join(work, "lock"))
	if err != nil {
		return nil, fmt.Errorf("claim the work folder %s: %w", work, err)
	}
	if err := Tidy(work, key); err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}

// Tidy removes the data of other states of the code from the work folder, except for their ledgers.
func Tidy(work, key string) error {
	entries, err := os.ReadDir(work)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() || e.Name() == key || !slices.ContainsFunc([]string{"stages", "state", "bootstrap"},
			func(name string) bool {
				_, err := os.Stat(filepath.Join(work, e.Name(), name))
				return err == nil
			}) {
			continue
		}
		for _, name := range []string{"stages", "state", "bootstrap", evidence} {
			if err := os.RemoveAll(filepath.Join(work, e.Name(), name)); err != nil {
				return err
			}
		}
	}
	return nil
}
