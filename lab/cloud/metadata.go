package cloud

import (
	"fmt"
	"net/http"
	"strings"
)

// Metadata serves a server's metadata under /hetzner/v1, as http://169.254.169.254 does on the
// server itself. It answers 404 once the server is gone.
func (c *Cloud) Metadata(serverID int64) http.Handler {
	mux := http.NewServeMux()
	const root = "GET /hetzner/v1/"
	serve := func(pattern string, text func(seen Server, networks string) string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			c.mu.Lock()
			one := c.state.Servers[serverID]
			if one == nil {
				c.mu.Unlock()
				http.NotFound(w, r)
				return
			}
			seen := c.machineView(one)
			networks := c.privateNetworks(one)
			c.mu.Unlock()
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write([]byte(text(seen, networks)))
		})
	}
	region := func(seen Server) string { return c.locationNamed(seen.Location).view.NetworkZone }
	serve(root+"userdata", func(seen Server, _ string) string { return seen.UserData })
	serve(root+"metadata/instance-id", func(seen Server, _ string) string { return idText(seen.ID) })
	serve(root+"metadata/hostname", func(seen Server, _ string) string { return seen.Name })
	serve(root+"metadata/local-ipv4", func(seen Server, _ string) string { return addressText(seen) })
	serve(root+"metadata/public-ipv4", func(seen Server, _ string) string { return publicText(seen) })
	serve(root+"metadata/availability-zone", func(seen Server, _ string) string { return seen.Datacenter })
	serve(root+"metadata/region", func(seen Server, _ string) string { return region(seen) })
	serve(root+"metadata/private-networks", func(_ Server, networks string) string { return networks })
	serve(root+"metadata", func(seen Server, _ string) string {
		return fmt.Sprintf("availability-zone: %s\nhostname: %s\ninstance-id: %d\npublic-ipv4: %s\nregion: %s\n",
			seen.Datacenter, seen.Name, seen.ID, publicText(seen), region(seen))
	})
	return mux
}

func addressText(seen Server) string {
	if ip := seen.PrivateIP(); ip.IsValid() {
		return ip.String()
	}
	return ""
}

func publicText(seen Server) string {
	if seen.PublicIPv4.IsValid() {
		return seen.PublicIPv4.String()
	}
	return ""
}

// privateNetworks is the YAML list of a server's places in networks. The caller holds the lock.
func (c *Cloud) privateNetworks(one *server) string {
	var text strings.Builder
	number := 0
	for _, place := range one.Nets {
		net := c.state.Networks[place.Network]
		if place.Pending || net == nil {
			continue
		}
		number++
		subnet := net.Range
		for _, part := range net.Subnets {
			if part.Range.Contains(place.IP) {
				subnet = part.Range
			}
		}
		fmt.Fprintf(&text, "- ip: %s\n  alias_ips: [%s]\n  interface_num: %d\n  mac_address: %s\n  network_id: %d\n"+
			"  network_name: %s\n  network: %s\n  subnet: %s\n  gateway: %s\n", place.IP,
			strings.Join(texts(place.Aliases), ", "), number, place.MAC, net.ID, net.Name, net.Range, subnet, net.gateway())
	}
	return text.String()
}
