package fleet

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// What a fleet has where its file does not say.
const (
	DefaultNamespace   = "slipway"
	DefaultMaxParallel = 2
	DefaultRetries     = 3
	// DefaultDeadline of one Job: a bootstrap takes a quarter of an hour, and its retries are in it.
	DefaultDeadline = 3 * time.Hour
	// DefaultToken is the name of the token that clusters use which name none.
	DefaultToken = "default"
	// MostClusters keeps what a fleet keeps of itself in one ConfigMap, which holds 1 MiB, and its table readable.
	MostClusters = 500
)

// maxName leaves room for the name of a cluster and of a change in the name of a Job.
const maxName = 20

// Fleet is what fleet.yaml says.
type Fleet struct {
	Spec
	Tokens   map[string]Token
	Clusters []Cluster

	path string
}

// Spec has the keys with one plain value.
type Spec struct {
	Name      string `yaml:"name"`
	Namespace string `yaml:"namespace"` // in the management cluster: Jobs, tokens, states
	Image     string `yaml:"image"`     // Slipway's own, which the Jobs run
	// Pivot is whether each cluster manages itself in the end. Otherwise the management cluster manages it.
	Pivot bool `yaml:"pivot"`
	// Canary are the clusters that are changed first: the others follow when they are done.
	Canary      []string      `yaml:"canary"`
	MaxParallel int           `yaml:"maxParallel"` // clusters that are changed at once
	MaxFailures int           `yaml:"maxFailures"` // with more failed clusters than this no further one is begun
	Retries     int           `yaml:"retries"`     // of a cluster, until it has failed
	Deadline    time.Duration `yaml:"deadline"`    // of a cluster, with its retries
	Queue       string        `yaml:"queue"`       // LocalQueue of Kueue; empty: Kueue is not used
	// SkipDoctor leaves out the doctor's checks before a cluster is created, which refuse overlapping networks in a
	// project.
	SkipDoctor bool `yaml:"skipDoctor"`
}

// Token says where a Hetzner token comes from. Exactly one field is set.
type Token struct {
	Env     string `yaml:"env"`     // variable of the environment
	File    string `yaml:"file"`    // holds it
	Command string `yaml:"command"` // prints it
	Secret  string `yaml:"secret"`  // Secret in the fleet's namespace that exists and holds it, under the key token
}

// Cluster is one entry, merged with the defaults.
type Cluster struct {
	Name   string
	Token  string     // name of one of the fleet's tokens
	Config *yaml.Node // as bootstrap.yaml; its nodes have their lines in fleet.yaml
}

// Read reads a file and checks all of it but the clusters' configurations. Its error is a usage.Error, with everything
// that is wrong.
func Read(path string) (*Fleet, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, usage.Errorf("read the fleet: %w", err)
	}
	return parse(path, data)
}

func parse(path string, data []byte) (*Fleet, error) {
	r := reader{path: path}
	f := r.file(data)
	if len(r.problems) > 0 {
		return nil, &usage.Error{Err: errors.Join(r.problems...)}
	}
	return f, nil
}

// Path is the file that the fleet was read from.
func (f *Fleet) Path() string { return f.path }

// Find finds a cluster; nil: there is none of this name.
func (f *Fleet) Find(name string) *Cluster {
	i := slices.IndexFunc(f.Clusters, func(c Cluster) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &f.Clusters[i]
}

// Select returns the clusters of these names, in the file's order; all, without names.
func (f *Fleet) Select(names []string) (all []Cluster, err error) {
	if len(names) == 0 {
		return f.Clusters, nil
	}
	for _, name := range names {
		if f.Find(name) == nil {
			return nil, usage.Errorf("%s has no cluster %q%s", f.path, name, usage.DidYouMean("", name, f.names()))
		}
	}
	for _, c := range f.Clusters {
		if slices.Contains(names, c.Name) {
			all = append(all, c)
		}
	}
	return all, nil
}

// reader collects what is wrong with a file.
type reader struct {
	path     string
	problems []error
}

func (r *reader) problem(n *yaml.Node, format string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf("%s:%d:%d: %w", r.path, n.Line, n.Column, fmt.Errorf(format, args...)))
}

