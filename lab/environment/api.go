package environment

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/lab/control"
	"github.com/slipway-k8s/slipway/lab/folder"
	"github.com/slipway-k8s/slipway/lab/programs"
)

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
	// Clusters are the ranges of the clusters that have asked for some, by their names; those above are the first one's.
	Clusters map[string]ClusterRanges `json:"clusterRanges"`
	// ProviderRepository is the folder of clusterctl's local repositories.
	ProviderRepository string `json:"providerRepository"`
	CertManagerURL     string `json:"certManagerUrl"` // path of its manifest
	CertManagerVersion string `json:"certManagerVersion"`
	// ChartRepositories are URLs by chart.
	ChartRepositories map[string]string `json:"chartRepositories"`
	// Versions are those that the repositories offer, by the names of the command's variables without _VERSION.
	Versions map[string]string `json:"versions"`
	// Offers are all versions of what the repositories offer several of, by the same names.
	Offers map[string][]string `json:"offers"`
	// AnyVersion are the charts, by the same names, that the lab can offer as any version.
	AnyVersion []string `json:"anyVersion"`
	// Kubernetes is the version that management clusters run where none is asked for.
	Kubernetes string `json:"kubernetes"`
	// KubernetesSets are the versions that servers choose from, CoreSets those of Cluster API's core.
	KubernetesSets []programs.Description `json:"kubernetesSets"`
	CoreSets       []programs.Description `json:"coreSets"`
	// Flux is the repository of Flux's manifests; the zero value: the lab has not been given Flux's programs.
	Flux Flux `json:"flux"`
	// Gitea is what runs behind Gitea's Pod.
	Gitea Gitea `json:"gitea"`
	// Git is the lab's Git repository; the zero value: there is none, and the notes say why.
	Git Git `json:"git"`
	// ImageBuild says whether the command can build the image, or has to have the lab create its snapshot.
	ImageBuild ImageBuild `json:"imageBuild"`
	Notes      []string   `json:"notes"`
}

// handler is the control API. It has no authorization: the socket is in a folder that only the user can open.
func (lab *Lab) handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, do func(*http.Request) (any, error)) { control.Handle(mux, pattern, do) }
	handle("GET /v1/info", func(r *http.Request) (any, error) { return lab.info(), nil })
	handle("GET /v1/status", func(r *http.Request) (any, error) { return lab.status(), nil })
	lab.managements.Serve(mux)
	handle("PUT /v1/images/{name}", func(r *http.Request) (any, error) {
		return struct{}{}, lab.ensureImage(r.PathValue("name"))
	})
	handle("PUT /v1/clusters/{name}", func(r *http.Request) (any, error) {
		return lab.admitCluster(r.PathValue("name"))
	})
	lab.faults.serve(handle)
	mux.HandleFunc("POST /v1/freeze", lab.serveFreeze)
	handle("PUT /v1/kubernetes", lab.servePrograms(lab.kubernetes, func(context.Context) error { return nil }))
	handle("PUT /v1/core", lab.servePrograms(lab.core, lab.offerCore))
	handle("PUT /v1/charts", lab.serveCharts)
	handle("PUT /v1/flux", lab.serveFlux)
	handle("PUT /v1/gitea", lab.serveGitea)
	handle("PUT /v1/git", lab.serveGit)
	handle("POST /v1/down", func(r *http.Request) (any, error) {
		defer lab.endOnce.Do(func() { close(lab.down) })
		return struct{}{}, lab.stop()
	})
	return mux
}

// hetznerHandler serves the simulated Hetzner API and the identity of this lab, for another lab that needs its
// addresses.
func (lab *Lab) hetznerHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", lab.cloud.Handler())
	mux.Handle("GET /lab", folder.HolderHandler(lab.cfg.Dir, lab.cfg.Network.PID()))
	return mux
}

func (lab *Lab) info() Info {
	s := lab.state.Slot()
	first, offer := rangesOf(s, 0), lab.offer.get()
	return Info{
		PID: lab.cfg.Network.PID(), StartedAt: lab.started,
		HetznerEndpoint: "http://" + s.HetznerAPI() + "/v1", Proxy: lab.proxyURL(), CAFile: lab.caFile(), Token: lab.token,
		NetworkCIDR: first.NetworkCIDR, ControlPlaneCIDR: first.ControlPlaneCIDR,
		PodCIDR: first.PodCIDR, ServiceCIDR: first.ServiceCIDR, Clusters: lab.clusterRanges(),
		ProviderRepository: offer.Providers,
		CertManagerURL:     offer.CertManager, CertManagerVersion: offer.CertManagerVersion,
		ChartRepositories: lab.chartRepositories(),
		Versions:          offer.Versions,
		Offers:            offer.Offers,
		AnyVersion:        offer.AnyVersion,
		Kubernetes:        lab.kubernetes.List()[0].Version(),
		KubernetesSets:    lab.kubernetes.Describe(),
		CoreSets:          lab.core.Describe(),
		Flux:              lab.flux.get(),
		Gitea:             lab.giteaInfo(),
		Git:               lab.git.info,
		ImageBuild:        lab.imageBuild,
		Notes:             lab.notes(),
	}
}

// notes are the current limitations of the lab that its user should know.
func (lab *Lab) notes() []string {
	notes := slices.Clone(lab.offer.get().Notes)
	if lab.git.missing != "" {
		notes = append(notes, lab.git.missing)
	}
	if short := shortage(len(lab.processes.List())); short != "" {
		notes = append(notes, short)
	}
	return notes
}

func (lab *Lab) proxyURL() string { return "http://" + lab.state.Slot().HetznerProxy() }
func (lab *Lab) caFile() string   { return lab.path("pki", "ca.crt") }

// podEnv is the environment of the process of every Pod: it sends requests for api.hetzner.cloud to the simulated
// cloud.
func (lab *Lab) podEnv() map[string]string {
	env := map[string]string{"HTTPS_PROXY": lab.proxyURL(), "SSL_CERT_FILE": lab.caFile()}
	maps.Copy(env, lab.cfg.Latency.StandInEnv())
	return env
}
