package readopt

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// Mismatch is a difference between a backup and the existing cluster, so that Cluster API would change the cluster
// after it.
type Mismatch struct {
	ID     string `json:"id"`               // "server-missing/k8s-control-plane-7xk2p"
	What   string `json:"what"`             // was seen
	Would  string `json:"would"`            // happen, if the object were put back as it is
	Accept string `json:"accept,omitempty"` // what is done where it is accepted; empty: it cannot be
	Advice string `json:"advice,omitempty"` // where it cannot be accepted

	accepted func(*Comparison) // writes the acceptance into the Comparison; nil: it changes nothing there
}

// Comparison is what a readoption puts back and what it does not, after everything that was accepted.
type Comparison struct {
	Accepted []string `json:"accepted,omitempty"`
	Servers  []int64  `json:"servers"` // that are managed again: none of them may go
	Others   []int64  `json:"others,omitempty"`
	Made     int      `json:"made,omitempty"` // new servers that the control plane makes to have its replicas
	// Rolling tells that the backup is of the middle of a rollout, which goes on: servers come and go then.
	Rolling bool `json:"rolling,omitempty"`

	LeftOut  []string         `json:"leftOut,omitempty"` // Machines, with all that depends on them
	Gone     []string         `json:"gone,omitempty"`    // servers, whose nodes are removed
	Adopted  []Adopted        `json:"adopted,omitempty"`
	Replaced map[string]int64 `json:"replaced,omitempty"` // HCloudMachine → ID of its server today
	Version  string           `json:"version,omitempty"`  // of Kubernetes, in place of the backup's
	Replicas int64            `json:"replicas,omitempty"` // of the control plane, in place of the backup's
	Balancer string           `json:"balancer,omitempty"` // name of the load balancer that CAPH is to adopt
	Left     []Leftover       `json:"left,omitempty"`     // objects that are removed first
}

// Adopted is a control plane server that the backup does not know and for which a Machine is made.
type Adopted struct {
	Server   string `json:"server"`
	ID       int64  `json:"id"`
	Machine  string `json:"machine"`
	Location string `json:"location"`
}

// comparing is a comparison in the making.
type comparing struct {
	source backup.Cluster
	living
	machines  []backup.ClusterMachine
	found     []Mismatch
	explained map[string]bool // names of servers that a difference speaks of
}

// mismatches compares. It makes no request.
func mismatches(s backup.Cluster, l living) []Mismatch {
	c := &comparing{source: s, living: l, machines: s.Machines(), explained: map[string]bool{}}
	c.match()
	c.compareMachines()
	c.compareServers()
	c.compareMembers()
	c.compareNodes()
	c.compareReplicas()
	c.compareVersions()
	c.compareSurroundings()
	for _, left := range l.left {
		c.add(Mismatch{
			ID:    "object-left/" + left.Kind + "." + left.Name,
			What:  fmt.Sprintf("%s %s is there without its Cluster object", left.Kind, left.Name),
			Would: "no controller reconciles it; it would conflict with the backup's",
			Accept: "it is removed, without its finalizers, so that nothing at Hetzner is touched, and the backup's takes " +
				"its place",
			accepted: func(d *Comparison) { d.Left = append(d.Left, left) },
		})
	}
	return c.found
}

func (c *comparing) add(m Mismatch) { c.found = append(c.found, m) }

// match finds the server of every Machine: by its ID, as CAPH does, else by the name that CAPH's label gives.
func (c *comparing) match() {
	for i := range c.machines {
		m := &c.machines[i]
		for j := range c.servers {
			s := &c.servers[j]
			if s.ID == m.ServerID || m.Now == nil && s.Machine == m.Server {
				m.Now = s
			}
		}
	}
}

// unknown lists the servers of the cluster that no Machine of the backup has.
func (c *comparing) unknown() (servers []hetzner.Server) {
	for _, s := range c.servers {
		if !slices.ContainsFunc(c.machines, func(m backup.ClusterMachine) bool { return m.Now != nil && m.Now.ID == s.ID }) {
			servers = append(servers, s)
		}
	}
	return servers
}

