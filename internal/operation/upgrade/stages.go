package upgrade

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// Names of the stages. Those of charts are called as the steps of the bootstrap.
const (
	StageProviders  = "providers"
	StageImage      = "image"
	StageTalos      = "talos"
	StageKubernetes = "kubernetes-" // and the version: "kubernetes-1-33-13"
	StageWorkers    = "workers"
)

// Stage is a part of an upgrade, after which the cluster is whole.
type Stage struct {
	Name    string   `json:"name"`
	Changes []Change `json:"changes,omitempty"`
	Does    string   `json:"does"` // to what: "replaces the 3 control plane servers, one after another"
	Back    string   `json:"back"` // how it is undone, or that it cannot be
	// Servers tells of StageConfiguration that it replaces the control plane's servers.
	Servers bool `json:"servers,omitempty"`
}

// String is "talos: Talos Linux v1.12.2 → v1.13.9, replaces the 3 control plane servers, one after another".
func (s Stage) String() string {
	var what []string
	for _, c := range s.Changes {
		what = append(what, c.String())
	}
	return s.Name + ": " + strings.Join(append(what, s.Does), ", ")
}

// RefusedError says why an upgrade does not begin. Nothing was changed.
type RefusedError struct{ Why []string }

// Error implements error.
func (e *RefusedError) Error() string { return "the change is refused: " + strings.Join(e.Why, "\n") }

// request is what stages are planned for.
type request struct {
	table    *config.Table
	from, to Versions
	via      map[uint64]string // minor of Kubernetes → patch release to go through; missing: the newest that is known
	rolling  string            // Kubernetes version that the control plane is being changed to; empty: it is not
	held     bool              // an upgrade of Cilium has not come past its canary node
	replicas int               // servers of the control plane
	workers  []string          // what becomes of the worker pools; empty: nothing
	inPlace  bool              // Talos is upgraded without replacing the servers
	kubelets string            // the lowest Kubernetes version of a worker's kubelet; empty: there are no workers
	image    string            // IMAGE_NAME of the configuration
	cutOff   bool              // an earlier upgrade in place has not had the servers taken for those of the new template
}

// plan makes the stages of an upgrade, in their order. Its error is a RefusedError.
func (r request) plan() ([]Stage, error) {
	if why := slices.Concat(r.downgrades(), r.coreSkips(), r.oldKubelets(), r.refuseInPlace()); len(why) > 0 {
		return nil, &RefusedError{why}
	}
	servers, err := r.controlPlaneStages()
	if err != nil {
		return nil, &RefusedError{[]string{err.Error()}}
	}
	releases, err := r.releases()
	if err != nil {
		return nil, &RefusedError{[]string{err.Error()}}
	}
	var stages []Stage
	if p, any := r.providers(); any {
		stages = append(stages, p)
	}
	for _, s := range servers {
		var early []Stage
		early, releases = r.dueBefore(s, releases)
		stages = append(append(stages, early...), s)
	}
	if len(r.workers) > 0 {
		stages = append(stages, Stage{Name: StageWorkers, Does: strings.Join(r.workers, "; "),
			Back: "the pools' objects can be changed back while the control plane runs no older Kubernetes than the workers"})
	}
	return append(stages, releases...), nil
}

// dueBefore takes the releases of charts that are upgraded before a stage of the control plane: those whose version in
// the cluster is not tested with the Kubernetes that the stage brings, and whose new one is with that of before, and a
// Cilium that was begun before and has not come past its canary node.
func (r request) dueBefore(s Stage, releases []Stage) (due, later []Stage) {
	at := slices.IndexFunc(s.Changes, func(c Change) bool { return c.Variable == kubernetes })
	for _, release := range releases {
		is := r.held && release.Name == "cilium"
		for _, c := range release.Changes {
			is = is || at >= 0 && r.table.Untested(c.Variable, c.From, kubernetes, s.Changes[at].To) &&
				r.table.Tested(c.Variable, c.To, kubernetes, s.Changes[at].From)
		}
		if is {
			due = append(due, release)
		} else {
			later = append(later, release)
		}
	}
	return due, later
}

