package lab

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
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
)

// ErrDown means that no lab answers in a folder.
var ErrDown = errors.New("no lab is up")

// Client speaks to the daemon that is up in a folder, mostly a lab, by its control API over a Unix socket.
type Client struct {
	dir  string
	name string // of the daemon in errors: "the lab"
	http *http.Client
}

// downError is ErrDown of a daemon that is not a lab.
type downError struct{ name string }

func (e downError) Error() string      { return e.name + " is not running" }
func (downError) Is(target error) bool { return target == ErrDown }

// Info is what a lab tells about itself: GET /v1/info.
type Info struct {
	PID              int       `json:"pid"`
	StartedAt        time.Time `json:"startedAt"`
	HetznerEndpoint  string    `json:"hetznerEndpoint"`
	Proxy            string    `json:"proxy"`  // HTTPS proxy that answers as api.hetzner.cloud
	CAFile           string    `json:"caFile"` // of the authority that signs the proxy's certificate
	Token            string    `json:"token"`  // of the simulated project
	NetworkCIDR      string    `json:"networkCidr"`
	ControlPlaneCIDR string    `json:"controlPlaneCidr"`
	PodCIDR          string    `json:"podCidr"`
	ServiceCIDR      string    `json:"serviceCidr"`
	// Clusters are the ranges of the clusters that were admitted, by their names; those above are the first one's.
	Clusters           map[string]ClusterRanges `json:"clusterRanges"`
	ProviderRepository string                   `json:"providerRepository"`
	CertManagerURL     string                   `json:"certManagerUrl"`
	CertManagerVersion string                   `json:"certManagerVersion"`
	ChartRepositories  map[string]string        `json:"chartRepositories"` // chart → address
	Versions           map[string]string        `json:"versions"`          // CAPI, CAPH, … → what its repositories offer
	// Offers are all versions of what its repositories offer several of; an older lab offers one of each.
	Offers     map[string][]string `json:"offers"`
	AnyVersion []string            `json:"anyVersion"` // of them, the charts that it offers as whichever is configured
	// Kubernetes is what its management clusters run where none is asked for; empty: an older lab.
	Kubernetes string `json:"kubernetes"`
	// KubernetesSets are the versions that servers choose from by the minor; empty: an older lab, in which all control
	// planes run one version. CoreSets are those of Cluster API's core, likewise.
	KubernetesSets []ProgramSet `json:"kubernetesSets"`
	CoreSets       []ProgramSet `json:"coreSets"`
	// Flux is where the manifest of Flux is; the zero value: the lab has not been given Flux's programs.
	Flux struct {
		Repository string `json:"repository"`
		Version    string `json:"version"`
	} `json:"flux"`
	// Gitea is what runs behind Gitea's Pod.
	Gitea struct {
		Fidelity    string `json:"fidelity"` // real or stand-in; empty: an older lab
		Version     string `json:"version"`
		Unreachable string `json:"unreachable"` // why other Pods cannot reach it by the name of its Service
	} `json:"gitea"`
	// Git is the lab's Git repository; the zero value: there is none.
	Git struct {
		URL    string `json:"url"`
		Branch string `json:"branch"`
		User   string `json:"user"`
		Token  string `json:"token"`
	} `json:"git"`
	Notes      []string `json:"notes"`
	ImageBuild struct { // whether the step image can make the image in this lab
		Possible bool   `json:"possible"`
		Reason   string `json:"reason"` // why not
	} `json:"imageBuild"`
}

// ClusterRanges are the address ranges of a cluster.
type ClusterRanges struct {
	NetworkCIDR      string `json:"networkCidr"`
	ControlPlaneCIDR string `json:"controlPlaneCidr"`
	PodCIDR          string `json:"podCidr"`
	ServiceCIDR      string `json:"serviceCidr"`
}

// ProgramSet says which version runs for a minor.
type ProgramSet struct {
	For  string `json:"for"` // a version of that minor
	Runs string `json:"runs"`
}

// NewClient returns a client of the lab in a folder. It makes no request.
func NewClient(dir string) *Client { return newClient(dir, "the lab") }

