package hetzner

import (
	"context"
	"errors"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Order is a number of resources that are to be made.
type Order struct {
	Kind     Kind   `json:"kind"`
	Count    int    `json:"count"`
	Name     string `json:"name"` // "…" replaces what is generated when it is made
	Type     string `json:"type,omitempty"`
	Location string `json:"location,omitempty"`
	Price    Price  `json:"price"`          // a month, of all of them
	Each     Price  `json:"each,omitempty"` // of a snapshot: of each GB
	// Endpoint marks the Primary IP of the control plane endpoint, which no server brings.
	Endpoint bool `json:"-"`
}

// Missing is what is left of orders once what is there has been taken off. Of servers and addresses the number counts,
// whatever their type; load balancers of Services and reservations belong to no order.
func Missing(orders []Order, have []Resource) []Order {
	there := map[Kind]int{}
	for _, r := range have {
		if !r.OfService() && !r.IsReservation() {
			there[r.Kind]++
		}
	}
	there[KindSnapshot] = 0                  // the label decides, not the owner: the caller that orders one has looked
	there[KindPrimaryIP] = there[KindServer] // an address is made with its server and not always labelled
	missing := []Order{}
	for _, o := range orders {
		if o.Endpoint {
			if !slices.ContainsFunc(have, keepsEndpoint) {
				missing = append(missing, o)
			}
			continue
		}
		taken := min(o.Count, there[o.Kind])
		there[o.Kind] -= taken
		if o.Count -= taken; o.Count > 0 {
			missing = append(missing, o)
		}
	}
	return missing
}

// keepsEndpoint tells a resource whose cluster has an endpoint: a cluster that exists without a Primary IP of its own
// keeps the address that it has.
func keepsEndpoint(r Resource) bool {
	return r.IsEndpointAddress() || r.Kind == KindServer || r.Kind == KindLoadBalancer && !r.OfService()
}

// errNoPrices means that the answer had none.
var errNoPrices = errors.New("Hetzner's answer has no prices")

// Quote fills in what orders cost, from Hetzner's price list, and adds it up. What has no monthly price, as a snapshot
// has none before its size is known, is unknown in the sum.
func Quote(ctx context.Context, c *hcloud.Client, orders []Order) (Price, error) {
	list := askPrices(ctx, c)
	var sum Price
	for i := range orders {
		o := &orders[i]
		switch o.Kind {
		case KindServer, KindLoadBalancer, KindPrimaryIP:
			o.Price = list.of(o.Kind, o.Type, o.Location).times(float64(o.Count))
		case KindSnapshot:
			o.Price, o.Each = Price{Currency: list.currency, Unknown: true}, list.image
		default:
			o.Price = Price{Currency: list.currency}
		}
		sum = sum.plus(o.Price)
	}
	if list.currency == "" && slices.ContainsFunc(orders, func(o Order) bool { return o.Price.Unknown }) {
		return sum, errNoPrices
	}
	return sum, nil
}

// Change is what a change costs a month more, or less, from Hetzner's price list. Unknown says that the list does not
// have all of it.
func Change(ctx context.Context, c *hcloud.Client, before, after []Order) Price {
	all := slices.Concat(before, after)
	_, _ = Quote(ctx, c, all) // what has no price is unknown in the sum
	var change Price
	for i, o := range all {
		if i < len(before) {
			o.Price = o.Price.times(-1)
		}
		change = change.plus(o.Price)
	}
	return change
}
