package repository

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"

	"github.com/blang/semver/v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// versionMark is the placeholder of the version in the stand-ins' image tags.
const versionMark = "VERSION"

//go:embed caph/*.yaml certmanager/*.yaml
var standIns embed.FS

// CAPHManifest returns the components and the clusterctl metadata of the
// stand-in for a version of CAPH: the API first, then the manager.
func CAPHManifest(version string) (components, metadata []byte, err error) {
	is, err := semver.ParseTolerant(version)
	if err != nil {
		return nil, nil, fmt.Errorf("make CAPH's stand-in manifest: %w", err)
	}
	newer, err := caphSchemas(is)
	if err != nil {
		return nil, nil, err
	}
	var documents [][]byte
	for _, name := range []string{
		"hetznerclusters", "hcloudmachines", "hcloudmachinetemplates", "hcloudremediations", "hcloudremediationtemplates",
		"manager",
	} {
		document, err := fs.ReadFile(standIns, path.Join("caph", name+".yaml"))
		if err != nil {
			return nil, nil, fmt.Errorf("read CAPH's stand-in manifest: %w", err)
		}
		if more := newer[name]; more != nil {
			if document, err = patchSchema(document, more); err != nil {
				return nil, nil, fmt.Errorf("make the definition of CAPH's %s: %w", name, err)
			}
		}
		documents = append(documents, document)
	}
	if metadata, err = fs.ReadFile(standIns, "caph/metadata.yaml"); err != nil {
		return nil, nil, fmt.Errorf("read CAPH's stand-in metadata: %w", err)
	}
	all := since(bytes.Join(documents, []byte("---\n")), is)
	return withVersion(all, version), metadata, nil
}

// since leaves out of a manifest what is between a line "# since vX.Y.Z" and the line "# always" after it, where that
// version is newer.
func since(manifest []byte, is semver.Version) (kept []byte) {
	begin, end := []byte("# since v"), []byte("# always\n")
	for {
		before, rest, found := bytes.Cut(manifest, begin)
		kept = append(kept, before...)
		if !found {
			return kept
		}
		from, rest, _ := bytes.Cut(rest, []byte("\n"))
		block, after, _ := bytes.Cut(rest, end)
		if v, err := semver.Parse(string(from)); err == nil && is.GTE(v) {
			kept = append(kept, block...)
		}
		manifest = after
	}
}

// caphSchemas are what the schemas of a version of CAPH have more than those of v1.0, by the plural of their kind.
func caphSchemas(is semver.Version) (more map[string]map[string]any, err error) {
	if is.Minor == 0 {
		return nil, nil
	}
	data, err := fs.ReadFile(standIns, "caph/since-v1.1.yaml")
	if err == nil {
		err = yaml.Unmarshal(data, &more)
	}
	if err != nil {
		return nil, fmt.Errorf("read the schemas of CAPH v1.1: %w", err)
	}
	return more, nil
}

// patchSchema merges into the schema of a definition's one version.
func patchSchema(definition []byte, more map[string]any) ([]byte, error) {
	var crd map[string]any
	if err := yaml.Unmarshal(definition, &crd); err != nil {
		return nil, err
	}
	versions, _, err := unstructured.NestedSlice(crd, "spec", "versions")
	if err != nil || len(versions) != 1 {
		return nil, fmt.Errorf("it has %d versions, %w", len(versions), err)
	}
	version, _ := versions[0].(map[string]any)
	schema, _, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
	if err != nil {
		return nil, err
	}
	if err := unstructured.SetNestedMap(version, merge(schema, more), "schema", "openAPIV3Schema"); err != nil {
		return nil, err
	}
	if err := unstructured.SetNestedSlice(crd, versions, "spec", "versions"); err != nil {
		return nil, err
	}
	return yaml.Marshal(crd)
}

// merge is a merge patch (RFC 7386).
func merge(into, patch map[string]any) map[string]any {
	for key, value := range patch {
		mine, isMap := into[key].(map[string]any)
		theirs, patches := value.(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap && patches:
			into[key] = merge(mine, theirs)
		default:
			into[key] = value
		}
	}
	return into
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
