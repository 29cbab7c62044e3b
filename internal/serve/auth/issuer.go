package auth

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/slipway-k8s/slipway/internal/base/usage"
)

// IsLoopback reports whether only this machine reaches a host: an address, or a name.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// CheckIssuer refuses an issuer whose keys an attacker in the network could replace: that attacker could make ID
// tokens.
func CheckIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	switch {
	case err != nil:
		return usage.Errorf("--oidc-issuer: %w", err)
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return usage.Errorf("--oidc-issuer %q is no issuer: write https://HOST, with a path where the issuer has one",
			issuer)
	case !private(u):
		return usage.Errorf("--oidc-issuer %s is asked without TLS, and who can change its answers on the way can log "+
			"in: use https (http is for an issuer on this machine)", issuer)
	}
	return nil
}

// private reports whether no host on the path can change what an address answers.
func private(u *url.URL) bool { return u.Scheme == "https" || IsLoopback(u.Hostname()) }

// privately refuses requests without TLS beyond this machine, also those to which an issuer redirects, and those for
// the keys that its description names.
type privately struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p privately) RoundTrip(r *http.Request) (*http.Response, error) {
	if !private(r.URL) {
		return nil, fmt.Errorf("%s is without TLS: the issuer has to have https addresses only", r.URL.Redacted())
	}
	return p.next.RoundTrip(r)
}
