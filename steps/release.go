package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"helm.sh/helm/v3/pkg/chart"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
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

// install brings a release to its chart and values, and waits until its workloads are ready: those that needed selects,
// which the next steps need; nil: all.
func install(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources, say flow.Say,
	in render.Chart, needed func(Release) Release) (Release, error) {
	if err := checks.RefuseValues(cfg, sources, in); err != nil {
		return Release{}, err
	}
	workload, err := connect.Cluster(tools, platform.Kubeconfig)
	if err != nil {
		return Release{}, err
	}
	logs := tools.Command("logs", in.Program, "--no-follow")
	left, err := leftToFlux(ctx, cfg, tools, say, workload, in)
	if err != nil {
		return Release{}, err
	}
	if left != nil {
		return *left, waitWorkloads(ctx, cfg, say, workload, selected(*left, needed), logs)
	}
	values, err := in.Values.Values(sources.Vars)
	if err != nil {
		return Release{}, err
	}
	from := kube.ChartSource{Repository: in.Repository, Name: in.Name, Version: in.Version}
	say("downloading chart %s", from)
	var ch *chart.Chart
	err = wait.Retry(ctx, say, "the download", func() (err error) {
		ch, err = kube.LoadChart(ctx, from, tools.Files.Path("helm"), tools.Log)
		return err
	})
	if err != nil {
		return Release{}, err
	}
	done, err := ensureRelease(ctx, cfg, tools, say, workload, in, ch, values)
	if err != nil {
		return Release{}, err
	}
	out := Release{Name: in.Release, Namespace: in.Namespace, Chart: in.Name, Version: in.Version, Revision: done.Revision}
	workloads, err := kube.Workloads(done.Manifest, in.Namespace)
	if err != nil {
		return Release{}, err
	}
	for _, w := range workloads {
		out.Workloads = append(out.Workloads, Workload(w))
	}
	return out, waitWorkloads(ctx, cfg, say, workload, selected(out, needed), logs)
}

// selected is a release with the workloads that needed selects; nil: all.
func selected(r Release, needed func(Release) Release) Release {
	if needed == nil {
		return r
	}
	return needed(r)
}

// ensureRelease installs or upgrades the release, as soon as no other process works on it and the cluster knows the
// kinds that its chart is made of. Talos defines its own ServiceAccount, which the Talos CCM uses, some seconds after
// the API first answers; Helm looks at the kinds before it writes anything down, so trying again leaves nothing behind.
func ensureRelease(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say, workload *kube.Cluster,
	in render.Chart, ch *chart.Chart, values map[string]any) (done *kube.Release, err error) {
	log := func(format string, args ...any) {
		fmt.Fprintf(tools.Log, "helm "+in.Release+": "+format+"\n", args...)
	}
	owner, err := ownership.Identity(tools)
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := workload.Changes(watching, releaseRecords(in))
	timeout, recovered := cfg.ReleaseTimeout.D(), ""
	wanted := kube.Wanted{Name: in.Release, Chart: ch, Values: values, Recovered: &recovered}
	err = wait.Wait{What: "release " + in.Release, Within: timeout, Each: timeout, Changes: changes}.Until(ctx, say,
		func(ctx context.Context) (string, error) {
			helm, err := workload.Helm(in.Namespace, owner, log) // again, because it remembers which kinds there are
			if err != nil {
				return "", wait.Final(err)
			}
			wanted.State = func(r *kube.Release) (kube.WorkloadState,
				error) {
				return releaseState(ctx, workload, r, in.Namespace)
			}
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

// releaseRecords selects what Helm keeps about a release, by its metadata: there are charts inside.
func releaseRecords(in render.Chart) kube.Selection {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	return kube.Selection{List: list,
		Options: []client.ListOption{client.InNamespace(in.Namespace), kube.ReleaseLabels(in.Release)}}
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
func waitWorkloads(ctx context.Context, cfg config.Config, say flow.Say, workload *kube.Cluster, r Release,
	log string) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	in := []client.ListOption{client.InNamespace(r.Namespace)}
	changes := workload.Changes(watching,
		kube.Selection{List: &appsv1.DeploymentList{}, Options: in},
		kube.Selection{List: &appsv1.DaemonSetList{}, Options: in},
		kube.Selection{List: &corev1.PodList{}, Options: in},
	)
	return wait.Wait{What: r.Name, Within: cfg.ReleaseTimeout.D(), Changes: changes}.Until(ctx, say,
		func(ctx context.Context) (string, error) {
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

// verify asks whether the release is at the recorded revision and its workloads are ready.
func (r releaseStep) verify(ctx context.Context, was Release) flow.Verdict {
	workload, err := connect.Cluster(r.tools, platform.Kubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	revision, err := workload.DeployedRevision(ctx, was.Namespace, was.Name)
	switch {
	case err != nil:
		return kube.Verdict(err)
	case revision == 0:
		return flow.Gone("Helm release %s is not deployed any more", was.Name)
	case revision != was.Revision:
		if by, err := fluxManages(ctx, r.cfg, workload, was.Namespace, was.Name); err != nil {
			return flow.Unknown(err)
		} else if by != "" {
			break // the revision is Flux's
		}
		return flow.Gone("Helm release %s is at revision %d instead of %d", was.Name, revision, was.Revision)
	}
	unready, err := was.unready(ctx, workload)
	switch {
	case err != nil:
		return kube.Verdict(err)
	case unready != "":
		return flow.Gone("%s", unready)
	}
	return flow.Holds()
}
