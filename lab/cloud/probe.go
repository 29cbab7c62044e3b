package cloud

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// shortestProbe keeps a scaled time-out long enough for a busy machine.
const shortestProbe = 500 * time.Millisecond

// probe is a health check: a TCP connect, or an HTTP request where there is one.
type probe struct {
	port              int
	http              *httpCheck
	interval, timeout time.Duration
	retries           int
}

// passes runs the check once.
func (p probe) passes(ctx context.Context, ip netip.Addr) bool {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if p.http != nil {
		return p.passesHTTP(ctx, ip)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", p.address(ip))
	if err != nil {
		return false
	}
	_ = conn.Close() // the connect was all
	return true
}

func (p probe) address(ip netip.Addr) string {
	return net.JoinHostPort(ip.String(), strconv.Itoa(p.port))
}

func (p probe) passesHTTP(ctx context.Context, ip netip.Addr) bool {
	scheme := "http"
	if p.http.TLS {
		scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		scheme+"://"+p.address(ip)+"/"+strings.TrimPrefix(p.http.Path, "/"), nil)
	if err != nil {
		return false
	}
	if p.http.Domain != nil {
		request.Host = *p.http.Domain
	}
	transport := &http.Transport{
		// As the real load balancer: a health check does not verify certificates.
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}
	reply, err := transport.RoundTrip(request)
	if err != nil {
		return false
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(io.LimitReader(reply.Body, 64<<10))
	status := strconv.Itoa(reply.StatusCode)
	matches := slices.ContainsFunc(p.http.StatusCodes, func(pattern string) bool {
		ok, err := path.Match(pattern, status) // "2??"
		return err == nil && ok
	})
	return err == nil && matches && strings.Contains(string(body), p.http.Response)
}
