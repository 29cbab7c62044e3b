package fleet

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// Keys of an entry that are no part of its configuration.
const (
	nameKey  = "name"
	tokenKey = "token"
)

// decided are the keys of bootstrap.yaml that a fleet decides, and where it has them instead.
var decided = map[string]string{
	"clusterName":            "it is the entry's name",
	settings.TokenFileKey:    "name the token in tokens, and use it by token",
	settings.TokenCommandKey: "name the token in tokens, and use it by token",
	"management":             "the clusters of a fleet begin in its management cluster",
	"managementKubeconfig":   "the clusters of a fleet begin in its management cluster",
	"pivot":                  "it is said for the fleet, beside its name",
	"state":                  "the states are in the management cluster",
	"stateKubeconfig":        "the states are in the management cluster",
	"stateIdentityFile":      "the key is in the fleet's namespace",
	"stateRecipients":        "the key is in the fleet's namespace",
	"labPrograms":            "it is no part of a cluster",

	"gitTokenFile":            notInPod,
	"gitTokenCommand":         notInPod,
	"gitKeyFile":              notInPod,
	"gitKnownHostsFile":       notInPod,
	"backupPassphraseFile":    notInPod,
	"backupPassphraseCommand": notInPod,
	"backupIdentityFile":      notInPod,
	"registryConfig":          notInPod,
}

// notInPod is about a file or a program of the machine of whoever applies the fleet.
const notInPod = "the cluster's Job has no files and programs of this machine, and takes no credentials but the Hetzner token"

// clusters reads the entries, each over the defaults.
func (r *reader) clusters(f *Fleet, defaults, list *yaml.Node) {
	if defaults.Kind != 0 && defaults.Kind != yaml.MappingNode {
		r.problem(defaults, "defaults is a mapping of keys of bootstrap.yaml to values")
		return
	}
	r.refuseDecided(defaults)
	if list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		if list.Kind == 0 {
			list.Line, list.Column = 1, 1
		}
		r.problem(list, "clusters is a list of clusters, each with a name, and has at least one")
		return
	}
	if len(list.Content) > MostClusters {
		r.problem(list, "%d clusters are more than the %d that one fleet can have: make two of it", len(list.Content),
			MostClusters)
	}
	seen := map[string]int{}
	for _, entry := range list.Content {
		c, ok := r.cluster(f, defaults, entry)
		if !ok {
			continue
		}
		if first := seen[c.Name]; first > 0 {
			r.problem(entry, "cluster %s is there a second time (first in line %d)", c.Name, first)
			continue
		}
		seen[c.Name] = entry.Line
		f.Clusters = append(f.Clusters, c)
	}
}

func (r *reader) cluster(f *Fleet, defaults, entry *yaml.Node) (c Cluster, ok bool) {
	if entry.Kind != yaml.MappingNode {
		r.problem(entry, "an entry is a mapping, with a name and keys of bootstrap.yaml")
		return c, false
	}
	merged := merge(defaults, entry)
	name, token := take(merged, nameKey), take(merged, tokenKey)
	if name == nil || !label.MatchString(name.Value) {
		r.problem(entry, "the entry has no name that is a DNS label: write name: and lower case letters, digits and dashes")
		return c, false
	}
	c = Cluster{Name: name.Value, Token: DefaultToken, Config: merged}
	if token != nil {
		c.Token = token.Value
	}
	if _, known := f.Tokens[c.Token]; !known {
		at := entry
		if token != nil {
			at = token
		}
		if strings.Contains(c.Token, " ") || len(c.Token) > 63 { // not repeated: it may be the token itself
			r.problem(at, "cluster %s: token is the name of one of tokens", c.Name)
		} else {
			r.problem(at, "cluster %s: there is no token of this name in tokens, which has %s", c.Name,
				strings.Join(slices.Sorted(maps.Keys(f.Tokens)), ", "))
		}
	}
	r.refuseDecided(entry)
	return c, true
}

func (r *reader) refuseDecided(n *yaml.Node) {
	for i := 0; i < len(n.Content)-1 && n.Kind == yaml.MappingNode; i += 2 {
		if instead, is := decided[n.Content[i].Value]; is {
			r.problem(n.Content[i], "%s is not configured for a cluster of a fleet: %s", n.Content[i].Value, instead)
		}
	}
}

// Configuration is a cluster's configuration, checked as that of bootstrap.yaml is, with what the fleet decides. Its
// error is a usage.Error that names the place in fleet.yaml.
func (f *Fleet) Configuration(c Cluster, decided ...settings.Assignment) (settings.Configuration, error) {
	cfg, err := settings.Load(settings.Sources{Name: f.path, Node: c.Config,
		Values: append([]settings.Assignment{settings.Assign("CLUSTER_NAME", c.Name)}, decided...)})
	if err != nil {
		return cfg, usage.Errorf("cluster %s: %w", c.Name, err)
	}
	return cfg, nil
}

// Has reports whether a key is configured for a cluster, in its entry or in the defaults.
func (c Cluster) Has(key string) bool { return indexOf(c.Config, key) >= 0 }

// Document is a cluster's bootstrap.yaml, with what is decided for it. The same content is the same bytes.
func (c Cluster) Document(decided []settings.Assignment) ([]byte, error) {
	content := map[string]any{}
	if err := c.Config.Decode(&content); err != nil {
		return nil, usage.Errorf("cluster %s: %w", c.Name, err)
	}
	for _, d := range append([]settings.Assignment{settings.Assign("CLUSTER_NAME", c.Name)}, decided...) {
		content[d.Variable.Field] = d.Value
	}
	return yaml.Marshal(content)
}
