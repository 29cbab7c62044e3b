package hetzner

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Kind is what a resource is, as people call it.
type Kind string

// Kinds that a cluster leaves at Hetzner, in the order in which they can be deleted: servers hold placement groups,
// networks and volumes, load balancers hold networks, servers hold keys only while they are made.
const (
	KindServer         Kind = "server"
	KindLoadBalancer   Kind = "load balancer"
	KindVolume         Kind = "volume"
	KindPrimaryIP      Kind = "primary IP"
	KindFirewall       Kind = "firewall"
	KindPlacementGroup Kind = "placement group"
	KindNetwork        Kind = "network"
	KindSSHKey         Kind = "SSH key"
	KindSnapshot       Kind = "snapshot"
)

// Kinds lists them in that order.
func Kinds() []Kind {
	return []Kind{KindServer, KindLoadBalancer, KindVolume, KindPrimaryIP, KindFirewall, KindPlacementGroup, KindNetwork,
		KindSSHKey, KindSnapshot}
}

// Labels of those who make resources from inside a cluster. Neither names the cluster.
const (
	serviceLabel   = "hcloud-ccm/service-uid" // hcloud-ccm, on the load balancer of a Service
	managedByLabel = "managed-by"             // the CSI driver, on a volume
	managedByCSI   = "csi-driver"
)

// Resource is one thing in the project that some cluster has, or had.
type Resource struct {
	Kind     Kind   `json:"kind"`
	ID       int64  `json:"id"`
	Name     string `json:"name"`
	Cluster  string `json:"cluster"` // empty: it is unknown
	Because  string `json:"because"` // what says so: "caph-cluster-k8s=owned"
	Type     string `json:"type,omitempty"`
	Location string `json:"location,omitempty"`
	Price    Price  `json:"price"`
	// Claimed reports that it carries the label of its cluster. What is attributed by its surroundings alone would be a
	// riddle once they are deleted: Claim labels it first.
	Claimed bool `json:"-"`
	// Shared says what else uses it that is not of its cluster, and would suffer; then it is not deleted.
	Shared string `json:"shared,omitempty"`
	// Addresses are its own, public ones first; of a network its range.
	Addresses []string `json:"-"`

	labels map[string]string
	image  int64                     // of a server: what it was made from
	covers []hcloud.FirewallResource // of a firewall: what it must be taken off

	protected, assigned bool // of a Primary IP: against deletion; to a server or a load balancer
}

// String is "server k8s-control-plane-abcde (42)".
func (r Resource) String() string { return fmt.Sprintf("%s %s (%d)", r.Kind, r.Name, r.ID) }

// Labels are its labels at Hetzner.
func (r Resource) Labels() map[string]string { return maps.Clone(r.labels) }

// OfService tells a load balancer that hcloud-ccm made for a Service.
func (r Resource) OfService() bool { return r.Kind == KindLoadBalancer && r.labels[serviceLabel] != "" }

// Inventory is everything in the project that belongs to clusters, in the order of deletion.
type Inventory struct {
	Resources []Resource `json:"resources"`
}

// Of is what belongs to one cluster.
func (i Inventory) Of(cluster string) []Resource {
	var mine []Resource
	for _, r := range i.Resources {
		if cluster != "" && r.Cluster == cluster {
			mine = append(mine, r)
		}
	}
	return mine
}

// Attribute says of volumes that nothing around them tells the cluster of whose they are: the cluster itself knows.
func (i Inventory) Attribute(cluster string, volumes []int64) {
	for j, r := range i.Resources {
		if r.Kind == KindVolume && r.Cluster == "" && r.labels[managedByLabel] == managedByCSI &&
			slices.Contains(volumes, r.ID) {
			i.Resources[j].Cluster, i.Resources[j].Because = cluster, "a PersistentVolume of the cluster"
		}
	}
}

// UsedElsewhere names a server of another cluster that was made from a snapshot; empty: there is none.
func (i Inventory) UsedElsewhere(snapshot Resource) string {
	for _, r := range i.Resources {
		if r.Kind == KindServer && r.image == snapshot.ID && r.Cluster != snapshot.Cluster {
			return r.Name
		}
	}
	return ""
}

