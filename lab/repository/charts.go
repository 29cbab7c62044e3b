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
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/lab/originals"
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
	key     string // name in Contents.Versions
	name    string
	oci     string // upstream's repository, without the registry's host
	project string // whose released chart can take its place; empty: there is only the stand-in
}

// chartSources are the charts of the bootstrap, those of its add-ons last.
// Upstream publishes talos-ccm's chart in an OCI registry only, the others in
// classic repositories; here all are in the classic one.
var chartSources = []chartSource{
	{key: "CILIUM", name: "cilium"},
	{key: "HCLOUD_CCM", name: "hcloud-cloud-controller-manager", project: originals.HCloudCCM},
	{key: "TALOS_CCM", name: "talos-cloud-controller-manager", oci: "siderolabs/charts/talos-cloud-controller-manager",
		project: originals.TalosCCM},
	{key: "HCLOUD_CSI", name: "hcloud-csi"},
	{key: "CLUSTER_AUTOSCALER", name: "cluster-autoscaler"},
	{key: "METRICS_SERVER", name: "metrics-server"},
	{key: "GITEA", name: "gitea"},
}

// all: because the name of a helper template begins with an underscore.
//
//go:embed all:charts
var chartFiles embed.FS

// chartTime is the time of everything in a chart and of the charts themselves:
// a fixed one, so that the same sources give the same bytes.
var chartTime = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// packed is one version of a chart, as it is served.
type packed struct {
	archive  []byte
	metadata map[string]any // Chart.yaml
}

func (p packed) text(key string) string {
	value, _ := p.metadata[key].(string)
	return value
}

// writeCharts writes the chart repository in dir.
func (c *Contents) writeCharts(dir string, released originals.Set) error {
	entries := map[string][]map[string]any{}
	c.Charts, c.AnyVersion = nil, nil
	for _, source := range chartSources {
		versions, err := source.versions(released.Of(source.project), c.further[source.key])
		if err != nil {
			return err
		}
		c.Offers[source.key] = nil
		if len(released.Of(source.project)) == 0 {
			c.AnyVersion = append(c.AnyVersion, source.key)
		}
		for _, p := range versions {
			entry, err := c.writeChart(dir, source, p)
			if err != nil {
				return err
			}
			entries[source.name] = append(entries[source.name], entry)
			c.Offers[source.key] = append(c.Offers[source.key], p.text("version"))
		}
		c.Versions[source.key] = c.Offers[source.key][0]
		if err := writeTags(dir, source.oci, c.Offers[source.key]); err != nil {
			return fmt.Errorf("write the chart %s for OCI clients: %w", source.name, err)
		}
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

// WithCharts are the contents with the stand-ins' charts as further versions, by the names of Versions. Only the
// version of a chart differs. It writes them into dir, as Write did.
func (c Contents) WithCharts(dir string, wanted map[string]string, released originals.Set) (Contents, error) {
	further := maps.Clone(c.further)
	for key, version := range wanted {
		i := slices.IndexFunc(chartSources, func(s chartSource) bool { return s.key == key })
		if i < 0 {
			return c, fmt.Errorf("offer %s %s: the lab has no such chart", key, version)
		}
		if _, err := semver.Parse(version); err != nil {
			return c, fmt.Errorf("offer %s: %q is no version of a chart: %w", key, version, err)
		}
		if released.Of(chartSources[i].project) == nil && !slices.Contains(c.Offers[key], version) {
			further[key] = append(slices.Clone(further[key]), version)
		}
	}
	if maps.EqualFunc(further, c.further, slices.Equal[[]string]) {
		return c, nil
	}
	c.further, c.Versions, c.Offers = further, maps.Clone(c.Versions), maps.Clone(c.Offers)
	return c, c.writeCharts(filepath.Join(dir, chartsFolder), released)
}

// writeChart writes one version of a chart, and returns its entry in the index.
func (c *Contents) writeChart(dir string, source chartSource, p packed) (map[string]any, error) {
	chart := Chart{
		Name:       source.name,
		Version:    p.text("version"),
		AppVersion: p.text("appVersion"),
		File:       fmt.Sprintf("%s-%s.tgz", source.name, p.text("version")),
		Digest:     hexDigest(p.archive),
		OCI:        source.oci,
	}
	if err := writeFile(filepath.Join(dir, chart.File), p.archive); err != nil {
		return nil, fmt.Errorf("write the chart %s: %w", chart.Name, err)
	}
	if err := writeOCI(dir, chart, p.metadata, p.archive); err != nil {
		return nil, fmt.Errorf("write the chart %s for OCI clients: %w", chart.Name, err)
	}
	c.Charts = append(c.Charts, chart)
	entry := maps.Clone(p.metadata)
	entry["urls"] = []string{chart.File} // relative to where the index was read from
	entry["digest"] = chart.Digest
	entry["created"] = chartTime
	return entry, nil
}

// versions are the released charts or, without one, the stand-in, as its own version and further ones.
func (s chartSource) versions(releases []originals.Original, further []string) (all []packed, err error) {
	for _, o := range releases {
		archive, err := o.Read(o.Files[0].Name)
		if err != nil {
			return nil, err
		}
		all = append(all, packed{archive, o.Chart})
	}
	if len(all) > 0 {
		return all, nil
	}
	for _, version := range append([]string{""}, further...) {
		content, err := s.file(path.Join("charts", s.name, chartYAML), version)
		if err != nil {
			return nil, err
		}
		archive, err := s.pack(version)
		if err != nil {
			return nil, err
		}
		var metadata map[string]any
		if err := yaml.Unmarshal(content, &metadata); err != nil {
			return nil, fmt.Errorf("read the metadata of the chart %s: %w", s.name, err)
		}
		all = append(all, packed{archive, metadata})
	}
	return all, nil
}

// chartYAML is the file of a chart with its metadata.
const chartYAML = "Chart.yaml"

// file is one of the stand-in's, for another version where one is named.
func (s chartSource) file(name, version string) ([]byte, error) {
	content, err := chartFiles.ReadFile(name)
	if err != nil || version == "" {
		return content, err
	}
	about, err := chartFiles.ReadFile(path.Join("charts", s.name, chartYAML))
	if err != nil {
		return nil, fmt.Errorf("read the metadata of the chart %s: %w", s.name, err)
	}
	var metadata struct{ Version string }
	if err := yaml.Unmarshal(about, &metadata); err != nil {
		return nil, fmt.Errorf("read the metadata of the chart %s: %w", s.name, err)
	}
	switch path.Base(name) {
	case chartYAML:
		return bytes.ReplaceAll(content, []byte(metadata.Version), []byte(version)), nil
	case "values.yaml":
		return bytes.ReplaceAll(content, []byte("tag: v"+metadata.Version), []byte("tag: v"+version)), nil
	}
	return content, nil
}

// pack creates the chart's archive, of another version where one is named.
func (s chartSource) pack(version string) ([]byte, error) {
	var archive bytes.Buffer
	compressed := gzip.NewWriter(&archive)
	files := tar.NewWriter(compressed)
	// WalkDir goes in lexical order: always the same archive.
	err := fs.WalkDir(chartFiles, path.Join("charts", s.name), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := s.file(name, version)
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
