package operations

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/operation/scale"
	"github.com/slipway-k8s/slipway/internal/operation/unfinished"
	"github.com/slipway-k8s/slipway/internal/operation/upgrade"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/platform"
)

// ApplyOptions are the choices of Apply.
type ApplyOptions struct {
	// InPlace changes the machine configuration of the control plane's servers, and Talos to a patch release, without
	// replacing them.
	InPlace bool
	// PauseAfter is the stage to end after, or upgrade.FirstServer; empty: none.
	PauseAfter string
}

// Apply brings a cluster that manages itself to the configuration: to its versions as Upgrade does, to the values and
// manifests that were changed since they were applied last, and then to the number of control plane servers, as Scale
// does. What was changed in the cluster since, and not in the configuration, stays. It asks before it begins; one that
// was begun is resumed.
func Apply(ctx context.Context, s *session.Session, b planning.Bootstrap, o ApplyOptions, ask session.Questions) (
	r UpgradeResult, err error) {
	var wanted requested
	err = s.Hub.Task("compare", "the configuration with the cluster", func(say flow.Say) error {
		// One that was cut off may have left an API server that is about to go with its server.
		return wait.Retry(ctx, say, "the comparison", func() (err error) {
			if wanted, err = request(ctx, s.Cfg, b, s.Journal(), s.Unfinished); err == nil {
				r.Scale, err = wanted.examineScale(ctx, s.Cfg.Config, s.Tools)
			}
			return err
		})
	})
	if err != nil {
		return r, err
	}
	wanted.options.InPlace = o.InPlace
	again := []string{b.Plan.Cluster.Name()}
	if o.InPlace {
		again = append(again, "--in-place")
	}
	for _, v := range s.Values {
		again = append(again, v.Shown())
	}
	if err := r.change(ctx, s, wanted.cfg, wanted.options,
		upgrade.Said{Again: again, PauseAfter: o.PauseAfter}, ask); err != nil || !r.Done {
		return r, err
	}
	if r.Scale != nil {
		// Until the servers are there, their number stays a request.
		if err := recordApplied(ctx, s, b, wanted.cfg.ControlPlaneReplicas); err != nil {
			return r, err
		}
		r.Done = false
		if err := r.scale(ctx, s, ask); err != nil {
			return r, err
		}
		r.Done = true
	}
	return r, recordApplied(ctx, s, b, b.Cfg.ControlPlaneReplicas)
}

// scale changes the number of control plane servers while the API of the cluster is asked, as during the stages.
func (r *UpgradeResult) scale(ctx context.Context, s *session.Session, ask session.Questions) error {
	workload, err := connect.Cluster(s.Tools.WithDefaults(), platform.Kubeconfig)
	if err != nil {
		return err
	}
	began, probe := time.Now(), upgrade.StartProbe(ctx, workload)
	err = ScaleOptions{Count: r.Scale.Servers}.scale(ctx, s, ask, r.Scale)
	was := probe.Stop()
	r.API, r.Scale.Took = r.API.And(was), time.Since(began)
	if was.Requests > 0 {
		s.Hub.Note("%s", was)
	}
	return err
}

// recordApplied records the configuration that the cluster has now, with a number of control plane servers.
func recordApplied(ctx context.Context, s *session.Session, b planning.Bootstrap, servers int) error {
	cfg, sources := b.Cfg, b.Sources
	cfg.ControlPlaneReplicas = servers
	sources.Vars = render.VariablesOf(cfg)
	return changes.RecordApplied(ctx, cfg, s.Tools, sources, s.Journal())
}

// requested is what a configuration asks for that the cluster has not.
type requested struct {
	cfg     config.Config // as the cluster is to have it, with the control plane servers that it has
	options upgrade.Options
	servers int // that the control plane is to have; 0: it has them
}

