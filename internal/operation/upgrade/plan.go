package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/ensure/talosconfig"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// Plan is an upgrade of one cluster: its stages, and the graph that does them one after another.
type Plan struct {
	Graph  *flow.Graph
	Stages []Stage

	last map[string]string // stage → its last step
	all  []string          // targets of the whole upgrade
}

// Targets are the steps that are wanted for an upgrade up to a stage, or FirstServer; empty: for all of it.
func (p *Plan) Targets(stage string) ([]string, error) {
	if stage == "" {
		return p.all, nil
	}
	if target := p.last[stage]; target != "" {
		return []string{target}, nil
	}
	if stage == FirstServer {
		return nil, usage.Errorf("--pause-after %s: no stage changes several control plane servers one after another, "+
			"each beside the one that it replaces (rolloutStrategy RollingUpdate, maxSurge 1) or in place", FirstServer)
	}
	var names []string
	for _, s := range p.Stages {
		names = append(names, s.Name)
	}
	if p.last[FirstServer] != "" {
		names = append(names, FirstServer)
	}
	return nil, usage.Errorf("the upgrade has no stage %q: it has %s%s", stage, strings.Join(names, ", "),
		usage.DidYouMean("", stage, names))
}

// NewPlan makes the graph of an examined upgrade. cfg has the versions that the cluster gets.
func NewPlan(cfg config.Config, tools platform.Tools, x Examination) (*Plan, error) {
	cfg.Workers = keepReplicas(cfg.Workers, x.Workers)
	e, err := newEnvironment(cfg, tools)
	if err != nil {
		return nil, err
	}
	set, err := steps.NewSet(cfg, e.tools)
	if err != nil {
		return nil, err
	}
	p := &Plan{Graph: flow.New("upgrade"), Stages: x.Stages, last: map[string]string{}}
	b := &builder{Plan: p, environment: e, set: set, replicas: x.Replicas, requested: x.requested,
		summaries: x.Configuration, inPlace: x.InPlace, other: x.other, surges: x.surges}
	if x.InPlace && slices.ContainsFunc(x.Stages, func(s Stage) bool { return s.Name == StageTalos }) {
		if b.installer, err = set.Installer(); err != nil {
			return nil, err
		}
	}
	for _, s := range x.Stages {
		b.add(s)
	}
	b.finish()
	return p, p.Graph.Validate()
}

// builder adds the steps of the stages to the graph, each after the one before it.
type builder struct {
	*Plan
	*environment
	set       *steps.Set
	replicas  int
	installer string // that Talos is upgraded in place with; empty: the servers are replaced
	requested []changes.Deviation
	summaries []string // of what these change
	other     bool     // Options.Other
	inPlace   bool     // the machine configuration is changed without replacing servers
	surges    bool     // Examination.surges

	before    []flow.Node // what the next step comes after
	offer     *flow.Step[steps.Placement]
	snapshot  *flow.Step[steps.Image]
	cilium    *flow.Step[steps.Release]
	hcloudCCM *flow.Step[steps.CloudController]
	talosCCM  *flow.Step[steps.Release]
}

// ended notes the last step of a stage.
func (b *builder) ended(stage string, n flow.Node, name string) {
	b.before, b.last[stage] = []flow.Node{n}, name
}

func (b *builder) add(s Stage) {
	switch {
	case s.Name == StageProviders:
		step := providersStep{b.environment}.add(b.Graph)
		b.ended(s.Name, step, step.Name())
	case s.Name == StageImage:
		b.images()
		b.ended(s.Name, b.snapshot, b.snapshot.Name())
	case s.Name == StageConfiguration || s.Name == StageTalos || strings.HasPrefix(s.Name, StageKubernetes):
		each := serversStep{b.environment, s, b.replicas, false}
		inPlace := b.inPlace && s.Name == StageConfiguration || b.installer != "" && s.Name == StageTalos
		if s.Name == StageConfiguration && !inPlace {
			b.images()
		}
		oneByOne := s.Name != StageConfiguration || s.Servers || inPlace
		if oneByOne && b.replicas > 1 && (b.surges || inPlace) && b.last[FirstServer] == "" {
			first := each
			first.first = true
			b.last[FirstServer] = b.servers(first, inPlace).Name()
		}
		step := b.servers(each, inPlace)
		b.ended(s.Name, step, step.Name())
	case s.Name == StageWorkers:
		b.images()
		workers := poolsStep{b.environment}.add(b.Graph).After(b.snapshot).After(b.before...)
		step := b.set.WaitWorkers(b.Graph, workers)
		b.ended(s.Name, step, step.Name())
	default:
		name := b.release(s.Name)
		b.last[s.Name] = name
	}
}

