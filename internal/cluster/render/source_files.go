package render

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/manifests"
)

// Folders of the files that people edit.
const (
	manifestsFolder = "manifests"
	bootstrapFolder = "bootstrap"
	addonsFolder    = bootstrapFolder + "/" + bootstrap.Addons
	schematicFolder = bootstrapFolder + "/" + bootstrap.Schematics
)

// OwnFolders are the folders of the operator's files, below the folder of the configuration.
func OwnFolders() []string { return []string{manifestsFolder, bootstrapFolder} }

// Replaceable tells whether nothing of the operator's is lost where another file takes this one's place: there is none
// of theirs, or it is the built-in one, as in a clone.
func (s Source) Replaceable() bool { return !s.Own || bytes.Equal(s.Data, s.BuiltIn) }

// knownFile is a file inside the command, in whose place the operator can have one.
type knownFile struct {
	folder, name string
	files        embed.FS
	merges       bool // Helm values
	to           func(*Sources) *Source
}

func (k knownFile) path() string { return k.folder + "/" + k.name }

// source is the operator's file, which is taken out of own, or without one the file inside the command.
func (k knownFile) source(own map[string]Source) (Source, error) {
	builtIn, err := k.files.ReadFile(k.name)
	f := Source{Name: k.path(), Path: k.path(), Data: builtIn, BuiltIn: builtIn, merges: k.merges}
	if o, found := own[f.Path]; found {
		f.Name, f.Data, f.Own = o.Name, o.Data, true
		delete(own, f.Path)
	}
	return f, err
}

func knownFiles() []knownFile {
	manifest := func(name string, to func(*Sources) *Source) knownFile {
		return knownFile{folder: manifestsFolder, name: name, files: manifests.Files, to: to}
	}
	values := func(c bootstrap.Chart, to func(*Sources) *Source) knownFile {
		return knownFile{folder: bootstrapFolder, name: c.Values, files: bootstrap.Files, merges: true, to: to}
	}
	return []knownFile{
		manifest(manifests.Cluster, func(s *Sources) *Source { return &s.Cluster }),
		manifest(manifests.MachineHealthCheck, func(s *Sources) *Source { return &s.HealthCheck }),
		manifest(manifests.WorkerPool, func(s *Sources) *Source { return &s.WorkerPool }),
		manifest(manifests.OIDCPatch, func(s *Sources) *Source { return &s.OidcPatch }),
		manifest(manifests.Clusterctl, func(s *Sources) *Source { return &s.Clusterctl }),
		values(bootstrap.Cilium(), func(s *Sources) *Source { return &s.Cilium }),
		values(bootstrap.HCloudCCM(), func(s *Sources) *Source { return &s.HcloudCCM }),
		values(bootstrap.TalosCCM(), func(s *Sources) *Source { return &s.TalosCCM }),
		{folder: bootstrapFolder, name: bootstrap.Schematic, files: bootstrap.Files,
			to: func(s *Sources) *Source { return &s.Schematic }},
	}
}

// readOwnFiles reads the operator's files by their paths below the folder: "manifests/cluster.yaml". A file called
// manifests or bootstrap, such as the built command, is not a folder of theirs. YAML that would be ignored is an error.
func readOwnFiles(folder string) (map[string]Source, error) {
	own := map[string]Source{}
	if folder == "" {
		return own, nil
	}
	for _, sub := range []string{manifestsFolder, bootstrapFolder, addonsFolder, schematicFolder} {
		dir := filepath.Join(folder, sub)
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			continue
		case err != nil:
			return nil, fmt.Errorf("look for files that replace the built-in ones: %w", err)
		case !info.IsDir():
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("list the files that replace the built-in ones: %w", err)
		}
		for _, e := range entries {
			read, err := toRead(dir, sub, e)
			if err != nil {
				return nil, err
			}
			if !read {
				continue
			}
			path := filepath.Join(dir, e.Name())
			data, err := os.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("read a file that replaces a built-in one: %w", err)
			}
			name := sub + "/" + e.Name()
			own[name] = Source{Name: path, Path: name, Data: data, Own: true}
		}
	}
	return own, nil
}

