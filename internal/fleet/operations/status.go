package operations

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/fleet"
)

// Report is where the clusters of a fleet are: `fleet status --output json`.
type Report struct {
	Kind string `json:"kind"` // "fleetStatus", to tell it from other output
	fleet.Rollout
	Status []ClusterStatus `json:"status"`
	Held   string          `json:"held,omitempty"` // why the clusters that wait are not begun
}

// ClusterStatus is one cluster of it.
type ClusterStatus struct {
	fleet.ClusterStatus
	Log string `json:"log,omitempty"` // the last line that its run has written
}

// Status reads where the clusters of a fleet are.
func Status(ctx context.Context, q Request) (Report, error) {
	f, err := readExisting(ctx, q)
	if err != nil {
		return Report{}, err
	}
	r, all, held, err := f.newest(ctx)
	if err != nil {
		return Report{}, err
	}
	s := Report{Kind: "fleetStatus", Rollout: r, Held: held}
	for _, one := range all {
		shown := ClusterStatus{ClusterStatus: one}
		if one.Phase == fleet.Running {
			// Where the log cannot be read now, what is shown has none.
			_ = podLog(ctx, f.management, kube.LogRequest{Namespace: r.Namespace, Pod: one.Pod, Lines: 1},
				func(line string) { shown.Log = line })
		}
		f.caller.Hide.Each(&shown.Message, &shown.Log)
		s.Status = append(s.Status, shown)
	}
	return s, nil
}

// newest is the fleet's newest rollout, with where each of its clusters is, and why those that wait are not begun.
func (f *opened) newest(ctx context.Context) (r fleet.Rollout, all []fleet.ClusterStatus, held string, err error) {
	if r, err = fleet.ReadRollout(ctx, f.management, f.Namespace, f.Name); err != nil {
		return r, nil, "", err
	}
	all, held, err = fleet.Statuses(ctx, f.management, r)
	return r, all, held, err
}

// Stop has the rollout of a fleet begin no further cluster. It returns the fleet's name.
func Stop(ctx context.Context, q Request) (string, error) {
	f, err := readExisting(ctx, q)
	if err != nil {
		return "", err
	}
	return f.Name, fleet.Stop(ctx, f.management, f.Namespace, f.Name)
}
