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
	Kubeconfig string `json:"kubeconfig"` // the administrator's, YAML
	Endpoint   string `json:"endpoint"`
}

// Info is what the command needs to know of the lab.
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
	// ProviderRepository is the folder that clusterctl's local repositories lie in.
	ProviderRepository string `json:"providerRepository"`
	CertManagerURL     string `json:"certManagerUrl"` // path of its manifest
	CertManagerVersion string `json:"certManagerVersion"`
	// ChartRepositories are URLs by chart.
	ChartRepositories map[string]string `json:"chartRepositories"`
	// Versions of what the repositories offer, by the names of the command's variables without _VERSION.
	Versions map[string]string `json:"versions"`
	// ImageBuild says whether the command can make the image, or has to ask for it as made.
	ImageBuild ImageBuild `json:"imageBuild"`
	Notes      []string   `json:"notes"`
}

// handler is the control API. Whoever may open the socket may do anything: it lies in a folder of the user's own.
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
		// A removal that has begun is finished, whether or not its caller waits.
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

// reply writes an answer or {"error": …}.
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
	_ = json.NewEncoder(rw).Encode(answer) // a caller that is gone needs no answer
}

// hetznerHandler is the simulated Hetzner API, and beside it who this lab is, for another one that needs its addresses.
func (w *World) hetznerHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", w.cloud.Handler())
	mux.HandleFunc("GET /lab", func(rw http.ResponseWriter, _ *http.Request) {
		reply(rw, Holder{Dir: w.cfg.Dir, PID: w.cfg.Network.PID()}, nil)
	})
	return mux
}

// Holder says which lab has an address.
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

// notes are what a person should know of the lab at present.
func (w *World) notes() []string {
	if short := shortage(len(w.processes.List())); short != "" {
		return append(slices.Clone(w.offer.Notes), short)
	}
	return w.offer.Notes
}

func (w *World) proxyURL() string { return "http://" + w.state.slot().hetznerProxy() }
func (w *World) caFile() string   { return w.path("pki", "ca.crt") }

// podEnv is what every Pod's process gets: it finds the simulated cloud where the real one would be.
func (w *World) podEnv() map[string]string {
	env := map[string]string{"HTTPS_PROXY": w.proxyURL(), "SSL_CERT_FILE": w.caFile()}
	if w.cfg.Latency == FastLatency {
		env[standin.TimeScaleVariable] = fmt.Sprint(fastScale)
	}
	return env
}
