// Package operations carries out the operations on a cluster that exists, in a session: what each examines, asks,
// records and runs, without a terminal.
package operations

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/operation/doctor"
	"github.com/slipway-k8s/slipway/internal/operation/upgrade"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/platform"
)

// UpgradeOptions are the choices of an upgrade. The versions are those of the configuration.
type UpgradeOptions struct {
	Via        []string // patch releases of Kubernetes to go through, in place of the newest of each minor
	PauseAfter string   // stage to end after, or upgrade.FirstServer; empty: none
	InPlace    bool     // Talos to a patch release without replacing servers
	Again      []string // words of the command that resumes this upgrade
}

// UpgradeResult is what an upgrade has come to.
type UpgradeResult struct {
	upgrade.Examination
	Done bool                 // all stages are, and none is left
	API  upgrade.Availability // of the cluster, while it was upgraded
	// Scale is what Apply does after the stages with the number of control plane servers; nil: nothing.
	Scale *Scaling

	Report *flow.Report // of the stages' steps; nil: none was run
}

// Upgrade brings the cluster to the configured versions, stage by stage. It asks before it begins; one that was begun
// is resumed.
func Upgrade(ctx context.Context, s *session.Session, o UpgradeOptions, ask session.Questions) (UpgradeResult, error) {
	var r UpgradeResult
	err := r.change(ctx, s, s.Cfg.Config, upgrade.Options{Via: o.Via, InPlace: o.InPlace},
		upgrade.Said{Again: o.Again, PauseAfter: o.PauseAfter}, ask)
	return r, err
}

// hideIn hides secrets in what is printed and recorded of a change: fields of the manifests are named with their
// values.
func hideIn(hide *redact.Redactor, x *upgrade.Examination) {
	for i := range x.Stages {
		hide.Each(&x.Stages[i].Does)
	}
	for _, texts := range [][]string{x.Configuration, x.Left} {
		for i := range texts {
			hide.Each(&texts[i])
		}
	}
}

// change examines what brings the cluster to a configuration, asks, and runs its stages. r.Scale, which is set before,
// is a part of what it asks for.
func (r *UpgradeResult) change(ctx context.Context, s *session.Session, cfg config.Config, o upgrade.Options,
	said upgrade.Said, ask session.Questions) error {
	if err := s.RefuseOperation(ctx); err != nil {
		return err
	}
	if err := RefuseWrittenVersions(s.Cfg); err != nil {
		return err
	}
	s.NoteVersions()
	record, err := upgrade.ReadRecord(s.Tools.Files)
	if err != nil {
		return err
	}
	if record != nil && len(record.Configuration) > 0 && !o.Configuration {
		return usage.Errorf("a change of the cluster to what is configured was begun and has not ended: run %s first",
			s.Tools.Command(record.Command()...))
	}
	if record != nil {
		o.Resumes, o.Recorded = true, record.Configuration
	}
	if err := s.Hub.Task("examine", "what is to be changed, and what is in its way", func(say flow.Say) (err error) {
		r.Examination, err = upgrade.Examine(ctx, cfg, s.Tools, o, say)
		hideIn(s.Caller.Hide, &r.Examination)
		return err
	}); err != nil {
		return err
	}
	// An upgrade that was cut off after its last change still has to wait for the workers and the releases.
	if len(r.Stages) == 0 && !record.Same(r.Examination) {
		verb := "upgrade"
		if o.Configuration {
			verb = "change"
		}
		if r.Scale == nil {
			s.Hub.Note("%s: there is nothing to %s", r.Examination, verb)
		}
		r.Done = true
		return endUpgrade(s, cfg)
	}
	for _, line := range append(UpgradeLines(cfg, r.Examination), r.Scale.lines(r.Servers())...) {
		s.Hub.Note("%s", line)
	}
	plan, err := upgrade.NewPlan(cfg, s.Tools, r.Examination)
	if err != nil {
		return &usage.Error{Err: err}
	}
	targets, err := plan.Targets(said.PauseAfter)
	if err != nil {
		return err
	}
	if err := agreeToUpgrade(ctx, s, r.Examination, record, ask); err != nil {
		return err
	}
	if r.Scale != nil {
		r.Scale.agreed = record == nil
	}
	for _, version := range r.Kubernetes() {
		if err := s.ProvideKubernetes(ctx, version); err != nil {
			return err
		}
	}
	if s.Dir != "" && len(said.Again) > 0 { // the files are a part of what was agreed to
		said.Again = append(said.Again, "--dir", s.Dir)
	}
	if err := upgrade.Begin(s.Tools.Files, r.Examination, said); err != nil {
		return err
	}
	if err = r.runStages(ctx, s, plan, targets); err != nil {
		return err
	}
	if said.PauseAfter != "" {
		notePause(ctx, s, said.PauseAfter)
		return nil
	}
	if err := endUpgrade(s, cfg); err != nil {
		return fmt.Errorf("everything is done, but that could not be recorded; run the same command again: %w", err)
	}
	r.Done = true
	return nil
}

