// Package render makes what is applied out of the files that operators edit: objects, and Helm charts with their
// values, with the variables of the configuration put in, and digests of them.
package render

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// Source is a file that people edit: their own where they have one, else the one inside the command.
type Source struct {
	Name    string // "manifests/cluster.yaml", or the path of the file that won over it
	Path    string // "manifests/cluster.yaml" in any case
	Data    []byte
	Own     bool   // it is the operator's, not the one inside the command
	merges  bool   // Helm values: the operator's are merged over the built-in ones
	BuiltIn []byte // the file inside the command; nil: there is none of this name
}

// Sources are all files that the plan is made from.
type Sources struct {
	Cluster, HealthCheck, WorkerPool, OidcPatch, Clusterctl Source
	Cilium, HcloudCCM, TalosCCM, Schematic                  Source

	Addons     []Source // values files of add-ons, by name: the shipped ones, and further ones of the operator
	Schematics []Source // of worker pools, by name; all are the operator's
	Added      []Source // further files of the operator's folder manifests, by name

	Vars Variables // the values of ${NAME} in them
}

// Read reads every file once, so that what is planned is what is run. overrides is the folder that has the operator's
// folders manifests and bootstrap; empty: there are none.
func Read(vars Variables, overrides string) (Sources, error) {
	own, err := readOwnFiles(overrides)
	if err != nil {
		return Sources{}, err
	}
	s := Sources{Vars: vars}
	for _, k := range knownFiles() {
		if *k.to(&s), err = k.source(own); err != nil {
			return Sources{}, err
		}
	}
	if s.Addons, err = addonValues(own); err != nil {
		return Sources{}, err
	}
	for _, path := range slices.Sorted(maps.Keys(own)) {
		if strings.HasPrefix(path, schematicFolder+"/") {
			s.Schematics = append(s.Schematics, own[path])
		} else {
			s.Added = append(s.Added, own[path])
		}
	}
	return s, nil
}

// ReadOrEmpty are the operator's files where they can be read, and none where one is broken.
func ReadOrEmpty(cfg config.Config, overrides string) Sources {
	s, err := Read(VariablesOf(cfg), overrides)
	if err != nil {
		return Sources{Vars: VariablesOf(cfg)}
	}
	return s
}

