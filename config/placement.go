package config

import (
	"regexp"
	"slices"
	"strings"
)

// What the servers of a control plane are spread over.
const (
	SpreadHost     = "host"     // hosts of one location, by the placement group
	SpreadLocation = "location" // locations of one network zone
)

// ServerTypes are the server types of SERVER_TYPE, the preferred first.
func (c Config) ServerTypes() []string { return Listed(c.ServerType) }

// Locations are those of LOCATION, the preferred first.
func (c Config) Locations() []string { return Listed(c.Location) }

// ChoosesPlacement tells whether more than one server type or location is configured, to be chosen from by stock.
func (c Config) ChoosesPlacement() bool { return len(c.ServerTypes())+len(c.Locations()) > 2 }

// first is the first of some words; empty: there is none.
func first(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return words[0]
}

// PreferredServerType is the first of SERVER_TYPE, for where Hetzner is not asked what it has in stock.
func (c Config) PreferredServerType() string { return first(c.ServerTypes()) }

// PreferredLocation is the first of LOCATION, for where Hetzner is not asked what it has in stock.
func (c Config) PreferredLocation() string { return first(c.Locations()) }

// NetworkZone is the network zone of a location; empty: the location is not known.
func NetworkZone(location string) string { return networkZones[location] }

// placement checks the form of server types and locations; which of them Hetzner sells is for the step preflight.
func (v *Findings) placement(c Config) {
	const separated = "write one, or several separated by commas, the preferred first, as cx33,cpx32 and nbg1,fsn1"
	for _, list := range []struct{ field, value string }{{"location", c.Location}, {"serverType", c.ServerType}} {
		words := Listed(list.value)
		if len(words) == 0 {
			v.add(list.field, list.value, "is empty", separated)
		}
		for i, word := range words {
			if slices.Contains(words[:i], word) {
				v.add(list.field, list.value, "names "+word+" twice", separated)
			}
		}
	}
	v.locations("location", c.Location)
	v.serverTypes("serverType", c.ServerType)
	switch {
	case c.Spread != SpreadHost && c.Spread != SpreadLocation:
		v.add("spread", c.Spread, "is nothing that servers can be spread over", "write "+SpreadHost+" or "+SpreadLocation)
	case c.Spread == SpreadLocation && len(c.Locations()) < 2:
		v.addPair("spread", "location", c.Spread, "needs more than one location", "write two or three of one network zone "+
			"into location, as nbg1,fsn1,hel1")
	case c.Spread == SpreadLocation && c.ControlPlaneReplicas == 1:
		v.addPair("spread", "controlPlaneReplicas", c.Spread, "needs more than one server", "use 3 or 5, or spread: "+
			SpreadHost)
	}
}

// locations refuses words of a list that are no locations.
func (v *Findings) locations(field, list string) {
	for _, l := range Listed(list) {
		if !slices.Contains(locations, l) {
			v.add(field, l, "is not a location that Cluster API provider Hetzner knows", "choose one of "+
				strings.Join(locations, ", "))
		}
	}
}

// serverTypes refuses words of a list that cannot be the names of server types.
func (v *Findings) serverTypes(field, list string) {
	for _, t := range Listed(list) {
		if !hcloudName.MatchString(t) {
			v.add(field, t, "is not a server type's name", "names look like cx33, cpx31 or cax21")
		}
	}
}

// listOf is the pattern of a list of words that match a pattern.
func listOf(word string) string {
	word = strings.TrimSuffix(strings.TrimPrefix(word, "^"), "$")
	return regexp.MustCompile(`^(` + word + `)([, ]+(` + word + `))*$`).String()
}
