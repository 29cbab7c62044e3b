package repository

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
)

// caphVersion is the version of CAPH that the stand-in replaces.
const caphVersion = "v1.0.7"

// versionMark is the placeholder of the version in the stand-ins' image tags.
const versionMark = "VERSION"

//go:embed caph/*.yaml certmanager/*.yaml
var standIns embed.FS

// caphManifest returns the components and the clusterctl metadata of the
// stand-in for CAPH: the API first, then the manager.
func caphManifest() (components, metadata []byte, err error) {
	var documents [][]byte
	for _, name := range []string{
		"hetznerclusters", "hcloudmachines", "hcloudmachinetemplates", "hcloudremediations", "hcloudremediationtemplates",
		"manager",
	} {
		document, err := fs.ReadFile(standIns, path.Join("caph", name+".yaml"))
		if err != nil {
			return nil, nil, fmt.Errorf("read CAPH's stand-in manifest: %w", err)
		}
		documents = append(documents, document)
	}
	if metadata, err = fs.ReadFile(standIns, "caph/metadata.yaml"); err != nil {
		return nil, nil, fmt.Errorf("read CAPH's stand-in metadata: %w", err)
	}
	return withVersion(bytes.Join(documents, []byte("---\n")), caphVersion), metadata, nil
}

// certManagerManifest returns the stand-in for cert-manager.
func certManagerManifest(version string) ([]byte, error) {
	manifest, err := fs.ReadFile(standIns, "certmanager/cert-manager.yaml")
	if err != nil {
		return nil, fmt.Errorf("read cert-manager's stand-in manifest: %w", err)
	}
	return withVersion(manifest, version), nil
}

// withVersion tags the images of a manifest.
func withVersion(manifest []byte, version string) []byte {
	return bytes.ReplaceAll(manifest, []byte(":"+versionMark), []byte(":"+version))
}
