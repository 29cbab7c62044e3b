package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"helm.sh/helm/v3/pkg/chart"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// Release is a Helm release in the workload cluster.
type Release struct {
	Name      string     `json:"name"`
	Namespace string     `json:"namespace"`
	Chart     string     `json:"chart"`
	Version   string     `json:"version"` // of the chart
	Revision  int        `json:"revision"`
	Workloads []Workload `json:"workloads"`
}

// Workload is what runs Pods of a release.
type Workload struct {
	Kind      string `json:"kind"` // Deployment, DaemonSet, StatefulSet or Job
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// onEveryNode is the release with those of its workloads that run on every node.
func (r Release) onEveryNode() Release {
	r.Workloads = slices.DeleteFunc(slices.Clone(r.Workloads), func(w Workload) bool { return w.Kind != "DaemonSet" })
	return r
}

// unready tells which workload of a release is not ready, and why; empty: all are.
func (r Release) unready(ctx context.Context, in *kube.Cluster) (string, error) {
	return in.Unready(ctx, r.workloads()...)
}

func (r Release) workloads() []kube.Workload {
	workloads := make([]kube.Workload, len(r.Workloads))
	for i, w := range r.Workloads {
		workloads[i] = kube.Workload(w)
	}
	return workloads
}

func releaseSpec(sources render.Sources, in render.Chart) (any, error) {
	values, err := in.Values.Digest(sources.Vars)
	if err != nil {
		return nil, err
	}
	if _, err := in.Values.Values(sources.Vars); err != nil {
		return nil, err
	}
	return map[string]any{"chart": in.Name, "repository": kube.WithoutCredentials(in.Repository), "version": in.Version,
		"values": values}, nil
}

// releaseOf is a release of a chart as it is deployed.
func releaseOf(in render.Chart, version string, revision int, manifest string) (Release, error) {
	workloads, err := kube.Workloads(manifest, in.Namespace)
	return Release{Name: in.Release, Namespace: in.Namespace, Chart: in.Name, Version: version, Revision: revision,
		Workloads: recorded(workloads)}, err
}

// recorded are workloads as the journal has them.
func recorded(workloads []kube.Workload) (all []Workload) {
	for _, w := range workloads {
		all = append(all, Workload(w))
	}
	return all
}

// install brings a release to its chart and values, and waits until its workloads are ready: those that needed selects,
// which the next steps need; nil: all. A release that Flux manages it leaves alone.
func (s *Set) install(ctx context.Context, say flow.Say, workload *kube.Cluster, in render.Chart,
	needed func(Release) Release) (Release, error) {
	return s.installAfter(ctx, say, workload, in, nil, needed)
}

// installAfter is install with what comes before the release has its own values; nil: nothing.
func (s *Set) installAfter(ctx context.Context, say flow.Say, workload *kube.Cluster, in render.Chart,
	before func(context.Context, flow.Say, *charted) error, needed func(Release) Release) (Release, error) {
	if err := checks.RefuseValues(s.cfg, s.sources, in); err != nil {
		return Release{}, err
	}
	out, left, err := s.leftToFlux(ctx, say, workload, in)
	if err == nil && !left {
		out, err = s.ensureRelease(ctx, say, workload, in, before)
	}
	if err != nil {
		return Release{}, err
	}
	awaited := out
	if needed != nil {
		awaited = needed(out)
	}
	return out, s.waitWorkloads(ctx, say, workload, awaited, s.tools.Command("logs", in.Program, "--no-follow"))
}

func (s *Set) ensureRelease(ctx context.Context, say flow.Say, workload *kube.Cluster, in render.Chart,
	before func(context.Context, flow.Say, *charted) error) (Release, error) {
	c, err := s.download(ctx, say, workload, in)
	if err != nil {
		return Release{}, err
	}
	if err := c.refuseSecond(); err != nil {
		return Release{}, err
	}
	if before != nil {
		if err := before(ctx, say, c); err != nil {
			return Release{}, err
		}
	}
	values, err := c.values()
	if err != nil {
		return Release{}, err
	}
	done, err := c.ensure(ctx, say, values, c.state)
	if err != nil {
		return Release{}, err
	}
	return releaseOf(in, in.Version, done.Revision, done.Manifest)
}

// charted is a release with its chart, as Helm installs it.
type charted struct {
	*Set
	render.Chart
	workload *kube.Cluster
	chart    *chart.Chart
	owner    string
}

// download fetches the chart of a release.
func (s *Set) download(ctx context.Context, say flow.Say, workload *kube.Cluster, in render.Chart) (*charted, error) {
	if _, err := in.Values.Values(s.sources.Vars); err != nil {
		return nil, err
	}
	from := kube.ChartSource{Repository: in.Repository, Name: in.Name, Version: in.Version}
	say("downloading chart %s", from)
	c := &charted{Set: s, Chart: in, workload: workload}
	err := wait.Retry(ctx, say, "the download", func() (err error) {
		c.chart, err = kube.LoadChart(ctx, from, s.tools.Files.Path("helm"), s.tools.Log)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.owner, err = ownership.Identity(s.tools)
	return c, err
}

// refuseSecond refuses to install one of the charts that every cluster gets a second time, under another name: the two
// would work on the same nodes.
func (c *charted) refuseSecond() error {
	if !slices.ContainsFunc(render.OwnCharts(c.cfg, c.sources),
		func(own render.Chart) bool { return own.Program == c.Program }) {
		return nil // an add-on, which may be there twice
	}
	helm, err := c.helm()
	if err != nil {
		return err
	}
	all, err := helm.OfChart(c.Name)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.Name != c.Release {
			return fmt.Errorf("chart %s is installed in namespace %s already, as Helm release %s, and a second release of it, %s, "+
				"would work on the same nodes: set %s=%s, or uninstall that release", c.Name, c.Namespace, other.Name, c.Release,
				c.Variable("RELEASE"), other.Name)
		}
	}
	return nil
}

// values are those that are configured, a copy.
func (c *charted) values() (map[string]any, error) { return c.Values.Values(c.sources.Vars) }

// helm is a Helm that has looked at the kinds of the cluster just now.
func (c *charted) helm() (*kube.Helm, error) {
	return c.workload.Helm(c.Namespace, c.owner, func(format string, args ...any) {
		fmt.Fprintf(c.tools.Log, "helm "+c.Release+": "+format+"\n", args...)
	})
}

// ensure installs or upgrades the release, as soon as no other process works on it and the cluster knows the kinds that
// its chart is made of. Talos defines its own ServiceAccount, which the Talos CCM uses, some seconds after the API
// first answers; Helm looks at the kinds before it writes anything down, so trying again leaves nothing behind.
func (c *charted) ensure(ctx context.Context, say flow.Say, values map[string]any,
	state func(context.Context, *kube.Release) (kube.WorkloadState, error)) (done *kube.Release, err error) {
	// What Helm keeps about a release is selected by its metadata: there are charts inside.
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	records := []kube.Selection{{List: list,
		Options: []client.ListOption{client.InNamespace(c.Namespace), kube.ReleaseLabels(c.Release)}}}
	timeout, recovered := c.cfg.ReleaseTimeout.D(), ""
	wanted := kube.Wanted{Name: c.Release, Chart: c.chart, Values: values, Recovered: &recovered}
	w := wait.Wait{What: "release " + c.Release, Within: timeout, Each: timeout}
	err = untilIn(ctx, say, w, c.workload, records, func(ctx context.Context) (string, error) {
		helm, err := c.helm()
		if err != nil {
			return "", wait.Final(err)
		}
		wanted.State = func(r *kube.Release) (kube.WorkloadState, error) { return state(ctx, r) }
		done, err = helm.Ensure(ctx, say, wanted)
		var busy *kube.BusyError
		switch {
		case errors.As(err, &busy):
			return busy.Error(), nil
		case err != nil && kube.UnknownKind(err):
			return "the cluster does not know all kinds of its chart yet: " + err.Error(), nil
		case err != nil && kube.Transient(err):
			return "", err // an API server that has just come up, under load, drops a call now and then
		case err != nil:
			return "", wait.Final(err)
		}
		return "", nil
	})
	return done, err
}

// state is how the release's workloads are.
func (c *charted) state(ctx context.Context, r *kube.Release) (kube.WorkloadState, error) {
	return releaseState(ctx, c.workload, r, c.Namespace)
}

func releaseState(ctx context.Context, workload *kube.Cluster, r *kube.Release, namespace string) (kube.WorkloadState,
	error) {
	workloads, err := kube.Workloads(r.Manifest, namespace)
	if err != nil {
		return kube.WorkloadState{}, err
	}
	exist, err := workload.Exist(ctx, workloads...)
	if err != nil || !exist {
		return kube.WorkloadState{Gone: !exist}, err
	}
	unready, err := workload.Unready(ctx, workloads...)
	return kube.WorkloadState{Unready: unready}, err
}

// waitWorkloads waits in Helm's place, which does not tell what it waits for. log is the command that shows the
// release's log. That the workloads stay available is the step wait-releases'.
func (s *Set) waitWorkloads(ctx context.Context, say flow.Say, workload *kube.Cluster, r Release, log string) error {
	w := wait.Wait{What: r.Name, Within: s.cfg.ReleaseTimeout.D()}
	return untilIn(ctx, say, w, workload, workloadsOf(r.Namespace), func(ctx context.Context) (string, error) {
		unready, err := r.unready(ctx, workload)
		if err != nil || unready == "" {
			return unready, err
		}
		runs, err := workload.Runs(ctx, r.workloads()...)
		if kube.Absent(err) {
			return unready, nil
		}
		if crashing := crashes(runs); crashing != "" {
			return fmt.Sprintf("%s (its log: %s)", unready, log), nil
		}
		return unready, err
	})
}

// verifyRelease asks whether the release is at the recorded revision and its workloads are ready.
func (s *Set) verifyRelease(ctx context.Context, workload *kube.Cluster, was Release) flow.Verdict {
	revision, err := workload.DeployedRevision(ctx, was.Namespace, was.Name)
	switch {
	case err != nil:
		return kube.Verdict(err)
	case revision == 0:
		return flow.Gone("Helm release %s is not deployed any more", was.Name)
	case revision != was.Revision:
		if by, err := s.fluxManages(ctx, workload, was.Namespace, was.Name); err != nil {
			return flow.Unknown(err)
		} else if by != "" {
			break // the revision is Flux's
		}
		return flow.Gone("Helm release %s is at revision %d instead of %d", was.Name, revision, was.Revision)
	}
	return complete(was.unready(ctx, workload))
}

// waitRelease are the waits of a step that installs a release.
func waitRelease(c config.Config) []flow.Wait {
	return []flow.Wait{wait.Download,
		{For: "the kinds of the chart, or another process's helm (RELEASE_TIMEOUT)", Within: c.ReleaseTimeout.D()},
		{For: "Helm's own work, which may begin when that wait is about to end (RELEASE_TIMEOUT)",
			Within: c.ReleaseTimeout.D()},
		{For: "the workloads (RELEASE_TIMEOUT)", Within: c.ReleaseTimeout.D()}}
}

func releaseDeadline(c config.Config) time.Duration { return 3*c.ReleaseTimeout.D() + wait.Overhead }
