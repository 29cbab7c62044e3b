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
	serve := func(pattern string, text func(Server) string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			c.mu.Lock()
			one := c.state.Servers[serverID]
			if one == nil {
				c.mu.Unlock()
				http.NotFound(w, r)
				return
			}
			seen := c.machineView(one)
			c.mu.Unlock()
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write([]byte(text(seen)))
		})
	}
	region := func(seen Server) string { return c.locationNamed(seen.Location).view.NetworkZone }
	serve(root+"userdata", func(seen Server) string { return seen.UserData })
	serve(root+"metadata/instance-id", func(seen Server) string { return idText(seen.ID) })
	serve(root+"metadata/hostname", func(seen Server) string { return seen.Name })
	serve(root+"metadata/local-ipv4", func(seen Server) string { return addressText(seen) })
	serve(root+"metadata/public-ipv4", func(seen Server) string { return publicText(seen) })
	serve(root+"metadata/availability-zone", func(seen Server) string { return seen.Datacenter })
	serve(root+"metadata/region", region)
	serve(root+"metadata/private-networks", privateNetworks)
	serve(root+"metadata", func(seen Server) string {
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

// privateNetworks is the YAML list of a server's places in networks.
func privateNetworks(seen Server) string {
	var text strings.Builder
	for i, place := range seen.Private {
		aliases := strings.Join(texts(place.Aliases), ", ")
		fmt.Fprintf(&text, "- ip: %s\n  alias_ips: [%s]\n  interface_num: %d\n  network_id: %d\n", place.IP, aliases, i+1,
			place.Network)
	}
	return text.String()
}
