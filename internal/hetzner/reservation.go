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

// Reservation keeps the name of a cluster in a project for one state folder. It is a placement group without servers:
// that costs nothing, does nothing, and its name is unique in the project, so of two that make it at once one succeeds.
type Reservation struct {
	ID    int64
	By    string // identity of the state folder
	Host  string // that it was made on; empty: not told
	Since time.Time
}

// ErrReserved is wrapped where somebody else made the reservation first.
var ErrReserved = errors.New("the name is reserved already")

// ForeignError says that something of somebody else's is in the way.
type ForeignError struct{ text string }

func (e *ForeignError) Error() string { return e.text }

// ReservationName is what the reservation of a cluster is called.
func ReservationName(cluster string) string { return "slipway-" + cluster }

// FindReservation looks for the reservation of a cluster; nil where there is none. A placement group of its name that is
// none is a *ForeignError: it is not ours to change.
func FindReservation(ctx context.Context, c *hcloud.Client, cluster string) (*Reservation, error) {
	name := ReservationName(cluster)
	g, _, err := c.PlacementGroup.GetByName(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("look for placement group %s: %w", name, explain(err))
	}
	if g == nil {
		return nil, nil
	}
	if g.Labels[OwnerLabel] != cluster || g.Labels[reserverLabel] == "" {
		return nil, &ForeignError{fmt.Sprintf("placement group %d is called %s, as the reservation of cluster %s would be, and does not carry its labels, so it is not touched: "+
			"rename or delete it, or choose another CLUSTER_NAME", g.ID, name, cluster)}
	}
	return &Reservation{ID: g.ID, By: g.Labels[reserverLabel], Host: g.Labels[hostLabel], Since: g.Created}, nil
}

// Reserve makes the reservation. Its error wraps ErrReserved where there is one.
func Reserve(ctx context.Context, c *hcloud.Client, cluster, by, host string) (*Reservation, error) {
	made, _, err := c.PlacementGroup.Create(ctx, hcloud.PlacementGroupCreateOpts{
		Name: ReservationName(cluster), Type: hcloud.PlacementGroupTypeSpread, Labels: reservationLabels(cluster, by, host),
	})
	if hcloud.IsError(err, hcloud.ErrorCodeUniquenessError) {
		return nil, fmt.Errorf("reserve %s: %w", cluster, ErrReserved)
	}
	if err != nil {
		return nil, fmt.Errorf("make placement group %s: %w", ReservationName(cluster), explain(err))
	}
	return &Reservation{ID: made.PlacementGroup.ID, By: by, Host: host, Since: made.PlacementGroup.Created}, nil
}

// TakeOver gives the reservation to another state folder.
func (r *Reservation) TakeOver(ctx context.Context, c *hcloud.Client, cluster, by, host string) error {
	_, _, err := c.PlacementGroup.Update(ctx, &hcloud.PlacementGroup{ID: r.ID}, hcloud.PlacementGroupUpdateOpts{Labels: reservationLabels(cluster, by, host)})
	if err != nil {
		return fmt.Errorf("take over placement group %s (%d): %w", ReservationName(cluster), r.ID, explain(err))
	}
	r.By, r.Host = by, host
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

// labelValue is a text as the value of a label: at most 63 characters of a small alphabet, letters or digits at both ends.
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
	balancers, err := c.LoadBalancer.AllWithOpts(ctx, hcloud.LoadBalancerListOpts{ListOpts: selected})
	if err != nil {
		return nil, fmt.Errorf("look for load balancers of cluster %s: %w", cluster, explain(err))
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