// request compares the configuration with the cluster.
func request(ctx context.Context, given settings.Configuration, b planning.Bootstrap, j flow.Journal,
	begun []unfinished.Operation) (r requested, err error) {
	found := forecast.Compare(ctx, b, j, given, nil, begun)
	if found.Err != nil {
		return r, found.Err
	}
	if r.options.Digest, r.options.Other, err = begunWithOther(b); err != nil {
		return r, err
	}
	for i := range found.Deviations {
		d := &found.Deviations[i]
		_, version := upgrade.VersionsOf(given.Config)[d.Variable]
		if r.options.Other && !version && d.Variable != changes.ReplicasVariable &&
			!slices.Contains(changes.ImmutableVariables(), d.Variable) {
			d.Requested = true // the cluster may have it of the configuration that it was to get
		}
	}
	r.options.Configuration, r.options.Requested = true, changes.RequestedDeviations(found.Deviations)
	if r.cfg, err = changes.KeptValues(given.Config, found.Deviations); err != nil {
		return r, err
	}
	for _, d := range r.options.Requested {
		if d.Variable == changes.ReplicasVariable {
			r.servers = given.ControlPlaneReplicas
			err = settings.Variable(d.Variable).Set(&r.cfg, d.Live)
		}
	}
	if err != nil {
		return r, err
	}
	// A scaling that was cut off explains a difference, and may have to wait for a server where there is none.
	records, err := scale.Records(b.Tools.Files)
	at := slices.IndexFunc(records, func(one scale.Record) bool {
		return one.Group == scale.ControlPlaneGroup && (one.Apply || one.To == given.ControlPlaneReplicas)
	})
	if at >= 0 && r.servers == 0 {
		r.servers, r.cfg.ControlPlaneReplicas = given.ControlPlaneReplicas, records[at].From
	}
	return r, err
}

// begunWithOther is a digest of the configuration, and tells whether a change was begun with another one, and was cut
// off.
func begunWithOther(b planning.Bootstrap) (digest string, other bool, err error) {
	digests, err := changes.ManifestDigests(b.Cfg, b.Sources)
	if err != nil {
		return "", false, err
	}
	text, err := json.Marshal(digests)
	if err != nil {
		return "", false, err
	}
	sum := sha256.Sum256(text)
	digest = hex.EncodeToString(sum[:])
	record, err := upgrade.ReadRecord(b.Tools.Files)
	if err != nil || record == nil || len(record.Configuration) == 0 {
		return digest, false, err
	}
	return digest, record.Other || record.Digest != "" && record.Digest != digest, nil
}

// Scaling is what Apply does with the number of control plane servers.
type Scaling struct {
	Servers int           `json:"servers"`           // that there are to be
	Change  *scale.Change `json:"change,omitempty"`  // as it would be made now; nil: it would be refused
	Refused string        `json:"refused,omitempty"` // why
	Took    time.Duration `json:"tookNs,omitempty"`

	agreed bool // the operator agreed to Change
}

