package environment

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
	"strconv"
	"syscall"
)

// ErrNotUp is returned by a Client if no lab runs for the folder.
var ErrNotUp = errors.New("no lab is up")

// Client calls the control API of the lab in a folder.
type Client struct {
	dir  string
	http *http.Client
}

// NewClient returns a client for the lab in dir. It does not connect: the first call fails if no lab runs.
func NewClient(dir string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		socket, err := findSocket(dir)
		if err != nil {
			return nil, err
		}
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return &Client{dir: dir, http: &http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// Info returns what the command needs to use the lab.
func (c *Client) Info(ctx context.Context) (info Info, err error) {
	return info, c.do(ctx, http.MethodGet, "/v1/info", nil, &info)
}

// Status returns what runs in the lab.
func (c *Client) Status(ctx context.Context) (status Status, err error) {
	return status, c.do(ctx, http.MethodGet, "/v1/status", nil, &status)
}

// EnsureManagement creates a management cluster if it does not exist, and waits until it is ready.
func (c *Client) EnsureManagement(ctx context.Context, name string) (m Management, err error) {
	return m, c.do(ctx, http.MethodPut, "/v1/management/"+name, nil, &m)
}

// Management returns a management cluster.
func (c *Client) Management(ctx context.Context, name string) (m Management, err error) {
	return m, c.do(ctx, http.MethodGet, "/v1/management/"+name, nil, &m)
}

// DeleteManagement deletes a management cluster, if it exists.
func (c *Client) DeleteManagement(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/management/"+name, nil, nil)
}

// EnsureImage creates the snapshots of a Talos image in the simulated project if they do not exist.
func (c *Client) EnsureImage(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPut, "/v1/images/"+name, nil, nil)
}

// Down ends the lab. It returns when everything that the lab started has ended.
func (c *Client) Down(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/v1/down", nil, nil)
}

// AddFault injects a fault.
func (c *Client) AddFault(ctx context.Context, f Fault) (begun InForce, err error) {
	return begun, c.do(ctx, http.MethodPost, "/v1/faults", f, &begun)
}

// Faults returns the faults in force, by number.
func (c *Client) Faults(ctx context.Context) ([]InForce, error) {
	var answer struct{ Faults []InForce }
	err := c.do(ctx, http.MethodGet, "/v1/faults", nil, &answer)
	return answer.Faults, err
}

// RemoveFault ends a fault. It returns when it has ended.
func (c *Client) RemoveFault(ctx context.Context, id int64) error {
	return c.do(ctx, http.MethodDelete, "/v1/faults/"+strconv.FormatInt(id, 10), nil, nil)
}

// do sends a request with a body in JSON (nil: none), and decodes the response (nil: it is discarded).
func (c *Client) do(ctx context.Context, method, path string, body, answer any) error {
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
