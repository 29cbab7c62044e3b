package repository

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Chart is one chart on offer.
type Chart struct {
	Name       string
	Version    string
	AppVersion string
	// File below the repository's root URL, beside index.yaml.
	File string
	// Digest is the archive's SHA-256 in hexadecimal, as index.yaml has it.
	Digest string
	// OCI is the repository below the registry's host (oci://<host>/<OCI>);
	// empty if upstream has none.
	OCI string
}

// chartSource is a chart among the embedded files.
type chartSource struct {
	key  string // name in Contents.Versions
	name string
	oci  string // upstream's repository, without the registry's host
}

// chartSources are the charts of the bootstrap. Upstream publishes talos-ccm's
// chart in an OCI registry only, the other two in classic repositories; here
// all three are in the classic one.
var chartSources = []chartSource{
	{key: "CILIUM", name: "cilium"},
	{key: "HCLOUD_CCM", name: "hcloud-cloud-controller-manager"},
	{key: "TALOS_CCM", name: "talos-cloud-controller-manager", oci: "siderolabs/charts/talos-cloud-controller-manager"},
}

// all: because the name of a helper template begins with an underscore.
//
//go:embed all:charts
var chartFiles embed.FS

// chartTime is the time of everything in a chart and of the charts themselves:
// a fixed one, so that the same sources give the same bytes.
var chartTime = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// writeCharts writes the chart repository in dir.
func (c *Contents) writeCharts(dir string) error {
	entries := map[string][]map[string]any{}
	for _, source := range chartSources {
		archive, err := source.pack()
		if err != nil {
			return err
		}
		entry, err := source.metadata()
		if err != nil {
			return err
		}
		version, _ := entry["version"].(string)
		appVersion, _ := entry["appVersion"].(string)
		chart := Chart{
			Name:       source.name,
			Version:    version,
			AppVersion: appVersion,
			File:       fmt.Sprintf("%s-%s.tgz", source.name, version),
			Digest:     hexDigest(archive),
			OCI:        source.oci,
		}
		if err := writeFile(filepath.Join(dir, chart.File), archive); err != nil {
			return fmt.Errorf("write the chart %s: %w", chart.Name, err)
		}
		if err := writeOCI(dir, chart, entry, archive); err != nil {
			return fmt.Errorf("write the chart %s for OCI clients: %w", chart.Name, err)
		}
		entry["urls"] = []string{chart.File} // relative to where the index was read from
		entry["digest"] = chart.Digest
		entry["created"] = chartTime
		entries[chart.Name] = append(entries[chart.Name], entry)
		c.Charts = append(c.Charts, chart)
		c.Versions[source.key] = chart.Version
	}
	index, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "generated": chartTime, "entries": entries})
	if err != nil {
		return fmt.Errorf("create the index of the charts: %w", err)
	}
	if err := writeFile(filepath.Join(dir, "index.yaml"), index); err != nil {
		return fmt.Errorf("write the index of the charts: %w", err)
	}
	return nil
}

// metadata reads the chart's Chart.yaml.
func (s chartSource) metadata() (map[string]any, error) {
	content, err := chartFiles.ReadFile(path.Join("charts", s.name, "Chart.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read the metadata of the chart %s: %w", s.name, err)
	}
	var metadata map[string]any
	if err := yaml.Unmarshal(content, &metadata); err != nil {
		return nil, fmt.Errorf("read the metadata of the chart %s: %w", s.name, err)
	}
	return metadata, nil
}

// pack creates the chart's archive.
func (s chartSource) pack() ([]byte, error) {
	var archive bytes.Buffer
	compressed := gzip.NewWriter(&archive)
	files := tar.NewWriter(compressed)
	// WalkDir goes in lexical order: always the same archive.
	err := fs.WalkDir(chartFiles, path.Join("charts", s.name), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := chartFiles.ReadFile(name)
		if err != nil {
			return err
		}
		err = files.WriteHeader(&tar.Header{
			Name: strings.TrimPrefix(name, "charts/"), Mode: 0o644, Size: int64(len(content)), ModTime: chartTime,
			Format: tar.FormatUSTAR,
		})
		if err != nil {
			return err
		}
		_, err = files.Write(content)
		return err
	})
	if err = errors.Join(err, files.Close(), compressed.Close()); err != nil {
		return nil, fmt.Errorf("pack the chart %s: %w", s.name, err)
	}
	return archive.Bytes(), nil
}

// hexDigest is the SHA-256 of content in hexadecimal.
func hexDigest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
