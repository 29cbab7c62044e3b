package cloud

import (
	"fmt"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const terabyte = 1 << 40

// traffic is what a network zone includes and charges for outgoing traffic.
func traffic(zone string) (included uint64, perTB float64) {
	switch zone {
	case zoneEU:
		return 20 * terabyte, 1
	case zoneAP:
		return terabyte / 2, 7.4
	default:
		return terabyte, 1
	}
}

// euros is a net price with its gross, in the API's decimal form.
func euros(net float64) schema.Price {
	return schema.Price{Net: fmt.Sprintf("%.10f", net), Gross: fmt.Sprintf("%.10f", net*(1+vat))}
}

func (c *Cloud) serverTypePrices(one *serverType) []schema.PricingServerTypePrice {
	prices := []schema.PricingServerTypePrice{}
	for _, at := range ordered(c.catalog.locations) {
		monthly, ok := one.prices[at.view.NetworkZone]
		if !ok {
			continue
		}
		included, perTB := traffic(at.view.NetworkZone)
		prices = append(prices, schema.PricingServerTypePrice{
			Location: at.Name, PriceHourly: euros(monthly / hoursAMonth), PriceMonthly: euros(monthly),
			IncludedTraffic: included, PricePerTBTraffic: euros(perTB),
		})
	}
	return prices
}

func (c *Cloud) loadBalancerTypePrices(one *loadBalancerType) []schema.PricingLoadBalancerTypePrice {
	var prices []schema.PricingLoadBalancerTypePrice
	for _, at := range ordered(c.catalog.locations) {
		included, perTB := traffic(at.view.NetworkZone)
		prices = append(prices, schema.PricingLoadBalancerTypePrice{
			Location: at.Name, PriceHourly: euros(one.price / hoursAMonth), PriceMonthly: euros(one.price),
			IncludedTraffic: included, PricePerTBTraffic: euros(perTB),
		})
	}
	return prices
}

// pricingView is schema.Pricing with the fields that are deprecated there but still answered.
type pricingView struct {
	schema.Pricing
	FloatingIP schema.PricingFloatingIP `json:"floating_ip"`
	Traffic    schema.PricingTraffic    `json:"traffic"`
}

func (c *Cloud) pricing() pricingView {
	floating := map[string]float64{"ipv4": 3, "ipv6": 1}
	primary := map[string]float64{"ipv4": 0.5, "ipv6": 0}
	shown := pricingView{
		Pricing: schema.Pricing{
			Currency:     "EUR",
			VATRate:      fmt.Sprintf("%.6f", vat*100),
			Image:        schema.PricingImage{PricePerGBMonth: euros(0.011)},
			ServerBackup: schema.PricingServerBackup{Percentage: "20.0000000000"},
			Volume:       schema.PricingVolume{PricePerGBPerMonth: euros(0.044)},
		},
		FloatingIP: schema.PricingFloatingIP{PriceMonthly: euros(floating["ipv4"])},
		Traffic:    schema.PricingTraffic{PricePerTB: euros(1)},
	}
	for _, version := range []string{"ipv4", "ipv6"} {
		ofFloating := schema.PricingFloatingIPType{Type: version}
		ofPrimary := schema.PricingPrimaryIP{Type: version}
		for _, at := range ordered(c.catalog.locations) {
			ofFloating.Prices = append(ofFloating.Prices,
				schema.PricingFloatingIPTypePrice{Location: at.Name, PriceMonthly: euros(floating[version])})
			ofPrimary.Prices = append(ofPrimary.Prices, schema.PricingPrimaryIPTypePrice{
				Location: at.Name, PriceHourly: euros(primary[version] / hoursAMonth), PriceMonthly: euros(primary[version]),
			})
		}
		shown.FloatingIPs = append(shown.FloatingIPs, ofFloating)
		shown.PrimaryIPs = append(shown.PrimaryIPs, ofPrimary)
	}
	for _, kind := range ordered(c.catalog.serverTypes) {
		shown.ServerTypes = append(shown.ServerTypes,
			schema.PricingServerType{ID: kind.ID, Name: kind.Name, Prices: c.serverTypePrices(kind)})
	}
	for _, kind := range ordered(c.catalog.loadBalancerTypes) {
		shown.LoadBalancerTypes = append(shown.LoadBalancerTypes,
			schema.PricingLoadBalancerType{ID: kind.ID, Name: kind.Name, Prices: c.loadBalancerTypePrices(kind)})
	}
	return shown
}
