package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// DefaultPool is the name of the worker pool that WORKERS=3 asks for.
const DefaultPool = "general"

// WorkerPool is a group of worker servers that are alike.
type WorkerPool struct {
	// DNS label, part of the servers' names
	Name string `json:"name" yaml:"name"`
	// Hetzner server types, the preferred first, separated by commas: the first in stock is used; empty:
	// WORKER_SERVER_TYPE
	ServerType string `json:"serverType,omitempty" yaml:"serverType,omitempty"`
	// Hetzner locations, the preferred first, separated by commas: the first that has a server type in stock; empty:
	// LOCATION
	Location string `json:"location,omitempty" yaml:"location,omitempty"`
	// number of servers; not together with min and max
	Replicas int `json:"replicas,omitempty" yaml:"replicas,omitempty"`
	// smallest number of servers that the cluster autoscaler may choose
	Min int `json:"min,omitempty" yaml:"min,omitempty"`
	// largest number of servers that the cluster autoscaler may choose; 0: the number is replicas
	Max int `json:"max,omitempty" yaml:"max,omitempty"`
	// labels of the nodes
	Labels map[string]string `json:"labels,omitempty" yaml:"labels,omitempty"`
	// taints that the nodes register with
	Taints []Taint `json:"taints,omitempty" yaml:"taints,omitempty"`
	// label caph-image-name of the snapshot; empty: the image of the control plane's Talos version
	Image string `json:"image,omitempty" yaml:"image,omitempty"`
	// name of a file in bootstrap/schematics, without .yaml, that the servers' image is made from; empty:
	// bootstrap/schematic.yaml; not together with image
	Schematic string `json:"schematic,omitempty" yaml:"schematic,omitempty"`
	// strategic merge patches of the Talos configuration, after those of manifests/worker-pool.yaml
	Patches []string `json:"patches,omitempty" yaml:"patches,omitempty"`
}

// Taint is a taint of a node.
type Taint struct {
	Key    string `json:"key" yaml:"key"`
	Value  string `json:"value,omitempty" yaml:"value,omitempty"`
	Effect string `json:"effect" yaml:"effect"` // NoSchedule, PreferNoSchedule or NoExecute
}

// TaintEffects are the effects that a taint can have.
func TaintEffects() []string { return []string{"NoSchedule", "PreferNoSchedule", "NoExecute"} }

// WorkerPools are the pools of a cluster. As a variable (WORKERS) it is the number of servers of the pool general.
type WorkerPools []WorkerPool

// String is the number of servers where WORKERS can say it; else each pool with its number: "general 3, db 1 to 4".
func (w WorkerPools) String() string {
	if len(w) == 0 {
		return "0"
	}
	if w.Plain() {
		return strconv.Itoa(w[0].Replicas)
	}
	var all []string
	for _, p := range w {
		all = append(all, p.Name+" "+p.Size())
	}
	return strings.Join(all, ", ")
}

// Plain tells whether the pools are what WORKERS=3 asks for.
func (w WorkerPools) Plain() bool {
	return len(w) == 1 && w[0].Name == DefaultPool && w[0].ServerType == "" && w[0].Location == "" && w[0].Max == 0 &&
		w[0].Min == 0 && len(w[0].Labels) == 0 && len(w[0].Taints) == 0 && w[0].Image == "" && w[0].Schematic == "" &&
		len(w[0].Patches) == 0
}

// set reads the value of WORKERS: the number of servers of the pool general, 0 or nothing for no pool.
func (w *WorkerPools) set(value string) error {
	if value == "" {
		value = "0"
	}
	n, err := strconv.Atoi(value)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a whole number", value)
	case n < 0:
		return fmt.Errorf("%d is negative", n)
	case n == 0:
		*w = nil
	default:
		*w = WorkerPools{{Name: DefaultPool, Replicas: n}}
	}
	return nil
}

// Size is the number of servers in words: "3", "1 to 4".
func (p WorkerPool) Size() string {
	if p.Autoscaled() {
		return fmt.Sprintf("%d to %d", p.Min, p.Max)
	}
	return strconv.Itoa(p.Replicas)
}

// Autoscaled tells whether the cluster autoscaler decides the number of servers.
func (p WorkerPool) Autoscaled() bool { return p.Max > 0 }

// Most is the largest number of servers that the pool may have.
func (p WorkerPool) Most() int { return max(p.Replicas, p.Max) }

// PoolGroupHolds is how many servers of a pool are in one placement group. Hetzner's holds 10; a rollout needs one more
// than there are.
const PoolGroupHolds = 9

// PoolGroup is the part of a worker pool that is in one placement group: a MachineDeployment.
type PoolGroup struct {
	Pool     string
	Name     string // that of the pool; "<pool>-2", "<pool>-3" … for what does not fit into one placement group
	Replicas int    // not used where the autoscaler decides
	Min, Max int
}