// downgrades says which components would get an older version.
func (r request) downgrades() (why []string) {
	for _, variable := range variables() {
		c, changed := change(r.from, r.to, variable)
		if !changed || compare(c.To, c.From) > 0 {
			continue
		}
		why = append(why, fmt.Sprintf("%s would be a downgrade: an upgrade brings none (set %s=%s, or a newer version)", c,
			variable, c.From))
	}
	return why
}

// kubeletSkew is how many minors a kubelet may be older than the API servers
// (https://kubernetes.io/releases/version-skew-policy).
const kubeletSkew = 3

// oldKubelets refuses to bring API servers that the workers' kubelets, which are replaced after them, are too old for.
func (r request) oldKubelets() []string {
	from, to := parsed(r.kubelets), parsed(r.to[kubernetes])
	if r.kubelets == "" || to.Minor <= from.Minor+kubeletSkew {
		return nil
	}
	return []string{fmt.Sprintf("workers run Kubernetes %s, and API servers of %s support kubelets of at most %d minor "+
		"versions before theirs: upgrade to the newest v%d.%d first (KUBERNETES_VERSION), which replaces the workers of "+
		"configured pools too", r.kubelets, r.to[kubernetes], kubeletSkew, from.Major, from.Minor+kubeletSkew)}
}

// mostCoreMinors is how many minors of Cluster API's core one upgrade may bring: older objects are served no longer.
const mostCoreMinors = 3

// coreSkips says that the core would go up by more minors than it supports at once.
func (r request) coreSkips() (why []string) {
	c, changed := change(r.from, r.to, core)
	from, to := parsed(c.From), parsed(c.To)
	if !changed || to.Major == from.Major && to.Minor <= from.Minor+mostCoreMinors {
		return nil
	}
	return []string{fmt.Sprintf("%s is more than %d minor versions at once, which Cluster API does not support: upgrade "+
		"to the newest %d.%d first (CAPI_VERSION)", c, mostCoreMinors, from.Major, from.Minor+mostCoreMinors)}
}

// providers is the stage that upgrades Cluster API and its providers.
func (r request) providers() (Stage, bool) {
	s := Stage{Name: StageProviders, Does: "clusterctl replaces their controllers; no server is touched",
		Back: "clusterctl brings no older version: it cannot be undone"}
	for _, variable := range providerVariables() {
		if c, changed := change(r.from, r.to, variable); changed {
			s.Changes = append(s.Changes, c)
		}
	}
	return s, len(s.Changes) > 0
}

// controlPlaneStages are the stages that replace the control plane's servers. Talos comes first where it runs the
// Kubernetes that there is; else Kubernetes goes up until it does.
func (r request) controlPlaneStages() ([]Stage, error) {
	chain, err := r.chain()
	if err != nil {
		return nil, err
	}
	system, changesTalos := change(r.from, r.to, talos)
	from, to := parsed(system.From), parsed(system.To)
	if changesTalos && (to.Major != from.Major || to.Minor > from.Minor+1) {
		return nil, fmt.Errorf("%s skips a minor version, which Talos does not support: upgrade to the newest %d.%d first "+
			"(TALOS_VERSION)", system, from.Major, from.Minor+1)
	}
	var stages []Stage
	at, is := r.from[kubernetes], r.from[talos] // what the cluster has after the stages so far
	talosStage := func() {
		is, changesTalos = system.To, false
		stages = append(stages,
			Stage{Name: StageImage, Does: "the snapshot of Talos " + system.To + " is created at Hetzner where there is none",
				Back: "it can be deleted while no server is made from it"},
			r.talos(system))
	}
	for _, next := range chain {
		if changesTalos && r.table.TalosRuns(system.To, at) == nil {
			talosStage()
		}
		if err := r.table.TalosRuns(is, next); err != nil {
			return nil, fmt.Errorf("Kubernetes %s does not run on Talos %s (%w), and Talos %s does not run Kubernetes %s (%w): "+
				"upgrade to a Talos between the two first (TALOS_VERSION)", next, is, err, r.to[talos], at,
				r.table.TalosRuns(r.to[talos], at))
		}
		stages = append(stages, Stage{Name: StageKubernetes + strings.NewReplacer("v", "", ".", "-", "+", "-").Replace(next),
			Changes: []Change{{kubernetes, at, next}}, Does: r.replaces(),
			Back: "Kubernetes has no downgrade: only a restore of the backup brings the older version back"})
		at = next
	}
	if changesTalos || r.inPlace && r.cutOff && is == system.From {
		if err := r.table.TalosRuns(system.To, at); err != nil {
			return nil, fmt.Errorf("Talos %s does not run Kubernetes %s: %w", system.To, at, err)
		}
		talosStage()
	}
	return stages, nil
}