// owner reads whose a resource is out of its labels: CAPH's, or Slipway's own. Names mean nothing. What two clusters
// have labelled belongs to no cluster, and is never deleted.
func owner(labels map[string]string) (cluster, because string) {
	found := map[string]string{}
	if name := labels[OwnerLabel]; name != "" {
		found[name] = OwnerLabel + "=" + name
	}
	for key, value := range labels {
		if name, ok := strings.CutPrefix(key, clusterLabelPrefix); ok && name != "" && value == clusterLabelValue {
			found[name] = key + "=" + value
		}
	}
	names := slices.Sorted(maps.Keys(found))
	switch len(names) {
	case 0:
		return "", ""
	case 1:
		return names[0], found[names[0]]
	}
	return "", "labels of several clusters: " + strings.Join(names, ", ")
}

// TakeInventory looks through the whole project, because a label that ends with a cluster's name cannot be selected
// without knowing the name. It changes nothing.
func TakeInventory(ctx context.Context, c *hcloud.Client) (Inventory, error) {
	return inventoryOf(ctx, c, askPrices(ctx, c), Kinds())
}

// attributedBy are the kinds that must be listed to know whose a resource of a kind is, and what else uses it.
var attributedBy = map[Kind][]Kind{
	KindLoadBalancer:   {KindServer, KindNetwork},
	KindNetwork:        {KindServer, KindLoadBalancer},
	KindVolume:         {KindServer},
	KindFirewall:       {KindServer},
	KindPlacementGroup: {KindServer},
	KindSnapshot:       {KindServer},
}

// ListResources is an inventory of some kinds, none given: of all, and of those by which they are attributed. It does
// not ask for prices: every request counts against Hetzner's limit, which CAPH shares.
func ListResources(ctx context.Context, c *hcloud.Client, kinds ...Kind) (Inventory, error) {
	if len(kinds) == 0 {
		kinds = Kinds()
	}
	all := slices.Clone(kinds)
	for _, k := range kinds {
		all = append(all, attributedBy[k]...)
	}
	return inventoryOf(ctx, c, prices{}, all)
}

