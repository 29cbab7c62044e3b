package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/fleet"
)

// jobLookEvery is how often a Job that is followed is looked at without a signal.
const jobLookEvery = 10 * time.Second

// runFleetLogs prints what the runs of a cluster's Job have written, one after another.
func runFleetLogs(ctx context.Context, c *console, a arguments, o fleetOptions) error {
	words, path := a.Targets[2:], "" // fleet logs CLUSTER [FILE]
	if len(words) > 1 {
		path = words[1]
	}
	f, err := readFleet(c, a, path)
	if err != nil {
		return err
	}
	r, all, _, err := f.rollout(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Cluster)
		if s.Cluster == words[0] {
			r.Entries = []fleet.Entry{{Cluster: s.Cluster, Job: s.Job}}
			return printJobLogs(ctx, c, f.management, r, o.Follow)
		}
	}
	return usage.Errorf("fleet %s has no change of a cluster %q%s", f.Name, words[0],
		usage.DidYouMean("", words[0], names))
}

// printJobLogs prints the logs of the Pods of a rollout with one entry, until the Job has ended or, without follow, as
// far as they are written.
func printJobLogs(ctx context.Context, c *console, management *kube.Cluster, r fleet.Rollout, follow bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	of := []client.ListOption{client.InNamespace(r.Namespace), client.MatchingLabels{fleet.FleetLabel: r.Fleet}}
	changes := management.Changes(ctx, kube.Selection{List: &batchv1.JobList{}, Options: of},
		kube.Selection{List: &corev1.PodList{}, Options: of})
	printed := map[string]bool{}
	for {
		pods, err := fleet.JobPods(ctx, management, r.Namespace, r.Entries[0].Job)
		if err != nil {
			return err
		}
		for _, pod := range pods {
			if printed[pod.Name] || pod.Status.Phase == corev1.PodPending {
				continue
			}
			printed[pod.Name] = true
			if err := printPodLog(ctx, c, management, pod, follow); err != nil {
				return err
			}
		}
		all, _, err := fleet.Statuses(ctx, management, r)
		if err != nil {
			return err
		}
		for _, s := range all {
			if s.Job != r.Entries[0].Job {
				continue
			}
			switch {
			case s.Phase == fleet.Done || s.Phase == fleet.Failed:
				return nil
			case !follow && len(printed) == 0:
				return fmt.Errorf("cluster %s is %s: no Pod of its Job %s/%s has run yet", s.Cluster, s.Phase, r.Namespace, s.Job)
			}
		}
		if !follow || len(all) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changes:
		case <-time.After(jobLookEvery):
		}
	}
}

func printPodLog(ctx context.Context, c *console, management *kube.Cluster, pod corev1.Pod, follow bool) error {
	stream, err := management.OpenLog(ctx, kube.LogRequest{Namespace: pod.Namespace, Pod: pod.Name,
		Container: fleet.Container, Lines: -1, Follow: follow})
	if err != nil {
		return fmt.Errorf("read the log of Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	defer stream.Close()
	for {
		line, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the log of Pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		fmt.Fprintln(c.stdout, c.hide.Text(line.Text))
	}
}