// talos is the stage that brings another Talos to the control plane.
func (r request) talos(system Change) Stage {
	s := Stage{Name: StageTalos, Changes: []Change{system}, Does: r.replaces(),
		Back: "the TalosControlPlane can name the old HCloudMachineTemplate and talosVersion again, until the next stage " +
			"replaces servers"}
	switch {
	case r.inPlace && r.replicas == 1:
		s.Does = "upgrades the control plane server in place, while whose reboot the Kubernetes API does not answer"
	case r.inPlace:
		s.Does = fmt.Sprintf("upgrades the %d control plane servers in place, one after another: each is drained and reboots",
			r.replicas)
	}
	if r.cutOff && system.From == system.To {
		s.Does = "the servers run it; it finishes an upgrade in place that was ended before Cluster API knew them as servers of " +
			"the new template"
	}
	if r.inPlace {
		s.Back = "talosctl rollback boots the Talos of before on a server; new servers are made with the new one"
	}
	return s
}

func (r request) replaces() string {
	if r.replicas == 1 {
		return "replaces the control plane server, while which the Kubernetes API moves to the new one"
	}
	return fmt.Sprintf("replaces the %d control plane servers, one after another", r.replicas)
}

// chain are the Kubernetes versions that the control plane gets, one minor after another. One that it is being changed
// to already is the first.
func (r request) chain() (chain []string, err error) {
	at, to := r.from[kubernetes], r.to[kubernetes]
	if r.rolling != "" && compare(r.rolling, at) > 0 {
		if compare(r.rolling, to) > 0 {
			return nil, fmt.Errorf("the control plane's servers are being replaced by those of Kubernetes %s, which is newer "+
				"than %s: set KUBERNETES_VERSION=%s, or newer", r.rolling, to, r.rolling)
		}
		chain, at = append(chain, r.rolling), r.rolling
	}
	if compare(to, at) <= 0 {
		return chain, nil
	}
	for minor := parsed(at).Minor + 1; minor < parsed(to).Minor; minor++ {
		next := r.via[minor]
		if next == "" {
			next = r.table.NewestPatch(kubernetes, config.Series{Major: 1, Minor: minor})
		}
		if next == "" {
			return nil, fmt.Errorf("from Kubernetes %s to %s the control plane goes through every minor version, and this "+
				"command knows no release of 1.%d: name one (--via v1.%d.0)", at, to, minor, minor)
		}
		chain = append(chain, next)
	}
	return append(chain, to), nil
}

