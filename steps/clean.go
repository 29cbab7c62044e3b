package steps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/platform"
)

// ErrNotOurs is wrapped by a ManagementProvider that is asked to delete a cluster which it did not make.
var ErrNotOurs = errors.New("this state folder did not create it, and does not delete it")

// Clean is what became of the temporary management cluster.
type Clean struct {
	Name string `json:"name"`
	Left bool   `json:"left,omitempty"` // this state folder did not create it
}

// Clean adds the step clean to a graph: the temporary management cluster is deleted.
func (s *Set) Clean(g *flow.Graph) *flow.Step[Clean] {
	return flow.Add(g, flow.Task[Clean]{
		Name:     "clean",
		Doc:      "the temporary management cluster is gone; refused while it may hold the only record of a cluster",
		Run:      flow.Do(s.runClean),
		Verify:   s.verifyClean,
		Deadline: s.cfg.ManagementTimeout.D() + wait.Overhead,
	})
}

// runClean deletes the management cluster, once it is certain that nothing but it would be lost.
func (s *Set) runClean(ctx context.Context, say flow.Say) (Clean, error) {
	p, name := s.tools.Management, s.cfg.ManagementName()
	out := Clean{Name: name}
	exists, err := p.Exists(ctx, name)
	if err != nil {
		return Clean{}, fmt.Errorf("find out whether management cluster %s (%s) exists: %w", name, p.Name(), err)
	}
	if exists {
		given, err := connect.ManagementGiven(ctx, s.cfg, s.tools)
		if err != nil {
			return Clean{}, fmt.Errorf("management cluster %s (%s) is not deleted: %w", name, p.Name(), err)
		}
		self, err := s.managementDeletable(ctx, say, given)
		if err != nil {
			return Clean{}, fmt.Errorf("management cluster %s (%s) is not deleted: %w", name, p.Name(), err)
		}
		if self {
			say("%s is the cluster itself: there is no other management cluster", name)
			return Clean{Name: name, Left: true}, nil
		}
		if given {
			if err := s.leaveManagement(ctx, say); err != nil {
				return Clean{}, err
			}
			out.Left = true
			return out, s.forgetManagement()
		}
		if err := s.tools.Files.Write(connect.CleaningFile, []byte(name+"\n")); err != nil {
			return Clean{}, err
		}
		say("deleting management cluster %s (%s)", name, p.Name())
		switch err := p.Delete(ctx, name); {
		case errors.Is(err, ErrNotOurs):
			say("leaving management cluster %s alone: %v", name, err)
			out.Left = true
		case err != nil:
			return Clean{}, fmt.Errorf("delete management cluster %s (%s): %w", name, p.Name(), err)
		}
	}
	return out, s.forgetManagement()
}

// leaveManagement leaves a management cluster that was there before alone, but for the namespace that Slipway created
// in it.
func (s *Set) leaveManagement(ctx context.Context, say flow.Say) error {
	say("leaving management cluster %s alone: %v", s.cfg.ManagementName(), ErrNotOurs)
	source, _, err := connect.OpenManagement(ctx, s.cfg, s.tools, say)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil: // the cluster does without it, but what is in it has to be known
		say("%s", s.remainsOfManagement(err))
		return nil
	case source == nil:
		return nil
	}
	return apply.RemoveNamespace(ctx, s.cfg, say, source)
}

// remainsOfManagement says what may be left in a management cluster that cannot be opened, and whose kubeconfig is
// forgotten.
func (s *Set) remainsOfManagement(why error) string {
	at := s.cfg.ManagementName()
	if known, err := connect.Cluster(s.tools, platform.ManagementKubeconfig); err == nil {
		at += " at " + known.Host()
	}
	what := fmt.Sprintf("the Secret %s with the Hetzner token", config.TokenSecretName)
	if s.cfg.Namespace != config.DefaultNamespace {
		what = "the namespace with " + what
	}
	return fmt.Sprintf("namespace %s and Secret %s are left in management cluster %s as they are, because it could not "+
		"be opened: %v; delete %s there, unless others need it", s.cfg.Namespace, config.TokenSecretName, at, why, what)
}

