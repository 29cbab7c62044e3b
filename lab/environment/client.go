package environment

import (
	"context"
	"net/http"
	"strconv"

	"github.com/slipway-k8s/slipway/lab/control"
	"github.com/slipway-k8s/slipway/lab/management"
)

// Client calls the control API of the lab in a folder. Its errors are control.ErrNotUp if no lab runs there.
type Client struct{ control *control.Client }

// NewClient returns a client for the lab in dir. It does not connect.
func NewClient(dir string) Client { return Client{control.NewClient(dir)} }

// Info returns what the command needs to use the lab.
func (c Client) Info(ctx context.Context) (info Info, err error) {
	return info, c.control.Do(ctx, http.MethodGet, "/v1/info", nil, &info)
}

// Status returns what runs in the lab.
func (c Client) Status(ctx context.Context) (status Status, err error) {
	return status, c.control.Do(ctx, http.MethodGet, "/v1/status", nil, &status)
}

// EnsureManagement creates a management cluster if it does not exist, and waits until it is ready.
func (c Client) EnsureManagement(ctx context.Context, name string) (m management.Description, err error) {
	return m, c.control.Do(ctx, http.MethodPut, "/v1/management/"+name, nil, &m)
}

// Management returns a management cluster.
func (c Client) Management(ctx context.Context, name string) (m management.Description, err error) {
	return m, c.control.Do(ctx, http.MethodGet, "/v1/management/"+name, nil, &m)
}

// DeleteManagement deletes a management cluster, if it exists.
func (c Client) DeleteManagement(ctx context.Context, name string) error {
	return c.control.Do(ctx, http.MethodDelete, "/v1/management/"+name, nil, nil)
}

// EnsureImage creates the snapshots of a Talos image in the simulated project if they do not exist.
func (c Client) EnsureImage(ctx context.Context, name string) error {
	return c.control.Do(ctx, http.MethodPut, "/v1/images/"+name, nil, nil)
}

// AddKubernetes adds programs of Kubernetes for servers of a version.
func (c Client) AddKubernetes(ctx context.Context, k Kubernetes) error {
	return c.control.Do(ctx, http.MethodPut, "/v1/kubernetes", k, nil)
}

// Down ends the lab. It returns when everything that the lab started has ended.
func (c Client) Down(ctx context.Context) error {
	return c.control.Do(ctx, http.MethodPost, "/v1/down", nil, nil)
}

// AddFault injects a fault.
func (c Client) AddFault(ctx context.Context, f Fault) (begun InForce, err error) {
	return begun, c.control.Do(ctx, http.MethodPost, "/v1/faults", f, &begun)
}

// Faults returns the faults in force, by number.
func (c Client) Faults(ctx context.Context) ([]InForce, error) {
	var answer struct{ Faults []InForce }
	err := c.control.Do(ctx, http.MethodGet, "/v1/faults", nil, &answer)
	return answer.Faults, err
}

// RemoveFault ends a fault. It returns when it has ended.
func (c Client) RemoveFault(ctx context.Context, id int64) error {
	return c.control.Do(ctx, http.MethodDelete, "/v1/faults/"+strconv.FormatInt(id, 10), nil, nil)
}
