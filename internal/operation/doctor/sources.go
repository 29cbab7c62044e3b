package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/blang/semver/v4"
	"helm.sh/helm/v3/pkg/repo"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/ensure/capiinit"
	"github.com/slipway-k8s/slipway/platform"
)

const (
	// githubNeeded is how many requests clusterctl makes of GitHub for the four providers, with some to spare.
	githubNeeded = 20
	// largestIndex bounds a chart repository's index; Cilium's is a few MiB.
	largestIndex = 32 << 20
)

// management asks who makes the management cluster; for kind that is the container engine.
func (d *Doctor) management(ctx context.Context) Finding {
	name := d.cfg.ManagementName()
	if d.selfManaged {
		return ok("cluster %s manages itself, and needs no management cluster", d.cfg.ClusterName)
	}
	if local, is := d.tools.Management.(platform.Possible); is {
		if err := local.Possible(ctx); err != nil {
			return failed("let this machine have them, or choose another MANAGEMENT", "%v", err)
		}
	}
	exists, err := d.tools.Management.Exists(ctx, name)
	switch {
	case err != nil && d.engineSilent(ctx):
		return unknown("see the check engine", "%s cannot be asked, as its container engine does not answer", d.manager())
	case err != nil:
		return failed("start it, or name an existing cluster in MANAGEMENT_KUBECONFIG", "%s does not answer: %v", d.manager(),
			err)
	case exists:
		if found, is := d.tools.Management.(platform.Adopter); is {
			if err := found.Adoptable(ctx, name); err != nil && ctx.Err() != nil {
				return unheard(err)
			} else if err != nil {
				return failed("do as the reason says, before a run needs the management cluster", "%v", err)
			}
		}
		return ok("%s answers; the management cluster %s is there", d.manager(), name)
	}
	return ok("%s answers; the management cluster %s is to be created", d.manager(), name)
}

// engineSilent reports whether the management cluster needs a container engine, and that does not answer.
func (d *Doctor) engineSilent(ctx context.Context) bool {
	user, uses := d.tools.Management.(platform.EngineUser)
	if !uses {
		return false
	}
	_, err := user.Engine(ctx)
	return err != nil
}

// manager is who makes the management cluster, as people call it.
func (d *Doctor) manager() string {
	switch name := d.tools.Management.Name(); name {
	case "kubeconfig":
		return "the cluster of MANAGEMENT_KUBECONFIG"
	case "lab":
		return "the lab"
	case config.ManagementLocal:
		return "a local management cluster"
	default:
		return name
	}
}

// providersReachable looks for the providers' releases, and for the contract that each keeps: the core, which is the
// first, has to run it.
func (d *Doctor) providersReachable(ctx context.Context) Finding {
	core := ""
	for _, p := range capi.ConfiguredProviders(d.cfg) {
		metadata, where, err := d.metadata(ctx, p)
		var missing *checks.MissingError
		switch {
		case errors.As(err, &missing):
			return failed("correct the version, or the repository", "%s %s: %v", p.Label, p.Version, err)
		case err != nil:
			return unknown("capi-init tries for a while before it gives up", "%s %s could not be asked for: %v", p.Label,
				p.Version, err)
		}
		keeps, err := contractOf(metadata, p.Version)
		if err != nil {
			return failed("choose a version of the provider that says which contract it keeps", "%s: %v", where, err)
		}
		switch {
		case p.Kind != capi.CoreProvider:
		case keeps != capi.ContractV1Beta1 && keeps != capi.ContractV1Beta2:
			return failed("choose another CAPI_VERSION", "Cluster API %s keeps the contract %s, which this version of Slipway "+
				"does not know", p.Version, keeps)
		default:
			core = keeps
		}
		if !capi.Compatible(core, keeps) {
			return failed("choose a version of the provider for Cluster API "+d.cfg.CAPIVersion, "%s %s keeps the contract "+
				"%s, and Cluster API %s keeps %s", p.Label, p.Version, keeps, d.cfg.CAPIVersion, core)
		}
	}
	return ok("the releases of all four providers are there, and go with the contract %s of Cluster API %s", core,
		d.cfg.CAPIVersion)
}

// metadata is a provider's metadata.yaml. A local repository must have its manifest beside it.
func (d *Doctor) metadata(ctx context.Context, p capi.Provider) (data []byte, where string, err error) {
	if local := d.cfg.ProviderRepository; local != "" {
		manifest := filepath.Join(local, p.Label, p.Version, p.File)
		if _, err := os.Stat(manifest); err != nil {
			return nil, manifest, &checks.MissingError{What: manifest}
		}
	}
	return d.file(ctx, p, "metadata.yaml", 1<<20)
}

// file is a file of a provider's release, from the local repository or the releases.
func (d *Doctor) file(ctx context.Context, p capi.Provider, name string, most int64) (data []byte, where string,
	err error) {
	if data, where, err = checks.LocalProviderFile(d.cfg, p, name); !errors.Is(err, checks.ErrNoRepository) {
		return data, where, err
	}
	if where, err = capiinit.Released(d.cfg, d.sources, p, name); err != nil {
		return nil, "", err
	}
	if where == "" {
		return nil, "", &checks.MissingError{What: "its address in " + d.sources.Clusterctl.Name}
	}
	data, err = d.fetch(ctx, where, most)
	return data, where, err
}