// servers adds the step that changes the control plane's servers.
func (b *builder) servers(s serversStep, inPlace bool) *flow.Step[Servers] {
	configured := configurationStep{s, b.requested, b.summaries, b.other, inPlace}
	switch {
	case s.stage.Name == StageConfiguration && inPlace:
		return inPlaceConfigurationStep{configured}.add(b.Graph).After(b.before...)
	case s.stage.Name == StageConfiguration:
		return configured.add(b.Graph, b.offer, b.snapshot).After(b.before...)
	case inPlace:
		return inPlaceStep{s, b.installer}.add(b.Graph).After(b.before...)
	}
	return s.add(b.Graph).After(b.before...)
}

// images adds the steps that find or create the images.
func (b *builder) images() {
	if b.snapshot != nil {
		return
	}
	b.offer = b.set.Preflight(b.Graph)
	b.snapshot = b.set.Image(b.Graph, b.offer)
	if len(b.before) > 0 {
		b.offer.After(b.before...)
	}
}

// release adds the step of a chart and gives its name.
func (b *builder) release(name string) string {
	switch {
	case name == "cilium" && b.cilium == nil:
		b.cilium = b.set.Cilium(b.Graph).After(b.before...)
		b.before = []flow.Node{b.cilium}
	case name == "hcloud-ccm" && b.hcloudCCM == nil:
		b.hcloudCCM = b.set.HCloudCCM(b.Graph).After(b.before...)
		b.before = []flow.Node{b.hcloudCCM}
	case name == "talos-ccm" && b.talosCCM == nil:
		b.talosCCM = b.set.TalosCCM(b.Graph).After(b.before...)
		b.before = []flow.Node{b.talosCCM}
	}
	return name
}

// finish adds the releases that no stage changes and the add-ons, which are verified or brought to what is configured,
// and the wait for all of them.
func (b *builder) finish() {
	for _, v := range chartVariables() {
		b.release(v.step)
	}
	each, _ := b.set.EachAddon(b.Graph, b.before...) // the token is there; where it is not, the next run makes it
	addons := b.set.Addons(b.Graph, each).After(b.before...)
	stable := b.set.Stable(b.Graph, b.cilium, b.hcloudCCM, b.talosCCM, addons)
	b.all = []string{stable.Name()}
}

// Examination is what an upgrade would do, and what it needs to be known for that.
type Examination struct {
	From     Versions `json:"from"`
	To       Versions `json:"to"`
	Manager  string   `json:"manager"` // the cluster that manages this one, for people
	Replicas int      `json:"replicas"`
	Stages   []Stage  `json:"stages"`
	// InPlace tells that Talos is upgraded, and the machine configuration changed, without replacing the control
	// plane's servers.
	InPlace bool `json:"inPlace,omitempty"`
	// Workers are the numbers of servers that the worker pools have and keep.
	Workers map[string]int `json:"workers,omitempty"`
	// Configuration is what is done besides versions, for StageConfiguration.
	Configuration []string `json:"configuration,omitempty"`
	// Left is what is not as it is configured, and stays.
	Left []string `json:"left,omitempty"`
	// Seen is what was seen of the cluster that known problems of the new versions depend on, as config names it.
	Seen []string `json:"seen,omitempty"`
	// Unanswered are checks that could not be made.
	Unanswered []string `json:"unanswered,omitempty"`

	requested []changes.Deviation
	digest    string
	other     bool
	surges    bool // a server is replaced when its successor is there
}

// Servers tells whether the upgrade replaces servers.
func (x Examination) Servers() bool {
	return slices.ContainsFunc(x.Stages, func(s Stage) bool {
		return s.Servers || s.Name == StageTalos && !x.InPlace || s.Name == StageWorkers ||
			strings.HasPrefix(s.Name, StageKubernetes)
	})
}

// replacing names the stages that replace servers.
func (x Examination) replacing() string {
	var names []string
	for _, s := range x.Stages {
		if (Examination{InPlace: x.InPlace, Stages: []Stage{s}}).Servers() {
			names = append(names, s.String())
		}
	}
	return strings.Join(names, "; ")
}

// Kubernetes are the versions that the control plane's servers get, one after another.
func (x Examination) Kubernetes() (versions []string) {
	for _, s := range x.Stages {
		for _, c := range s.Changes {
			if c.Variable == kubernetes {
				versions = append(versions, c.To)
			}
		}
	}
	return versions
}

// Options are what the operator says of an upgrade.
type Options struct {
	// Via are patch releases of Kubernetes to go through where the upgrade spans several minors.
	Via []string
	// InPlace has Talos upgraded, and with Configuration the machine configuration changed, without replacing the
	// control plane's servers.
	InPlace bool
	// Resumes tells that the upgrade was begun before: the cluster need not be whole.
	Resumes bool
	// Configuration has the files of the manifests and the Requested values brought to the cluster, too.
	Configuration bool
	Requested     []changes.Deviation
	Recorded      []string // Record.Configuration of what is resumed
	// Digest is of the configuration and its files.
	Digest string
	// Other tells that what is resumed was begun with another configuration, which the cluster may have in part: then
	// all fields of the manifests are brought to it, and not only those in which they differ from what was applied
	// last.
	Other bool
}

