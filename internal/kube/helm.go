package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/releaseutil"
	"helm.sh/helm/v3/pkg/storage/driver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// keptRevisions is how many revisions of a release Helm keeps, its command's own default.
	keptRevisions = 10
	// hookTimeout bounds a single hook of a chart, Helm's own default.
	hookTimeout = 5 * time.Minute
)

// Helm installs releases into one namespace of a cluster, and keeps their records there.
type Helm struct {
	config    *action.Configuration
	namespace string
}

// Helm makes a Helm for a namespace. log takes the words of the library.
func (c *Cluster) Helm(namespace string, log func(format string, args ...any)) (*Helm, error) {
	g, err := newGetter(c.config, namespace)
	if err != nil {
		return nil, err
	}
	config := &action.Configuration{}
	if err := config.Init(g, namespace, "secret", log); err != nil {
		return nil, err
	}
	return &Helm{config: config, namespace: namespace}, nil
}

// Release is a deployed Helm release.
type Release struct {
	Name     string
	Revision int
	Manifest string // as applied; may hold secrets of a chart
	Changed  bool   // Ensure installed or upgraded it
}

// Ensure installs or upgrades a release to exactly this chart and these values, and leaves one alone that is so
// already. It does not wait for the workloads. What an interrupted run left pending is cleared first, and said.
//
// The release is applied anew in any case when intact returns false for it: a workload of it has gone.
func (h *Helm) Ensure(ctx context.Context, say func(string, ...any), name string, ch *chart.Chart, values map[string]any, intact func(*Release) (bool, error)) (*Release, error) {
	last, err := h.clear(say, name)
	if err != nil {
		return nil, err
	}
	if last != nil && last.Info.Status == release.StatusDeployed && same(last, ch, values) {
		r := toRelease(last, false)
		ok, err := intact(r)
		if err != nil {
			return nil, err
		}
		if ok {
			say("release %s is deployed already at chart version %s", name, ch.Metadata.Version)
			return r, nil
		}
		say("release %s is deployed but parts of it are gone; applying it again", name)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var done *release.Release
	if last == nil {
		say("installing release %s, chart version %s", name, ch.Metadata.Version)
		install := action.NewInstall(h.config)
		install.ReleaseName, install.Namespace, install.Timeout = name, h.namespace, hookTimeout
		install.DisableOpenAPIValidation = true // see upgrade
		done, err = install.RunWithContext(ctx, ch, values)
	} else {
		say("upgrading release %s from chart version %s to %s", name, last.Chart.Metadata.Version, ch.Metadata.Version)
		upgrade := action.NewUpgrade(h.config)
		upgrade.Namespace, upgrade.Timeout, upgrade.MaxHistory = h.namespace, hookTimeout, keptRevisions
		upgrade.DisableOpenAPIValidation = true // it reads the API's whole description, tens of megabytes, to check a released chart
		done, err = upgrade.RunWithContext(ctx, name, ch, values)
	}
	if err != nil {
		return nil, fmt.Errorf("helm release %s in namespace %s: %w", name, h.namespace, err)
	}
	return toRelease(done, true), nil
}

func toRelease(r *release.Release, changed bool) *Release {
	return &Release{Name: r.Name, Revision: r.Version, Manifest: r.Manifest, Changed: changed}
}

// clear makes way for an install or upgrade and returns the last revision that there is then, nil for none. Helm itself
// refuses to touch a release whose last operation never ended ("another operation is in progress"): the process died in
// it. With a good revision behind it the release goes back to that, otherwise it is removed.
func (h *Helm) clear(say func(string, ...any), name string) (*release.Release, error) {
	history, err := h.config.Releases.History(name)
	if errors.Is(err, driver.ErrReleaseNotFound) || err == nil && len(history) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read helm release %s in namespace %s: %w", name, h.namespace, err)
	}
	releaseutil.SortByRevision(history)
	last := history[len(history)-1]
	switch {
	case !last.Info.Status.IsPending() && last.Info.Status != release.StatusUninstalling && last.Info.Status != release.StatusUninstalled:
		return last, nil
	case last.Info.Status == release.StatusPendingUpgrade || last.Info.Status == release.StatusPendingRollback:
		if good := lastGood(history); good > 0 {
			say("release %s was left %s by an interrupted run; rolling it back to revision %d", name, last.Info.Status, good)
			rollback := action.NewRollback(h.config)
			rollback.Version, rollback.Timeout, rollback.MaxHistory = good, hookTimeout, keptRevisions
			if err := rollback.Run(name); err != nil {
				return nil, fmt.Errorf("roll helm release %s back to revision %d: %w", name, good, err)
			}
			return h.config.Releases.Last(name)
		}
	}
	say("release %s was left %s by an interrupted run; removing it before it is installed again", name, last.Info.Status)
	uninstall := action.NewUninstall(h.config)
	uninstall.Timeout, uninstall.Wait = hookTimeout, true
	if _, err := uninstall.Run(name); err != nil {
		return nil, fmt.Errorf("remove helm release %s: %w", name, err)
	}
	return nil, nil
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

// same tells whether a release was made from this chart version and these values.
func same(r *release.Release, ch *chart.Chart, values map[string]any) bool {
	return r.Chart.Metadata.Version == ch.Metadata.Version && reflect.DeepEqual(plain(r.Config), plain(values))
}

// plain is values as they come back from Helm's record, which is JSON.
func plain(values map[string]any) map[string]any {
	out := map[string]any{}
	if data, err := json.Marshal(values); err == nil {
		_ = json.Unmarshal(data, &out) // what Marshal wrote
	}
	return out
}

// DeployedRevision is the revision of a release that is deployed; 0 when its last revision is in any other state or
// there is none. It reads the labels of Helm's records only, not the charts inside.
func (c *Cluster) DeployedRevision(ctx context.Context, namespace, name string) (int, error) {
	records := &metav1.PartialObjectMetadataList{}
	records.SetGroupVersionKind(secretGVK)
	if err := c.List(ctx, records, client.InNamespace(namespace), client.MatchingLabels{"owner": "helm", "name": name}); err != nil {
		return 0, fmt.Errorf("list the records of helm release %s: %w", name, err)
	}
	last, deployed := 0, false
	for _, r := range records.Items {
		if v, err := strconv.Atoi(r.Labels["version"]); err == nil && v > last {
			last, deployed = v, r.Labels["status"] == release.StatusDeployed.String()
		}
	}
	if !deployed {
		return 0, nil
	}
	return last, nil
}
