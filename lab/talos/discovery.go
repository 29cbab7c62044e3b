package talos

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/lab/pki"
)

// discovery is where the servers of a cluster learn of each other: the part of Talos's discovery service, and of
// trustd, without which they cannot find their cluster.
type discovery struct {
	mu       sync.Mutex
	clusters map[string]map[int64]affiliate // by cluster key and server id
	changed  chan struct{}                  // closed and replaced with every change
}

// affiliate is what a server announces to the others of its cluster. Only services that run are announced.
type affiliate struct {
	hostname  string
	addresses []netip.Addr
	etcd      string // etcd's client URL; empty while it does not serve
	apiServer string // kube-apiserver's address and port; empty while it is not ready
	// The authorities that sign certificates; nil on a worker.
	machineCA, clusterCA *pki.CA
}

func newDiscovery() *discovery {
	return &discovery{clusters: map[string]map[int64]affiliate{}, changed: make(chan struct{})}
}

// announce replaces the affiliate of a server.
func (d *discovery) announce(cluster string, id int64, a affiliate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	members := d.clusters[cluster]
	if members == nil {
		members = map[int64]affiliate{}
		d.clusters[cluster] = members
	}
	members[id] = a
	d.wake()
}

// withdraw forgets a server.
func (d *discovery) withdraw(cluster string, id int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.clusters[cluster], id)
	if len(d.clusters[cluster]) == 0 {
		delete(d.clusters, cluster)
	}
	d.wake()
}

func (d *discovery) wake() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// others returns the other servers of a cluster, sorted by name, and a channel that is closed when anything changes.
func (d *discovery) others(cluster string, self int64) ([]affiliate, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []affiliate
	for id, a := range d.clusters[cluster] {
		if id != self {
			found = append(found, a)
		}
	}
	slices.SortFunc(found, func(a, b affiliate) int { return strings.Compare(a.hostname, b.hostname) })
	return found, d.changed
}

// resolve finds the address of a server of a cluster by its name, as host DNS with resolveMemberNames does.
func (d *discovery) resolve(cluster, name string) (netip.Addr, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.clusters[cluster] {
		if a.hostname == name && len(a.addresses) > 0 {
			return a.addresses[0], true
		}
	}
	return netip.Addr{}, false
}
