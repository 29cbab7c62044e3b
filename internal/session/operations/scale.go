package operations

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/operation/doctor"
	"github.com/slipway-k8s/slipway/internal/operation/scale"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/platform"
)

// ScaleOptions ask for another number of servers.
type ScaleOptions struct {
	Pool  string // worker pool; empty: the control plane
	Count int    // of servers
}

// ParseScale reads the name of a group of servers and their number.
func ParseScale(group, count string) (o ScaleOptions, err error) {
	pool, ofWorkers := strings.CutPrefix(group, scale.PoolGroup)
	if group != scale.ControlPlaneGroup && (!ofWorkers || pool == "") {
		return o, usage.Errorf("scale knows no group of servers %q: write %s, or %sNAME of a worker pool", group,
			scale.ControlPlaneGroup, scale.PoolGroup)
	}
	if ofWorkers {
		o.Pool = pool
	}
	if o.Count, err = strconv.Atoi(count); err != nil {
		return o, usage.Errorf("scale %s: %q is no number of servers", group, count)
	}
	return o, nil
}

// Group is the group of servers that is scaled.
func (o ScaleOptions) Group(cfg config.Config, tools platform.Tools) scale.Group {
	if o.Pool == "" {
		return scale.NewControlPlane(cfg, tools)
	}
	return scale.NewPool(cfg, tools, o.Pool)
}

// Check returns a usage.Error if the configuration does not allow the number of servers.
func (o ScaleOptions) Check(cfg config.Config) error {
	before := cfg.Validate()
	if o.Pool == "" {
		cfg.ControlPlaneReplicas = o.Count
	} else {
		cfg.Workers = slices.Clone(cfg.Workers)
		at := slices.IndexFunc(cfg.Workers, func(p config.WorkerPool) bool { return p.Name == o.Pool })
		if at < 0 {
			cfg.Workers = append(cfg.Workers, config.WorkerPool{Name: o.Pool})
			at = len(cfg.Workers) - 1
		}
		if p := cfg.Workers[at]; p.Autoscaled() {
			return usage.Errorf("the cluster autoscaler chooses the number of servers of worker pool %s, from %d to %d: "+
				"change its min and max in bootstrap.yaml, and run bootstrap", p.Name, p.Min, p.Max)
		}
		cfg.Workers[at].Replicas = o.Count
	}
	for _, wrong := range cfg.Validate() { // what was wrong before is not about the number: the lab has other networks
		if !slices.ContainsFunc(before, func(e config.FieldError) bool { return e.Error() == wrong.Error() }) {
			return usage.Errorf("scale %s to %d: %w", o.group(), o.Count, wrong)
		}
	}
	return nil
}

// group is the name of the group of servers, as the command has it.
func (o ScaleOptions) group() string {
	if o.Pool == "" {
		return scale.ControlPlaneGroup
	}
	return scale.PoolGroup + o.Pool
}

// Scale changes the number of servers of a group. It asks before it deletes servers.
func Scale(ctx context.Context, s *session.Session, o ScaleOptions, ask session.Questions) error {
	return o.scale(ctx, s, ask, nil)
}

// scale is Scale, as a part of apply where that is not nil.
func (o ScaleOptions) scale(ctx context.Context, s *session.Session, ask session.Questions, apply *Scaling) error {
	if err := s.RefuseOperation(ctx); err != nil {
		return err
	}
	if err := o.Check(s.Cfg.Config); err != nil {
		return err
	}
	group := o.Group(s.Cfg.Config, s.Tools)
	change, err := group.Examine(ctx, func(string, ...any) {}, o.Count)
	if err != nil {
		return err
	}
	for _, says := range ScaleLines(change) {
		s.Hub.Note("%s", says)
	}
	if err := agreeToScale(ctx, s, change, ask, apply); err != nil {
		return err
	}
	if change.From != change.To { // else the number was reached, or is waited for
		if err := scale.Begin(s.Tools.Files, change, apply != nil); err != nil {
			return err
		}
	}
	var steps []scale.Step
	err = s.Hub.Task("scale", fmt.Sprintf("%s: %d servers", change.Called(), o.Count), func(say flow.Say) (err error) {
		steps, err = group.Run(ctx, say, o.Count)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w\nlog: %s", err, s.Files.Log.Name())
	}
	if err := scale.End(s.Tools.Files, change.Group); err != nil {
		return fmt.Errorf("everything is done, but the record of the scaling cannot be removed: %w", err)
	}
	for _, step := range steps {
		s.Hub.Note("%s", step)
	}
	if says := o.afterwards(s.Cfg.Config); says != "" && !s.Caller.Program {
		s.Hub.Note("%s", says)
	}
	return nil
}

// afterwards is how bootstrap.yaml gets the number; empty: it has it.
func (o ScaleOptions) afterwards(cfg config.Config) string {
	const differs = "and later runs name the difference"
	if o.Pool == "" {
		if o.Count == cfg.ControlPlaneReplicas {
			return ""
		}
		return fmt.Sprintf("set controlPlaneReplicas: %d in bootstrap.yaml: the configuration says %d, %s", o.Count,
			cfg.ControlPlaneReplicas, differs)
	}
	for _, p := range cfg.Workers {
		switch {
		case p.Name != o.Pool:
		case p.Replicas == o.Count:
			return ""
		default:
			return fmt.Sprintf("set replicas: %d of worker pool %s in bootstrap.yaml: the configuration says %d, %s", o.Count,
				o.Pool, p.Replicas, differs)
		}
	}
	return fmt.Sprintf("the configuration has no worker pool %s: add {name: %s, replicas: %d} to workers in "+
		"bootstrap.yaml, or the next run asks to delete it", o.Pool, o.Pool, o.Count)
}

// agreeToScale has the doctor examine what new control plane servers need, or asks before servers are deleted. What was
// agreed to as a part of apply it does not ask again.
func agreeToScale(ctx context.Context, s *session.Session, change scale.Change, ask session.Questions,
	apply *Scaling) error {
	agreed := apply.agreedTo(change)
	if change.Group == scale.ControlPlaneGroup && change.Adds() > 0 {
		if err := s.ExamineFor(ctx, doctor.ForServer); err != nil || agreed {
			return err
		}
		return confirmRisk(ctx, s, "scale", change.Flaw, ask)
	}
	if change.Removes() == 0 || agreed {
		return nil
	}
	return s.Confirm(ctx, ask, "scale deletes servers and asks before", fmt.Sprintf(
		"Type %d to delete %d servers of %s with their disks: ", change.To, change.Removes(), change.Called()),
		strconv.Itoa(change.To))
}

// confirmRisk asks before a rollout that may never end; flaw is why, and empty where nothing is known.
func confirmRisk(ctx context.Context, s *session.Session, what, flaw string, ask session.Questions) error {
	switch {
	case flaw == "":
		return nil
	case !s.Yes && ask.Confirm == nil && !s.Caller.Program: // replace-machine has no dry run, which Confirm would name
		return usage.Errorf("%s may never end, and asks before, and the standard input is no terminal (--yes answers "+
			"beforehand): %s", what, flaw)
	}
	return s.Confirm(ctx, ask, fmt.Sprintf("%s may never end (%s) and asks before", what, flaw),
		fmt.Sprintf("%s may never end: %s\nGo ahead? [yes/no] ", what, flaw), "yes")
}

// ScaleLines are what is said of a change before it is made.
func ScaleLines(change scale.Change) []string {
	lines := append([]string{change.String()}, change.Notes...)
	if change.Flaw != "" {
		lines = append(lines, "it may never end: "+change.Flaw)
	}
	return lines
}
