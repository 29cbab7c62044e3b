package environment

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
	// Kubernetes is the version that the lab's control planes run, whichever is configured.
	Kubernetes string `json:"kubernetes"`
	// ImageBuild says whether the command can build the image, or has to have the lab create its snapshot.
	ImageBuild ImageBuild `json:"imageBuild"`
	Notes      []string   `json:"notes"`
}

// handler is the control API. It has no authorization: the socket is in a folder that only the user can open.
func (lab *Lab) handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, do func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(rw http.ResponseWriter, r *http.Request) {
			answer, err := do(r)
			reply(rw, answer, err)
		})
	}
	handle("GET /v1/info", func(r *http.Request) (any, error) { return lab.info(), nil })
	handle("GET /v1/status", func(r *http.Request) (any, error) { return lab.status(), nil })
	handle("GET /v1/management/{name}", func(r *http.Request) (any, error) {
		return describe(lab.managements.get(r.Context(), r.PathValue("name")))
	})
	handle("PUT /v1/management/{name}", func(r *http.Request) (any, error) {
		return describe(lab.managements.ensure(r.Context(), r.PathValue("name")))
	})
	handle("DELETE /v1/management/{name}", func(r *http.Request) (any, error) {
		// A removal is finished even if the client closes the connection.
		return struct{}{}, lab.managements.remove(context.WithoutCancel(r.Context()), r.PathValue("name"))
	})
	handle("PUT /v1/images/{name}", func(r *http.Request) (any, error) {
		return struct{}{}, lab.ensureImage(r.PathValue("name"))
	})
	lab.faults.serve(handle)
	mux.HandleFunc("POST /v1/freeze", lab.serveFreeze)
	handle("POST /v1/down", func(r *http.Request) (any, error) {
		defer lab.endOnce.Do(func() { close(lab.down) })
		return struct{}{}, lab.stop()
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
func (lab *Lab) hetznerHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", lab.cloud.Handler())
	mux.HandleFunc("GET /lab", func(rw http.ResponseWriter, _ *http.Request) {
		reply(rw, Holder{Dir: lab.cfg.Dir, PID: lab.cfg.Network.PID()}, nil)
	})
	return mux
}

// Holder is the lab that uses an address.
type Holder struct {
	Dir string `json:"dir"`
	PID int    `json:"pid"` // the process to signal
}

func (lab *Lab) info() Info {
	s := lab.state.slot()
	return Info{
		PID: lab.cfg.Network.PID(), StartedAt: lab.started,
		HetznerEndpoint: "http://" + s.hetznerAPI() + "/v1", Proxy: lab.proxyURL(), CAFile: lab.caFile(), Token: lab.token,
		NetworkCIDR: s.networkCIDR().String(), ControlPlaneCIDR: s.controlPlaneCIDR().String(),
		PodCIDR: s.podCIDR().String(), ServiceCIDR: s.serviceCIDR().String(),
		ProviderRepository: lab.offer.Providers,
		CertManagerURL:     lab.offer.CertManager, CertManagerVersion: lab.offer.CertManagerVersion,
		ChartRepositories: lab.chartRepositories(),
		Versions:          lab.offer.Versions,
		Kubernetes:        versionOf(lab.programInfo, "kube-apiserver"),
		ImageBuild:        lab.imageBuild,
		Notes:             lab.notes(),
	}
}

// notes are the current limitations of the lab that its user should know.
func (lab *Lab) notes() []string {
	if short := shortage(len(lab.processes.List())); short != "" {
		return append(slices.Clone(lab.offer.Notes), short)
	}
	return lab.offer.Notes
}

func (lab *Lab) proxyURL() string { return "http://" + lab.state.slot().hetznerProxy() }
func (lab *Lab) caFile() string   { return lab.path("pki", "ca.crt") }

// podEnv is the environment of the process of every Pod: it sends requests for api.hetzner.cloud to the simulated
// cloud.
func (lab *Lab) podEnv() map[string]string {
	env := map[string]string{"HTTPS_PROXY": lab.proxyURL(), "SSL_CERT_FILE": lab.caFile()}
	if lab.cfg.Latency == FastLatency {
		env[standin.TimeScaleVariable] = fmt.Sprint(fastScale)
	}
	return env
}