// addonValues are the values files of add-ons. It takes the operator's out of own.
func addonValues(own map[string]Source) (all []Source, err error) {
	for _, a := range config.ShippedAddons() {
		shipped := knownFile{folder: bootstrapFolder, name: bootstrap.Addons + "/" + config.AddonValuesFile(a.Name),
			files: bootstrap.Files, merges: true}
		f, err := shipped.source(own)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	for path, o := range own {
		if strings.HasPrefix(path, addonsFolder+"/") {
			all = append(all, o)
			delete(own, path)
		}
	}
	slices.SortFunc(all, func(a, b Source) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// AddonValues is a values file of the folder bootstrap/addons; false: there is none of this name.
func (s Sources) AddonValues(name string) (Source, bool) {
	return find(s.Addons, addonsFolder+"/"+name)
}

// SchematicFile is the schematic of a name: that of bootstrap/schematics, or without a name the control plane's; false:
// there is none of this name.
func (s Sources) SchematicFile(name string) (Source, bool) {
	if name == "" {
		return s.Schematic, true
	}
	return find(s.Schematics, schematicFolder+"/"+name+".yaml")
}

// find is the file of a path; false: there is none, and it has its names alone.
func find(files []Source, path string) (Source, bool) {
	i := slices.IndexFunc(files, func(f Source) bool { return f.Path == path })
	if i < 0 {
		return Source{Name: path, Path: path}, false
	}
	return files[i], true
}

// All are the files that a step is made from, each once.
func (s Sources) All() []Source {
	return slices.Concat([]Source{s.Cluster, s.HealthCheck, s.WorkerPool, s.OidcPatch, s.Clusterctl, s.Cilium, s.HcloudCCM,
		s.TalosCCM, s.Schematic}, s.Addons, s.Schematics, s.Added)
}

// Objects are the files whose documents are applied to the management cluster.
func (s Sources) Objects() []Source { return append([]Source{s.Cluster, s.HealthCheck}, s.Added...) }

// Variables are the values of ${NAME} in the sources.
type Variables map[string]string

// operatorReplicasVariable is how many Cilium operators there are. No two of them share a node: a cluster of one node
// would wait for the second for ever.
const (
	operatorReplicasVariable = "CILIUM_OPERATOR_REPLICAS"
	maxOperatorReplicas      = 2 // the chart's own default
)

// autoscalerVersionVariable is the cluster autoscaler that fits the version of Kubernetes.
const autoscalerVersionVariable = "CLUSTER_AUTOSCALER_VERSION"

// The digest of a file that takes the default namespace from its variable is that of the files of older releases, which
// named it: it gives the same objects, and no step runs again for it.
const (
	namespaceVariable = "NAMESPACE"
	namespaceInFile   = "${" + namespaceVariable + ":=" + config.DefaultNamespace + "}"
)

// giteaPersistenceVariable says whether Gitea has a volume: only where hcloud-csi makes one.
const giteaPersistenceVariable = "GITEA_PERSISTENCE"

// VariablesOf are those of a configuration, each as it is called everywhere, and what follows from them.
func VariablesOf(c config.Config) Variables {
	v := Variables{}
	for _, variable := range config.Variables() {
		v[variable.Name] = variable.Get(c)
	}
	v[serverTypeVariable], v[locationVariable] = c.PreferredServerType(), c.PreferredLocation()
	v[serverLocationsVariable] = c.PreferredLocation()
	v[schedulableVariable] = strconv.FormatBool(len(c.Workers) == 0)
	v[giteaPersistenceVariable] = strconv.FormatBool(c.GiteaKept())
	v[autoscalerVersionVariable] = config.AutoscalerVersion(c.KubernetesVersion)
	v[operatorReplicasVariable] = strconv.Itoa(min(maxOperatorReplicas, c.ControlPlaneReplicas))
	return v
}

// Documents are the YAML documents of the file, as it is written.
func (s Source) Documents() ([][]byte, error) {
	docs, err := kube.Documents(s.Data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	return docs, nil
}

// Object is the object of a document of the file, with its variables filled in.
func (s Source) Object(document []byte, v Variables) (*unstructured.Unstructured, error) {
	filled, err := s.Fill(document, v)
	if err != nil {
		return nil, err
	}
	o, err := kube.Parse(filled)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	return o, nil
}

// Fill puts the variables into a text, as clusterctl does with ${NAME:=default}. A variable without value and default
// is an error.
func (s Source) Fill(text []byte, v Variables) ([]byte, error) {
	processor := yamlprocessor.NewSimpleProcessor()
	if unknown := s.unknownVariables(text, v); len(unknown) > 0 {
		return nil, fmt.Errorf("%s: there is no variable %s: this file has %s and those that config show lists; no other value is "+
			"filled in, from the environment neither, so write the value itself; where ${%s} is to stay as it is, in a comment too, "+
			"write $${%s}", s.Name, strings.Join(unknown, ", "), strings.Join(s.usualVariables(v), ", "), unknown[0], unknown[0])
	}
	out, err := processor.Process(text, func(name string) (string, error) {
		if value, ok := v[name]; ok {
			return value, nil
		}
		return "", fmt.Errorf("%s is not set", name)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.at(text), err)
	}
	return out, nil
}

// unclosed is a variable whose brace is not closed in its line, where none is meant to be in two.
var unclosed = regexp.MustCompile(`(?m)(^|[^$])(\$\$)*\$\{[^}\n]*$`)

// at is the file, and the line in it of what cannot be read as a variable, where it is found.
func (s Source) at(text []byte) string {
	i := unclosed.FindIndex(text)
	if i == nil {
		return s.Name
	}
	before := bytes.Index(s.Data, text) // of a document in it
	if before < 0 {
		return s.Name
	}
	return fmt.Sprintf("%s:%d: close the brace of the variable, or write $${ for one that is to stay", s.Name,
		bytes.Count(s.Data[:before+i[1]], []byte("\n"))+1)
}

// unknownVariables are those of a text that have neither a value nor a default.
func (s Source) unknownVariables(text []byte, v Variables) (names []string) {
	used, err := yamlprocessor.NewSimpleProcessor().GetVariableMap(text)
	if err != nil {
		return nil // Fill says so
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if _, known := v[name]; !known && used[name] == nil {
			names = append(names, name)
		}
	}
	return names
}

// usualVariables are those of the file inside the command.
func (s Source) usualVariables(v Variables) []string {
	names, err := yamlprocessor.NewSimpleProcessor().GetVariables(s.BuiltIn)
	names = slices.DeleteFunc(names, func(name string) bool { _, known := v[name]; return !known }) // it is one of a comment
	if err != nil || len(names) == 0 {
		return []string{"none of its own"}
	}
	return names
}

// Digest is what the journal remembers of a source: enough to see that it changed, nothing of what it says, because
// people put secrets into values files. The variables in it are remembered by name.
type Digest struct {
	SHA256    string            `json:"sha256"`
	Variables map[string]string `json:"variables,omitempty"`
}

// Digest identifies the content of a file and the variables that it uses.
func (s Source) Digest(v Variables) (Digest, error) {
	text, err := s.Effective(v)
	if err != nil {
		return Digest{}, err
	}
	i := Digest{SHA256: text.Sum(), Variables: map[string]string{}}
	names, err := yamlprocessor.NewSimpleProcessor().GetVariables(text.written)
	if err != nil {
		return Digest{}, fmt.Errorf("%s: %w", s.at(text.written), err)
	}
	for _, name := range names {
		if value, ok := v[name]; ok && (name != namespaceVariable || value != config.DefaultNamespace) {
			i.Variables[name] = value
		}
	}
	return i, nil
}
