package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/slipway-k8s/slipway/lab/environment"
	"github.com/slipway-k8s/slipway/lab/folder"
	"github.com/slipway-k8s/slipway/lab/management"
)

// controlClient calls the control API of the lab in a folder.
type controlClient struct{ http *http.Client }

// newControlClient does not connect: the first call fails if no lab runs.
func newControlClient(dir string) controlClient {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		socket, err := folder.FindSocket(dir)
		if err != nil {
			return nil, err
		}
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return controlClient{&http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// do sends a request with a body in JSON, and decodes the response (nil: it is discarded).
func (c controlClient) do(ctx context.Context, method, path string, body, answer any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://lab"+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		var failure struct{ Error string }
		_ = json.NewDecoder(res.Body).Decode(&failure) // the test tells what there is of it
		return fmt.Errorf("%s %s: %s: %s", method, path, res.Status, failure.Error)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(res.Body).Decode(answer)
}

func (c controlClient) Info(ctx context.Context) (info environment.Info, err error) {
	return info, c.do(ctx, http.MethodGet, "/v1/info", nil, &info)
}

func (c controlClient) Status(ctx context.Context) (status environment.Status, err error) {
	return status, c.do(ctx, http.MethodGet, "/v1/status", nil, &status)
}

func (c controlClient) EnsureManagement(ctx context.Context, name string) (m management.Description, err error) {
	return m, c.do(ctx, http.MethodPut, "/v1/management/"+name, nil, &m)
}

func (c controlClient) Management(ctx context.Context, name string) (m management.Description, err error) {
	return m, c.do(ctx, http.MethodGet, "/v1/management/"+name, nil, &m)
}

func (c controlClient) DeleteManagement(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/management/"+name, nil, nil)
}

func (c controlClient) EnsureImage(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPut, "/v1/images/"+name, nil, nil)
}

func (c controlClient) Down(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/v1/down", nil, nil)
}

func (c controlClient) AddFault(ctx context.Context, f environment.Fault) (begun environment.InForce, err error) {
	return begun, c.do(ctx, http.MethodPost, "/v1/faults", f, &begun)
}

func (c controlClient) Faults(ctx context.Context) ([]environment.InForce, error) {
	var answer struct{ Faults []environment.InForce }
	err := c.do(ctx, http.MethodGet, "/v1/faults", nil, &answer)
	return answer.Faults, err
}

func (c controlClient) RemoveFault(ctx context.Context, id int64) error {
	return c.do(ctx, http.MethodDelete, "/v1/faults/"+strconv.FormatInt(id, 10), nil, nil)
}
