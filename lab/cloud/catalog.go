package cloud

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// catalog is what Hetzner offers: the same for every project, and not part of the state.
type catalog struct {
	locations         map[int64]*location
	datacenters       map[int64]*datacenter
	serverTypes       map[int64]*serverType
	loadBalancerTypes map[int64]*loadBalancerType
}

type location struct {
	meta
	view schema.Location
}

type datacenter struct {
	meta
	location *location
}

type serverType struct {
	meta
	cores        int
	memory, disk int // GB
	cpu          string
	architecture string
	category     string
	storage      string
	prices       map[string]float64      // net EUR a month by network zone; not offered where absent
	retired      *schema.DeprecationInfo // nil: it is not deprecated
}

type loadBalancerType struct {
	meta
	connections, services, targets, certificates int
	price                                        float64 // net EUR a month
	retired                                      *schema.DeprecationInfo
}

// vat is the German rate, which the API quotes.
const vat = 0.19

// hoursAMonth is how many hours cost as much as the monthly cap: 624 in the API's price list.
const hoursAMonth = 624

const (
	zoneEU = "eu-central"
	zoneUE = "us-east"
	zoneUW = "us-west"
	zoneAP = "ap-southeast"
)

// newCatalog is Hetzner's offer in early 2026. Sizes and locations are as published; ids of recent types and all prices
// are approximate, and not suitable for accounting.
func newCatalog() *catalog {
	made := &catalog{
		locations:         map[int64]*location{},
		datacenters:       map[int64]*datacenter{},
		serverTypes:       map[int64]*serverType{},
		loadBalancerTypes: map[int64]*loadBalancerType{},
	}
	place := func(id int64, name, dc string, dcID int64, view schema.Location) {
		view.ID, view.Name = id, name
		here := &location{meta: meta{ID: id, Name: name}, view: view}
		made.locations[id] = here
		made.datacenters[dcID] = &datacenter{meta: meta{ID: dcID, Name: name + "-" + dc}, location: here}
	}
	place(1, "fsn1", "dc14", 4, schema.Location{Description: "Falkenstein DC Park 1", Country: "DE", City: "Falkenstein",
		Latitude: 50.47612, Longitude: 12.370071, NetworkZone: zoneEU})
	place(2, "nbg1", "dc3", 2, schema.Location{Description: "Nuremberg DC Park 1", Country: "DE", City: "Nuremberg",
		Latitude: 49.452102, Longitude: 11.076665, NetworkZone: zoneEU})
	place(3, "hel1", "dc2", 3, schema.Location{Description: "Helsinki DC Park 1", Country: "FI", City: "Helsinki",
		Latitude: 60.169855, Longitude: 24.938379, NetworkZone: zoneEU})
	place(4, "ash", "dc1", 5, schema.Location{Description: "Ashburn, VA", Country: "US", City: "Ashburn, VA",
		Latitude: 39.045821, Longitude: -77.487073, NetworkZone: zoneUE})
	place(5, "hil", "dc1", 6, schema.Location{Description: "Hillsboro, OR", Country: "US", City: "Hillsboro, OR",
		Latitude: 45.54222, Longitude: -122.951924, NetworkZone: zoneUW})
	place(6, "sin", "dc1", 7, schema.Location{Description: "Singapore", Country: "SG", City: "Singapore",
		Latitude: 1.283333, Longitude: 103.833333, NetworkZone: zoneAP})

	eu := func(price float64) map[string]float64 { return map[string]float64{zoneEU: price} }
	overseas := func(us, ap float64) map[string]float64 {
		return map[string]float64{zoneUE: us, zoneUW: us, zoneAP: ap}
	}
	euAndAP := func(price, ap float64) map[string]float64 { return map[string]float64{zoneEU: price, zoneAP: ap} }
	all := func(price, us, ap float64) map[string]float64 {
		return map[string]float64{zoneEU: price, zoneUE: us, zoneUW: us, zoneAP: ap}
	}
	offer := func(id int64, name string, cores, memory, disk int, prices map[string]float64) *serverType {
		kind := &serverType{
			meta: meta{ID: id, Name: name}, cores: cores, memory: memory, disk: disk,
			cpu: "shared", architecture: "x86", category: "cost_optimized", storage: "local", prices: prices,
		}
		switch name[:2] {
		case "ca":
			kind.architecture = "arm"
		case "cp":
			kind.category = "regular_purpose"
		case "cc":
			kind.category, kind.cpu = "general_purpose", "dedicated"
		}
		made.serverTypes[id] = kind
		return kind
	}
	offer(104, "cx22", 2, 4, 40, eu(3.29)).retired = &schema.DeprecationInfo{
		Announced:        time.Date(2025, 10, 16, 6, 0, 0, 0, time.UTC),
		UnavailableAfter: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	offer(114, "cx23", 2, 4, 40, eu(2.99))
	offer(115, "cx33", 4, 8, 80, eu(4.99))
	offer(116, "cx43", 8, 16, 160, eu(8.99))
	offer(117, "cx53", 16, 32, 320, eu(16.99))
	offer(22, "cpx11", 2, 2, 40, overseas(4.49, 5.99))
	offer(23, "cpx21", 3, 4, 80, overseas(8.99, 10.99))
	offer(24, "cpx31", 4, 8, 160, overseas(15.99, 18.99))
	offer(25, "cpx41", 8, 16, 240, overseas(29.99, 34.99))
	offer(26, "cpx51", 16, 32, 360, overseas(59.99, 69.99))
	offer(109, "cpx22", 2, 4, 80, euAndAP(5.99, 11.99))
	offer(110, "cpx32", 4, 8, 160, euAndAP(10.49, 20.99))
	offer(111, "cpx42", 8, 16, 320, euAndAP(19.49, 38.99))
	offer(112, "cpx52", 12, 24, 480, euAndAP(27.99, 55.99))
	offer(113, "cpx62", 16, 32, 640, euAndAP(37.99, 75.99))
	offer(45, "cax11", 2, 4, 40, eu(3.29))
	offer(93, "cax21", 4, 8, 80, eu(5.99))
	offer(94, "cax31", 8, 16, 160, eu(11.99))
	offer(95, "cax41", 16, 32, 320, eu(23.99))
	offer(96, "ccx13", 2, 8, 80, all(11.99, 12.99, 19.99))
	offer(97, "ccx23", 4, 16, 160, all(23.99, 25.99, 38.99))
	offer(98, "ccx33", 8, 32, 240, all(47.99, 49.99, 75.99))
	offer(99, "ccx43", 16, 64, 360, all(95.99, 99.99, 149.99))
	offer(100, "ccx53", 32, 128, 600, all(191.99, 199.99, 299.99))
	offer(101, "ccx63", 48, 192, 960, all(287.99, 299.99, 449.99))

	balancer := func(id int64, name string, connections, services, targets, certificates int, price float64) {
		made.loadBalancerTypes[id] = &loadBalancerType{meta: meta{ID: id, Name: name}, connections: connections,
			services: services, targets: targets, certificates: certificates, price: price}
	}
	balancer(1, "lb11", 10_000, 5, 25, 10, 5.39)
	balancer(2, "lb21", 20_000, 15, 75, 25, 16.40)
	balancer(3, "lb31", 40_000, 30, 150, 50, 32.90)
	return made
}

// registerCatalog serves the catalog.
func (c *Cloud) registerCatalog() {
	register(c, resource[*location]{
		kind: "location", path: "locations", all: c.catalog.locations,
		view: func(one *location) any { return one.view },
	})
	c.registerDatacenters()
	register(c, resource[*serverType]{
		kind: "server_type", path: "server_types", all: c.catalog.serverTypes,
		view: func(one *serverType) any { return c.viewServerType(one) },
	})
	register(c, resource[*loadBalancerType]{
		kind: "load_balancer_type", path: "load_balancer_types", all: c.catalog.loadBalancerTypes,
		view: func(one *loadBalancerType) any { return c.viewLoadBalancerType(one) },
	})
	c.handle("GET /pricing", func(*call) (any, error) { return map[string]any{"pricing": c.pricing()}, nil })
}

// offered says whether the type exists in the location, and in stock whether one can be created now.
func (c *Cloud) offered(kind *serverType, at *location) (offered, inStock bool) {
	_, offered = kind.prices[at.view.NetworkZone]
	gone := kind.retired != nil && now().After(kind.retired.UnavailableAfter)
	return offered, offered && !gone && !c.faults.listedOut(kind.Name, at.Name)
}

// datacenterView is the API's datacenter: schema.Datacenter in all but its deprecation.
type datacenterView struct {
	ID          int64           `json:"id"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Location    schema.Location `json:"location"`
	ServerTypes struct {
		Supported             []int64 `json:"supported"`
		Available             []int64 `json:"available"`
		AvailableForMigration []int64 `json:"available_for_migration"`
	} `json:"server_types"`
}

// viewDatacenter is the datacenter of a location; nil since the API has none.
func (c *Cloud) viewDatacenter(place string) *datacenterView {
	if c.since(APINovember2026) {
		return nil
	}
	one := c.datacenterOf(place)
	shown := &datacenterView{
		ID: one.ID, Name: one.Name, Location: one.location.view,
		Description: fmt.Sprintf("%s virtual DC %s", one.location.view.City, one.Name[len(one.location.Name)+3:]),
	}
	shown.ServerTypes.Supported, shown.ServerTypes.Available = []int64{}, []int64{}
	for _, kind := range ordered(c.catalog.serverTypes) {
		offered, inStock := c.offered(kind, one.location)
		if offered {
			shown.ServerTypes.Supported = append(shown.ServerTypes.Supported, kind.ID)
		}
		if inStock {
			shown.ServerTypes.Available = append(shown.ServerTypes.Available, kind.ID)
		}
	}
	shown.ServerTypes.AvailableForMigration = shown.ServerTypes.Available
	return shown
}

// registerDatacenters serves the datacenters, or their removal.
func (c *Cloud) registerDatacenters() {
	if !c.since(APINovember2026) {
		register(c, resource[*datacenter]{
			kind: "datacenter", path: "datacenters", all: c.catalog.datacenters,
			view:  func(one *datacenter) any { return *c.viewDatacenter(one.location.Name) },
			extra: map[string]any{"recommendation": c.catalog.datacenters[2].ID},
		})
		return
	}
	gone := func(*call) (any, error) {
		return nil, &apiError{Code: "deprecated_api_endpoint", Message: "this endpoint was removed",
			Details: &errorDetails{Announcement: "https://docs.hetzner.cloud/changelog"}}
	}
	c.handle("GET /datacenters", gone)
	c.handle("GET /datacenters/{id}", gone)
}

// datacenterOf is the datacenter of a location; each has one.
func (c *Cloud) datacenterOf(location string) *datacenter {
	for _, one := range c.catalog.datacenters {
		if one.location.Name == location {
			return one
		}
	}
	return nil
}

// locationNamed finds a location by its name; nil if there is none.
func (c *Cloud) locationNamed(name string) *location {
	found, _ := byIDOrName(c.catalog.locations, 0, name)
	return found
}

func (c *Cloud) viewServerType(one *serverType) schema.ServerType {
	shown := schema.ServerType{
		ID: one.ID, Name: one.Name, Description: strings.ToUpper(one.Name), Category: one.category,
		Cores: one.cores, Memory: float32(one.memory), Disk: one.disk,
		StorageType: one.storage, CPUType: one.cpu, Architecture: one.architecture,
		Prices: c.serverTypePrices(one), Locations: []schema.ServerTypeLocation{},
	}
	for _, at := range ordered(c.catalog.locations) {
		offered, inStock := c.offered(one, at)
		if !offered {
			continue
		}
		shown.Locations = append(shown.Locations, schema.ServerTypeLocation{
			ID: at.ID, Name: at.Name, Available: inStock, Recommended: inStock && one.retired == nil,
			DeprecatableResource: schema.DeprecatableResource{Deprecation: one.retired},
		})
	}
	return shown
}

func (c *Cloud) viewLoadBalancerType(one *loadBalancerType) schema.LoadBalancerType {
	shown := schema.LoadBalancerType{
		ID: one.ID, Name: one.Name, Description: strings.ToUpper(one.Name),
		MaxConnections: one.connections, MaxServices: one.services,
		MaxTargets: one.targets, MaxAssignedCertificates: one.certificates,
		Prices: c.loadBalancerTypePrices(one),
	}
	if one.retired != nil {
		announced := one.retired.Announced.Format(time.RFC3339)
		shown.Deprecated = &announced //lint:ignore SA1019 The API answers it still.
		if c.since(APINovember2026) {
			shown.Deprecation = one.retired
		}
	}
	return shown
}

// zones are the existing network zones.
func (c *Cloud) zones() []string {
	var found []string
	for _, at := range ordered(c.catalog.locations) {
		if !slices.Contains(found, at.view.NetworkZone) {
			found = append(found, at.view.NetworkZone)
		}
	}
	return found
}
