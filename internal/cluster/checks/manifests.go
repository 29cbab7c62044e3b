package checks

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// Objects looks for what the providers' schemas allow and the providers do not bear.
func Objects(cfg config.Config, sources render.Sources, objects []*unstructured.Unstructured) (found []FileError) {
	add := func(e FileError, hint, format string, args ...any) {
		e.Check, e.Hint, e.Problem = "manifests", hint, fmt.Sprintf(format, args...)
		found = append(found, e)
	}
	kinds := map[string]int{}
	for _, o := range objects {
		kinds[o.GetKind()]++
		for _, u := range unservedIn(cfg, o.Object, "") {
			add(where(sources, o, u.path), fmt.Sprintf("write apiVersion: %s/%s, and the fields of that version", u.group,
				u.served[0]), "%s is %s/%s, which neither Cluster API %s nor CAPH %s serves", u.path, u.group,
				u.version, cfg.CAPIVersion, cfg.CAPHVersion)
		}
		for _, u := range unfitObjects(cfg, o, objects) {
			add(where(sources, o, u.path), u.hint, "%s", u.problem)
		}
	}
	for _, kind := range []string{capi.ClusterKind.Kind, capi.HetznerClusterKind.Kind, capi.TalosControlPlaneKind.Kind,
		capi.MachineTemplateKind.Kind} {
		if kinds[kind] == 0 {
			add(FileError{File: sources.Cluster.Name}, "see the file inside the command", "it has no %s", kind)
		}
	}
	return found
}

// unserved is an apiVersion, of an object or of a reference, that the configured providers do not serve.
type unserved struct {
	path           string
	group, version string
	served         []string // versions of the group
}

// unservedIn finds them below a value. Nothing is known of groups and kinds that others bring.
func unservedIn(cfg config.Config, value any, path string) (found []unserved) {
	switch value := value.(type) {
	case map[string]any:
		apiVersion, _ := value["apiVersion"].(string)
		kind, _ := value["kind"].(string)
		group, version, is := strings.Cut(apiVersion, "/")
		served := servedVersions(cfg, group, kind)
		if is && len(served) > 0 && !slices.Contains(served, version) {
			found = append(found, unserved{strings.TrimPrefix(path+".apiVersion", "."), group, version, served})
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			found = append(found, unservedIn(cfg, value[key], strings.TrimPrefix(path+"."+key, "."))...)
		}
	case []any:
		for i, child := range value {
			found = append(found, unservedIn(cfg, child, fmt.Sprintf("%s[%d]", path, i))...)
		}
	}
	return found
}

// servedVersions are the API versions in which the configured Cluster API or CAPH serves a kind of its own; nil: the
// kind is of others, or nothing is known of the configured version.
func servedVersions(cfg config.Config, group, kind string) []string {
	switch group {
	case capi.ClusterKind.Group, "addons." + capi.ClusterKind.Group:
		return cfg.Table().ServedVersions("CAPI_VERSION", cfg.CAPIVersion)
	case capi.HetznerClusterKind.Group: // other infrastructure providers have it, too
		if strings.HasPrefix(kind, "Hetzner") || strings.HasPrefix(kind, "HCloud") {
			return cfg.Table().ServedVersions("CAPH_VERSION", cfg.CAPHVersion)
		}
	}
	return nil
}

// ErrNoRepository means that the providers' releases are not on this machine.
var ErrNoRepository = errors.New("PROVIDER_REPOSITORY is not set")

// LocalProviderFile is a file of a provider's release in the local repository.
func LocalProviderFile(cfg config.Config, p capi.Provider, name string) (data []byte, where string, err error) {
	local := cfg.ProviderRepository
	if local == "" {
		return nil, "", ErrNoRepository
	}
	where = filepath.Join(local, p.Label, p.Version, name)
	if data, err = os.ReadFile(where); err != nil {
		return nil, where, &MissingError{where}
	}
	return data, where, nil
}

// schemaReader reads a file of a provider's release, and tells where it was read.
type schemaReader func(p capi.Provider, name string) (data []byte, where string, err error)

// unreadSchemasError tells whose schemas could not be read.
type unreadSchemasError struct {
	provider capi.Provider
	err      error
}

func (e *unreadSchemasError) Error() string {
	return fmt.Sprintf("the schemas of %s %s: %v", e.provider.Label, e.provider.Version, e.err)
}
func (e *unreadSchemasError) Unwrap() error { return e.err }

// Schemas holds the objects against the schemas that capi-init will install, of exactly these versions. held is how
// many are of a kind that a provider brings. Its error is an *unreadSchemasError.
func Schemas(cfg config.Config, sources render.Sources, objects []*unstructured.Unstructured,
	read schemaReader) (found []FileError, held int, err error) {
	known := Kinds{}
	for _, p := range capi.ConfiguredProviders(cfg) {
		data, _, err := read(p, p.File)
		if err == nil {
			err = known.Learn(data)
		}
		if err != nil {
			return nil, 0, &unreadSchemasError{p, err}
		}
	}
	for _, o := range objects {
		wrong, of := known.Check(o)
		for _, w := range wrong {
			e := where(sources, o, w.field)
			e.Check, e.Problem, e.Hint = "schemas", "it does not fit its schema: "+w.Text, "correct the file"
			found = append(found, e)
		}
		if of {
			held++
		}
	}
	return found, held, nil
}

// fieldPath takes "spec.extraServices[1].port" apart: fields are strings, elements of lists are ints.
func fieldPath(field string) (path []any) {
	for _, part := range strings.FieldsFunc(field, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		if index, err := strconv.Atoi(part); err == nil {
			path = append(path, index)
		} else {
			path = append(path, part)
		}
	}
	return path
}
