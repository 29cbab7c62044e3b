package steps

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
)

// source is a file that people edit: their own where they have one, else the one inside the command.
type source struct {
	name    string // "manifests/cluster.yaml", or the path of the file that won over it
	path    string // "manifests/cluster.yaml" in any case
	data    []byte
	own     bool   // it is the operator's, not the one inside the command
	merges  bool   // Helm values: the operator's are merged over the built-in ones
	builtIn []byte // the file inside the command; nil: there is none of this name
}

// sources are all files that the plan is made from.
type sources struct {
	cluster, healthCheck, oidcPatch, clusterctl source
	cilium, hcloudCCM, talosCCM, schematic      source

	added []source // further files of the operator's folder manifests, by name

	vars variables // what ${NAME} stands for in them
}

// readSources reads every file once, so that what is planned is what is run. overrides is the folder that has the operator's
// folders manifests and bootstrap; empty: there are none.
func readSources(vars variables, overrides string) (sources, error) {
	own, err := readOwnFiles(overrides)
	if err != nil {
		return sources{}, err
	}
	s := sources{vars: vars}
	for _, k := range knownFiles() {
		f := source{name: k.path(), path: k.path(), merges: k.merges}
		if f.builtIn, err = k.files.ReadFile(k.name); err != nil {
			return sources{}, err
		}
		f.data = f.builtIn
		if o, found := own[f.path]; found {
			f.name, f.data, f.own = o.name, o.data, true
			delete(own, f.path)
		}
		*k.to(&s) = f
	}
	for _, path := range slices.Sorted(maps.Keys(own)) {
		s.added = append(s.added, own[path])
	}
	return s, nil
}

// all are the files that a step is made from, each once.
func (s sources) all() []source {
	return append([]source{s.cluster, s.healthCheck, s.oidcPatch, s.clusterctl, s.cilium, s.hcloudCCM, s.talosCCM, s.schematic}, s.added...)
}

// objects are the files whose documents are applied to the management cluster.
func (s sources) objects() []source { return append([]source{s.cluster, s.healthCheck}, s.added...) }

// variables are what ${NAME} stands for in the sources.
type variables map[string]string

// operatorReplicasVariable is how many Cilium operators there are. No two of them share a node: a cluster of one node would wait
// for the second for ever.
const (
	operatorReplicasVariable = "CILIUM_OPERATOR_REPLICAS"
	maxOperatorReplicas      = 2 // the chart's own default
)

// variables of the configuration, each as it is called everywhere, and what follows from them.
func variablesOf(c Config) variables {
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

// ingredient is what the journal remembers of a source: enough to see that it changed, nothing of what it says, because
// people put secrets into values files. The variables in it are remembered by name.
type ingredient struct {
	SHA256    string            `json:"sha256"`
	Variables map[string]string `json:"variables,omitempty"`
}

func (s source) ingredient(v variables) (ingredient, error) {
	text, err := s.effective(v)
	if err != nil {
		return ingredient{}, err
	}
	i := ingredient{SHA256: text.sum(), Variables: map[string]string{}}
	names, err := yamlprocessor.NewSimpleProcessor().GetVariables(text.written)
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
