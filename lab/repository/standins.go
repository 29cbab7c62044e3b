package repository

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/blang/semver/v4"
)

// versionMark is the placeholder of the version in the stand-ins' image tags.
const versionMark = "VERSION"

//go:embed caph/*.yaml certmanager/*.yaml
var standIns embed.FS

// caphManifest returns the components and the clusterctl metadata of the
// stand-in for a version of CAPH: the API first, then the manager.
func caphManifest(version string) (components, metadata []byte, err error) {
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
	all := bytes.Join(documents, []byte("---\n"))
	if !readsNamespaces(version) {
		before, rest, _ := bytes.Cut(all, []byte("# since v1.0.9\n"))
		_, after, _ := bytes.Cut(rest, []byte("# always\n"))
		all = slices.Concat(before, after)
	}
	return withVersion(all, version), metadata, nil
}

// readsNamespaces reports whether the original may read Namespaces: from v1.0.9 on.
func readsNamespaces(version string) bool {
	v, err := semver.ParseTolerant(version)
	return err == nil && v.GTE(semver.MustParse("1.0.9"))
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
