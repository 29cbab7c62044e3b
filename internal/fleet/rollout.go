package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// Rollout is one change of a fleet.
type Rollout struct {
	Fleet       string    `json:"fleet"`
	Namespace   string    `json:"namespace"`
	Action      string    `json:"action"` // objects.Apply or objects.Destroy
	Began       time.Time `json:"began"`
	MaxParallel int       `json:"maxParallel"`
	MaxFailures int       `json:"maxFailures"`
	Canary      []string  `json:"canary,omitempty"`
	Queue       string    `json:"queue,omitempty"` // LocalQueue of Kueue; empty: Kueue is not used
	// Image is what all Jobs of the rollout run, by its digest. It is not here where an earlier release wrote the rollout.
	Image string `json:"image,omitempty"`
	// Providers is the Job that installs the providers, before any other. Empty: none does.
	Providers string  `json:"providers,omitempty"`
	Entries   []Entry `json:"clusters"` // in their order
	// Released are the clusters whose turn has come. A name is written here before its Job begins.
	Released []string `json:"released,omitempty"`
	Stopped  bool     `json:"stopped,omitempty"` // no further cluster is begun
}

// Entry is a cluster with the Job that changes it.
type Entry struct {
	Cluster string `json:"cluster"`
	Job     string `json:"job"`
}

// ErrReplaced means that another rollout of the same fleet has begun.
var ErrReplaced = errors.New("another rollout of this fleet has begun since, and goes on in its place")

// ErrNone means that a fleet has no rollout.
var ErrNone = errors.New("nothing was ever applied")

func ignoreNone(err error) error {
	if errors.Is(err, ErrNone) {
		return nil
	}
	return err
}

const rolloutKey = "rollout.json"

// rolloutName is the ConfigMap that a fleet's rollout is in.
func rolloutName(fleet string) string { return "fleet-" + fleet }

// ConfigMap is a rollout as it is stored.
func (r Rollout) ConfigMap() (*corev1.ConfigMap, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, err
	}
	return &corev1.ConfigMap{
		TypeMeta: kind("v1", "ConfigMap"),
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: rolloutName(r.Fleet),
			Labels: map[string]string{FleetLabel: r.Fleet, managedBy: application}},
		Data: map[string]string{rolloutKey: string(data)},
	}, nil
}

// stored is a rollout and the object that it was read from.
type stored struct {
	Rollout
	object *corev1.ConfigMap
}

// ReadRollout reads the newest rollout of a fleet. Its error wraps ErrNone where there is none.
func ReadRollout(ctx context.Context, c *kube.Cluster, namespace, fleet string) (Rollout, error) {
	s, err := readStored(ctx, c, namespace, fleet)
	return s.Rollout, err
}

func readStored(ctx context.Context, c *kube.Cluster, namespace, fleet string) (s stored, err error) {
	s.object = &corev1.ConfigMap{}
	err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: rolloutName(fleet)}, s.object)
	if apierrors.IsNotFound(err) {
		return s, fmt.Errorf("fleet %s in namespace %s: %w", fleet, namespace, ErrNone)
	}
	if err != nil {
		return s, fmt.Errorf("read ConfigMap %s/%s: %w", namespace, rolloutName(fleet), err)
	}
	if err := json.Unmarshal([]byte(s.object.Data[rolloutKey]), &s.Rollout); err != nil {
		return s, fmt.Errorf("ConfigMap %s/%s does not hold a rollout: %w", namespace, rolloutName(fleet), err)
	}
	return s, nil
}

// errMeanwhile is about a rollout that another process has begun, or begun clusters of, while this one was prepared.
var errMeanwhile = errors.New("another process has changed the rollout of this fleet while this one was prepared, " +
	"and that one counts: none of this command's Jobs begins; look at it (fleet status), and run the command again if it " +
	"is still to be done")

// begin makes a rollout the newest of its fleet, where that still is the one that the preparation has seen: so it is
// decided from what is there, and of two that are prepared at once the second is refused as a whole. Where the newest
// has the same Jobs already, it goes on.
func (p *preparing) begin(ctx context.Context) error {
	r := p.Rollout
	was, err := readStored(ctx, p.cluster, r.Namespace, r.Fleet)
	if err != nil && !errors.Is(err, ErrNone) {
		return err
	}
	exists := err == nil
	switch {
	case exists && was.Action == r.Action && slices.Equal(was.Entries, r.Entries):
		r.Released, r.Began = was.Released, was.Began
	case exists != p.exists, exists && !was.as(p.seen):
		return fmt.Errorf("fleet %s: %w", r.Fleet, errMeanwhile)
	}
	again, err := stored{r, was.object}.write(ctx, p.cluster)
	if again {
		return fmt.Errorf("fleet %s: %w", r.Fleet, errMeanwhile)
	}
	return err
}

// as reports whether two readings are of one rollout at one moment: no cluster was begun in between, by which what was
// found out of the Jobs would be outdated.
func (r Rollout) as(other Rollout) bool {
	return r.Action == other.Action && r.Stopped == other.Stopped && r.Began.Equal(other.Began) &&
		slices.Equal(r.Entries, other.Entries) && slices.Equal(r.Released, other.Released)
}

// release writes which clusters' turn has come. Two processes that advance one rollout cannot both do so: the second
// sees a conflict and looks again.
func (s stored) release(ctx context.Context, c *kube.Cluster, clusters []string) (again bool, err error) {
	s.Released = append(slices.Clone(s.Released), clusters...)
	return s.write(ctx, c)
}

// write replaces the object that the rollout was read from, or creates it where there was none. again: another process
// has changed it since.
func (s stored) write(ctx context.Context, c *kube.Cluster) (again bool, err error) {
	o, err := s.ConfigMap()
	if err != nil {
		return false, err
	}
	if o.ResourceVersion = s.object.ResourceVersion; o.ResourceVersion == "" {
		err = c.Create(ctx, o)
	} else {
		err = c.Update(ctx, o)
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("write ConfigMap %s/%s: %w", s.Namespace, rolloutName(s.Fleet), err)
	}
	return false, nil
}
