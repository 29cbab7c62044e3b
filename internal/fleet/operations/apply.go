package operations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/fleet"
	"github.com/slipway-k8s/slipway/internal/session"
)

// ApplyOptions are the choices of an apply.
type ApplyOptions struct {
	Clusters []string // only these
	Again    bool     // also for the clusters whose last change is done and is the same
	Detach   bool     // have a Job begin one cluster after another

	// Consent gets what would be done, where that is something. It is not called with Yes, nor in a rehearsal. Its error
	// ends the apply, which has changed nothing. If it is nil, only Yes agrees to what replaces servers.
	Consent func(context.Context, *Forecast) error
	// Changed gets the status of a cluster each time that it has changed. Required unless Detach is set.
	Changed func(fleet.ClusterStatus)
}

// Apply changes the clusters of a fleet.
func Apply(ctx context.Context, q Request, o ApplyOptions) (Result, error) {
	f, clusters, err := checked(ctx, q, o.Clusters)
	if err != nil {
		return Result{}, err
	}
	p, err := f.toApply(ctx, clusters, o)
	if err != nil {
		return Result{}, err
	}
	if o.Detach {
		job, err := f.detach(ctx, p)
		return Result{Fleet: f.Name, Job: job}, err
	}
	result, err := f.advance(ctx, fleet.Revision(p.Entries()), o.Changed)
	if f.lab != nil {
		result.EndLab = f.labCommand("down")
	}
	return result, err
}

// toApply writes the Jobs that bring clusters to their configurations.
func (f *opened) toApply(ctx context.Context, clusters []cluster, o ApplyOptions) (p fleet.Preparation, err error) {
	if !f.asked.Lab {
		if err := f.pinImage(ctx); err != nil {
			return p, err
		}
	}
	if err := f.open(ctx, false); err != nil {
		return p, err
	}
	if err := f.enterLab(ctx, clusters); err != nil {
		return p, err
	}
	if err := f.prepareLab(ctx, clusters); err != nil {
		return p, err
	}
	f.caller.Note("the management cluster is at %s", f.management.Host())
	if err := f.findQueue(ctx); err != nil {
		return p, err
	}
	if p.Secrets, err = f.secretsOf(ctx, clusters); err != nil {
		return p, err
	}
	if err := f.agree(ctx, clusters, o.Consent); err != nil {
		return p, err
	}
	if p.Changes, err = f.changesOf(clusters); err != nil {
		return p, err
	}
	if p.ProvidersFiles, p.Providers, err = f.providersJob(ctx); err != nil {
		return p, err
	}
	p.Access, p.Again = accessOf(f.Namespace, clusters), o.Again
	tellShared(f.caller, clusters)
	return p, f.prepare(ctx, fleet.Apply, p)
}

// agree has the caller asked once, with what would be done, as before any run.
func (f *opened) agree(ctx context.Context, clusters []cluster,
	consent func(context.Context, *Forecast) error) error {
	if f.asked.Lab || f.asked.Yes || consent == nil {
		return nil
	}
	p, err := f.forecastAll(ctx, clusters)
	if err != nil || !p.Changes {
		return err
	}
	if err := consent(ctx, p); err != nil {
		return err
	}
	f.asked.Yes = true // to what the forecast has said
	return nil
}

// findQueue refuses a queue that Kueue does not have: the clusters would wait for it without end.
func (f *opened) findQueue(ctx context.Context) error {
	if f.Queue == "" {
		return nil
	}
	served, err := f.management.RESTMapper().RESTMapping(schema.GroupKind{Group: "kueue.x-k8s.io", Kind: "LocalQueue"})
	if err == nil {
		queue := &metav1.PartialObjectMetadata{}
		queue.SetGroupVersionKind(served.GroupVersionKind)
		err = f.management.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: f.Queue}, queue)
	}
	if kube.Absent(err) {
		return usage.Errorf("%s: queue %s is no LocalQueue of Kueue in namespace %s of the management cluster: create it, "+
			"or remove the key: %w", f.Path(), f.Queue, f.Namespace, err)
	}
	if err != nil {
		return fmt.Errorf("look for LocalQueue %s/%s: %w", f.Namespace, f.Queue, err)
	}
	return nil
}

// prepare writes the Jobs of a rollout.
func (f *opened) prepare(ctx context.Context, action string, p fleet.Preparation) error {
	p.MoveStates = func(ctx context.Context) error { return f.moveStates(ctx, p.Clusters()) }
	r := fleet.Rollout{Fleet: f.Name, Namespace: f.Namespace, Action: action, Began: time.Now().UTC(),
		MaxParallel: f.MaxParallel, MaxFailures: f.MaxFailures, Queue: f.Queue}
	if action == fleet.Apply {
		r.Canary = f.Canary
		r.Image = p.Changes[0].Image // of all
	}
	err := fleet.Prepare(ctx, f.management, r, p)
	if err != nil {
		return fmt.Errorf("prepare the Jobs of fleet %s: %w", f.Name, err)
	}
	f.tellOthers(ctx, p)
	return nil
}

