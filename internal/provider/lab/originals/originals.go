// Package originals fetches the released programs that a lab has stand-ins for: CAPH, cert-manager and both cloud
// controller managers. Each comes with the manifest or chart that installs it; which images it runs follows from that.
//
// A release is one folder of the cache, which all labs of a user share: NAME/bin with the manifest or chart, the
// programs and original.json. It is renamed into place when it is whole.
package originals

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/images"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/ensure/capiinit"
)

// Names of the projects.
const (
	CAPH        = "caph"
	CertManager = "cert-manager"
	HCloudCCM   = "hcloud-ccm"
	TalosCCM    = "talos-ccm"
)

// Cache fetches releases and keeps them.
type Cache struct {
	Dir   string // a folder for each release
	Store *images.Store
	// Within bounds how long the manifest or chart of a release may take; 0: DefaultWithin.
	Within time.Duration
}

// DefaultWithin is far above what the largest manifest (1 MB) takes.
const DefaultWithin = 15 * time.Second

// Release is what is configured of a project.
type Release struct {
	Project string
	Version string
	Source  string // address of the manifest, or of the chart's repository
	Instead string // variable that names another place for it

	files []file            // of the manifest; none: it is a chart
	chart *kube.ChartSource // nil: it is a manifest
}

// file is a file of a release.
type file struct{ name, address string }

// Name is how people call it: "caph v1.0.7".
func (r Release) Name() string { return r.Project + " " + r.Version }

// Configured are the releases that a configuration uses.
func Configured(ctx context.Context, cfg config.Config, sources render.Sources) ([]Release, error) {
	caph, err := caphRelease(cfg, sources)
	if err != nil {
		return nil, err
	}
	version, manifest, err := capiinit.ReleasedCertManager(ctx, cfg, sources)
	if err != nil {
		return nil, err
	}
	return []Release{
		caph,
		{Project: CertManager, Version: version, Source: manifest, Instead: "CERT_MANAGER_URL",
			files: []file{{"cert-manager.yaml", manifest}}},
		chartRelease(HCloudCCM, "HCLOUD_CCM_REPOSITORY", render.HCloudCCMChart(cfg, sources)),
		chartRelease(TalosCCM, "TALOS_CCM_REPOSITORY", render.TalosCCMChart(cfg, sources)),
	}, nil
}

func caphRelease(cfg config.Config, sources render.Sources) (Release, error) {
	r := Release{Project: CAPH, Version: cfg.CAPHVersion, Instead: "PROVIDER_REPOSITORY"}
	for _, p := range capi.ConfiguredProviders(cfg) {
		if p.Kind != "InfrastructureProvider" {
			continue
		}
		for _, name := range []string{p.File, "metadata.yaml"} {
			address, err := capiinit.Released(cfg, sources, p, name)
			if err != nil {
				return r, err
			}
			r.files = append(r.files, file{name, address})
		}
		r.Source = r.files[0].address
	}
	return r, nil
}

func chartRelease(project, variable string, in render.Chart) Release {
	source := kube.ChartSource{Repository: in.Repository, Name: in.Name, Version: in.Version}
	return Release{Project: project, Version: in.Version, Source: kube.WithoutCredentials(in.Repository),
		Instead: variable, chart: &source}
}

// errNoAddress means that manifests/clusterctl.yaml has no address of a provider.
var errNoAddress = errors.New("manifests/clusterctl.yaml has no address for it")

// markOfStandIns is an annotation of the manifests and charts that a lab has in place of released ones.
const markOfStandIns = "slipway/stand-in"

// errStandIn means that the configured manifest or chart is not the released one.
var errStandIn = errors.New("the configured manifest or chart is that of the lab's stand-in")

// CorruptError means that what was received is not a release.
type CorruptError struct {
	What string
	Err  error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s cannot be used as it was received: %v", e.What, e.Err)
}

// Unwrap is the reason.
func (e *CorruptError) Unwrap() error { return e.Err }

// Refused reports whether a release was received and is not what it should be. Any other error of Fetch means that it
// could not be fetched, and a stand-in can take its place.
func Refused(err error) bool {
	_, corrupt := errors.AsType[*CorruptError](err)
	return corrupt || images.Refused(err) || kube.CorruptChart(err)
}

// largestFile is far above any manifest.
const largestFile = 64 << 20

// get reads a file of a release: of this machine where the address is a path.
func get(ctx context.Context, address string) ([]byte, error) {
	switch {
	case address == "":
		return nil, errNoAddress
	case filepath.IsAbs(address):
		return os.ReadFile(address)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", "slipway")
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, kube.HideCredentials(err)
	}
	defer reply.Body.Close()
	shown := kube.WithoutCredentials(address)
	if reply.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", shown, reply.Status)
	}
	data, err := io.ReadAll(io.LimitReader(reply.Body, largestFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", shown, err)
	case len(data) > largestFile:
		return nil, &CorruptError{shown, fmt.Errorf("it has more than %d MB", largestFile>>20)}
	}
	return data, nil
}
