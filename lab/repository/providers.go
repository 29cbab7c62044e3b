package repository

import (
	"fmt"
	"os"
	"path"
	"slices"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const metadataFile = "metadata.yaml"

// provider is a Cluster API provider whose manifests are made from the module
// that its program was built from.
type provider struct {
	key        string // name in Contents.Versions
	module     string
	program    string // file name of the built program
	label      string // clusterctl's manifest label
	components string // file name of the components
	metadata   string // clusterctl metadata inside the module
	// placeholder is the image in the module's manifests, image the one that
	// the project's releases put in its place, without tag.
	placeholder, image string
}

// core is the place of Cluster API's core in providers.
const core = 0

// providers are those that the lab runs unmodified. The images are the ones of
// the release manifests: CAPI's from its Makefile (PROD_REGISTRY), the other
// two from config/manager.
var providers = []provider{
	{
		key:         "CAPI",
		module:      "sigs.k8s.io/cluster-api",
		program:     "cluster-api",
		label:       "cluster-api",
		components:  "core-components.yaml",
		metadata:    metadataFile,
		placeholder: "gcr.io/k8s-staging-cluster-api/cluster-api-controller",
		image:       "registry.k8s.io/cluster-api/cluster-api-controller",
	},
	{
		key:         "CABPT",
		module:      "github.com/siderolabs/cluster-api-bootstrap-provider-talos",
		program:     "cluster-api-bootstrap-provider-talos",
		label:       "bootstrap-talos",
		components:  "bootstrap-components.yaml",
		metadata:    "config/metadata/" + metadataFile,
		placeholder: "ghcr.io/siderolabs/cluster-api-talos-controller",
		image:       "ghcr.io/siderolabs/cluster-api-talos-controller",
	},
	{
		key:         "CACPPT",
		module:      "github.com/siderolabs/cluster-api-control-plane-provider-talos",
		program:     "cluster-api-control-plane-provider-talos",
		label:       "control-plane-talos",
		components:  "control-plane-components.yaml",
		metadata:    "config/metadata/" + metadataFile,
		placeholder: "ghcr.io/siderolabs/cluster-api-control-plane-talos-controller",
		image:       "ghcr.io/siderolabs/cluster-api-control-plane-talos-controller",
	},
}

// build renders the module's config/default as a release of the provider
// would: with the released image at the module's version. Clusterctl's
// variables (${NAME:=default}) stay, clusterctl expands them. It also returns
// the metadata that maps release series to contracts.
func (p provider) build(m Module) (components, metadata []byte, err error) {
	files, err := manifestFiles(os.DirFS(m.Dir))
	if err != nil {
		return nil, nil, fmt.Errorf("read the manifests of %s: %w", m.Path, err)
	}
	metadata, ok := files[p.metadata]
	if !ok {
		return nil, nil, fmt.Errorf("the module %s@%s has no %s", m.Path, m.Version, p.metadata)
	}
	// In memory, because a path that begins with a host name, as those of the
	// module cache do, is taken for a URL.
	memory := filesys.MakeFsInMemory()
	for name, content := range files {
		if err := memory.WriteFile(path.Join("/module", name), content); err != nil {
			return nil, nil, fmt.Errorf("read the manifests of %s: %w", m.Path, err)
		}
	}
	release := fmt.Sprintf(`
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../module/config/default]
images: [{name: %q, newName: %q, newTag: %q}]
`, p.placeholder, p.image, m.Version)
	if err := memory.WriteFile("/release/kustomization.yaml", []byte(release)); err != nil {
		return nil, nil, fmt.Errorf("prepare the manifests of %s: %w", m.Path, err)
	}
	if components, err = buildManifest(memory, "/release"); err != nil {
		return nil, nil, fmt.Errorf("build config/default of %s@%s: %w", m.Path, m.Version, err)
	}
	return components, metadata, nil
}

// buildManifest renders a kustomization, with namespaces and CRDs first.
func buildManifest(files filesys.FileSystem, dir string) ([]byte, error) {
	built, err := krusty.MakeKustomizer(&krusty.Options{
		Reorder:          krusty.ReorderOptionLegacy,
		LoadRestrictions: types.LoadRestrictionsRootOnly,
		PluginConfig:     types.DisabledPluginConfig(),
	}).Run(files, dir)
	if err != nil {
		return nil, err
	}
	return built.AsYaml()
}

// modulesFor picks the provider's modules, one for each version.
func (p provider) modulesFor(modules []Module) (of []Module) {
	for _, m := range modules {
		if m.Path == p.module && !slices.Contains(of, m) {
			of = append(of, m)
		}
	}
	return of
}
