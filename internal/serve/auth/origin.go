package auth

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Hosts are the names under which serve is reached, in lower case. A page of another site that has its own name point
// to this address (DNS rebinding) sends that name.
type Hosts []string

// Loopback are the names of an address that only this machine reaches.
func Loopback() Hosts { return Hosts{"localhost", "127.0.0.1", "::1"} }

// Check refuses a request that was sent to another name.
func (h Hosts) Check(r *http.Request) error {
	name := hostOf(r.Host)
	if slices.Contains(h, strings.ToLower(name)) {
		return nil
	}
	return fmt.Errorf("serve does not answer to the name %q: --allowed-host adds one", name)
}

// hostOf is a host without its port.
func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

// CheckOrigin refuses a request that a page of another site sent. Clients that are no browser send none of the headers.
func CheckOrigin(r *http.Request) error {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return fmt.Errorf("a page of another site sent this request (%s)", "Sec-Fetch-Site: "+site)
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	from, err := url.Parse(origin)
	if err != nil || from.Scheme != scheme || !strings.EqualFold(from.Host, r.Host) {
		return fmt.Errorf("a page of another site sent this request (Origin: %q)", origin)
	}
	return nil
}
