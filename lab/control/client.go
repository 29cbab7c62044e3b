package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"

	"github.com/slipway-k8s/slipway/lab/folder"
)

// ErrNotUp is returned by a Client if no daemon runs in the folder.
var ErrNotUp = errors.New("no lab is up")

// Client calls the control API of the daemon in a folder.
type Client struct {
	dir  string
	http *http.Client
}

// NewClient returns a client for the daemon in dir. It does not connect: the first call fails if none runs.
func NewClient(dir string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		socket, err := folder.FindSocket(dir)
		if err != nil {
			return nil, err
		}
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return &Client{dir: dir, http: &http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// Do sends a request with a body in JSON (nil: none), and decodes the response (nil: it is discarded).
func (c *Client) Do(ctx context.Context, method, path string, body, answer any) error {
	var said io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		said = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://lab"+path, said)
	if err != nil {
		return err
	}
	res, err := c.http.Do(req)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w in %s", ErrNotUp, c.dir)
	case err != nil:
		return fmt.Errorf("ask the lab in %s: %w", c.dir, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		var failure struct{ Error string }
		if err := json.NewDecoder(res.Body).Decode(&failure); err != nil || failure.Error == "" {
			failure.Error = res.Status
		}
		return fmt.Errorf("the lab in %s: %s %s: %s", c.dir, method, path, failure.Error)
	}
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(res.Body).Decode(answer); err != nil {
		return fmt.Errorf("the lab in %s: %s %s: %w", c.dir, method, path, err)
	}
	return nil
}