// forgetManagement removes what opened the management cluster: it opens nothing any more, or is a copy of what the
// operator has.
func (s *Set) forgetManagement() error {
	if err := s.tools.Files.Remove(platform.ManagementKubeconfig); err != nil {
		return err
	}
	if err := connect.ForgetManagement(s.tools); err != nil {
		return err
	}
	return s.tools.Files.Remove(connect.CleaningFile)
}

// managementEmptied returns nil where a management cluster which does not answer manages nothing: a run has seen that
// and begun to delete it, or the person agrees.
func (s *Set) managementEmptied() error {
	name := s.cfg.ManagementName()
	begun, err := s.tools.Files.Read(connect.CleaningFile)
	switch {
	case err == nil && string(begun) == name+"\n" || s.tools.Consent:
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return &heldError{fmt.Sprintf("it may hold other clusters: start it (kind: docker start %s-control-plane) and run "+
		"again, or agree to its deletion with --yes", name)}
}

// heldError is why a management cluster is not deleted where only the operator can change that.
type heldError struct{ why string }

func (e *heldError) Error() string { return e.why }

// RefuseClean is the refusal of the step clean in a run after the pivot; nil: it refuses nothing, or that is not known.
func (p *Plan) RefuseClean(ctx context.Context) error {
	s := p.b
	name := s.cfg.ManagementName()
	if exists, err := s.tools.Management.Exists(ctx, name); err != nil || !exists {
		return nil
	}
	if given, err := connect.ManagementGiven(ctx, s.cfg, s.tools); err != nil || given {
		return nil
	}
	_, err := s.managementDeletable(ctx, quiet, false)
	if held, is := errors.AsType[*heldError](err); is {
		return fmt.Errorf("management cluster %s (%s) is not deleted: %w", name, s.tools.Management.Name(), held)
	}
	return nil
}

// managementDeletable refuses while the management cluster may have the only copy of the objects of any cluster. self
// tells that it is the cluster itself. A given one is not deleted, whatever it holds.
func (s *Set) managementDeletable(ctx context.Context, say flow.Say, given bool) (self bool, err error) {
	source, uid, sourceErr := connect.OpenManagement(ctx, s.cfg, s.tools, say)
	if wrong := (*connect.WrongManagementError)(nil); errors.As(sourceErr, &wrong) {
		return false, wrong // --yes agrees to the deletion of one that does not answer, not of one that was not asked
	}
	target, err := connect.Cluster(s.tools, platform.Kubeconfig)
	if err != nil {
		return false, err
	}
	targetUID, err := target.UID(ctx)
	if err != nil {
		return false, fmt.Errorf("cluster %s cannot be asked whether it manages itself: %w", s.cfg.ClusterName, err)
	}
	if sourceErr == nil && source == nil || uid == targetUID {
		return uid == targetUID, nil
	}
	if err := connect.ManagesItself(ctx, s.cfg, target, sourceErr != nil); err != nil {
		return false, errors.Join(sourceErr, err)
	}
	if sourceErr != nil {
		if err := s.managementEmptied(); err != nil {
			return false, errors.Join(sourceErr, err)
		}
		say("the management cluster does not answer, but cluster %s holds all objects, unpaused and reconciled",
			s.cfg.ClusterName)
		return false, nil
	}
	if given {
		return false, nil // what else it holds stays there
	}
	all, err := capi.Clusters(ctx, source)
	if err != nil {
		return false, err
	}
	var held []string
	for _, o := range all {
		held = append(held, o.GetNamespace()+"/"+o.GetName())
	}
	if len(held) > 0 {
		return false, &heldError{fmt.Sprintf("it holds the Cluster objects %s: move them first, or they and the knowledge "+
			"of their servers are lost", strings.Join(held, ", "))}
	}
	return false, nil
}

func (s *Set) verifyClean(ctx context.Context, was Clean) flow.Verdict {
	if was.Left {
		return flow.Holds()
	}
	exists, err := s.tools.Management.Exists(ctx, was.Name)
	switch {
	case err != nil:
		return flow.Unknown(err)
	case exists:
		return flow.Gone("there is a management cluster %s again", was.Name)
	}
	return flow.Holds()
}
