package hetzner

import "strings"

// ServerNames lists the names of servers, with commas.
func ServerNames(servers []Server) string {
	var names []string
	for _, s := range servers {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}
