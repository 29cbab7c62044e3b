package lab

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// source is the folder of the lab module: the one of the clone that dir is in, or else a copy of what this command
// carries.
func source(dir string, carried []byte) (string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return "", fmt.Errorf("the lab's programs are built from source, which needs Go: install it (https://go.dev/dl): %w",
			err)
	}
	clone, err := findModule(dir)
	if err != nil || clone != "" {
		return clone, err
	}
	if len(carried) == 0 {
		return "", fmt.Errorf("the lab is built from its source, which a released command carries and this one does not, "+
			"and %s is in "+
			"no clone of Slipway: run the command inside a clone, or use one that is installed by make install", dir)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for the lab's source: %w", err)
	}
	return unpacked(carried, filepath.Join(cache, "slipway", "lab-source"))
}

// findModule walks up from dir to a clone; empty: dir is in none.
func findModule(dir string) (string, error) {
	for {
		source := filepath.Join(dir, "lab")
		data, err := os.ReadFile(filepath.Join(source, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module "+Module+"\n") {
			return source, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("look for the lab's source: %w", err)
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", nil
		}
		dir = up
	}
}

// unpacked makes sure that an archive is unpacked, into a folder of parent that is named by its digest.
func unpacked(archive []byte, parent string) (string, error) {
	digest := sha256.Sum256(archive)
	dir := filepath.Join(parent, hex.EncodeToString(digest[:8]))
	if Exists(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("create a folder for the lab's source: %w", err)
	}
	// Unpacked beside and renamed, so that a folder that is there is whole.
	unfinished, err := os.MkdirTemp(parent, "unfinished-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(unfinished)
	if err := unpack(archive, unfinished); err != nil {
		return "", fmt.Errorf("unpack the lab's source into %s: %w", unfinished, err)
	}
	if err := os.Rename(unfinished, dir); err != nil && !Exists(dir) { // another command may have been faster
		return "", err
	}
	return dir, nil
}

func unpack(archive []byte, dir string) error {
	in, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for files := tar.NewReader(in); ; {
		header, err := files.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		data, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		if err := root.MkdirAll(filepath.Dir(header.Name), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(header.Name, data, 0o644); err != nil {
			return err
		}
	}
}
