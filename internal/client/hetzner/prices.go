package hetzner

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// Price is what something costs a month, with the account's VAT.
type Price struct {
	Monthly  float64 `json:"monthly"`
	Currency string  `json:"currency"`
	// Unknown reports that Hetzner's price list does not have it: a type that is not sold any more.
	Unknown bool `json:"unknown,omitempty"`
}

// String is "7.73 EUR"; nothing for what is free.
func (p Price) String() string {
	switch {
	case p.Unknown:
		return "?"
	case p.Monthly == 0:
		return "-"
	}
	return fmt.Sprintf("%.2f %s", p.Monthly, p.Currency)
}

func (p Price) plus(q Price) Price {
	return Price{p.Monthly + q.Monthly, cmp.Or(p.Currency, q.Currency), p.Unknown || q.Unknown}
}

func (p Price) times(n float64) Price { return Price{p.Monthly * n, p.Currency, p.Unknown} }

// Total adds up what resources cost a month. Unknown says that it is more than that.
func Total(resources []Resource) Price {
	var sum Price
	for _, r := range resources {
		sum = sum.plus(r.Price)
	}
	return sum
}

// prices is Hetzner's price list, as far as clusters need it.
type prices struct {
	currency      string
	types         map[offer]Price
	volume, image Price // a GB
}

// offer is something that has a price of its own in each location.
type offer struct {
	kind           Kind
	name, location string // "cx33", "nbg1"
}

// askPrices asks for the list. That it cannot be had is no reason not to delete: then every price is unknown. It asks
// past hcloud-go's own method, which panics on a list with more kinds of primary than of floating IPs.
func askPrices(ctx context.Context, c *hcloud.Client) prices {
	list := prices{types: map[offer]Price{}}
	var answer schema.PricingGetResponse
	if request, err := c.NewRequest(ctx, "GET", "/pricing", nil); err == nil {
		_, _ = c.Do(request, &answer)
	}
	p := answer.Pricing
	list.currency = p.Currency
	list.volume, list.image = list.read(p.Volume.PricePerGBPerMonth.Gross), list.read(p.Image.PricePerGBMonth.Gross)
	for _, t := range p.ServerTypes {
		for _, at := range t.Prices {
			list.types[offer{KindServer, t.Name, at.Location}] = list.read(at.PriceMonthly.Gross)
		}
	}
	for _, t := range p.LoadBalancerTypes {
		for _, at := range t.Prices {
			list.types[offer{KindLoadBalancer, t.Name, at.Location}] = list.read(at.PriceMonthly.Gross)
		}
	}
	for _, t := range p.PrimaryIPs {
		for _, at := range t.Prices {
			list.types[offer{KindPrimaryIP, t.Type, at.Location}] = list.read(at.PriceMonthly.Gross)
		}
	}
	return list
}

// read reads the API's decimal form; what cannot be read is unknown, and no reason not to show the rest.
func (l prices) read(amount string) Price {
	f, err := strconv.ParseFloat(amount, 64)
	return Price{Monthly: f, Currency: l.currency, Unknown: err != nil}
}

// of is the price of a server, a load balancer or a primary IP of a type.
func (l prices) of(kind Kind, name, location string) Price {
	if p, ok := l.types[offer{kind, name, location}]; ok {
		return p
	}
	return Price{Currency: l.currency, Unknown: true}
}