// Groups divides a pool into parts that fit into a placement group. The first are full, so that scaling the pool
// moves no server from one to another.
func (p WorkerPool) Groups() []PoolGroup {
	n := max(1, (p.Most()+PoolGroupHolds-1)/PoolGroupHolds)
	groups := make([]PoolGroup, n)
	share := func(total, i int) int { return min(PoolGroupHolds, max(0, total-i*PoolGroupHolds)) }
	for i := range groups {
		name := p.Name
		if i > 0 {
			name = fmt.Sprintf("%s-%d", p.Name, i+1)
		}
		groups[i] = PoolGroup{Pool: p.Name, Name: name, Replicas: share(p.Replicas, i), Min: share(p.Min, i),
			Max: share(p.Max, i)}
	}
	return groups
}

// Pool is a pool with the values that it takes from the rest of the configuration where it has none of its own.
func (c Config) Pool(p WorkerPool) WorkerPool {
	p.ServerType = cmp.Or(p.ServerType, c.WorkerServerType, c.ServerType)
	p.Location = cmp.Or(p.Location, c.Location)
	return p
}

// ServerTypes are the server types of the pool, the preferred first.
func (p WorkerPool) ServerTypes() []string { return Listed(p.ServerType) }

// Locations are those of the pool, the preferred first.
func (p WorkerPool) Locations() []string { return Listed(p.Location) }

// Limits of pools whose source is outside this project.
const (
	// maxServerName is a host name's.
	maxServerName = 63
	// maxLabelValue is that of a label at Hetzner and in Kubernetes.
	maxLabelValue = 63
	// machineSuffix is what Cluster API appends to a MachineDeployment's name for a Machine, and CAPH to no server's name
	// of a worker: "-<5>-<5>".
	machineSuffix = 12
	// maxPoolServers is what Cluster API is known to manage in one cluster with room to spare.
	maxPoolServers = 500
	// controlPlaneGroup is the placement group of the control plane, and the end of its template's name.
	controlPlaneGroup = "control-plane"
)

var (
	labelName  = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	labelHost  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	setByOther = []string{"kubernetes.io/hostname", "kubernetes.io/arch", "kubernetes.io/os",
		"node.kubernetes.io/instance-type", "topology.kubernetes.io/region", "topology.kubernetes.io/zone"}
)

// workers checks the worker pools; whether Hetzner has their server types is for the step preflight.
func (v *Findings) workers(c Config) {
	names := map[string]string{} // of a placement group → pool
	for i, p := range c.Workers {
		at := func(field string) string { return fmt.Sprintf("workers[%d].%s", i, field) }
		v.poolName(c, p, at("name"), names)
		v.poolSize(p, at)
		v.locations(at("location"), p.Location)
		v.serverTypes(at("serverType"), p.ServerType)
		v.poolLabels(p, at)
		for n, t := range p.Taints {
			v.taint(t, fmt.Sprintf("workers[%d].taints[%d]", i, n))
		}
		if p.Image != "" && !labelValue.MatchString(p.Image) {
			v.add(at("image"), p.Image, "cannot be a label's value", "it is compared with the snapshot's label caph-image-name")
		}
		v.poolSchematic(c, p, at)
		for n, patch := range p.Patches {
			if strings.TrimSpace(patch) == "" {
				v.add(fmt.Sprintf("workers[%d].patches[%d]", i, n), patch, "is empty", "write a part of the Talos configuration, "+
					"or leave it out")
			}
		}
	}
	v.serverTypes("workerServerType", c.WorkerServerType)
}

// poolSchematic checks the name of a pool's schematic, which is a part of its image's name.
func (v *Findings) poolSchematic(c Config, p WorkerPool, at func(string) string) {
	switch image := c.SchematicImage(p.Schematic, "amd64"); {
	case p.Schematic == "":
	case p.Image != "":
		v.add(at("schematic"), p.Schematic, "is given together with image", "an image of your own is made from a schematic "+
			"already: leave one of them out")
	case !dnsLabel.MatchString(p.Schematic):
		v.add(at("schematic"), p.Schematic, "is not a DNS label", "name the file in bootstrap/schematics with lower case "+
			"letters, digits and dashes, and write it here without .yaml")
	case len(image) > maxLabelValue:
		v.add(at("schematic"), p.Schematic, fmt.Sprintf("is too long: the image is called %s, and a label's value has %d "+
			"characters", image, maxLabelValue), fmt.Sprintf("use %d characters or fewer",
			maxLabelValue-len(image)+len(p.Schematic)))
	}
}

