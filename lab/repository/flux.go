package repository

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// FluxVersion is the release of Flux whose controllers the lab builds: the module lab/flux names their versions.
const FluxVersion = "v2.7.3"

// fluxFolder, below the folder of the repository, has a folder for each release of Flux, as its project publishes them.
const fluxFolder = "flux"

// fluxControllers are the controllers of Flux that the lab runs, with the versions that the release pins. Their modules
// have their manifests.
var fluxControllers = []struct{ name, version string }{
	{"source-controller", "v1.7.3"}, {"kustomize-controller", "v1.7.2"}, {"helm-controller", "v1.4.3"},
}

func fluxModule(controller string) string { return "github.com/fluxcd/" + controller }

//go:embed flux/common.yaml
var fluxCommon []byte

// WriteFlux writes Flux's install manifest for the controllers whose programs are in bin, below the folder of the
// repository, and returns the folder in which a folder for each version is. It is what Flux's own command makes for
// these components.
func WriteFlux(ctx context.Context, dir, bin string) (string, error) {
	var wanted []toolModule
	for _, c := range fluxControllers {
		wanted = append(wanted, toolModule{program: c.name, module: fluxModule(c.name)})
	}
	modules, err := modulesOf(ctx, bin, wanted)
	if err != nil {
		return "", err
	}
	manifest, err := fluxManifest(modules)
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, fluxFolder)
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("replace the manifest of Flux: %w", err)
	}
	if err := writeFile(filepath.Join(dir, FluxVersion, "install.yaml"), manifest); err != nil {
		return "", fmt.Errorf("write the manifest of Flux: %w", err)
	}
	return dir, nil
}

// fluxManifest makes the install manifest of the controllers' modules, in the order of fluxControllers.
func fluxManifest(modules []Module) ([]byte, error) {
	memory := filesys.MakeFsInMemory()
	resources := "[common.yaml"
	for i, c := range fluxControllers {
		m := modules[i]
		if m.Version != c.version {
			return nil, fmt.Errorf("the lab has %s %s, and Flux %s has %s: go run ./cmd/bootstrap lab build builds the "+
				"programs of this lab", c.name, m.Version, FluxVersion, c.version)
		}
		files, err := manifestFiles(os.DirFS(m.Dir))
		if err != nil {
			return nil, fmt.Errorf("read the manifests of %s: %w", m.Path, err)
		}
		for name, content := range files {
			if err := memory.WriteFile(path.Join("/", c.name, name), content); err != nil {
				return nil, err
			}
		}
		if err := memory.WriteFile(path.Join("/", c.name, "kustomization.yaml"), fluxComponent(c.name)); err != nil {
			return nil, err
		}
		resources += ", ../" + c.name
	}
	all := fmt.Sprintf(`
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: flux-system
resources: %s]
labels:
  - pairs: {app.kubernetes.io/part-of: flux, app.kubernetes.io/instance: flux-system, app.kubernetes.io/version: %s}
`, resources, FluxVersion)
	for name, content := range map[string][]byte{"kustomization.yaml": []byte(all), "common.yaml": fluxCommon} {
		if err := memory.WriteFile(path.Join("/install", name), content); err != nil {
			return nil, err
		}
	}
	manifest, err := buildManifest(memory, "/install")
	if err != nil {
		return nil, fmt.Errorf("build the manifest of Flux %s: %w", FluxVersion, err)
	}
	return bytes.ReplaceAll(manifest, []byte("image: fluxcd/"), []byte("image: ghcr.io/fluxcd/")), nil
}

// fluxComponent adds to a controller's own manifests what the release adds: its account, its priority, its labels and
// the bound of its memory.
func fluxComponent(name string) []byte {
	return fmt.Appendf(nil, `
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [config/crd, config/manager]
labels:
  - pairs: {app.kubernetes.io/component: %[1]s}
patches:
  - target: {group: apps, version: v1, kind: Deployment, name: %[1]s}
    patch: |
      - {op: add, path: /spec/template/spec/serviceAccountName, value: %[1]s}
      - {op: add, path: /spec/template/spec/priorityClassName, value: system-cluster-critical}
      - op: add
        path: /spec/template/spec/containers/0/env/-
        value: {name: GOMEMLIMIT, valueFrom: {resourceFieldRef: {containerName: manager, resource: limits.memory}}}
`, name)
}