// document is the file: plain values, and parts that are read one after the other so that errors say where they are.
type document struct {
	Spec     `yaml:",inline"`
	Tokens   yaml.Node `yaml:"tokens"`
	Defaults yaml.Node `yaml:"defaults"`
	Clusters yaml.Node `yaml:"clusters"`
}

func (r *reader) file(data []byte) *Fleet {
	d := document{Spec: Spec{Namespace: DefaultNamespace, Pivot: true, MaxParallel: DefaultMaxParallel,
		Retries: DefaultRetries, Deadline: DefaultDeadline}}
	decoder := yaml.NewDecoder(strings.NewReader(string(data)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&d); err != nil {
		r.problems = append(r.problems, fmt.Errorf("%s: %w", r.path, err)) // names the line
		return nil
	}
	if decoder.Decode(&yaml.Node{}) == nil {
		r.problems = append(r.problems, fmt.Errorf("%s: a second document begins: a fleet is one", r.path))
	}
	for _, part := range []*yaml.Node{&d.Tokens, &d.Defaults, &d.Clusters} {
		expanded, err := settings.Expand(part)
		if err != nil {
			r.problems = append(r.problems, fmt.Errorf("%s: %w", r.path, err))
			return nil
		}
		*part = *expanded
	}
	f := &Fleet{Spec: d.Spec, path: r.path}
	r.tokens(f, &d.Tokens)
	r.clusters(f, &d.Defaults, &d.Clusters)
	r.numbers(f)
	return f
}

// label is a DNS label, as names of namespaces, clusters and Jobs have to be.
var label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// numbers checks what is one value each.
func (r *reader) numbers(f *Fleet) {
	refuse := func(key, format string, args ...any) {
		r.problems = append(r.problems, fmt.Errorf("%s: %s %w", r.path, key, fmt.Errorf(format, args...)))
	}
	for key, value := range map[string]string{"name": f.Name, "namespace": f.Namespace} {
		if !label.MatchString(value) {
			refuse(key, "%q is no DNS label: write lower case letters, digits and dashes", value)
		}
	}
	if len(f.Name) > maxName {
		refuse("name", "%q has more than %d characters: it begins the names of Jobs", f.Name, maxName)
	}
	if f.MaxParallel < 1 {
		refuse("maxParallel", "%d: at least one cluster has to be changed at a time", f.MaxParallel)
	}
	if f.MaxFailures < 0 || f.Retries < 0 {
		refuse("maxFailures and retries", "are numbers from 0")
	}
	if f.Deadline < time.Minute {
		refuse("deadline", "%s is shorter than a minute: it is the longest time for one cluster, as 3h", f.Deadline)
	}
	if f.Queue != "" && !label.MatchString(f.Queue) {
		refuse("queue", "%q is no name of a LocalQueue", f.Queue)
	}
	for _, name := range f.Canary {
		if f.Find(name) == nil {
			refuse("canary", "names %q, which is no cluster of the fleet%s", name, usage.DidYouMean("", name, f.names()))
		}
	}
}

func (f *Fleet) names() (all []string) {
	for _, c := range f.Clusters {
		all = append(all, c.Name)
	}
	return all
}

func (r *reader) tokens(f *Fleet, n *yaml.Node) {
	f.Tokens = map[string]Token{}
	if n.Kind == 0 {
		f.Tokens[DefaultToken] = Token{Env: "HCLOUD_TOKEN"}
		return
	}
	if n.Kind != yaml.MappingNode {
		r.problem(n, "tokens is a mapping of names to where each token comes from")
		return
	}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if value.Kind == yaml.ScalarNode {
			// Not the value: it may be the token itself.
			r.problem(value, "token %s is one of env, file, command and secret, each with a value: tokens are not written "+
				"into this file", key.Value)
			continue
		}
		var t Token
		if err := value.Decode(&t); err != nil {
			r.problem(value, "token %s: %w", key.Value, err)
			continue
		}
		given := 0
		for _, s := range []string{t.Env, t.File, t.Command, t.Secret} {
			if s != "" {
				given++
			}
		}
		switch {
		case given != 1:
			r.problem(value, "token %s takes one of env, file, command and secret", key.Value)
		case !label.MatchString(key.Value):
			r.problem(key, "%q is no DNS label: it is in the name of the token's Secret", key.Value)
		}
		f.Tokens[key.Value] = t
	}
}
