package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/release"
)

const (
	// keptRevisions is how many revisions of a release Helm keeps, its command's own default.
	keptRevisions = 10
	// hookTimeout bounds a single hook of a chart, Helm's own default.
	hookTimeout = 5 * time.Minute
)

// Helm installs releases into one namespace of a cluster, and keeps their records there.
type Helm struct {
	cluster   *Cluster
	config    *action.Configuration
	records   *records
	namespace string
}

// Helm makes a Helm for a namespace. owner is the name of who works with it, for the records: whoever has the same is
// never at work at the same time. log takes the library's messages.
func (c *Cluster) Helm(namespace, owner string, log func(format string, args ...any)) (*Helm, error) {
	g, err := newGetter(c.config, namespace)
	if err != nil {
		return nil, err
	}
	config := &action.Configuration{}
	if err := config.Init(g, namespace, "secret", log); err != nil {
		return nil, err
	}
	h := &Helm{cluster: c, config: config, namespace: namespace}
	h.records, config.Releases, err = newRecords(c, namespace, owner, log)
	return h, err
}

// Release is a deployed Helm release.
type Release struct {
	Name     string
	Revision int
	Manifest string // as applied; may hold secrets of a chart
	Changed  bool   // Ensure installed or upgraded it
}

// Wanted is what a release is to be.
type Wanted struct {
	Name   string
	Chart  *chart.Chart
	Values map[string]any
	// State looks at the workloads of a release that is deployed as it is wanted.
	State func(*Release) (WorkloadState, error)
	// Recovered keeps when and why the release was recovered, over several calls of one run; empty at its beginning.
	Recovered *string
}

// WorkloadState is how the workloads of a release are.
type WorkloadState struct {
	Gone    bool   // one of them does not exist
	Unready string // what is not ready, and why; empty: all are
}

// Ensure installs or upgrades a release to exactly this chart and these values, and leaves one alone that is so
// already. It does not wait for the workloads.
//
// A release that an operation left unfinished, or whose workloads never became ready, is recovered first, once, and
// said to be. While another process may be working on it the error is a *BusyError. The release is applied again in any
// case when a workload of it has gone.
func (h *Helm) Ensure(ctx context.Context, say func(string, ...any), w Wanted) (*Release, error) {
	h.records.recovered = *w.Recovered
	last, err := h.clear(ctx, say, w)
	if err != nil {
		return nil, err
	}
	if last != nil && last.Info.Status == release.StatusDeployed && same(last, w.Chart, w.Values) {
		r := toRelease(last, false)
		canStay, err := h.canStay(ctx, say, w, r)
		if err != nil {
			return nil, err
		}
		if canStay {
			return r, nil
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var done *release.Release
	if last == nil {
		say("installing release %s, chart version %s", w.Name, w.Chart.Metadata.Version)
		install := action.NewInstall(h.config)
		install.ReleaseName, install.Namespace, install.Timeout = w.Name, h.namespace, hookTimeout
		install.DisableOpenAPIValidation = true // see upgrade
		done, err = install.RunWithContext(ctx, w.Chart, w.Values)
	} else {
		say("upgrading release %s: %s", w.Name, difference(last.Chart, w.Chart))
		upgrade := action.NewUpgrade(h.config)
		upgrade.Namespace, upgrade.Timeout, upgrade.MaxHistory = h.namespace, hookTimeout, keptRevisions
		// it reads the API's whole description, tens of megabytes, to check a released chart
		upgrade.DisableOpenAPIValidation = true
		done, err = upgrade.RunWithContext(ctx, w.Name, w.Chart, w.Values)
	}
	if err != nil {
		return nil, fmt.Errorf("helm release %s in namespace %s: %w", w.Name, h.namespace, err)
	}
	return toRelease(done, true), nil
}

func toRelease(r *release.Release, changed bool) *Release {
	return &Release{Name: r.Name, Revision: r.Version, Manifest: r.Manifest, Changed: changed}
}

// lastGood is the newest revision that was once deployed in full; 0 for none.
func lastGood(history []*release.Release) int {
	for i := len(history) - 1; i >= 0; i-- {
		if s := history[i].Info.Status; s == release.StatusDeployed || s == release.StatusSuperseded {
			return history[i].Version
		}
	}
	return 0
}

// same reports whether a release was made from this chart and these values.
func same(r *release.Release, ch *chart.Chart, values map[string]any) bool {
	return r.Chart.Metadata.Version == ch.Metadata.Version && sameContent(r.Chart, ch) &&
		reflect.DeepEqual(plain(r.Config), plain(values))
}

// sameContent compares what charts are made of: another repository may have another chart under the same version. The
// record of a release does not have the charts that its chart depends on, and has their values among its own.
func sameContent(was, is *chart.Chart) bool {
	files := func(all ...[]*chart.File) map[string]string {
		content := map[string]string{}
		for _, f := range slices.Concat(all...) {
			content[f.Name] = string(f.Data)
		}
		return content
	}
	return maps.Equal(files(was.Templates, was.Files), files(is.Templates, is.Files)) &&
		(len(is.Metadata.Dependencies) > 0 || reflect.DeepEqual(plain(was.Values), plain(is.Values)))
}

// difference is what an upgrade of a release changes, as far as its charts tell.
func difference(was, is *chart.Chart) string {
	from, to := was.Metadata.Version, is.Metadata.Version
	switch {
	case from != to:
		return "chart " + from + " → " + to
	case sameContent(was, is):
		return "new values of chart " + to
	}
	return "chart " + to + ", which is another chart than the one that is deployed under this version"
}

// plain is values as they come back from Helm's record, which is JSON.
func plain(values map[string]any) map[string]any {
	out := map[string]any{}
	if data, err := json.Marshal(values); err == nil {
		_ = json.Unmarshal(data, &out) // what Marshal wrote
	}
	return out
}
