package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// runMake runs the guide's Makefile. It takes the times from the lines in which it says that a target is done.
func (w workbench) runMake(ctx context.Context, folder string, i info, log io.Writer) (measured, error) {
	dir := filepath.Join(folder, "make")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return measured{}, err
	}
	config, err := clusterctlConfig(i)
	if err != nil {
		return measured{}, err
	}
	if err := os.WriteFile(filepath.Join(dir, "clusterctl.yaml"), config, 0o600); err != nil {
		return measured{}, err
	}
	args := []string{"-f", filepath.Join(w.root, "test", "bench", "guide.mk"), "all", "BENCH=" + w.program("bench"),
		"LAB=" + filepath.Join(folder, "state", "lab"), "MANIFESTS=" + filepath.Join(w.root, "manifests"),
		"VALUES=" + filepath.Join(w.root, "bootstrap")}
	variables, err := makeVariables(i)
	if err != nil {
		return measured{}, err
	}
	cmd := ended(exec.CommandContext(ctx, "make", append(args, variables...)...))
	cmd.Dir, cmd.Stderr = dir, log
	// HOME: neither clusterctl nor helm is to read what this user has configured, or to leave a cache there.
	configured, err := w.versions(ctx)
	if err != nil {
		return measured{}, err
	}
	cmd.Env = append(append(environment(), configured...), "HOME="+dir, "PATH="+w.programs()+":"+os.Getenv("PATH"),
		"HCLOUD_TOKEN="+i.Token, "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "NETWORK_CIDR="+i.NetworkCIDR,
		"CONTROL_PLANE_CIDR="+i.ControlPlaneCIDR, "POD_CIDR="+i.PodCIDR, "SERVICE_CIDR="+i.ServiceCIDR)
	m := measured{Marks: map[string]float64{}}
	last := 0.0
	err = lines(cmd, log, func(at float64, line []byte) error {
		target, done := strings.CutPrefix(string(line), "done: ")
		if !done {
			return nil
		}
		m.Steps = append(m.Steps, span{target, last, at})
		last = at
		switch target {
		case "wait-nodes":
			m.Marks[markNodes] = at
		case "settle":
			m.Marks[markPivot] = at
		}
		return nil
	})
	return m, m.complete(err)
}

// versions are the variables of the manifests that have the guide's versions: the files' own defaults are of another
// set.
func (w workbench) versions(ctx context.Context) ([]string, error) {
	var all []string
	for _, name := range []string{"KUBERNETES_VERSION", "TALOS_VERSION"} {
		version, err := w.configured(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, name+"="+version)
		if name == "TALOS_VERSION" {
			all = append(all, "IMAGE_NAME="+imageOf(version))
		}
	}
	return all, nil
}

// imageOf is the guide's name of the snapshot of a Talos version, and Slipway's.
func imageOf(talos string) string { return "talos-amd64-" + talos }

// clusterctlConfig is the file clusterctl.yaml: the lab's providers, and its cert-manager. JSON is YAML.
func clusterctlConfig(i info) ([]byte, error) {
	var providers []map[string]string
	for _, p := range []struct{ name, kind, folder, version, file string }{
		{"cluster-api", "CoreProvider", "cluster-api", "CAPI", "core-components.yaml"},
		{"talos", "BootstrapProvider", "bootstrap-talos", "CABPT", "bootstrap-components.yaml"},
		{"talos", "ControlPlaneProvider", "control-plane-talos", "CACPPT", "control-plane-components.yaml"},
		{"hetzner", "InfrastructureProvider", "infrastructure-hetzner", "CAPH", "infrastructure-components.yaml"},
	} {
		version := i.Versions[p.version]
		if version == "" {
			return nil, fmt.Errorf("the lab offers no version of %s", p.version)
		}
		providers = append(providers, map[string]string{"name": p.name, "type": p.kind,
			"url": filepath.Join(i.ProviderRepository, p.folder, version, p.file)})
	}
	return json.MarshalIndent(map[string]any{"providers": providers,
		"cert-manager": map[string]string{"url": i.CertManagerURL, "version": i.CertManagerVersion}}, "", "\t")
}

// makeVariables are the versions and repositories of the lab, as make's arguments.
func makeVariables(i info) ([]string, error) {
	args := []string{"POD_CIDR=" + i.PodCIDR}
	for _, name := range []string{"CAPI", "CAPH", "CABPT", "CACPPT", "CILIUM", "HCLOUD_CCM", "TALOS_CCM"} {
		if i.Versions[name] == "" {
			return nil, fmt.Errorf("the lab offers no version of %s", name)
		}
		args = append(args, name+"_VERSION="+i.Versions[name])
	}
	for name, chart := range map[string]string{"CILIUM": "cilium", "HCLOUD_CCM": "hcloud-cloud-controller-manager",
		"TALOS_CCM": "talos-cloud-controller-manager"} {
		if i.ChartRepositories[chart] == "" {
			return nil, fmt.Errorf("the lab has no repository of the chart %s", chart)
		}
		args = append(args, name+"_REPOSITORY="+i.ChartRepositories[chart])
	}
	slices.Sort(args)
	return args, nil
}

// variable is the value of a variable in the output of `config show`.
func variable(shown []byte, name string) (string, error) {
	var config struct {
		Settings []struct{ Variable, Value string }
	}
	if err := json.Unmarshal(shown, &config); err != nil {
		return "", fmt.Errorf("read the configuration that Slipway shows: %w", err)
	}
	for _, s := range config.Settings {
		if s.Variable == name {
			return s.Value, nil
		}
	}
	return "", fmt.Errorf("Slipway's configuration has no variable %s", name)
}
