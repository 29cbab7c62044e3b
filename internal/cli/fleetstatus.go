package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/fleet"
)

// fleetStatus is `fleet status --output json`.
type fleetStatus struct {
	Kind string `json:"kind"` // "fleetStatus", to tell it from other output
	fleet.Rollout
	Status []clusterStatus `json:"status"`
	Held   string          `json:"held,omitempty"` // why the clusters that wait are not begun
}

// clusterStatus is one cluster of it.
type clusterStatus struct {
	fleet.ClusterStatus
	Log string `json:"log,omitempty"` // the last line that its run has written
}

func runFleetStatus(ctx context.Context, c *console, a arguments, _ fleetOptions) error {
	f, err := readFleet(c, a, argument(a))
	if err != nil {
		return err
	}
	r, all, held, err := f.rollout(ctx)
	if err != nil {
		return err
	}
	s := fleetStatus{Kind: "fleetStatus", Rollout: r, Held: held}
	for _, one := range all {
		shown := clusterStatus{ClusterStatus: one}
		if one.Phase == fleet.Running {
			shown.Log = lastLogLine(ctx, f.management, r.Namespace, one.Pod)
		}
		c.hide.Each(&shown.Message, &shown.Log)
		s.Status = append(s.Status, shown)
	}
	if a.Options.Output == "json" {
		return ui.PrintJSON(c.stdout, s)
	}
	printFleetStatus(c, s)
	return nil
}

// rollout is the fleet's newest rollout, with where each of its clusters is, and why those that wait are not begun.
func (f *openedFleet) rollout(ctx context.Context) (r fleet.Rollout, all []fleet.ClusterStatus, held string,
	err error) {
	if err := f.openExisting(ctx); err != nil {
		return r, nil, "", err
	}
	if r, err = fleet.ReadRollout(ctx, f.management, f.Namespace, f.Name); err != nil {
		return r, nil, "", err
	}
	all, held, err = fleet.Statuses(ctx, f.management, r)
	return r, all, held, err
}

// lastLogLine is the last line that a Pod has written; empty: there is none, or it cannot be read now.
func lastLogLine(ctx context.Context, c *kube.Cluster, namespace, pod string) (last string) {
	streams, err := c.OpenLogs(ctx, kube.LogOptions{Lines: 1,
		Pods:    func(p *corev1.Pod) bool { return p.Namespace == namespace && p.Name == pod },
		Trouble: func(kube.LogLine, error) {},
	})
	if err != nil {
		return ""
	}
	for _, s := range streams {
		for {
			line, err := s.Next()
			if err != nil {
				break
			}
			last = line.Text
		}
		_ = s.Close()
	}
	return last
}

func printFleetStatus(c *console, s fleetStatus) {
	var rows [][]string
	for _, one := range s.Status {
		took, says := "-", one.Log
		if one.Began != nil {
			until := time.Now()
			if one.Ended != nil {
				until = *one.Ended
			}
			took = text.Elapsed(until.Sub(*one.Began).Round(time.Second))
		}
		if one.Message != "" {
			says = lastWords(one.Message)
		}
		rows = append(rows, []string{one.Cluster, one.Action, string(one.Phase), strconv.Itoa(one.Attempts), took,
			text.Dash(text.Printable(says))})
	}
	text.Table(c.stdout, c.width(), []string{"CLUSTER", "CHANGE", "PHASE", "ATTEMPTS", "TIME", "MESSAGE"}, rows...)
	if s.Held != "" {
		fmt.Fprintf(c.stdout, "\nno further cluster is begun: %s\n", s.Held)
	}
}

// runFleetStop has the rollout begin no further cluster.
func runFleetStop(ctx context.Context, c *console, a arguments, _ fleetOptions) error {
	f, err := readFleet(c, a, argument(a))
	if err != nil {
		return err
	}
	if err := f.openExisting(ctx); err != nil {
		return err
	}
	if err := fleet.Stop(ctx, f.management, f.Namespace, f.Name); err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "fleet %s begins no further cluster, and Jobs that have begun go on; to continue: %s\n", f.Name,
		commandLine(c, "fleet", "apply"))
	return nil
}