// examineScale says what the scaling of the control plane does; nil: it has its servers. One that would be refused now
// may be possible after the stages, or while a rollout that was cut off goes on.
func (r requested) examineScale(ctx context.Context, cfg config.Config, tools platform.Tools) (*Scaling, error) {
	if r.servers == 0 {
		return nil, nil
	}
	o := ScaleOptions{Count: r.servers}
	if err := o.Check(cfg); err != nil {
		return nil, err
	}
	out := &Scaling{Servers: r.servers}
	change, err := o.Group(cfg, tools).Examine(ctx, func(string, ...any) {}, o.Count)
	if refused := (*scale.RefusedError)(nil); errors.As(err, &refused) {
		out.Refused = err.Error()
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	out.Change = &change
	return out, nil
}

// agreedTo tells whether the operator agreed to a change, or to one that deletes as many servers and risks as much.
func (s *Scaling) agreedTo(change scale.Change) bool {
	return s != nil && s.agreed && s.Change != nil && change.Removes() <= s.Change.Removes() &&
		(change.Flaw == "" || change.Flaw == s.Change.Flaw)
}

// lines say what is scaled after the stages, which replace the servers or not.
func (s *Scaling) lines(replaced bool) (lines []string) {
	switch {
	case s == nil:
		return nil
	case s.Change == nil:
		return []string{fmt.Sprintf("at the end: %d control plane servers; now that would be refused: %s", s.Servers,
			s.Refused)}
	}
	for _, line := range ScaleLines(*s.Change) {
		lines = append(lines, "at the end: "+line)
	}
	if replaced {
		lines = append(lines, "at the end: types, prices and names are those of the present servers")
	}
	return lines
}

// RunTargets runs the targets of a session. The target all brings a cluster that manages itself to the configuration
// first, as Apply does.
func RunTargets(ctx context.Context, s *session.Session, b planning.Bootstrap, ask session.Questions) (session.Result,
	error) {
	if slices.Equal(s.Targets, []string{session.TargetAll}) {
		if err := applyFirst(ctx, s, b, ask); err != nil {
			return session.Result{}, err
		}
	}
	return s.Bootstrap(ctx, b, ask)
}

// applyFirst is Apply, where there is something to apply. A cluster that cannot be compared is left to the run, which
// says why.
func applyFirst(ctx context.Context, s *session.Session, b planning.Bootstrap, ask session.Questions) error {
	found := forecast.Compare(ctx, b, s.Journal(), s.Cfg, s.Targets, s.Unfinished)
	if found.Err != nil { // once more: the load balancer may have led to an API server that was just ending
		found = forecast.Compare(ctx, b, s.Journal(), s.Cfg, s.Targets, s.Unfinished)
	}
	if !found.Applies {
		return nil
	}
	record, err := upgrade.ReadRecord(s.Tools.Files)
	if err != nil {
		return err
	}
	switch {
	case record != nil && record.Aborted:
		return usage.Errorf("a change of the cluster was aborted, and the target all does not resume it: run %s, "+
			"with what was configured before to end it", s.Tools.Command(record.Command()...))
	case record != nil && record.PauseAfter != "":
		return usage.Errorf("a change of the cluster was begun that pauses after %s, and the target all does not "+
			"resume it: run %s", record.PauseAfter, s.Tools.Command(record.Command()...))
	}
	err = s.Locked(ctx, func(ctx context.Context) error {
		_, err := Apply(ctx, s, b, ApplyOptions{}, ask)
		return err
	})
	s.Begin(ctx, s.Targets) // the operation that Apply began or resumed has ended
	return err
}

// AppliesToItself tells whether targets ask for Apply: apply alone, of a cluster that manages itself.
func AppliesToItself(ctx context.Context, targets []string, b planning.Bootstrap, j flow.Journal) (bool, error) {
	if !slices.Equal(targets, []string{b.Plan.Cluster.Name()}) {
		return false, nil
	}
	return b.Plan.PivotPassed(ctx, j)
}

// ApplyPlan is what Apply would do.
type ApplyPlan struct {
	upgrade.Examination
	Scale *Scaling `json:"scale,omitempty"` // of the control plane, after the stages
}

// Changes tells whether Apply would change anything.
func (p ApplyPlan) Changes() bool { return len(p.Stages) > 0 || p.Scale != nil }

// ExamineApply says what Apply would do, in words, too; nil: the targets do not ask for it, or nothing could be asked.
// It changes nothing.
func ExamineApply(ctx context.Context, k session.Cluster, o ApplyOptions) (p *ApplyPlan, lines []string, err error) {
	if err := k.Validate(ctx); err != nil {
		return nil, nil, err
	}
	at, err := k.InspectForPlan(ctx)
	if err != nil {
		return nil, nil, err
	}
	b, err := planning.New(at.Cfg.Config, at.Tools)
	if err != nil {
		return nil, nil, &usage.Error{Err: err}
	}
	applies, err := AppliesToItself(ctx, k.Targets, b, at.Folder.Journal())
	if err != nil || !applies || at.Offline != "" {
		return nil, nil, err
	}
	wanted, err := request(ctx, at.Cfg, b, at.Folder.Journal(), nil)
	if err != nil {
		return nil, nil, err
	}
	wanted.options.InPlace = o.InPlace
	p = &ApplyPlan{}
	if p.Scale, err = wanted.examineScale(ctx, at.Cfg.Config, at.Tools); err != nil {
		return nil, nil, err
	}
	p.Examination, err = upgrade.Examine(ctx, wanted.cfg, at.Tools, wanted.options, func(string, ...any) {})
	hideIn(k.Caller.Hide, &p.Examination)
	return p, append(UpgradeLines(wanted.cfg, p.Examination), p.Scale.lines(p.Servers())...), err
}
