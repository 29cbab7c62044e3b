package kube

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

// GetAnew asks for a path that is no object, over a connection of its own: behind a load balancer another API server
// may answer each time. It reads at most so many bytes of the answer.
func (c *Cluster) GetAnew(ctx context.Context, path string, most int64) ([]byte, error) {
	config := rest.CopyConfig(c.config)
	config.Dial = (&net.Dialer{}).DialContext // so that client-go takes no transport out of its cache
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("create a client for %s: %w", c.Host(), err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.config.Host, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s says %s", path, resp.Status)
	}
	return body, err
}