// Examine says what an upgrade to the versions of a configuration does, or why it is refused (RefusedError). It changes
// nothing.
func Examine(ctx context.Context, cfg config.Config, tools platform.Tools, o Options, say flow.Say) (Examination, error) {
	e, err := newEnvironment(cfg, tools)
	if err != nil {
		return Examination{}, err
	}
	via, err := viaOf(o.Via)
	if err != nil {
		return Examination{}, err
	}
	if !o.Resumes {
		return e.examine(ctx, o, via, say)
	}
	var x Examination
	err = e.retryWhileUnwell(ctx, say, func(ctx context.Context) (err error) {
		x, err = e.examine(ctx, o, via, say)
		return err
	})
	return x, err
}

func (e *environment) examine(ctx context.Context, o Options, via map[uint64]string, say flow.Say) (Examination, error) {
	cfg := e.cfg
	c, err := e.open(ctx, say)
	if err != nil {
		return Examination{}, err
	}
	if o.Configuration && o.InPlace && !o.Resumes {
		// Of one that was cut off, and whose record is lost, it is not known what it was begun with.
		pending, err := newControlPlane(e, c).pendingInPlace(ctx)
		if err != nil {
			return Examination{}, err
		}
		o.Resumes, o.Other = pending != "", o.Other || pending != ""
	}
	now, err := e.read(ctx, c)
	if err != nil {
		return Examination{}, err
	}
	x := Examination{From: now.versions, To: VersionsOf(cfg), Manager: c.where, Replicas: now.replicas,
		InPlace: o.InPlace, Seen: now.observed.Seen()}
	x.surges = now.surges
	if !talosconfig.ForClients(e.tools) {
		x.Seen = append(x.Seen, config.SeenOldTalosconfig)
	}
	pools, err := e.pools(ctx, c)
	if err != nil {
		return x, err
	}
	x.Left, x.Workers = pools.left, pools.replicas
	r := request{table: cfg.Table(), from: x.From, to: x.To, via: via, rolling: now.rolling, held: now.held,
		replicas: now.replicas, kubelets: now.kubelets, workers: pools.texts, inPlace: o.InPlace, image: cfg.ImageName}
	// A run that was cut off may have changed the pools and not have waited for their servers.
	if o.Resumes && len(r.workers) == 0 && len(x.Workers) > 0 {
		r.workers = []string{"waits until each worker pool has replaced its servers"}
	}
	if o.InPlace {
		if r.cutOff, err = newControlPlane(e, c).withoutTemplate(ctx); err != nil {
			return x, err
		}
	}
	if x.Stages, err = r.plan(); err != nil {
		return x, err
	}
	if o.Configuration {
		is, err := e.examineConfiguration(ctx, c, o)
		if err != nil {
			return x, err
		}
		x.Stages, x.Configuration, x.requested = is.insert(x.Stages), is.summaries, o.Requested
		x.digest, x.other = o.Digest, o.Other
		if o.InPlace && x.Servers() {
			return x, &RefusedError{[]string{fmt.Sprintf("not in place: %s; upgrade first, or leave --in-place out",
				x.replacing())}}
		}
	}
	if len(x.Stages) == 0 {
		return x, nil
	}
	x.Unanswered, err = e.refuse(ctx, c, now, x, o)
	if pools.unanswered != "" {
		x.Unanswered = append(x.Unanswered, pools.unanswered)
	}
	return x, err
}

// viaOf reads the patch releases that were named: minor → version.
func viaOf(versions []string) (map[uint64]string, error) {
	via := map[uint64]string{}
	for _, v := range versions {
		is := parsed(v)
		if is.Major != 1 || "v"+is.String() != v {
			return nil, usage.Errorf("--via %s is no release of Kubernetes: write v1.32.13, for example", v)
		}
		if has := via[is.Minor]; has != "" {
			return nil, usage.Errorf("--via names two releases of Kubernetes 1.%d: %s and %s", is.Minor, has, v)
		}
		via[is.Minor] = v
	}
	return via, nil
}

// String says who manages the cluster, and everything that changes.
func (x Examination) String() string {
	var changes []string
	for _, variable := range variables() {
		if c, changed := change(x.From, x.To, variable); changed {
			changes = append(changes, c.String())
		}
	}
	switch {
	case len(changes)+len(x.Configuration) == 0:
		return "the cluster has the configured versions"
	case len(changes) == 0:
		return x.Manager + " manages the cluster; its versions stay"
	}
	return fmt.Sprintf("%s manages the cluster; %s", x.Manager, strings.Join(changes, ", "))
}