// tellOthers names clusters of the fleet that its file does not have: nothing is done with them.
func (f *opened) tellOthers(ctx context.Context, p fleet.Preparation) {
	known, err := fleet.LastChanges(ctx, f.management, f.Namespace, f.Name)
	if err != nil {
		return // the rollout itself will say what is wrong with the management cluster
	}
	others := slices.DeleteFunc(fleet.Preparation{Changes: known}.Clusters(), func(name string) bool {
		return f.Find(name) != nil || slices.Contains(p.Clusters(), name)
	})
	if len(others) > 0 {
		f.caller.Note("not in %s any more, and left as they are: %s; to delete them: %s", f.Path(),
			strings.Join(others, ", "), f.caller.Command("fleet", "destroy", "--cluster", strings.Join(others, ",")))
	}
}

// detach leaves the rollout to a Job, and returns its name.
func (f *opened) detach(ctx context.Context, p fleet.Preparation) (string, error) {
	image, err := f.imageOf()
	if err != nil {
		return "", err
	}
	// Each cluster may take its whole time, one after another in the worst case.
	within := f.Deadline * time.Duration(len(p.Changes))
	job := fleet.Coordinator(f.Name, f.Namespace, image, fleet.Revision(p.Entries()), within)
	return job.Namespace + "/" + job.Name, fleet.Coordinate(ctx, f.management, job)
}

// Result is what an operation on a fleet has come to.
type Result struct {
	Fleet    string // its name
	Clusters []fleet.ClusterStatus
	Ended    bool   // the rollout has ended, and Clusters are as they are then
	Job      string // of an apply with Detach: the Job's namespace and name
	EndLab   string // of an apply in a rehearsal: the command that ends the lab, which stays up
}

// Advance begins one cluster after another of a fleet that was applied. With a revision it does nothing where the
// newest rollout is another one.
func Advance(ctx context.Context, q Request, name, namespace, revision string,
	changed func(fleet.ClusterStatus)) (Result, error) {
	f, err := named(q, name, namespace)
	if err != nil {
		return Result{}, err
	}
	if err := f.openExisting(ctx); err != nil {
		return Result{}, err
	}
	result, err := f.advance(ctx, revision, changed)
	if errors.Is(err, fleet.ErrReplaced) && revision != "" {
		f.caller.Note("%v", err) // whoever began that one advances it
		return result, nil
	}
	return result, err
}

// advance begins one cluster after another, and tells what becomes of each.
func (f *opened) advance(ctx context.Context, revision string, changed func(fleet.ClusterStatus)) (Result, error) {
	result, seen := Result{Fleet: f.Name}, map[string]fleet.ClusterStatus{}
	observer := fleet.Observer{Note: f.caller.Note, Changed: func(all []fleet.ClusterStatus) {
		for _, s := range all {
			was, known := seen[s.Cluster]
			seen[s.Cluster] = s
			if known && was.Phase == s.Phase && was.Attempts == s.Attempts && was.Message == s.Message {
				continue
			}
			if !known && s.Phase == fleet.Waiting {
				continue
			}
			f.caller.Hide.Each(&s.Message)
			changed(s)
		}
	}}
	is, err := fleet.Advance(ctx, f.management, f.Namespace, f.Name, revision, observer)
	switch {
	case context.Cause(ctx) != nil:
		text := "interrupted: Jobs that have begun go on, and no further one is begun; to continue, run the same command " +
			"again; to look: " + f.caller.Command("fleet", "status")
		return result, &session.InterruptedError{Err: context.Cause(ctx), Text: text}
	case err != nil:
		return result, err
	}
	result.Clusters, result.Ended = is.Clusters, true
	return result, conclude(f.caller, is)
}

var errFailed = errors.New("the fleet is not as configured")

// conclude is an error where a cluster has failed or was not begun.
func conclude(caller *session.Caller, r fleet.AdvanceResult) error {
	var why []string
	done := true
	if r.Held != "" {
		done, why = false, append(why, r.Held)
	}
	for _, s := range r.Clusters {
		done = done && s.Phase == fleet.Done
		if s.Phase == fleet.Failed {
			why = append(why, "log of "+s.Cluster+": "+caller.Command("fleet", "logs", s.Cluster))
		}
	}
	if done {
		return nil
	}
	return fmt.Errorf("%w: %s\nto try the failed ones again, and go on: the same command again", errFailed,
		strings.Join(why, "\n"))
}