// controlPlane counts the control plane's Machines, once every difference about servers is accepted.
func (c *comparing) controlPlane() (n int64) {
	for _, m := range c.machines {
		if m.ControlPlane && m.Now != nil {
			n++
		}
	}
	for _, s := range c.unknown() {
		if s.ControlPlane {
			n++
		}
	}
	return n
}

func (c *comparing) compareMachines() {
	for _, m := range c.machines {
		c.explained[m.Server] = true
		switch {
		case m.Now == nil && c.unlabelled[m.ServerID]:
			c.withoutLabel(m)
		case m.Now == nil:
			c.missing(m)
		case m.Now.ID != m.ServerID && m.ServerID != 0:
			id := m.Now.ID
			c.add(Mismatch{
				ID: "server-replaced/" + m.Server,
				What: fmt.Sprintf("HCloudMachine %s has the server %d in the backup; today the server of that name is %d",
					m.Server, m.ServerID, id),
				Would: "Cluster API would look for a node of the old server for ever, and the control plane would not " +
					"become Ready",
				Accept: fmt.Sprintf("its objects name server %d", id),
				accepted: func(d *Comparison) {
					if d.Replaced == nil {
						d.Replaced = map[string]int64{}
					}
					d.Replaced[m.Server] = id
				},
			})
		case m.Deleting:
			c.add(Mismatch{
				ID:     "machine-deleting/" + m.Server,
				What:   fmt.Sprintf("Machine %s was being deleted when the backup was taken, and its server lives", m.Name),
				Would:  "it comes back as one that stays: a deletion is not put back",
				Accept: "it stays; " + deletesMachine(m) + " deletes it when the readoption is over",
			})
		}
		if m.Now != nil && m.Outdated != "" {
			c.add(Mismatch{
				ID:       "rollout/" + m.Server,
				What:     fmt.Sprintf("Machine %s was outdated when the backup was taken (%s)", m.Name, m.Outdated),
				Would:    "the control plane provider goes on with the rollout at once: it makes a new server and deletes this one",
				Accept:   "it does that",
				accepted: func(d *Comparison) { d.Rolling = true },
			})
		}
	}
}

// deletesMachine is what deletes a Machine.
func deletesMachine(m backup.ClusterMachine) string {
	if m.ControlPlane {
		return "replace-machine, or kubectl delete,"
	}
	return "kubectl delete machine " + m.Name
}

// missing is about a Machine without a server.
func (c *comparing) missing(m backup.ClusterMachine) {
	seen := fmt.Sprintf("server %d", m.ServerID)
	if m.ServerID == 0 {
		seen = "a server, which was not made yet when the backup was taken,"
	}
	stale := "its Machine and what hangs on it are left out, and its node is removed"
	would := "CAPH would create server " + m.Server +
		" again, with an empty disk, which cannot join etcd while that counts the lost one"
	if c.isMember(m.Server) {
		stale += "; the control plane provider then takes its member out of etcd"
	}
	if m.ControlPlane {
		stale += "; " + c.scaling()
	} else {
		stale += "; the MachineSet that it was of makes another server"
		would = "CAPH would create server " + m.Server + " again, for the node of the lost one"
	}
	c.add(Mismatch{
		ID:   "server-missing/" + m.Server,
		What: fmt.Sprintf("Machine %s of the backup has %s, and there is none", m.Name, seen), Would: would, Accept: stale,
		accepted: func(d *Comparison) {
			d.LeftOut, d.Gone = append(d.LeftOut, m.Name), append(d.Gone, m.Server)
		},
	})
}

// scaling says what the control plane does for its replicas.
func (c *comparing) scaling() string {
	switch want, has := c.source.Replicas(), c.controlPlane(); {
	case has < want:
		return fmt.Sprintf("the control plane, which has %d of its %d servers, makes %d new: a cost, and nothing that was "+
			"there is touched", has, want, want-has)
	default:
		return fmt.Sprintf("no server is made, as %d are there", has)
	}
}

