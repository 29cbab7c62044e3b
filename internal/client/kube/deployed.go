package kube

import (
	"errors"
	"fmt"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/releaseutil"
	"helm.sh/helm/v3/pkg/storage/driver"
)

// DeployedRelease is a release as Helm's record has it.
type DeployedRelease struct {
	Name     string
	Revision int
	Chart    string         // its name
	Version  string         // of the chart
	Values   map[string]any // that were given; may hold secrets
	// Manifest are the objects of the release; may hold secrets.
	Manifest string

	record *release.Release
}

// MadeOf tells whether the release was made of this chart and these values.
func (d *DeployedRelease) MadeOf(ch *chart.Chart, values map[string]any) bool {
	return same(d.record, ch, values)
}

func toDeployed(r *release.Release) *DeployedRelease {
	return &DeployedRelease{Name: r.Name, Revision: r.Version, Chart: r.Chart.Metadata.Name, Version: r.Chart.Metadata.Version,
		Values: r.Config, Manifest: r.Manifest, record: r}
}

// Deployed reads a release. nil: there is none, or its last operation has not ended well.
func (h *Helm) Deployed(name string) (*DeployedRelease, error) {
	r, err := h.config.Releases.Deployed(name)
	if errors.Is(err, driver.ErrReleaseNotFound) || errors.Is(err, driver.ErrNoDeployedReleases) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read helm release %s in namespace %s: %w", name, h.namespace, err)
	}
	return toDeployed(r), nil
}

// OfChart are the releases in the namespace that are deployed from a chart of this name, whatever they are called.
func (h *Helm) OfChart(chart string) (all []*DeployedRelease, err error) {
	deployed, err := h.config.Releases.ListDeployed()
	if err != nil {
		return nil, fmt.Errorf("list the helm releases in namespace %s: %w", h.namespace, err)
	}
	for _, r := range deployed {
		if d := toDeployed(r); d.Chart == chart {
			all = append(all, d)
		}
	}
	return all, nil
}

// LastDeployed is the newest revision that was deployed, or is, and for which is reports true; nil: there is none.
func (h *Helm) LastDeployed(name string, is func(*DeployedRelease) bool) (*DeployedRelease, error) {
	history, err := h.config.Releases.History(name)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the history of helm release %s in namespace %s: %w", name, h.namespace, err)
	}
	releaseutil.Reverse(history, releaseutil.SortByRevision)
	for _, r := range history {
		if r.Info.Status != release.StatusDeployed && r.Info.Status != release.StatusSuperseded {
			continue
		}
		if d := toDeployed(r); is(d) {
			return d, nil
		}
	}
	return nil, nil
}

// Current tells whether the newest revision of a release is deployed, and made of this chart and these values.
func (h *Helm) Current(name string, ch *chart.Chart, values map[string]any) (bool, error) {
	last, err := h.config.Releases.Last(name)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read helm release %s in namespace %s: %w", name, h.namespace, err)
	}
	return last.Info.Status == release.StatusDeployed && same(last, ch, values), nil
}
