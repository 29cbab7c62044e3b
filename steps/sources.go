package steps

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/manifests"
)

// source is a file that people edit: their own where they have one, else the one inside the command.
type source struct {
	name string // "manifests/cluster.yaml", or the path of the file that won over it
	path string // "manifests/cluster.yaml" in any case
	data []byte
}

// sources are all files that the plan is made from.
type sources struct {
	cluster, healthCheck, oidcPatch, clusterctl source
	cilium, hcloudCCM, talosCCM, schematic      source
}

// readSources reads every file once, so that what is planned is what is run.
func readSources(overrides string) (sources, error) {
	var s sources
	for _, f := range []struct {
		to     *source
		files  embed.FS
		folder string
		name   string
	}{
		{&s.cluster, manifests.Files, "manifests", manifests.Cluster},
		{&s.healthCheck, manifests.Files, "manifests", manifests.MachineHealthCheck},
		{&s.oidcPatch, manifests.Files, "manifests", manifests.OIDCPatch},
		{&s.clusterctl, manifests.Files, "manifests", manifests.Clusterctl},
		{&s.schematic, bootstrap.Files, "bootstrap", bootstrap.Schematic},
		{&s.cilium, bootstrap.Files, "bootstrap", bootstrap.Cilium().Values},
		{&s.hcloudCCM, bootstrap.Files, "bootstrap", bootstrap.HCloudCCM().Values},
		{&s.talosCCM, bootstrap.Files, "bootstrap", bootstrap.TalosCCM().Values},
	} {
		var err error
		if *f.to, err = readSource(overrides, f.folder, f.name, f.files); err != nil {
			return sources{}, err
		}
	}
	return s, nil
}

func readSource(overrides, folder, name string, embedded embed.FS) (source, error) {
	if overrides != "" {
		path := filepath.Join(overrides, folder, name)
		data, err := os.ReadFile(path)
		if err == nil {
			return source{name: path, path: folder + "/" + name, data: data}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return source{}, fmt.Errorf("read %s: %w", path, err)
		}
	}
	data, err := embedded.ReadFile(name)
	return source{name: folder + "/" + name, path: folder + "/" + name, data: data}, err
}

// variables are what ${NAME} stands for in the sources.
type variables map[string]string

// operatorReplicasVariable is how many Cilium operators there are. No two of them share a node: a cluster of one node would wait
// for the second for ever.
const (
	operatorReplicasVariable = "CILIUM_OPERATOR_REPLICAS"
	maxOperatorReplicas      = 2 // the chart's own default
)

// variables of the configuration, each as it is called everywhere, and what follows from them.
func (c Config) variables() variables {
	v := variables{}
	for _, variable := range Variables() {
		v[variable.Name] = variable.Get(c)
	}
	v[operatorReplicasVariable] = strconv.Itoa(min(maxOperatorReplicas, c.ControlPlaneReplicas))
	return v
}

// fill puts the variables into a text, as clusterctl does with ${NAME:=default}. A variable without value and default is
// an error.
func (s source) fill(text []byte, v variables) ([]byte, error) {
	out, err := yamlprocessor.NewSimpleProcessor().Process(text, func(name string) (string, error) {
		if value, ok := v[name]; ok {
			return value, nil
		}
		return "", fmt.Errorf("%s is not set", name)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return out, nil
}

// values reads a Helm values file with its variables filled in.
func (s source) values(v variables) (map[string]any, error) {
	filled, err := s.fill(s.data, v)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(filled, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return values, nil
}

// ingredient is what the journal remembers of a source: enough to see that it changed, nothing of what it says, because
// people put secrets into values files. The variables in it are remembered by name.
type ingredient struct {
	SHA256    string            `json:"sha256"`
	Variables map[string]string `json:"variables,omitempty"`
}

func (s source) ingredient(v variables) (ingredient, error) {
	sum := sha256.Sum256(s.data)
	i := ingredient{SHA256: hex.EncodeToString(sum[:]), Variables: map[string]string{}}
	names, err := yamlprocessor.NewSimpleProcessor().GetVariables(s.data)
	if err != nil {
		return ingredient{}, fmt.Errorf("%s: %w", s.name, err)
	}
	for _, name := range names {
		if value, ok := v[name]; ok {
			i.Variables[name] = value
		}
	}
	return i, nil
}
