package steps

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/platform"
)

// AddonStep is the name of the step that installs an add-on.
func AddonStep(name string) string { return "addon-" + name }

// podSecurityLabel on a namespace is the level of Pod Security that it enforces.
const podSecurityLabel = "pod-security.kubernetes.io/enforce"

// Addon is an add-on in the workload cluster.
type Addon struct {
	Release  Release `json:"release"`
	Deferred string  `json:"deferred,omitempty"` // why it is not installed yet; empty: it is
}

// Addons are the releases of the add-ons.
type Addons struct {
	Releases []Release `json:"releases,omitempty"`
	// LeftOut are releases, as namespace/name, that Slipway installed and that are not configured any more.
	LeftOut []string `json:"leftOut,omitempty"`
}

// Addon adds the step of an add-on to a graph. before are the steps of the add-ons that it is installed after.
func (s *Set) Addon(g *flow.Graph, a config.Addon, before ...flow.Node) *flow.Step[Addon] {
	step := newAddonStep(s, a)
	doc := fmt.Sprintf("add-on: chart %s %s in namespace %s", a.Chart, a.Version, a.Namespace)
	if a.Name == config.AddonAutoscaler {
		doc += ", once the cluster manages itself"
	}
	return flow.Add(g, flow.Task[Addon]{
		Name:     AddonStep(a.Name),
		Doc:      doc,
		Run:      doIn(s, step.run),
		After:    before,
		Spec:     s.made.releases[AddonStep(a.Name)],
		Verify:   verifyIn(s, platform.Kubeconfig, step.verify),
		Deadline: releaseDeadline(step.cfg),
		Waits:    append(waitRelease(step.cfg), wait.Taken, wait.Answer),
	})
}

// EachAddon adds the step of each configured add-on, after other steps and after those that the add-on names, and the
// one of Gitea's token, which comes before what is installed after Gitea; nil: there is no Gitea.
func (s *Set) EachAddon(g *flow.Graph, after ...flow.Node) (all []*flow.Step[Addon], token *flow.Step[GiteaToken]) {
	byName := map[string]flow.Node{}
	for _, a := range s.cfg.InstallOrder() {
		before := slices.Clone(after)
		for _, other := range a.After {
			before = append(before, byName[other])
		}
		step := s.Addon(g, a, before...)
		all = append(all, step)
		if byName[a.Name] = step; a.Name == config.AddonGitea {
			token = s.GiteaToken(g, step)
			byName[a.Name] = token
		}
	}
	return all, token
}

// addonStep runs and verifies the step of an add-on.
type addonStep struct {
	addon config.Addon
	*Set
}

// newAddonStep makes the step of an add-on that has its defaults, with its time-out in the place of RELEASE_TIMEOUT.
func newAddonStep(s *Set, a config.Addon) addonStep {
	own := *s
	own.cfg.ReleaseTimeout = s.cfg.Within(a)
	return addonStep{addon: a, Set: &own}
}

// addonSpec is what the step of an add-on is made from.
func addonSpec(a config.Addon, sources render.Sources) (any, error) {
	release, err := releaseSpec(sources, render.AddonChart(a, sources))
	if err != nil {
		return nil, err
	}
	return map[string]any{"release": release, "namespace": a.Namespace, "podSecurity": a.PodSecurity, "wait": a.Waits()},
		nil
}

func (s addonStep) run(ctx context.Context, say flow.Say, workload *kube.Cluster) (Addon, error) {
	reason, err := s.deferred(ctx, say)
	if err != nil {
		return Addon{}, err
	}
	if reason != "" {
		say("note: %s is not installed: %s", s.addon.Name, reason)
		return Addon{Deferred: reason}, nil
	}
	if err := s.namespace(ctx, say, workload); err != nil {
		return Addon{}, err
	}
	if s.addon.Name == config.AddonGitea {
		if err := s.giteaAdmin(ctx, say, workload); err != nil {
			return Addon{}, err
		}
	}
	release, err := s.install(ctx, say, workload, render.AddonChart(s.addon, s.sources), s.awaited)
	return Addon{Release: s.awaited(release)}, err
}

