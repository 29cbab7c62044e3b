package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/lab/standin"
)

// Management is a management cluster in the control API.
type Management struct {
	Name       string `json:"name"`
	Kubeconfig string `json:"kubeconfig"` // the administrator's kubeconfig, YAML
	Endpoint   string `json:"endpoint"`
}

// Info is what the command needs to use the lab.
type Info struct {
	PID              int       `json:"pid"` // the process to signal
	StartedAt        time.Time `json:"startedAt"`
	HetznerEndpoint  string    `json:"hetznerEndpoint"`
	Proxy            string    `json:"proxy"`  // HTTPS proxy that answers as api.hetzner.cloud
	CAFile           string    `json:"caFile"` // of the authority that signs the proxy's certificate
	Token            string    `json:"token"`  // of the simulated project
	NetworkCIDR      string    `json:"networkCidr"`
	ControlPlaneCIDR string    `json:"controlPlaneCidr"`
	PodCIDR          string    `json:"podCidr"`
	ServiceCIDR      string    `json:"serviceCidr"`
	// ProviderRepository is the folder of clusterctl's local repositories.
	ProviderRepository string `json:"providerRepository"`
	CertManagerURL     string `json:"certManagerUrl"` // path of its manifest
	CertManagerVersion string `json:"certManagerVersion"`
	// ChartRepositories are URLs by chart.
	ChartRepositories map[string]string `json:"chartRepositories"`
	// Versions are those that the repositories offer, by the names of the command's variables without _VERSION.
	Versions map[string]string `json:"versions"`
	// ImageBuild says whether the command can build the image, or has to have the lab create its snapshot.
	ImageBuild ImageBuild `json:"imageBuild"`
	Notes      []string   `json:"notes"`
}

// handler is the control API. It has no authorization: the socket is in a folder that only the user can open.
func (w *World) handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, do func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(rw http.ResponseWriter, r *http.Request) {
			answer, err := do(r)
			reply(rw, answer, err)
		})
	}
	handle("GET /v1/info", func(r *http.Request) (any, error) { return w.info(), nil })
	handle("GET /v1/status", func(r *http.Request) (any, error) { return w.status(), nil })
	handle("GET /v1/management/{name}", func(r *http.Request) (any, error) {
		return describe(w.managements.get(r.Context(), r.PathValue("name")))
	})
	handle("PUT /v1/management/{name}", func(r *http.Request) (any, error) {
		return describe(w.managements.ensure(r.Context(), r.PathValue("name")))
	})
	handle("DELETE /v1/management/{name}", func(r *http.Request) (any, error) {
		// A removal is finished even if the client closes the connection.
		return struct{}{}, w.managements.remove(context.WithoutCancel(r.Context()), r.PathValue("name"))
	})
	handle("PUT /v1/images/{name}", func(r *http.Request) (any, error) {
		return struct{}{}, w.ensureImage(r.PathValue("name"))
	})
	w.faults.serve(handle)
	mux.HandleFunc("POST /v1/freeze", w.serveStill)
	handle("POST /v1/down", func(r *http.Request) (any, error) {
		defer w.endOnce.Do(func() { close(w.down) })
		return struct{}{}, w.stop()
	})
	return mux
}

func describe(m *management, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	kubeconfig, err := m.plane.AdminKubeconfig()
	if err != nil {
		return nil, err
	}
	return Management{Name: m.name(), Kubeconfig: string(kubeconfig), Endpoint: m.plane.Endpoint()}, nil
}

// reply writes a result or {"error": …}.
func reply(rw http.ResponseWriter, answer any, err error) {
	status := http.StatusOK
	if err != nil {
		status = http.StatusInternalServerError
		var request requestError
		switch {
		case errors.Is(err, errNotFound), errors.Is(err, errNoFault):
			status = http.StatusNotFound
		case errors.As(err, &request):
			status = http.StatusBadRequest
		case errors.Is(err, errStopping):
			status = http.StatusServiceUnavailable
		}
		answer = map[string]string{"error": err.Error()}
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(answer) // fails only if the client has closed the connection
}

// hetznerHandler serves the simulated Hetzner API and the identity of this lab, for another lab that needs its
// addresses.
func (w *World) hetznerHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", w.cloud.Handler())
	mux.HandleFunc("GET /lab", func(rw http.ResponseWriter, _ *http.Request) {
		reply(rw, Holder{Dir: w.cfg.Dir, PID: w.cfg.Network.PID()}, nil)
	})
	return mux
}

// Holder is the lab that uses an address.
type Holder struct {
	Dir string `json:"dir"`
	PID int    `json:"pid"` // the process to signal
}

func (w *World) info() Info {
	s := w.state.slot()
	return Info{
		PID: w.cfg.Network.PID(), StartedAt: w.started,
		HetznerEndpoint: "http://" + s.hetznerAPI() + "/v1", Proxy: w.proxyURL(), CAFile: w.caFile(), Token: w.token,
		NetworkCIDR: s.networkCIDR().String(), ControlPlaneCIDR: s.controlPlaneCIDR().String(),
		PodCIDR: s.podCIDR().String(), ServiceCIDR: s.serviceCIDR().String(),
		ProviderRepository: w.offer.Providers,
		CertManagerURL:     w.offer.CertManager, CertManagerVersion: w.offer.CertManagerVersion,
		ChartRepositories: w.chartRepositories(),
		Versions:          w.offer.Versions,
		ImageBuild:        w.imageBuild,
		Notes:             w.notes(),
	}
}

// notes are the current limitations of the lab that its user should know.
func (w *World) notes() []string {
	if short := shortage(len(w.processes.List())); short != "" {
		return append(slices.Clone(w.offer.Notes), short)
	}
	return w.offer.Notes
}

func (w *World) proxyURL() string { return "http://" + w.state.slot().hetznerProxy() }
func (w *World) caFile() string   { return w.path("pki", "ca.crt") }

// podEnv is the environment of the process of every Pod: it sends requests for api.hetzner.cloud to the simulated
// cloud.
func (w *World) podEnv() map[string]string {
	env := map[string]string{"HTTPS_PROXY": w.proxyURL(), "SSL_CERT_FILE": w.caFile()}
	if w.cfg.Latency == FastLatency {
		env[standin.TimeScaleVariable] = fmt.Sprint(fastScale)
	}
	return env
}
