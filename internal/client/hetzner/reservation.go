package hetzner

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Labels of a reservation beside OwnerLabel.
const (
	reserverLabel = "slipway-reserved-by" // identity of the state folder
	hostLabel     = "slipway-host"        // machine that it was made on, for people
)

// Claim is a name in a project that one state folder at a time holds: that of a placement group without servers, which
// costs nothing, does nothing, and whose name is unique, so of two that make it at once one succeeds.
type Claim struct {
	cluster, name string
	of            string // what it is of, for errors
}

// ClusterClaim is on making the cluster.
func ClusterClaim(cluster string) Claim {
	return Claim{cluster: cluster, name: "slipway-" + cluster, of: "the reservation of cluster " + cluster}
}

// RestoreClaim is on restoring the cluster. No cluster's name has a dot, so no other claim has this name.
func RestoreClaim(cluster string) Claim {
	return Claim{cluster: cluster, name: "slipway-" + cluster + ".restore", of: "the claim on restoring cluster " +
		cluster}
}

// Name is what the placement group is called.
func (c Claim) Name() string { return c.name }

// Reservation is a claim that a state folder holds.
type Reservation struct {
	Claim
	ID    int64
	By    string // identity of the state folder
	Host  string // that it was made on; empty: unknown
	Since time.Time
}

// ErrReserved is wrapped where another state folder made the reservation first.
var ErrReserved = errors.New("the name is reserved already")

// ForeignError says that a resource of another owner has the name.
type ForeignError struct{ text string }

func (e *ForeignError) Error() string { return e.text }

// Find looks for who holds the claim; nil where there is none. A placement group of its name that is no reservation is
// a *ForeignError: it is not ours to change.
func (c Claim) Find(ctx context.Context, api *hcloud.Client) (*Reservation, error) {
	g, _, err := api.PlacementGroup.GetByName(ctx, c.name)
	if err != nil {
		return nil, fmt.Errorf("look for placement group %s: %w", c.name, explain(err))
	}
	if g == nil {
		return nil, nil
	}
	if g.Labels[OwnerLabel] != c.cluster || g.Labels[reserverLabel] == "" {
		return nil, &ForeignError{fmt.Sprintf("placement group %d is called %s, as %s would be, and does not carry its "+
			"labels, so it is not touched: rename or delete it, or choose another CLUSTER_NAME", g.ID, c.name, c.of)}
	}
	return &Reservation{Claim: c, ID: g.ID, By: g.Labels[reserverLabel], Host: g.Labels[hostLabel], Since: g.Created}, nil
}

// Reserve takes the claim. Its error wraps ErrReserved where another holder has it.
func (c Claim) Reserve(ctx context.Context, api *hcloud.Client, by, host string) (*Reservation, error) {
	made, _, err := api.PlacementGroup.Create(ctx, hcloud.PlacementGroupCreateOpts{
		Name: c.name, Type: hcloud.PlacementGroupTypeSpread, Labels: reservationLabels(c.cluster, by, host),
	})
	if hcloud.IsError(err, hcloud.ErrorCodeUniquenessError) {
		return nil, fmt.Errorf("reserve %s: %w", c.cluster, ErrReserved)
	}
	if err != nil {
		return nil, fmt.Errorf("create placement group %s: %w", c.name, explain(err))
	}
	return &Reservation{Claim: c, ID: made.PlacementGroup.ID, By: by, Host: host, Since: made.PlacementGroup.Created}, nil
}

// TakeOver gives the reservation to another state folder.
func (r *Reservation) TakeOver(ctx context.Context, api *hcloud.Client, by, host string) error {
	_, _, err := api.PlacementGroup.Update(ctx, &hcloud.PlacementGroup{ID: r.ID},
		hcloud.PlacementGroupUpdateOpts{Labels: reservationLabels(r.cluster, by, host)})
	if err != nil {
		return fmt.Errorf("take over placement group %s (%d): %w", r.name, r.ID, explain(err))
	}
	r.By, r.Host = by, host
	return nil
}

// Release gives the claim up.
func (r *Reservation) Release(ctx context.Context, api *hcloud.Client) error {
	_, err := api.PlacementGroup.Delete(ctx, &hcloud.PlacementGroup{ID: r.ID})
	if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
		return fmt.Errorf("delete placement group %s (%d): %w", r.name, r.ID, explain(err))
	}
	return nil
}

func reservationLabels(cluster, by, host string) map[string]string {
	all := map[string]string{OwnerLabel: cluster, reserverLabel: by}
	if host = labelValue(host); host != "" {
		all[hostLabel] = host
	}
	return all
}

var notInLabels = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// labelValue is a text as the value of a label: at most 63 characters of a small alphabet, letters or digits at both
// ends.
func labelValue(s string) string {
	s = notInLabels.ReplaceAllString(s, "-")
	return strings.Trim(s[:min(len(s), 63)], "._-")
}

// IsReservation tells a reservation from a placement group that servers are made in.
func (r Resource) IsReservation() bool {
	return r.Kind == KindPlacementGroup && r.labels[reserverLabel] != ""
}

// Traces lists what CAPH made for a cluster: "network k8s (4711)". It needs four requests, TakeInventory more than ten.
func Traces(ctx context.Context, c *hcloud.Client, cluster string) ([]string, error) {
	selected := hcloud.ListOpts{LabelSelector: clusterSelector(cluster)}
	var found []string
	add := func(kind Kind, name string, id int64) {
		found = append(found, Resource{Kind: kind, Name: name, ID: id}.String())
	}
	servers, err := c.Server.AllWithOpts(ctx, hcloud.ServerListOpts{ListOpts: selected})
	if err != nil {
		return nil, fmt.Errorf("look for servers of cluster %s: %w", cluster, explain(err))
	}
	for _, s := range servers {
		add(KindServer, s.Name, s.ID)
	}
	balancers, err := LoadBalancers(ctx, c, cluster)
	if err != nil {
		return nil, err
	}
	for _, b := range balancers {
		add(KindLoadBalancer, b.Name, b.ID)
	}
	networks, err := c.Network.AllWithOpts(ctx, hcloud.NetworkListOpts{ListOpts: selected})
	if err != nil {
		return nil, fmt.Errorf("look for networks of cluster %s: %w", cluster, explain(err))
	}
	for _, n := range networks {
		add(KindNetwork, n.Name, n.ID)
	}
	groups, err := c.PlacementGroup.AllWithOpts(ctx, hcloud.PlacementGroupListOpts{ListOpts: selected})
	if err != nil {
		return nil, fmt.Errorf("look for placement groups of cluster %s: %w", cluster, explain(err))
	}
	for _, g := range groups {
		add(KindPlacementGroup, g.Name, g.ID)
	}
	return found, nil
}
