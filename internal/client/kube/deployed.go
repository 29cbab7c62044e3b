package kube

import (
	"errors"
	"fmt"

	"helm.sh/helm/v3/pkg/storage/driver"
)

// DeployedRelease is a release as Helm's record has it.
type DeployedRelease struct {
	Revision int
	Chart    string         // its name
	Version  string         // of the chart
	Values   map[string]any // that were given; may hold secrets
	// Manifest are the objects of the release; may hold secrets.
	Manifest string
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
	return &DeployedRelease{Revision: r.Version, Chart: r.Chart.Metadata.Name, Version: r.Chart.Metadata.Version,
		Values: r.Config, Manifest: r.Manifest}, nil
}
