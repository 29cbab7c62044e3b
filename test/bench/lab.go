package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// lab is one that is up in a folder, by its control socket.
type lab struct{ http *http.Client }

// info is what the lab says about itself, as far as the guide's Makefile needs it.
type info struct {
	Token              string            `json:"token"`
	NetworkCIDR        string            `json:"networkCidr"`
	ControlPlaneCIDR   string            `json:"controlPlaneCidr"`
	PodCIDR            string            `json:"podCidr"`
	ServiceCIDR        string            `json:"serviceCidr"`
	ProviderRepository string            `json:"providerRepository"`
	CertManagerURL     string            `json:"certManagerUrl"`
	CertManagerVersion string            `json:"certManagerVersion"`
	ChartRepositories  map[string]string `json:"chartRepositories"`
	Versions           map[string]string `json:"versions"`
}

func labIn(dir string) lab {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		socket := filepath.Join(dir, "lab.sock")
		switch named, err := os.ReadFile(socket + ".path"); { // where the folder's path is too long for a socket
		case err == nil:
			socket = strings.TrimSpace(string(named))
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	return lab{&http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

func (l lab) ask(ctx context.Context, method, path string, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://lab"+path, nil)
	if err != nil {
		return err
	}
	reply, err := l.http.Do(request)
	if err != nil {
		return fmt.Errorf("ask the lab: %w", err)
	}
	defer reply.Body.Close()
	if reply.StatusCode/100 != 2 {
		body, _ := io.ReadAll(reply.Body)
		return fmt.Errorf("ask the lab: %s %s: %s: %s", method, path, reply.Status, body)
	}
	return json.NewDecoder(reply.Body).Decode(answer)
}

func (l lab) info(ctx context.Context) (info, error) {
	var i info
	return i, l.ask(ctx, http.MethodGet, "/v1/info", &i)
}

// ensureImage makes the snapshot of Talos, which the guide makes once and before.
func (l lab) ensureImage(ctx context.Context, name string) error {
	var none struct{}
	return l.ask(ctx, http.MethodPut, "/v1/images/"+url.PathEscape(name), &none)
}

// createManagement stands in for `kind create cluster`: it is the same request as Slipway's step kind-create sends.
func (l lab) createManagement(ctx context.Context, name string, out io.Writer) error {
	var made struct {
		Kubeconfig string `json:"kubeconfig"`
	}
	if err := l.ask(ctx, http.MethodPut, "/v1/management/"+url.PathEscape(name), &made); err != nil {
		return err
	}
	_, err := io.WriteString(out, made.Kubeconfig)
	return err
}