// newClient returns a client of a daemon. It makes no request.
func newClient(dir, name string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		path, err := socketIn(dir)
		if err != nil {
			return nil, err
		}
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	// No idle connection is kept: the lab may be another process at the next call.
	return &Client{dir: dir, name: name, http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// socketIn is the path of the control socket. Where the folder's own path is
// too long for a socket, lab.sock.path names another.
func socketIn(dir string) (string, error) {
	path := filepath.Join(dir, "lab.sock")
	named, err := os.ReadFile(path + ".path")
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	return strings.TrimSpace(string(named)), err
}

// Info asks the lab what it offers.
func (c *Client) Info(ctx context.Context) (Info, error) {
	var info Info
	err := c.Do(ctx, http.MethodGet, "/v1/info", &info)
	return info, err
}

// Admit makes sure that a cluster has address ranges of its own in the lab, and asks what the lab offers.
func (c *Client) Admit(ctx context.Context, cluster string) (Info, error) {
	info, err := c.Info(ctx)
	if _, admitted := info.Clusters[cluster]; err != nil || admitted {
		return info, err
	}
	err = c.Do(ctx, http.MethodPut, "/v1/clusters/"+url.PathEscape(cluster), &info)
	if refused, is := errors.AsType[*Error](err); is && refused.Status == http.StatusNotFound {
		return info, nil // a lab of an older release, which has room for one cluster
	}
	return info, err
}

// OfferCharts has the lab's charts that are stand-ins be on offer as the configured versions.
func (c *Client) OfferCharts(ctx context.Context, cfg config.Config) (Info, error) {
	info, err := c.Info(ctx)
	if err != nil {
		return info, err
	}
	wanted := map[string]string{}
	for name, version := range map[string]string{"CILIUM": cfg.CiliumVersion, "HCLOUD_CCM": cfg.HCloudCCMVersion,
		"TALOS_CCM": cfg.TalosCCMVersion} {
		if version != "" && !slices.Contains(info.Offers[name], version) {
			wanted[name] = version
		}
	}
	if len(wanted) == 0 {
		return info, nil
	}
	err = c.Send(ctx, http.MethodPut, "/v1/charts", wanted, &info)
	if refused, is := errors.AsType[*Error](err); is && refused.Status == http.StatusNotFound {
		return info, nil // a lab of an older release, whose charts have versions of their own
	}
	return info, err
}

// EnsureImage makes sure that the simulated project has a snapshot that CAPH
// finds by this name.
func (c *Client) EnsureImage(ctx context.Context, name string) error {
	return c.Do(ctx, http.MethodPut, "/v1/images/"+url.PathEscape(name), nil)
}

// Do sends a request. Where answer is a *json.RawMessage it gets the reply as
// it came. An error wraps errLabDown where nothing listens.
func (c *Client) Do(ctx context.Context, method, path string, answer any) error {
	return c.Send(ctx, method, path, nil, answer)
}

// Send is do with a body in JSON; nil: without one.
func (c *Client) Send(ctx context.Context, method, path string, body, answer any) error {
	var said io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		said = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://lab"+path, said)
	if err != nil {
		return err
	}
	reply, err := c.http.Do(request)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		down := ErrDown
		if c.name != "the lab" {
			down = downError{c.name}
		}
		return fmt.Errorf("%w in %s", down, c.dir)
	case err != nil:
		return fmt.Errorf("ask %s in %s: %w", c.name, c.dir, err)
	}
	defer reply.Body.Close()
	data, err := io.ReadAll(reply.Body)
	if err != nil {
		return fmt.Errorf("ask %s in %s: %s %s: %w", c.name, c.dir, method, path, err)
	}
	if reply.StatusCode/100 != 2 {
		return c.refused(method, path, reply, data)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("ask %s in %s: %s %s: %w", c.name, c.dir, method, path, err)
	}
	return nil
}

// Error is a refusal by the lab.
type Error struct {
	Status  int
	Message string
}

func (e *Error) Error() string { return e.Message }

func (c *Client) refused(method, path string, reply *http.Response, body []byte) error {
	var said struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &said) != nil || said.Error == "" {
		said.Error = reply.Status
	}
	return fmt.Errorf("%s in %s answers %s %s with: %w", c.name, c.dir, method, path,
		&Error{Status: reply.StatusCode, Message: said.Error})
}

// Management makes management clusters in the lab.
type Management struct {
	Client     *Client
	Kubernetes string // version of a cluster that is created; empty: the daemon's first one
}

func (m Management) Name() string { return "lab" }

func managementPath(name string) string { return "/v1/management/" + url.PathEscape(name) }

// Ensure returns when the cluster's API server is ready and its node is.
func (m Management) Ensure(ctx context.Context, name string, say flow.Say) ([]byte, error) {
	say("asking %s for %s: real etcd, kube-apiserver, controller-manager and scheduler", m.Client.name, name)
	var made struct {
		Kubeconfig string `json:"kubeconfig"`
	}
	wanted := map[string]string{"kubernetes": m.Kubernetes}
	if err := m.Client.Send(ctx, http.MethodPut, managementPath(name), wanted, &made); err != nil {
		return nil, err
	}
	if made.Kubeconfig == "" {
		return nil, fmt.Errorf("%s in %s gave no kubeconfig for %s", m.Client.name, m.Client.dir, name)
	}
	return []byte(made.Kubeconfig), nil
}

func (m Management) Exists(ctx context.Context, name string) (bool, error) {
	err := m.Client.Do(ctx, http.MethodGet, managementPath(name), nil)
	if refused, ok := errors.AsType[*Error](err); ok && refused.Status == http.StatusNotFound {
		return false, nil
	}
	return err == nil, err
}

func (m Management) Delete(ctx context.Context, name string) error {
	return m.Client.Do(ctx, http.MethodDelete, managementPath(name), nil)
}

// Record makes the client write down what it asks the lab to change.
func (c *Client) Record(effects *effect.Recorder) { c.RecordAs(effects, effect.Lab) }

// RecordAs is Record for a daemon that is another system than the lab.
func (c *Client) RecordAs(effects *effect.Recorder, system effect.System) {
	c.http.Transport = effects.Transport(c.http.Transport, system, func(request *http.Request) (verb, object string,
		ok bool) {
		return strings.ToLower(request.Method), strings.TrimPrefix(request.URL.Path, "/v1/"), true
	})
}
