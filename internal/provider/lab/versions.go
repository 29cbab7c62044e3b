package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Version is the version of a program that runs in the lab.
type Version struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// versionsShown are the modules of the programs that run in the lab as they are.
func versionsShown() []Version {
	return []Version{
		{Name: "Kubernetes", Version: kubernetesPath},
		{Name: "etcd", Version: "go.etcd.io/etcd/server/v3"},
		{Name: "Cluster API", Version: corePath},
		{Name: "CABPT", Version: "github.com/siderolabs/cluster-api-bootstrap-provider-talos"},
		{Name: "CACPPT", Version: "github.com/siderolabs/cluster-api-control-plane-provider-talos"},
	}
}

// SourceVersions are the versions that the lab's source names, where a folder lies in it.
func SourceVersions(dir string) ([]Version, error) {
	source, err := findModule(dir)
	if err != nil {
		return nil, err
	}
	required, err := requiredIn(source)
	if err != nil {
		return nil, err
	}
	var all []Version
	for _, v := range versionsShown() {
		if is := required[v.Version]; is != "" {
			all = append(all, Version{Name: v.Name, Version: is})
		}
	}
	for _, k := range kinds() {
		others, err := filepath.Glob(filepath.Join(source, k.folder, "*"))
		if err != nil {
			return nil, err
		}
		for _, module := range others {
			required, err := requiredIn(module)
			if err != nil {
				return nil, err
			}
			all = append(all, Version{Name: k.Name + ", when configured", Version: required[k.module]})
		}
	}
	if flux := filepath.Join(source, "flux", "2.7"); Exists(flux) {
		required, err := requiredIn(flux)
		if err != nil {
			return nil, err
		}
		for _, controller := range []string{"source-controller", "kustomize-controller", "helm-controller"} {
			all = append(all, Version{Name: "Flux's " + controller + ", when configured",
				Version: required["github.com/fluxcd/"+controller]})
		}
	}
	if gitea := filepath.Join(source, "gitea", "1.26"); Exists(gitea) {
		required, err := requiredIn(gitea)
		if err != nil {
			return nil, err
		}
		all = append(all, Version{Name: "Gitea, when configured with Flux", Version: required[giteaPath]})
	}
	return all, nil
}

// requiredIn are the versions that a module requires, by the path of the module that is required.
func requiredIn(module string) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("read the lab's versions: %w", err)
	}
	required := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if words := strings.Fields(line); len(words) >= 2 && strings.HasPrefix(words[1], "v") {
			required[words[0]] = words[1]
		}
	}
	return required, nil
}
