package operations

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/fleet"
)

// jobLookEvery is how often a Job that is followed is looked at without a signal.
const jobLookEvery = 10 * time.Second

// Logs gives every line that the runs of a cluster's Job have written, one after another. With follow it goes on until
// the Job has ended.
func Logs(ctx context.Context, q Request, cluster string, follow bool, line func(string)) error {
	f, err := readExisting(ctx, q)
	if err != nil {
		return err
	}
	r, all, _, err := f.newest(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Cluster)
		if s.Cluster == cluster {
			r.Entries = []fleet.Entry{{Cluster: s.Cluster, Job: s.Job}}
			hidden := func(text string) { line(f.caller.Hide.Text(text)) }
			return jobLogs(ctx, f.management, r, follow, hidden)
		}
	}
	return usage.Errorf("fleet %s has no change of a cluster %q%s", f.Name, cluster,
		usage.DidYouMean("", cluster, names))
}

// jobLogs gives the logs of the Pods of a rollout with one entry, until the Job has ended or, without follow, as
// far as they are written.
func jobLogs(ctx context.Context, management *kube.Cluster, r fleet.Rollout, follow bool, line func(string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := fleet.Changes(ctx, management, r.Namespace, r.Fleet)
	given := map[string]bool{}
	for {
		pods, err := fleet.JobPods(ctx, management, r.Namespace, r.Entries[0].Job)
		if err != nil {
			return err
		}
		for _, pod := range pods {
			if given[pod.Name] || pod.Status.Phase == corev1.PodPending {
				continue
			}
			given[pod.Name] = true
			log := kube.LogRequest{Namespace: pod.Namespace, Pod: pod.Name, Lines: -1, Follow: follow}
			if err := podLog(ctx, management, log, line); err != nil {
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
			case !follow && len(given) == 0:
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

// podLog gives the lines of a run's log that are asked for.
func podLog(ctx context.Context, management *kube.Cluster, asked kube.LogRequest, line func(string)) error {
	asked.Container = fleet.Container
	stream, err := management.OpenLog(ctx, asked)
	if err != nil {
		return fmt.Errorf("read the log of Pod %s/%s: %w", asked.Namespace, asked.Pod, err)
	}
	defer stream.Close()
	for {
		next, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the log of Pod %s/%s: %w", asked.Namespace, asked.Pod, err)
		}
		line(next.Text)
	}
}