// releases are the stages of the charts.
func (r request) releases() (stages []Stage, err error) {
	for _, v := range chartVariables() {
		c, changed := change(r.from, r.to, v.name)
		held := v.name == cilium && r.held
		if !changed && !held {
			continue
		}
		from, to := parsed(c.From), parsed(c.To)
		if v.name == cilium && (to.Major != from.Major || to.Minor > from.Minor+1) {
			return nil, fmt.Errorf("%s skips a minor version, which Cilium does not support: upgrade to the newest %d.%d first "+
				"(CILIUM_VERSION)", c, from.Major, from.Minor+1)
		}
		does := "Helm upgrades the release; its Pods are replaced"
		if v.name == cilium {
			does += ", the agents on one node first, which is probed before the others follow"
		}
		s := Stage{Name: v.step, Does: does, Back: "helm rollback brings the release of before back"}
		if held {
			s.Does += "; an upgrade that was begun before has not come past that node"
		}
		if changed {
			s.Changes = []Change{c}
		}
		stages = append(stages, s)
	}
	return stages, nil
}

// Versions are those of a cluster, or those that it is upgraded to: variable → version ("TALOS_VERSION" → "v1.12.2").
type Versions map[string]string

// Variables of versions, in the order in which an upgrade changes them.
const (
	core       = "CAPI_VERSION"
	talos      = "TALOS_VERSION"
	kubernetes = "KUBERNETES_VERSION"
	cilium     = "CILIUM_VERSION"
)

// providerVariables are the versions of Cluster API and its providers.
func providerVariables() []string {
	return []string{core, "CABPT_VERSION", "CACPPT_VERSION", "CAPH_VERSION"}
}

// chartVariables are the versions of the charts, in the order in which they are upgraded, and the step of each.
func chartVariables() []chartVariable {
	return []chartVariable{{cilium, "cilium", render.CiliumChart}, {"HCLOUD_CCM_VERSION", "hcloud-ccm",
		render.HCloudCCMChart},
		{"TALOS_CCM_VERSION", "talos-ccm", render.TalosCCMChart}}
}

type chartVariable struct {
	name, step   string
	installation func(config.Config, render.Sources) render.Chart
}

// variables are all of them.
func variables() []string {
	all := append(providerVariables(), talos, kubernetes)
	for _, v := range chartVariables() {
		all = append(all, v.name)
	}
	return all
}

// VersionsOf are the versions of a configuration.
func VersionsOf(cfg config.Config) Versions {
	versions := Versions{}
	for _, v := range config.Variables() {
		if slices.Contains(variables(), v.Name) {
			versions[v.Name] = v.Get(cfg)
		}
	}
	return versions
}

// of says which of these it has: "Kubernetes of the cluster v1.32.2".
func (v Versions) of(these map[string]string) string {
	only := map[string]string{}
	for variable := range these {
		only[variable] = v[variable]
	}
	return sentence(only)
}

// title is what a variable is a version of: "Talos Linux", "Cilium chart".
func title(variable string) string {
	for _, v := range config.Variables() {
		if v.Name == variable {
			return v.Doc
		}
	}
	return variable
}

// Change is one component with the versions that it has and gets.
type Change struct {
	Variable string `json:"variable"`
	From     string `json:"from"`
	To       string `json:"to"`
}

// String is "Talos Linux v1.12.2 → v1.13.9".
func (c Change) String() string { return fmt.Sprintf("%s %s → %s", title(c.Variable), c.From, c.To) }

// change is the difference in one variable; not changed: ok is false. What the cluster does not tell is no change.
func change(from, to Versions, variable string) (c Change, ok bool) {
	c = Change{Variable: variable, From: from[variable], To: to[variable]}
	return c, c.From != "" && c.To != "" && c.From != c.To
}

// compare orders two versions as configured. Those that are no versions are a mistake of the caller: the configuration
// is validated, and what a cluster tells is parsed when it is read.
func compare(a, b string) int { return parsed(a).Compare(parsed(b)) }

func parsed(version string) semver.Version {
	v, _ := semver.ParseTolerant(version)
	return v
}

// lowest is the lowest of several versions; empty ones are left out.
func lowest(versions ...string) (least string) {
	for _, v := range versions {
		if v != "" && (least == "" || compare(v, least) < 0) {
			least = v
		}
	}
	return least
}