func (c *comparing) compareServers() {
	for _, s := range c.unknown() {
		c.explained[s.Name] = true
		m := Mismatch{ID: "server-unknown/" + s.Name, What: fmt.Sprintf("server %s (%d), %s, is none of the "+
			"backup's Machines", s.Name, s.ID, c.roles(s.Name))}
		if !s.ControlPlane {
			m.Would, m.Accept = "no cluster would manage it", "it is left as it is, and no cluster manages it: delete it "+
				"by hand when its load is moved"
			m.accepted = func(d *Comparison) { d.Others = append(d.Others, s.ID) }
			c.add(m)
			continue
		}
		m.Would = "no cluster would manage it"
		if c.isMember(s.Name) {
			m.Would = "the control plane provider would evict its member from etcd, as it has no Machine, and no cluster would " +
				"manage it"
		}
		machine := nodeMachine(c.nodes[s.Name])
		if machine == "" {
			machine = s.Name
		}
		m.Accept = "a Machine " + machine + " is made for it, as the backup has them for the others, and it is managed " +
			"as before"
		m.accepted = func(d *Comparison) {
			d.Adopted = append(d.Adopted, Adopted{Server: s.Name, ID: s.ID, Machine: machine, Location: s.Location})
		}
		c.add(m)
	}
}

func (c *comparing) compareMembers() {
	for _, e := range c.members {
		if c.explained[e.Name] {
			continue
		}
		c.add(Mismatch{
			ID: "member-unknown/" + e.Name,
			What: fmt.Sprintf("etcd has a member %s (%x), and neither a Machine of the backup nor a server of the cluster "+
				"has that name", e.Name, e.ID),
			Would: "the control plane provider would evict it",
			Accept: "it is evicted: right where its server is gone; where that lives and only lost its labels at Hetzner, " +
				"label it again instead",
		})
	}
	for _, m := range c.machines {
		if m.Now == nil || !m.ControlPlane || c.isMember(m.Server) {
			continue
		}
		c.add(Mismatch{
			ID:     "member-missing/" + m.Server,
			What:   fmt.Sprintf("Machine %s of the control plane is no member of etcd", m.Name),
			Would:  "the control plane would be counted as whole, with an etcd of fewer members",
			Accept: "it is put back as it is; replace-machine replaces it when the readoption is over",
		})
	}
}

func (c *comparing) compareNodes() {
	for _, m := range c.machines {
		if m.Now == nil || c.nodes[m.Server] != nil {
			continue
		}
		others, replaces := ", and the control plane provider with it", "replace-machine"
		if !m.ControlPlane {
			others, replaces = "", "its MachineHealthCheck"
		}
		c.add(Mismatch{
			ID:     "node-missing/" + m.Server,
			What:   fmt.Sprintf("server %s of Machine %s is no node", m.Server, m.Name),
			Would:  "the Machine would wait for its node" + others,
			Accept: "it is put back as it is; it is waited for, and where it does not come, " + replaces + " replaces it",
		})
	}
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		if c.explained[name] {
			continue
		}
		c.add(Mismatch{
			ID:     "node-unknown/" + name,
			What:   fmt.Sprintf("node %s is neither a Machine of the backup nor a server of the cluster", name),
			Would:  "no cluster would manage it",
			Accept: "it is left as it is: Cluster API does not touch nodes without a Machine",
		})
	}
}

func (c *comparing) compareReplicas() {
	want, has := c.source.Replicas(), c.controlPlane()
	if has <= want {
		return
	}
	c.add(Mismatch{
		ID:       "replicas/" + c.source.ControlPlane().GetName(),
		What:     fmt.Sprintf("the control plane has %d servers, and spec.replicas %d in the backup", has, want),
		Would:    "the control plane provider would delete servers until there are so many",
		Accept:   fmt.Sprintf("spec.replicas becomes %d", has),
		accepted: func(d *Comparison) { d.Replicas = has },
	})
}

