// Package programs reads what the programs of a set are and where they come from. A set is the folder of the upstream
// programs that the command made: built from source, or taken out of images, of which it wrote a list beside them.
package programs

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// listFile is the list of a set out of images.
const listFile = "programs.json"

// Program is an upstream program of a set.
type Program struct {
	File    string `json:"file"`   // its name in the folder
	Module  string `json:"module"` // Go module whose program it is
	Version string `json:"version"`
	Image   string `json:"image"`  // the image's reference; empty: it was built from source
	Digest  string `json:"digest"` // of the image, when it was fetched
}

// FromImages returns the list of a set out of images, by file; nil: the set was built from source.
func FromImages(bin string) (map[string]Program, error) {
	data, err := os.ReadFile(filepath.Join(bin, listFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read where the lab's programs come from: %w", err)
	}
	var list struct {
		Programs []Program `json:"programs"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(bin, listFile), err)
	}
	all := map[string]Program{}
	for _, p := range list.Programs {
		all[p.File] = p
	}
	return all, nil
}

// Read describes programs of a set. Each has to be there. The version of a program that was built from source is that
// of its build information; what is in an image was built elsewhere, in another way, and its list has the version.
func Read(bin string, files ...string) ([]Program, error) {
	listed, err := FromImages(bin)
	if err != nil {
		return nil, err
	}
	all := make([]Program, 0, len(files))
	for _, file := range files {
		path := filepath.Join(bin, file)
		if p, ok := listed[file]; ok {
			if _, err := os.Stat(path); err != nil {
				return nil, fmt.Errorf("the lab's program %s, of the image %s: %w", file, p.Image, err)
			}
			all = append(all, p)
			continue
		}
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("the lab's program %s (`go run ./cmd/bootstrap lab build` makes it): %w", file, err)
		}
		all = append(all, Program{File: file, Module: info.Main.Path, Version: info.Main.Version})
	}
	return all, nil
}

// Origin says where a program comes from, for people.
func (p Program) Origin() string {
	if p.Image == "" {
		return "built from source: " + p.Module + " " + p.Version
	}
	return "from the image " + p.Image + "@" + p.Digest
}
