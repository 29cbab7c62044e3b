// Package releases finds Flux HelmReleases that are stuck, and recovers each at most once in a generation.
//
// A HelmRelease is stuck where helm-controller has ended within an operation of Helm, which leaves Helm's newest record
// pending, or where the release is deployed and the report of that, the condition Ready, was lost. Healthy
// HelmReleases, those that the operator has suspended and those that their controller may be at work on are not
// touched.
package releases

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

const (
	// DefaultThreshold is how long a HelmRelease has to be as it is before it counts as stuck.
	DefaultThreshold = 5 * time.Minute
	// Most is how many HelmReleases one run recovers.
	Most = 10
)

// ErrNoKind says that a cluster does not know HelmReleases.
var ErrNoKind = fmt.Errorf("helm-controller's CustomResourceDefinition of %s is not installed", kind.GroupVersion())

// Options say which HelmReleases are recovered, and how.
type Options struct {
	Namespace string        // of the HelmReleases; empty: all
	Threshold time.Duration // see DefaultThreshold
	DryRun    bool          // change nothing
	By        string        // the program and its version, for the audit annotation
}

// Outcome is what a run did with a stuck HelmRelease.
type Outcome string

// The outcomes.
const (
	Recovered      Outcome = "recovered"
	WouldRecover   Outcome = "would recover"
	ChangedByOther Outcome = "changed meanwhile" // its controller, or the operator, has written it since it was examined
	Failed         Outcome = "failed"
	Refused        Outcome = "refused" // too many are stuck
)

// Stuck is a HelmRelease that was found stuck.
type Stuck struct {
	Namespace string  `json:"namespace"`
	Name      string  `json:"name"`
	Kind      Kind    `json:"kind"`
	Why       string  `json:"why"`
	What      string  `json:"what"` // was done, or would be
	Outcome   Outcome `json:"outcome"`
	Error     string  `json:"error,omitempty"`
}

// Left is a HelmRelease that is neither healthy nor recovered.
type Left struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Why       string `json:"why"`
}

// Report is what a run found and did.
type Report struct {
	Kind    string  `json:"kind"` // "recover-releases"
	DryRun  bool    `json:"dryRun"`
	Healthy int     `json:"healthy"`
	Stuck   []Stuck `json:"stuck"`
	Left    []Left  `json:"left"`
}

// TooManyError says that more HelmReleases are stuck than single ones that were interrupted. Nothing was changed.
type TooManyError struct{ Names []string }

// Error implements error.
func (e *TooManyError) Error() string {
	return fmt.Sprintf("%d HelmReleases are stuck at once, and one run recovers at most %d: something larger is wrong, and "+
		"nothing was changed. See whether helm-controller and source-controller run (kubectl -n flux-system get pods), and "+
		"whether the API server and etcd answer in time; then recover one namespace after another with recover-releases "+
		"--namespace. Stuck are %s", len(e.Names), Most, strings.Join(e.Names, ", "))
}

// Recover recovers the HelmReleases that are stuck. The report is complete with an error, too.
func Recover(ctx context.Context, cluster *kube.Cluster, say func(string, ...any), o Options) (Report, error) {
	report := Report{Kind: "recover-releases", DryRun: o.DryRun, Stuck: []Stuck{}, Left: []Left{}}
	all, now, err := find(ctx, cluster, o)
	if err != nil {
		return report, err
	}
	report.Healthy, report.Left = all.healthy, append(report.Left, all.left...)
	for _, s := range all.stuck {
		report.Stuck = append(report.Stuck, Stuck{s.release.Namespace, s.release.Name, s.kind, s.why, s.what, WouldRecover, ""})
	}
	if len(all.stuck) > Most {
		var names []string
		for i, s := range all.stuck {
			report.Stuck[i].Outcome = Refused
			names = append(names, s.release.Namespace+"/"+s.release.Name)
		}
		return report, &TooManyError{names}
	}
	if o.DryRun {
		return report, nil
	}
	var failed []error
	w := writer{cluster, now, o.By}
	for i, s := range all.stuck {
		if err := context.Cause(ctx); err != nil {
			return report, errors.Join(append(failed, err)...)
		}
		say("%s: %s; to recover it: %s", s.release, s.why, s.what)
		outcome, err := w.recover(ctx, s)
		if report.Stuck[i].Outcome = outcome; err != nil {
			report.Stuck[i].Error = err.Error()
		}
		if outcome == Failed {
			failed = append(failed, fmt.Errorf("recover %s: %w", s.release, err))
		}
	}
	return report, errors.Join(failed...)
}