// toRead tells whether an entry of the operator's folder manifests or bootstrap is read. Hidden files, editors' backups
// and what is no YAML are not.
func toRead(dir, sub string, e fs.DirEntry) (bool, error) {
	name, path := e.Name(), filepath.Join(dir, e.Name())
	if strings.HasPrefix(name, ".") {
		return false, nil
	}
	const ways = "rename it, move it out of this folder, or name the folder that has manifests/ and bootstrap/ with --dir"
	if e.IsDir() && sub == bootstrapFolder && (name == bootstrap.Addons || name == bootstrap.Schematics) {
		return false, nil // folders of their own
	}
	if e.IsDir() {
		return false, fmt.Errorf("%s is a folder, and only the files directly in %s/ are read; %s", path, sub, ways)
	}
	known := namesOfKnown(sub)
	if slices.Contains(known, name) {
		return true, nil
	}
	hint := ""
	if near := flow.Nearest(name, known); near != "" {
		hint = " (did you mean " + near + "?)"
	}
	switch filepath.Ext(name) {
	case ".yaml":
		if sub != bootstrapFolder {
			return true, nil
		}
		return false, fmt.Errorf("%s is none of the files that are read from %s/: %s%s; %s", path, sub,
			strings.Join(known, ", "), hint, ways)
	case ".yml", ".json":
		return false, fmt.Errorf("%s is not read: only files ending in .yaml are%s; %s", path, hint, ways)
	}
	return false, nil
}

// namesOfKnown are the names of the built-in files of a folder.
func namesOfKnown(folder string) []string {
	var names []string
	for _, k := range knownFiles() {
		if k.folder == folder {
			names = append(names, k.name)
		}
	}
	return names
}

// FileUse says what becomes of a file that a cluster is made from.
type FileUse string

// The uses of a file.
const (
	FileBuiltIn  FileUse = "built-in" // the operator has none of this name
	FileReplaces FileUse = "replaces" // the operator's is used in place of the built-in one
	FileMerged   FileUse = "merged"   // the operator's Helm values are merged over the built-in ones
	FileAdded    FileUse = "added"    // it is applied besides the built-in ones
)

// SourceFile is a file that a cluster is made from, and whose it is.
type SourceFile struct {
	File string  `json:"file"` // "manifests/cluster.yaml"
	Use  FileUse `json:"use"`
	Path string  `json:"path,omitempty"` // of the operator's file
	Same bool    `json:"same,omitempty"` // the operator's file is the built-in one, byte by byte
}

// SourceFiles lists the files that a cluster is made from. overrides is the folder that has the operator's folders
// manifests and bootstrap; empty: there are none.
func SourceFiles(overrides string) ([]SourceFile, error) {
	s, err := Read(nil, overrides)
	if err != nil {
		return nil, err
	}
	return s.List(), nil
}

// List describes the files for people and programs.
func (s Sources) List() []SourceFile {
	var all []SourceFile
	for _, f := range s.All() {
		one := SourceFile{File: f.Path, Use: FileBuiltIn}
		if f.Own {
			one.Path, one.Same, one.Use = f.Name, bytes.Equal(f.Data, f.BuiltIn), FileReplaces
			switch {
			case f.BuiltIn == nil:
				one.Use = FileAdded
			case f.merges:
				one.Use = FileMerged
			}
		}
		all = append(all, one)
	}
	return all
}

// BuiltInFiles are the files inside the command, by their paths: "manifests/cluster.yaml".
func BuiltInFiles() (map[string][]byte, error) {
	s, err := Read(nil, "")
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for _, f := range s.All() {
		all[f.Path] = f.Data
	}
	return all, nil
}