func (c *comparing) compareVersions() {
	tcp := c.source.ControlPlane()
	was := capi.Text(tcp, "spec", "version")
	var differ []string
	oldest := ""
	runs := func(server, want string) {
		n := c.nodes[server]
		if n == nil {
			return
		}
		is := n.Status.NodeInfo.KubeletVersion
		if is != want {
			differ = append(differ, server+" runs "+is)
		}
		if oldest == "" || olderVersion(is, oldest) {
			oldest = is
		}
	}
	for _, m := range c.machines {
		if m.Now != nil && m.ControlPlane {
			runs(m.Server, m.Version)
		}
	}
	for _, s := range c.unknown() { // an upgrade replaces every server
		if s.ControlPlane {
			runs(s.Name, was)
		}
	}
	if len(differ) == 0 {
		return
	}
	c.add(Mismatch{
		ID:       "version/" + tcp.GetName(),
		What:     fmt.Sprintf("the backup's control plane is of Kubernetes %s, and %s", was, strings.Join(differ, ", ")),
		Would:    "a server that is made later would come with another version than the cluster has",
		Accept:   fmt.Sprintf("the objects say %s, the oldest that a node runs, so that no server is replaced", oldest),
		accepted: func(d *Comparison) { d.Version = oldest },
	})
}

// olderVersion compares two versions of Kubernetes; what is none is older than any.
func olderVersion(a, b string) bool {
	va, err := version.ParseSemantic(a)
	if err != nil {
		return true
	}
	vb, err := version.ParseSemantic(b)
	return err == nil && va.LessThan(vb)
}

// compareSurroundings compares what the servers depend on.
func (c *comparing) compareSurroundings() {
	name := c.source.Contents.Header.Cluster
	was, _ := c.source.Endpoint()
	const lost = "its servers keep working as they are; a cluster with another %s is one to restore (restore FILE, once " +
		"its servers are deleted)"
	switch lb := c.balancer; {
	case c.endpoint != nil && c.endpoint.IPv4.String() == was && c.endpoint.LoadBalancer == 0:
		c.add(Mismatch{ID: "load-balancer-missing/" + name, What: "the load balancer at " + was + " does not exist; a " +
			"Primary IP keeps its address",
			Would: "the cluster would not answer at its address", Advice: "the step endpoint creates it again at that " +
				"address: run the target endpoint first"})
	case c.endpoint != nil && c.endpoint.IPv4.String() == was: // the objects name it: CAPH adopts it again
	case lb == nil:
		c.add(Mismatch{ID: "load-balancer-missing/" + name, What: "the load balancer, " + was + ", does not exist",
			Would: "CAPH would make another, with another address than everybody knows", Advice: fmt.Sprintf(lost, "address")})
	case lb.IPv4 != was:
		c.add(Mismatch{ID: "load-balancer-replaced/" + name, What: fmt.Sprintf("load balancer %s has the address %s, the "+
			"backup's %s", lb.Name, lb.IPv4, was),
			Would: "the objects would name an address at which nothing answers", Advice: fmt.Sprintf(lost, "address")})
	case !lb.Labelled:
		c.add(Mismatch{
			ID: "load-balancer-unlabelled/" + lb.Name, What: fmt.Sprintf("load balancer %s has lost the cluster's label",
				lb.Name),
			Would: "CAPH would not find it, and make another, with another address", Accept: "CAPH is told its name, and " +
				"labels it again",
			accepted: func(d *Comparison) { d.Balancer = lb.Name },
		})
	}
	if c.network == 0 {
		c.add(Mismatch{ID: "network-missing/" + name, What: "no network carries the cluster's label",
			Would: "CAPH would make another, and attach every server to it",
			Advice: "where the network is there and lost its label, label it again (caph-cluster-" + name + "=owned); else " +
				fmt.Sprintf(lost, "network")})
	}
	c.compareGroups(name)
}

func (c *comparing) compareGroups(cluster string) {
	wanted := c.source.PlacementGroups()
	for _, group := range wanted {
		if !slices.Contains(c.groups, group) {
			c.add(Mismatch{ID: "placement-group-missing/" + group, What: "placement group " + group + " does not exist",
				Would:  "CAPH creates it again, empty: existing servers are not added to it, later ones are",
				Accept: "it does that"})
		}
	}
	for _, group := range c.groups {
		if !slices.Contains(wanted, group) {
			c.add(Mismatch{ID: "placement-group-unknown/" + group, What: fmt.Sprintf("placement group %s carries the label of "+
				"cluster %s, and the backup does not know it", group, cluster),
				Would: "CAPH would delete it", Accept: "it is deleted, where no server is in it"})
		}
	}
}