// notePause says how an upgrade is resumed that was paused as asked, and whether the control plane provider is held
// until then. That it cannot be asked is no failure of the upgrade.
func notePause(ctx context.Context, s *session.Session, after string) {
	s.Hub.Note("paused after %s, as asked: the same command without --pause-after does the rest", after)
	held := ""
	err := s.Hub.Task("paused", "whether the control plane provider is held", func(say flow.Say) error {
		return wait.Retry(ctx, say, "the TalosControlPlane", func() (err error) {
			held, err = upgrade.Held(ctx, s.Cfg.Config, s.Tools)
			return err
		})
	})
	switch {
	case err != nil:
		s.Hub.Note("whether the control plane provider is held until then is not known: %v", err)
	case held != "":
		s.Hub.Note("until then %s", held)
	}
}

// AbortUpgrade undoes the replacement of the first control plane server, by an upgrade or by Apply, as long as none
// from before was deleted. It asks before it begins. What an Apply has changed besides stays until the configuration of
// before is applied.
func AbortUpgrade(ctx context.Context, s *session.Session, ask session.Questions) (a upgrade.Abort, err error) {
	if err := s.RefuseOperation(ctx); err != nil {
		return a, err
	}
	record, err := upgrade.ReadRecord(s.Tools.Files)
	if err != nil {
		return a, err
	}
	ended := false // one that was cut off when everything was done
	err = s.Hub.Task("examine", "whether the replacement of the first server can be undone", func(say flow.Say) error {
		err := wait.Retry(ctx, say, "the control plane", func() (err error) {
			a, err = upgrade.ExamineAbort(ctx, s.Cfg.Config, s.Tools)
			return err
		})
		if ended = errors.Is(err, upgrade.ErrNotReplacing) && record != nil && record.Aborted; ended {
			return nil
		}
		return err
	})
	if err != nil {
		return a, err
	}
	if ended {
		return a, endAbort(s, record)
	}
	s.Hub.Note("%s", a)
	if err := s.Confirm(ctx, ask, "upgrade --abort asks before it changes the cluster", fmt.Sprintf(
		"Type the cluster's name (%s) to undo it: ", s.Cfg.ClusterName), s.Cfg.ClusterName); err != nil {
		return a, err
	}
	if record != nil {
		if err := record.Abort(s.Tools.Files); err != nil {
			return a, err
		}
	}
	err = s.Hub.Task("abort", "the control plane's servers as they were before the stage", func(say flow.Say) error {
		return upgrade.RunAbort(ctx, s.Cfg.Config, s.Tools, say)
	})
	if err != nil {
		return a, err
	}
	return a, endAbort(s, record)
}

// endAbort ends the record of an upgrade, but for what Apply has changed besides, and says what is left to do.
func endAbort(s *session.Session, record *upgrade.Record) error {
	if record != nil && record.ByApply() {
		s.Hub.Note("the control plane has the servers from before; to end the change, configure what was before and "+
			"run %s: it brings back what else was changed", s.Tools.Command("apply"))
		return nil
	}
	s.Hub.Note("the control plane has the servers from before; set bootstrap.yaml back to their versions, where it " +
		"has the new ones")
	return upgrade.End(s.Tools.Files)
}