func inventoryOf(ctx context.Context, c *hcloud.Client, list prices, kinds []Kind) (Inventory, error) {
	t := &stocktaking{prices: list, servers: map[int64]string{}, networks: map[int64]string{}, guests: map[int64]string{}}
	// Servers and networks first: load balancers and volumes are attributed by them.
	looks := []look{
		visit(ctx, KindServer, c.Server.All, t.takeServer), visit(ctx, KindNetwork, c.Network.All, t.takeNetwork),
		visit(ctx, KindLoadBalancer, c.LoadBalancer.All, t.takeLoadBalancer),
		visit(ctx, KindVolume, c.Volume.All, t.takeVolume), visit(ctx, KindPrimaryIP, c.PrimaryIP.All, t.takePrimaryIP),
		visit(ctx, KindFirewall, c.Firewall.All, t.takeFirewall),
		visit(ctx, KindPlacementGroup, c.PlacementGroup.All, t.takePlacementGroup),
		visit(ctx, KindSSHKey, c.SSHKey.All, func(k *hcloud.SSHKey) {
			t.add(Resource{Kind: KindSSHKey, ID: k.ID, Name: k.Name, labels: k.Labels})
		}),
		visit(ctx, KindSnapshot, func(ctx context.Context) ([]*hcloud.Image, error) {
			return c.Image.AllWithOpts(ctx, hcloud.ImageListOpts{Type: []hcloud.ImageType{hcloud.ImageTypeSnapshot}})
		}, t.takeSnapshot),
	}
	looks = slices.DeleteFunc(looks, func(l look) bool { return !slices.Contains(kinds, l.kind) })
	if err := inTurn(looks...); err != nil {
		return Inventory{}, err
	}
	for i, r := range t.found {
		if r.Kind == KindNetwork {
			t.found[i].Shared = t.guests[r.ID]
		}
	}
	order := Kinds()
	slices.SortFunc(t.found, func(a, b Resource) int {
		return cmp.Or(slices.Index(order, a.Kind)-slices.Index(order, b.Kind), strings.Compare(a.Cluster, b.Cluster),
			strings.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return Inventory{t.found}, nil
}

// stocktaking is an inventory in the making.
type stocktaking struct {
	prices   prices
	servers  map[int64]string // id → cluster
	networks map[int64]string
	guests   map[int64]string // network → what is in it of another owner
	found    []Resource
}

// add adds a resource that its labels, or else its surroundings, tie to clusters.
func (t *stocktaking) add(r Resource) {
	r.Cluster, r.Because = owner(r.labels)
	r.Claimed = r.Cluster != ""
	if r.Because != "" {
		t.found = append(t.found, r)
	}
}

func (t *stocktaking) takeServer(s *hcloud.Server) {
	r := Resource{Kind: KindServer, ID: s.ID, Name: s.Name, Location: placeOf(s.Location), labels: s.Labels}
	r.Type = typeOf(s.ServerType)
	if s.Image != nil {
		r.image = s.Image.ID
	}
	r.Addresses = addresses(s.PublicNet.IPv4.IP, s.PublicNet.IPv6.IP)
	for _, n := range s.PrivateNet {
		r.Addresses = append(r.Addresses, addresses(n.IP)...)
	}
	r.Price = t.prices.of(KindServer, r.Type, r.Location)
	if !s.PublicNet.IPv4.IsUnspecified() {
		r.Price = r.Price.plus(t.prices.of(KindPrimaryIP, "ipv4", r.Location))
	}
	t.servers[s.ID], _ = owner(s.Labels)
	t.add(r)
}

func (t *stocktaking) takeNetwork(n *hcloud.Network) {
	cluster, _ := owner(n.Labels)
	t.networks[n.ID] = cluster
	for _, s := range n.Servers {
		if t.servers[s.ID] != cluster {
			t.guests[n.ID] = fmt.Sprintf("server %d is in it, which is not of the cluster", s.ID)
		}
	}
	r := Resource{Kind: KindNetwork, ID: n.ID, Name: n.Name, labels: n.Labels}
	if n.IPRange != nil {
		r.Addresses = []string{n.IPRange.String()}
	}
	t.add(r)
}

// takeLoadBalancer takes CAPH's, and those of hcloud-ccm, which say of which Service they are but not of which
// cluster: their network, or the servers behind them, do.
func (t *stocktaking) takeLoadBalancer(lb *hcloud.LoadBalancer) {
	r := Resource{Kind: KindLoadBalancer, ID: lb.ID, Name: lb.Name, Location: placeOf(lb.Location), labels: lb.Labels}
	if lb.LoadBalancerType != nil {
		r.Type = lb.LoadBalancerType.Name
	}
	r.Price = t.prices.of(KindLoadBalancer, r.Type, r.Location)
	r.Addresses = addresses(lb.PublicNet.IPv4.IP, lb.PublicNet.IPv6.IP)
	for _, n := range lb.PrivateNet {
		r.Addresses = append(r.Addresses, addresses(n.IP)...)
	}
	if cluster, because := owner(lb.Labels); because != "" || lb.Labels[serviceLabel] == "" {
		for _, n := range lb.PrivateNet {
			if t.networks[n.Network.ID] != cluster {
				t.guests[n.Network.ID] = fmt.Sprintf("load balancer %s (%d) is in it, which is not of the cluster", lb.Name, lb.ID)
			}
		}
		t.add(r)
		return
	}
	around := map[string]bool{}
	for _, n := range lb.PrivateNet {
		around[t.networks[n.Network.ID]] = true
	}
	for _, target := range lb.Targets {
		if target.Server != nil && target.Server.Server != nil {
			around[t.servers[target.Server.Server.ID]] = true
		}
	}
	if len(around) > 1 {
		for _, n := range lb.PrivateNet {
			t.guests[n.Network.ID] = fmt.Sprintf("load balancer %s (%d) is in it, and not of this cluster alone", lb.Name,
				lb.ID)
		}
	}
	t.addBySurroundings(r, serviceLabel, around)
}

func (t *stocktaking) takeVolume(v *hcloud.Volume) {
	r := Resource{Kind: KindVolume, ID: v.ID, Name: v.Name, Type: fmt.Sprintf("%d GB", v.Size),
		Location: placeOf(v.Location), labels: v.Labels}
	r.Price = t.prices.volume.times(float64(v.Size))
	if _, because := owner(v.Labels); because != "" || v.Labels[managedByLabel] != managedByCSI {
		t.add(r)
		return
	}
	around := map[string]bool{}
	if v.Server != nil {
		around[t.servers[v.Server.ID]] = true
	}
	t.addBySurroundings(r, managedByLabel+"="+managedByCSI, around)
}

// addBySurroundings adds what a controller inside some cluster made. It is that cluster's if everything around it is.
func (t *stocktaking) addBySurroundings(r Resource, label string, around map[string]bool) {
	clusters := slices.Sorted(maps.Keys(around))
	r.Because = label + ", at nothing of a cluster"
	if len(clusters) == 1 && clusters[0] != "" {
		r.Cluster, r.Because = clusters[0], label+", at servers or the network of the cluster"
	}
	t.found = append(t.found, r)
}

// takePrimaryIP takes those that are labelled. One that CAPH's server brought has no label, is counted with its server
// and goes with it.
func (t *stocktaking) takePrimaryIP(ip *hcloud.PrimaryIP) {
	r := Resource{Kind: KindPrimaryIP, ID: ip.ID, Name: ip.Name, Type: string(ip.Type), Location: placeOf(ip.Location),
		Addresses: addresses(ip.IP), labels: ip.Labels, protected: ip.Protection.Delete, assigned: ip.AssigneeID != 0}
	if ip.AssigneeID == 0 || r.IsEndpointAddress() {
		r.Price = t.prices.of(KindPrimaryIP, r.Type, r.Location)
	}
	t.add(r)
}

func (t *stocktaking) takeFirewall(f *hcloud.Firewall) {
	r := Resource{Kind: KindFirewall, ID: f.ID, Name: f.Name, labels: f.Labels}
	cluster, _ := owner(f.Labels)
	for _, a := range f.AppliedTo {
		switch {
		case a.LabelSelector != nil && a.LabelSelector.Selector == clusterSelector(cluster):
			r.covers = append(r.covers, hcloud.FirewallResource{Type: a.Type, LabelSelector: a.LabelSelector})
		case a.LabelSelector != nil:
			r.Shared = "it is applied to the selector " + a.LabelSelector.Selector
		case a.Server != nil && t.servers[a.Server.ID] != cluster:
			r.Shared = fmt.Sprintf("it is applied to server %d, which is not of the cluster", a.Server.ID)
		}
	}
	t.add(r)
}

func (t *stocktaking) takePlacementGroup(g *hcloud.PlacementGroup) {
	r := Resource{Kind: KindPlacementGroup, ID: g.ID, Name: g.Name, labels: g.Labels}
	cluster, _ := owner(g.Labels)
	for _, id := range g.Servers {
		if t.servers[id] != cluster {
			r.Shared = fmt.Sprintf("server %d is in it, which is not of the cluster", id)
		}
	}
	t.add(r)
}

// takeSnapshot takes what Slipway uploaded, and the images that CAPH would use, of which no label says for whom they
// were made.
func (t *stocktaking) takeSnapshot(i *hcloud.Image) {
	r := Resource{Kind: KindSnapshot, ID: i.ID, Name: cmp.Or(i.Labels[imageLabel], i.Description),
		Type: Architecture(i.Architecture), labels: i.Labels}
	r.Price = t.prices.image.times(float64(i.ImageSize))
	if _, because := owner(i.Labels); because == "" && i.Labels[imageLabel] != "" {
		r.Because = imageLabel + "=" + i.Labels[imageLabel] + ", not created by Slipway"
		t.found = append(t.found, r)
		return
	}
	t.add(r)
}

// addresses are those that there are, as text.
func addresses(all ...net.IP) (found []string) {
	for _, a := range addressesOf(all...) {
		found = append(found, a.String())
	}
	return found
}

func typeOf(t *hcloud.ServerType) string {
	if t == nil {
		return ""
	}
	return t.Name
}

func placeOf(l *hcloud.Location) string {
	if l == nil {
		return ""
	}
	return l.Name
}
