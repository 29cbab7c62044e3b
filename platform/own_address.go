package platform

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// ownAddressURL answers with the address that the question came from, as text.
const ownAddressURL = "https://ipv4.icanhazip.com"

// AskOwnAddress asks for this machine's address towards the internet.
func AskOwnAddress(ctx context.Context) (netip.Addr, error) {
	return askAddress(ctx, ownAddressURL)
}

func askAddress(ctx context.Context, url string) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return netip.Addr{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return netip.Addr{}, err
	}
	defer resp.Body.Close()
	const longest = 64 // an address; anything longer is an error page
	body, err := io.ReadAll(io.LimitReader(resp.Body, longest))
	if err != nil {
		return netip.Addr{}, err
	}
	address, err := netip.ParseAddr(strings.TrimSpace(string(body)))
	if err != nil || resp.StatusCode != http.StatusOK {
		return netip.Addr{}, fmt.Errorf("%s did not answer with an address (%s)", url, resp.Status)
	}
	return address.Unmap(), nil
}
