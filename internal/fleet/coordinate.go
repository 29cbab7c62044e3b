package fleet

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// Revision identifies a rollout by its Jobs.
func Revision(entries []Entry) string {
	return shortHash(fmt.Append(nil, entries))
}

// Coordinate creates the Job that advances a rollout. One that is there and has not ended is left as it is.
func Coordinate(ctx context.Context, c *kube.Cluster, job *batchv1.Job) error {
	return ensureCoordinator(ctx, c, job, func(phase Phase) bool { return phase == Done || phase == Failed })
}

// ensureCoordinator creates a Job that is no cluster's, and makes it anew where it is in a phase for that.
func ensureCoordinator(ctx context.Context, c *kube.Cluster, job *batchv1.Job, anew func(Phase) bool) error {
	is := &batchv1.Job{}
	err := c.Get(ctx, client.ObjectKeyFromObject(job), is)
	switch {
	case err == nil && anew(phaseOf(is)):
		if err := deleteJob(ctx, c, is); err != nil {
			return err
		}
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("look for Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	if err := c.Create(ctx, job); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// Stop has a rollout begin no further cluster. The Jobs that have begun go on.
func Stop(ctx context.Context, c *kube.Cluster, namespace, fleet string) error {
	for {
		s, err := readStored(ctx, c, namespace, fleet)
		if err != nil || s.Stopped {
			return err
		}
		s.Stopped = true
		if again, err := s.release(ctx, c, nil); !again || err != nil {
			return err
		}
	}
}
