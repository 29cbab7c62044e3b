package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/fleet"
	"github.com/slipway-k8s/slipway/internal/session"
)

// runFleetApply changes the clusters of a fleet.
func runFleetApply(ctx context.Context, c *console, a arguments, o fleetOptions) error {
	f, clusters, err := checkedFleet(ctx, c, a, o)
	if err != nil {
		return err
	}
	if !f.options.Lab {
		if err := f.pinImage(ctx); err != nil {
			return err
		}
	}
	say := sayLines(c)
	if err := f.open(ctx, false, say); err != nil {
		return err
	}
	if err := f.enterLab(ctx, clusters); err != nil {
		return err
	}
	if err := f.prepareLab(ctx, clusters, say); err != nil {
		return err
	}
	f.tellWhere()
	if err := f.findQueue(ctx); err != nil {
		return err
	}
	secrets, err := f.secrets(ctx, clusters)
	if err != nil {
		return err
	}
	if err := f.agree(ctx, clusters); err != nil {
		return err
	}
	changes, err := f.changes(clusters)
	if err != nil {
		return err
	}
	p := fleet.Preparation{Changes: changes, Access: f.accessOf(clusters), Secrets: secrets, Again: o.Again}
	if p.ProvidersFiles, p.Providers, err = f.providersJob(ctx); err != nil {
		return err
	}
	f.tellShared(clusters)
	if err := f.prepare(ctx, fleet.Apply, p); err != nil {
		return err
	}
	if o.Detach {
		return f.detach(ctx, p)
	}
	err = advanceFleet(ctx, c, a, f.management, fleet.Rollout{Fleet: f.Name, Namespace: f.Namespace},
		fleet.Revision(p.Entries()))
	if f.lab != nil {
		tell(c, "the lab stays up, with the clusters; to end it: %s", f.labCommand("down"))
	}
	return err
}

// argument is the first word after the names of commands; empty: there is none.
func argument(a arguments) string {
	if words := a.Targets[2:]; len(words) > 0 { // fleet apply
		return words[len(words)-1]
	}
	return ""
}

// sayLines prints what is being done on standard error.
func sayLines(c *console) flow.Say {
	return func(format string, args ...any) { tell(c, format, args...) }
}

// agree shows at a terminal what would be done, and asks once, as before any run.
func (f *openedFleet) agree(ctx context.Context, clusters []fleetCluster) error {
	c := f.console
	if f.options.Lab || f.options.Yes || f.options.Output != "text" || c.width() == 0 || !canPrompt(c) {
		return nil
	}
	p, err := f.plan(ctx, clusters)
	if err != nil {
		return err
	}
	if !p.Changes {
		return nil
	}
	p.print(c)
	if err := confirm(ctx, c, "Go ahead? [yes/no] ", "yes"); err != nil {
		return err
	}
	f.options.Yes = true // to what the plan has said
	return nil
}

// findQueue refuses a queue that Kueue does not have: the clusters would wait for it without end.
func (f *openedFleet) findQueue(ctx context.Context) error {
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
		return usage.Errorf("%s: queue %s is no LocalQueue of Kueue in namespace %s of the management cluster: create it, or "+
			"remove the key: %w", f.Path(), f.Queue, f.Namespace, err)
	}
	if err != nil {
		return fmt.Errorf("look for LocalQueue %s/%s: %w", f.Namespace, f.Queue, err)
	}
	return nil
}