// endUpgrade removes the record of the upgrade, and records the version set where the cluster has its versions now.
func endUpgrade(s *session.Session, cfg config.Config) error {
	if !maps.Equal(upgrade.VersionsOf(cfg), upgrade.VersionsOf(s.Cfg.Config)) {
		return upgrade.End(s.Tools.Files)
	}
	return errors.Join(s.Folder.KeepVersionSet(s.Cfg.Versions), upgrade.End(s.Tools.Files))
}

// RefuseWrittenVersions refuses an upgrade that could not change what a manifest names: each stage applies the
// manifests with versions of its own.
func RefuseWrittenVersions(cfg settings.Configuration) error {
	for _, name := range []string{"KUBERNETES_VERSION", "IMAGE_NAME"} {
		v := settings.Variable(name)
		if l, written := cfg.Literal(v.Field); written {
			return usage.Errorf("%s: %s is written there, and an upgrade applies this file once for each of its stages, with the "+
				"versions of the stage: write ${%s} there, and %s: %s into bootstrap.yaml; what the cluster has stays as it is until the "+
				"upgrade", l.Place, v.Get(cfg.Config), name, v.Field, v.Get(cfg.Config))
		}
	}
	return nil
}

// runStages runs the stages while the API of the cluster is asked, and says how long it was away.
func (r *UpgradeResult) runStages(ctx context.Context, s *session.Session, plan *upgrade.Plan, targets []string) error {
	workload, err := connect.Cluster(s.Tools.WithDefaults(), platform.Kubeconfig)
	if err != nil {
		return err
	}
	probe := upgrade.StartProbe(ctx, workload)
	result, err := s.RunGraph(ctx, plan.Graph, upgrade.Files(s.Tools.Files), targets)
	r.API, r.Report = probe.Stop(), result.Report
	s.Hub.Note("%s", r.API)
	if err != nil && !errors.Is(err, flow.ErrInterrupted) {
		if held, heldErr := upgrade.Held(ctx, s.Cfg.Config, s.Tools); heldErr == nil && held != "" {
			err = fmt.Errorf("%w\n%s", err, held)
		}
	}
	return err
}

// agreeToUpgrade has the doctor examine what new servers need, offers a backup, and asks.
func agreeToUpgrade(ctx context.Context, s *session.Session, x upgrade.Examination, record *upgrade.Record,
	ask session.Questions) error {
	if x.Servers() {
		if err := s.ExamineFor(ctx, doctor.ForServer); err != nil {
			return err
		}
	}
	if record != nil {
		s.Hub.Note("resuming the change that was begun %s", record.Began.Format(time.RFC3339))
	}
	if s.Yes || record.Agreed(x) {
		return nil
	}
	command, verb, danger := "upgrade", "upgrade", "only a restore of a backup brings an older Kubernetes back"
	if len(x.Configuration) > 0 {
		command, verb, danger = "apply", "change", "a change of the configuration may replace every control plane server"
	}
	if ask.Confirm != nil {
		if err := s.OfferBackup(ctx, ask, danger); err != nil {
			return err
		}
	}
	return s.Confirm(ctx, ask, command+" asks before it changes the cluster",
		fmt.Sprintf("Type the cluster's name (%s) to %s it: ", s.Cfg.ClusterName, verb), s.Cfg.ClusterName)
}

// UpgradeLines say what an upgrade does, what cannot be undone, and what is known of the new versions.
func UpgradeLines(cfg config.Config, x upgrade.Examination) []string {
	lines := []string{x.String()}
	for i, s := range x.Stages {
		lines = append(lines, fmt.Sprintf("stage %d of %d, %s; %s", i+1, len(x.Stages), s, s.Back))
	}
	for _, left := range x.Left {
		lines = append(lines, "left as it is: "+left)
	}
	for _, remark := range append(cfg.UpgradeRemarks(x.From, x.Seen...), cfg.Remarks(time.Now())...) {
		lines = append(lines, "known of these versions: "+remark.String())
	}
	for _, check := range x.Unanswered {
		lines = append(lines, "not known: "+check)
	}
	return lines
}
