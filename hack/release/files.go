package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// sumsFile is as `sha256sum --check` reads it.
const sumsFile = "SHA256SUMS"

func writeSums(dir string, files []string) error {
	var sums strings.Builder
	for _, name := range files {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), name)
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), []byte(sums.String()), 0o644)
}

// versionsFile is the table of versions: an older binary takes it by --versions-file.
const versionsFile = "versions.yaml"

func copyVersions(source, out string) error {
	data, err := os.ReadFile(filepath.Join(source, "config", versionsFile))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, versionsFile), data, 0o644)
}

// packLab packs the lab module as it is committed or changed here, without tests. Its files have no times and no
// owners.
func packLab(ctx context.Context, source string) ([]byte, error) {
	list := exec.CommandContext(ctx, "git", "ls-files", "-z", "--", "lab") // sorted
	list.Dir = source
	names, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the lab's source, which needs a clone and git: %w", err)
	}
	var packed bytes.Buffer
	out, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	files := tar.NewWriter(out)
	for name := range strings.SplitSeq(strings.Trim(string(names), "\x00"), "\x00") {
		if strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/testdata/") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(source, name))
		if err == nil {
			err = files.WriteHeader(&tar.Header{Name: strings.TrimPrefix(name, "lab/"), Mode: 0o644, Size: int64(len(data))})
		}
		if err == nil {
			_, err = files.Write(data)
		}
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
	}
	if err := errors.Join(files.Close(), out.Close()); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// overlayLab writes the file for go build's -overlay that puts the packed lab where internal/provider/lab embeds it.
func overlayLab(source, temporary string, archive []byte) (string, error) {
	place, err := filepath.Abs(filepath.Join(source, "internal", "provider", "lab", "source.tar.gz"))
	if err != nil {
		return "", err
	}
	packed, overlay := filepath.Join(temporary, "source.tar.gz"), filepath.Join(temporary, "overlay.json")
	data, err := json.Marshal(map[string]any{"Replace": map[string]string{place: packed}})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(os.WriteFile(packed, archive, 0o600), os.WriteFile(overlay, data, 0o600))
}

// writeSBOM lists the modules that Go wrote into a binary. It has neither a time nor a serial number, which would
// differ each time.
func writeSBOM(name, binary, path string) (err error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	list := cyclonedx.NewBOM()
	list.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		Type: cyclonedx.ComponentTypeApplication, Name: name, BOMRef: packageURL(info.Main.Path, info.Main.Version),
		Version:    info.Main.Version,
		PackageURL: packageURL(info.Main.Path, info.Main.Version),
	}}
	version := strings.TrimPrefix(info.GoVersion, "go")
	modules := []cyclonedx.Component{library("std", version, "")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		modules = append(modules, library(m.Path, m.Version, m.Sum))
	}
	list.Components = &modules
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return cyclonedx.NewBOMEncoder(file, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(list)
}

// library is a module. sum is go.sum's, which is a hash over its files and none of an archive.
func library(path, version, sum string) cyclonedx.Component {
	c := cyclonedx.Component{
		Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, BOMRef: packageURL(path, version),
		PackageURL: packageURL(path, version),
	}
	if sum != "" {
		c.Properties = &[]cyclonedx.Property{{Name: "go.sum", Value: sum}}
	}
	return c
}

func packageURL(path, version string) string { return "pkg:golang/" + path + "@" + version }
