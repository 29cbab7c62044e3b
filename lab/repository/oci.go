package repository

import (
	"encoding/json"
	"fmt"
	"path/filepath"
)

// Media types of the OCI distribution and of Helm's charts in it.
const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.cncf.helm.config.v1+json"
	chartType    = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// descriptor points at a blob.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int    `json:"size"`
}

// ociManifest ties a chart's metadata and archive together.
type ociManifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

// writeOCI lays a version of a chart that upstream offers in an OCI registry out as the paths of the registry's API, so
// that Handler only has to serve files: below v2/<repository>, manifests by tag and by digest, and blobs.
func writeOCI(dir string, chart Chart, metadata map[string]any, archive []byte) error {
	if chart.OCI == "" {
		return nil
	}
	config, err := json.Marshal(metadata)
	if err != nil {
		return fmt.Errorf("create its configuration: %w", err)
	}
	manifest, err := json.Marshal(ociManifest{
		SchemaVersion: 2,
		MediaType:     manifestType,
		Config:        descriptor{MediaType: configType, Digest: ociDigest(config), Size: len(config)},
		Layers:        []descriptor{{MediaType: chartType, Digest: ociDigest(archive), Size: len(archive)}},
	})
	if err != nil {
		return fmt.Errorf("create its manifest: %w", err)
	}
	root := filepath.Join(dir, "v2", filepath.FromSlash(chart.OCI))
	for name, content := range map[string][]byte{
		filepath.Join("manifests", chart.Version):       manifest,
		filepath.Join("manifests", ociDigest(manifest)): manifest,
		filepath.Join("blobs", ociDigest(config)):       config,
		filepath.Join("blobs", ociDigest(archive)):      archive,
	} {
		if err := writeFile(filepath.Join(root, name), content); err != nil {
			return err
		}
	}
	return nil
}

// writeTags writes the list of a chart's versions beside them.
func writeTags(dir, repository string, versions []string) error {
	if repository == "" {
		return nil
	}
	tags, err := json.Marshal(map[string]any{"name": repository, "tags": versions})
	if err != nil {
		return fmt.Errorf("create its list of tags: %w", err)
	}
	return writeFile(filepath.Join(dir, "v2", filepath.FromSlash(repository), "tags", "list"), tags)
}

// ociDigest names content as OCI does.
func ociDigest(content []byte) string { return "sha256:" + hexDigest(content) }