// poolName checks a pool's name: those of its servers and of its placement groups are made from it.
func (v *Findings) poolName(c Config, p WorkerPool, field string, names map[string]string) {
	if !dnsLabel.MatchString(p.Name) {
		v.add(field, p.Name, "is not a DNS label", "use lower case letters, digits and dashes, beginning with a letter")
		return
	}
	if p.Name == controlPlaneGroup || strings.HasPrefix(p.Name, controlPlaneGroup+"-") {
		v.add(field, p.Name, "is the control plane's", "choose another name")
		return
	}
	groups := p.Groups()
	longest := groups[len(groups)-1].Name
	if most := maxServerName - machineSuffix - len(c.ClusterName) - 1; len(longest) > most {
		v.addPair(field, "clusterName", p.Name, fmt.Sprintf("is too long: servers are called %s-%s-abcde-12345, and a host "+
			"name has %d characters", c.ClusterName, longest, maxServerName), fmt.Sprintf("use %d characters or fewer",
			most-len(longest)+len(p.Name)))
	}
	for _, g := range groups {
		if other, taken := names[g.Name]; taken {
			problem := "is a second pool of this name"
			if other != p.Name {
				problem = fmt.Sprintf("and %s both need the name %s: a pool of more than %d servers is divided", other, g.Name,
					PoolGroupHolds)
			}
			v.add(field, p.Name, problem, "give each pool a name of its own")
			return
		}
		names[g.Name] = p.Name
	}
}

func (v *Findings) poolSize(p WorkerPool, at func(string) string) {
	for _, n := range []struct {
		field string
		value int
	}{{"replicas", p.Replicas}, {"min", p.Min}, {"max", p.Max}} {
		switch {
		case n.value < 0:
			v.add(at(n.field), n.value, "is negative", "write the number of servers, or 0")
		case n.value > maxPoolServers:
			v.add(at(n.field), n.value, fmt.Sprintf("is more than %d", maxPoolServers), "divide them over several clusters")
		}
	}
	switch {
	case p.Min > 0 && p.Max == 0:
		v.add(at("min"), p.Min, "is given without max", "give both, or neither")
	case p.Min > p.Max:
		v.add(at("min"), p.Min, fmt.Sprintf("is more than max %d", p.Max), "give the smaller number as min")
	case p.Autoscaled() && p.Replicas > 0:
		v.add(at("replicas"), p.Replicas, "is given together with max", "the cluster autoscaler chooses the number between "+
			"min and max: leave replicas out, or min and max")
	}
}

func (v *Findings) poolLabels(p WorkerPool, at func(string) string) {
	for key, value := range p.Labels {
		field := at("labels." + key)
		switch {
		case !qualifiedName(key):
			v.add(field, key, "is not a label's name", "write it like team, or example.com/team")
		case value != "" && !labelValue.MatchString(value):
			v.add(field, value, "cannot be a label's value", "use at most 63 letters, digits, dots, dashes and underscores")
		case slices.Contains(setByOther, key):
			v.add(field, key, "is set by the kubelet or the Hetzner cloud controller manager", "choose another label")
		case key == "node-role.kubernetes.io/control-plane":
			v.add(field, key, "makes the node one of the control plane for everything that looks at it", "choose another label")
		case FromMachine(key):
		case refusedToKubelets(key):
			v.add(field, key, "cannot be set by a worker's kubelet (admission plugin NodeRestriction)", "use a domain of your "+
				"own, or node-role.kubernetes.io/, node-restriction.kubernetes.io/ or node.cluster.x-k8s.io/, which Cluster "+
				"API sets")
		}
	}
}

func (v *Findings) taint(t Taint, field string) {
	switch {
	case !qualifiedName(t.Key):
		v.add(field+".key", t.Key, "is not a taint's name", "write it like dedicated, or example.com/dedicated")
	case t.Value != "" && !labelValue.MatchString(t.Value):
		v.add(field+".value", t.Value, "cannot be a taint's value", "use at most 63 letters, digits, dots, dashes and "+
			"underscores")
	case !slices.Contains(TaintEffects(), t.Effect):
		v.add(field+".effect", t.Effect, "is no effect of a taint", "write one of "+strings.Join(TaintEffects(), ", "))
	}
}

// FromMachine tells whether Cluster API copies a label from a Machine to its node. These may be changed without
// replacing a server, and a worker's kubelet may not set most of them itself.
func FromMachine(label string) bool {
	host, _, found := strings.Cut(label, "/")
	if !found {
		return false
	}
	for _, domain := range []string{"node-role.kubernetes.io", "node-restriction.kubernetes.io", "node.cluster.x-k8s.io"} {
		if host == domain || domain != "node-role.kubernetes.io" && strings.HasSuffix(host, "."+domain) {
			return true
		}
	}
	return false
}

// refusedToKubelets tells whether the admission plugin NodeRestriction refuses a label that a kubelet sets on its node.
func refusedToKubelets(label string) bool {
	host, _, found := strings.Cut(label, "/")
	if !found {
		return false
	}
	under := func(domain string) bool { return host == domain || strings.HasSuffix(host, "."+domain) }
	if under("kubelet.kubernetes.io") || under("node.kubernetes.io") {
		return false
	}
	return under("kubernetes.io") || under("k8s.io")
}

// qualifiedName tells whether a text can be a label's or a taint's key.
func qualifiedName(key string) bool {
	host, name, found := strings.Cut(key, "/")
	if !found {
		host, name = "", key
	}
	return labelName.MatchString(name) && (!found || len(host) <= 253 && labelHost.MatchString(host))
}