// contractOf reads which contract a provider's version keeps.
func contractOf(data []byte, version string) (string, error) {
	v, err := semver.ParseTolerant(version)
	if err != nil {
		return "", err
	}
	var m clusterctl.Metadata
	if err := yaml.Unmarshal(data, &m); err != nil {
		return "", err
	}
	for _, series := range m.ReleaseSeries {
		if uint64(series.Major) == v.Major && uint64(series.Minor) == v.Minor {
			return series.Contract, nil
		}
	}
	return "", fmt.Errorf("it says nothing of version %s", version)
}

// chartsReachable looks for the charts' versions in the indexes of their repositories, or asks their registries.
func (d *Doctor) chartsReachable(ctx context.Context) Finding {
	var found, unasked []string
	for _, in := range render.AllCharts(d.cfg, d.sources) {
		source := kube.ChartSource{Repository: in.Repository, Name: in.Name, Version: in.Version}
		address := kube.WithoutCredentials(in.Repository)
		if source.Registry() {
			switch has, err := source.InRegistry(ctx, d.tools.Files.Path("helm"), io.Discard); {
			case err != nil:
				unasked = append(unasked, fmt.Sprintf("%s (%v)", in.Name, err))
			case !has:
				return failed("choose a version that the registry has", "%s has no chart %s %s", address, in.Name, in.Version)
			default:
				found = append(found, in.Name+" "+in.Version)
			}
			continue
		}
		data, err := d.fetch(ctx, strings.TrimSuffix(in.Repository, "/")+"/index.yaml", largestIndex)
		if err != nil {
			unasked = append(unasked, fmt.Sprintf("%s (%v)", in.Name, err))
			continue
		}
		var index repo.IndexFile
		if err := yaml.Unmarshal(data, &index); err != nil {
			return failed("correct the repository", "%s: its index cannot be read: %v", address, err)
		}
		if !index.Has(in.Name, in.Version) {
			return failed("choose a version that the repository has", "%s has no chart %s %s", address, in.Name, in.Version)
		}
		found = append(found, in.Name+" "+in.Version)
	}
	if len(unasked) > 0 {
		there := ""
		if len(found) > 0 {
			there = "; there are " + strings.Join(found, ", ")
		}
		return unknown("the steps try for a while before they give up", "not known of %s%s", strings.Join(unasked, ", "),
			there)
	}
	return ok("%s are in their repositories", strings.Join(found, ", "))
}

// chartValues renders the charts with the values that they are installed with.
func (d *Doctor) chartValues(ctx context.Context) Finding {
	wrong, unchecked := checks.Charts(ctx, d.cfg, d.sources, render.AllCharts(d.cfg, d.sources),
		func(ctx context.Context, from kube.ChartSource) ([]byte, error) {
			return kube.DownloadChart(ctx, from, d.tools.Files.Path("helm"), io.Discard)
		})
	switch {
	case len(wrong) > 0:
		f := failed(wrong[0].Hint, "%s", wrong[0].Reason)
		f.Input = true
		return f
	case len(unchecked) > 0:
		return unknown("the steps that install them render them", "not rendered: %s", strings.Join(unchecked, "; "))
	}
	return ok("the charts render with their values")
}

// githubBudget asks for what is left of the requests that GitHub answers, which costs none of them.
func (d *Doctor) githubBudget(ctx context.Context) Finding {
	if d.cfg.ProviderRepository != "" {
		return ok("nothing is asked of GitHub: the providers come from %s", d.cfg.ProviderRepository)
	}
	data, err := d.fetch(ctx, d.github+"/rate_limit", 1<<20)
	if err != nil {
		return unknown("set GITHUB_TOKEN if capi-init is refused", "GitHub could not be asked: %v", err)
	}
	var answer struct {
		Rate struct{ Limit, Remaining int }
	}
	if err := json.Unmarshal(data, &answer); err != nil || answer.Rate.Limit == 0 {
		return unknown("set GITHUB_TOKEN if capi-init is refused", "GitHub's answer does not say how many requests are left")
	}
	with := "without GITHUB_TOKEN"
	if d.tools.GitHubToken.Reveal() != "" {
		with = "with GITHUB_TOKEN"
	}
	if answer.Rate.Remaining < githubNeeded {
		return failed("set GITHUB_TOKEN, or wait an hour", "%d of %d requests an hour are left at GitHub %s, the providers "+
			"may need %d", answer.Rate.Remaining, answer.Rate.Limit, with, githubNeeded)
	}
	return ok("%d of %d requests an hour are left at GitHub, %s", answer.Rate.Remaining, answer.Rate.Limit, with)
}

// fetch gets a file. That it does not exist is a *missingError.
func (d *Doctor) fetch(ctx context.Context, url string, most int64) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if token := d.tools.GitHubToken.Reveal(); token != "" && strings.HasPrefix(url, d.github+"/") {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := d.http.Do(request)
	if err != nil {
		return nil, kube.HideCredentials(err)
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotFound:
		return nil, &checks.MissingError{What: kube.WithoutCredentials(url)}
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers %s", kube.WithoutCredentials(url), response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, most))
}