// prepare writes the Jobs of a rollout.
func (f *openedFleet) prepare(ctx context.Context, action string, p fleet.Preparation) error {
	var names []string
	for _, change := range p.Changes {
		names = append(names, change.Cluster)
	}
	p.MoveStates = func(ctx context.Context) error { return f.moveStates(ctx, names) }
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
func (f *openedFleet) tellOthers(ctx context.Context, p fleet.Preparation) {
	known, err := fleet.RolloutClusters(ctx, f.management, f.Namespace, f.Name)
	if err != nil {
		return // the rollout itself will say what is wrong with the management cluster
	}
	others := slices.DeleteFunc(known, func(name string) bool {
		return f.Find(name) != nil || slices.ContainsFunc(p.Changes, func(c fleet.Change) bool { return c.Cluster == name })
	})
	if len(others) > 0 {
		tell(f.console, "not in %s any more, and left as they are: %s; to delete them: %s", f.Path(),
			strings.Join(others, ", "), commandLine(f.console, "fleet", "destroy", "--cluster", strings.Join(others, ",")))
	}
}

// detach leaves the rollout to a Job.
func (f *openedFleet) detach(ctx context.Context, p fleet.Preparation) error {
	image, err := f.image()
	if err != nil {
		return err
	}
	// Each cluster may take its whole time, one after another in the worst case.
	within := f.Deadline * time.Duration(len(p.Changes))
	job := fleet.Coordinator(f.Name, f.Namespace, image, fleet.Revision(p.Entries()), within)
	if err := fleet.Coordinate(ctx, f.management, job); err != nil {
		return err
	}
	fmt.Fprintf(f.console.stdout, "Job %s/%s begins one cluster after another; to look: %s\n", job.Namespace, job.Name,
		commandLine(f.console, "fleet", "status"))
	return nil
}

// runFleetAdvance continues a rollout, in a Job of the management cluster or anywhere else.
func runFleetAdvance(ctx context.Context, c *console, a arguments, o fleetOptions) error {
	f := &openedFleet{console: c, options: a.Options}
	f.Fleet = &fleet.Fleet{Spec: fleet.Spec{Name: argument(a), Namespace: o.Namespace}}
	if err := f.readOwn(a); err != nil {
		return err
	}
	if err := f.openExisting(ctx); err != nil {
		return err
	}
	err := advanceFleet(ctx, c, a, f.management, fleet.Rollout{Fleet: f.Name, Namespace: o.Namespace}, o.Revision)
	if errors.Is(err, fleet.ErrReplaced) && o.Revision != "" {
		tell(c, "%v", err) // whoever began that one advances it
		return nil
	}
	return err
}

// advanceFleet begins one cluster after another, and shows what becomes of them.
func advanceFleet(ctx context.Context, c *console, a arguments, management *kube.Cluster, of fleet.Rollout,
	revision string) error {
	show := &fleetProgress{console: c, json: a.Options.Output == "json", seen: map[string]fleet.ClusterStatus{}}
	result, err := fleet.Advance(ctx, management, of.Namespace, of.Fleet, revision,
		fleet.Observer{Changed: show.changed, Note: sayLines(c)})
	switch {
	case context.Cause(ctx) != nil:
		return &session.InterruptedError{Text: "interrupted: Jobs that have begun go on, and no further one is begun; to continue, run the " +
			"same command again; to look: " + commandLine(c, "fleet", "status"), Err: context.Cause(ctx)}
	case err != nil:
		return err
	}
	return show.conclude(result)
}

// fleetProgress shows the clusters of a rollout, as each of them changes.
type fleetProgress struct {
	console *console
	json    bool
	seen    map[string]fleet.ClusterStatus
}

func (p *fleetProgress) changed(all []fleet.ClusterStatus) {
	for _, s := range all {
		was, known := p.seen[s.Cluster]
		p.seen[s.Cluster] = s
		if known && was.Phase == s.Phase && was.Attempts == s.Attempts && was.Message == s.Message {
			continue
		}
		if !known && s.Phase == fleet.Waiting {
			continue
		}
		p.console.hide.Each(&s.Message)
		if p.json {
			data, err := json.Marshal(s)
			if err == nil {
				fmt.Fprintf(p.console.stdout, "%s\n", data)
			}
			continue
		}
		fmt.Fprintln(p.console.stdout, statusLine(s))
	}
}

// statusLine is one line about a cluster.
func statusLine(s fleet.ClusterStatus) string {
	line := fmt.Sprintf("%-20s %s", s.Cluster, s.Phase)
	if s.Attempts > 1 {
		line += fmt.Sprintf(", attempt %d", s.Attempts)
	}
	if s.Phase == fleet.Done && s.Began != nil && s.Ended != nil {
		line += ", after " + text.Elapsed(s.Ended.Sub(*s.Began))
	}
	if s.Message != "" {
		line += ": " + text.Printable(lastWords(s.Message))
	}
	return line
}

// lastWords are the error that a run has ended with; where it has said none, its last line.
func lastWords(said string) string {
	lines := strings.FieldsFunc(said, func(r rune) bool { return r == '\n' })
	for _, line := range slices.Backward(lines) {
		if strings.HasPrefix(line, "error: ") {
			return line
		}
	}
	return text.LastLine(said)
}

var errFleetFailed = errors.New("the fleet is not as configured")

// conclude sums a rollout up. It is an error where a cluster has failed or was not begun.
func (p *fleetProgress) conclude(r fleet.AdvanceResult) error {
	counts := map[fleet.Phase]int{}
	for _, s := range r.Clusters {
		counts[s.Phase]++
	}
	if !p.json {
		fmt.Fprintf(p.console.stdout, "\n%d clusters: %d done, %d failed, %d not begun\n", len(r.Clusters),
			counts[fleet.Done],
			counts[fleet.Failed], counts[fleet.Waiting])
	}
	if counts[fleet.Done] == len(r.Clusters) && r.Held == "" {
		return nil
	}
	var why []string
	if r.Held != "" {
		why = append(why, r.Held)
	}
	for _, s := range r.Clusters {
		if s.Phase == fleet.Failed {
			why = append(why, "log of "+s.Cluster+": "+commandLine(p.console, "fleet", "logs", s.Cluster))
		}
	}
	return fmt.Errorf("%w: %s\nto try the failed ones again, and go on: the same command again", errFleetFailed,
		strings.Join(why, "\n"))
}