// awaited is a release with the workloads that a run waits for, and verifies.
func (s addonStep) awaited(r Release) Release {
	if !s.addon.Waits() {
		r.Workloads = nil
	}
	return r
}

// deferred says why an add-on is not installed yet; empty: it can be. The cluster autoscaler scales MachineDeployments,
// which are in the management cluster until the pivot; without Cluster API's kinds it ends again and again.
func (s addonStep) deferred(ctx context.Context, say flow.Say) (string, error) {
	if s.addon.Name != config.AddonAutoscaler {
		return "", nil
	}
	self, err := s.selfManaged(ctx, say)
	if err != nil || self != nil {
		return "", err
	}
	return "it scales the cluster's MachineDeployments, which are in the management cluster until the pivot: " +
		s.tools.Command("all") + " moves them and installs it", nil
}

// namespace ensures that the release's namespace exists, which Helm does not create.
func (s addonStep) namespace(ctx context.Context, say flow.Say, workload *kube.Cluster) error {
	if s.addon.Namespace == "kube-system" {
		return nil
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	o.SetName(s.addon.Namespace)
	if s.addon.PodSecurity != "" {
		o.SetLabels(map[string]string{podSecurityLabel: s.addon.PodSecurity})
	}
	return apply.Object(ctx, say, workload, o)
}

func (s addonStep) verify(ctx context.Context, workload *kube.Cluster, was Addon) flow.Verdict {
	if was.Deferred == "" && s.addon.Name == config.AddonGitea {
		if _, _, err := giteaCredentials(ctx, workload); err != nil {
			return kube.Verdict(err)
		}
	}
	if was.Deferred == "" {
		return s.verifyRelease(ctx, workload, was.Release)
	}
	reason, err := s.deferred(ctx, nil)
	switch {
	case err != nil:
		return flow.Unknown(err)
	case reason == "":
		return flow.Gone("the cluster manages itself now, and %s can be installed", s.addon.Name)
	}
	return flow.Holds()
}

// Addons adds the step addons to a graph: every add-on is installed.
func (s *Set) Addons(g *flow.Graph, all []*flow.Step[Addon]) *flow.Step[Addons] {
	return flow.Add(g, flow.Task[Addons]{
		Name:     "addons",
		Doc:      "every add-on is installed; releases that are no longer among them are named",
		Run:      flow.WithAll(s.runAddons, all),
		Spec:     map[string]any{"releases": s.cfg.AddonNames()},
		Deadline: wait.Overhead,
	})
}

// runAddons names the releases that were add-ons and are none any more. It does not remove them: what they hold, such
// as the volumes of a CSI driver, may be in use.
func (s *Set) runAddons(ctx context.Context, say flow.Say, all []Addon) (Addons, error) {
	var out Addons
	for _, a := range all {
		if a.Deferred == "" {
			out.Releases = append(out.Releases, a.Release)
		}
	}
	workload, err := connect.Cluster(s.tools, platform.Kubeconfig)
	if err != nil {
		return Addons{}, err
	}
	left, err := leftOut(ctx, workload, render.AllCharts(s.cfg, s.sources))
	if err != nil {
		return Addons{}, err
	}
	for _, r := range left {
		out.LeftOut = append(out.LeftOut, r.Namespace+"/"+r.Name)
		say("note: Helm release %s in namespace %s is no add-on of the configuration any more, and stays as it is. To remove "+
			"it: helm uninstall %s --namespace %s --kubeconfig %s", r.Name, r.Namespace, r.Name, r.Namespace,
			s.tools.Files.Path(platform.Kubeconfig))
	}
	return out, nil
}

// leftOut are the releases that Slipway installed and that are not among these charts.
func leftOut(ctx context.Context, workload *kube.Cluster, wanted []render.Chart) ([]kube.ReleaseState, error) {
	releases, err := workload.Releases(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(releases, func(r kube.ReleaseState) bool {
		return r.Owner == "" || slices.ContainsFunc(wanted, func(in render.Chart) bool {
			return in.Release == r.Name && in.Namespace == r.Namespace
		})
	}), nil
}
