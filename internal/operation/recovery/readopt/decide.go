package readopt

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/ensure/pivot"
	"github.com/slipway-k8s/slipway/platform"
)

// Readoption is what a look at a cluster without management finds, and what would be done.
type Readoption struct {
	Cluster     string     `json:"cluster"`
	Taken       time.Time  `json:"taken"`
	Manager     string     `json:"manager"`            // that will be, as text
	Underway    bool       `json:"underway,omitempty"` // an earlier run was agreed to, with the same differences
	Released    bool       `json:"released,omitempty"` // and has let the controllers go
	Differences []Mismatch `json:"differences"`
	Open        []string   `json:"open,omitempty"` // IDs of those that are not accepted
	Comparison  Comparison `json:"plan"`
	PutBack     int        `json:"putBack"` // objects
	Notes       []string   `json:"notes,omitempty"`
}

// UnacceptedError are the differences that the operator has not accepted.
type UnacceptedError struct{ Open []Mismatch }

// Error implements error.
func (e *UnacceptedError) Error() string {
	lines := []string{fmt.Sprintf("the backup and the living cluster differ, and Cluster API would change the cluster "+
		"after the backup: nothing is done. %s:", counted(len(e.Open), "difference"))}
	for _, m := range e.Open {
		lines = append(lines, m.String())
	}
	return strings.Join(append(lines, "a newer backup may have none of them; --accept ID[,ID…] accepts one by one"), "\n")
}

// Refuse returns an *UnacceptedError where a difference is not accepted, and an error where an accepted ID is that of
// no difference.
func (r Readoption) Refuse(accept []string) error {
	if r.Released {
		return nil
	}
	if len(r.Open) > 0 {
		return &UnacceptedError{slices.DeleteFunc(slices.Clone(r.Differences), func(m Mismatch) bool {
			return !slices.Contains(r.Open, m.ID)
		})}
	}
	if r.Underway {
		return nil
	}
	for _, id := range accept {
		if !slices.ContainsFunc(r.Differences, func(m Mismatch) bool { return m.ID == id }) {
			return usage.Errorf("--accept %s: there is no such difference: nothing was done", id)
		}
	}
	return nil
}

// String is the difference for a person, on several lines.
func (m Mismatch) String() string {
	text := fmt.Sprintf("%s: %s\n  would: %s", m.ID, m.What, m.Would)
	if m.Accept == "" {
		return text + "\n  cannot be accepted: " + m.Advice
	}
	return text + "\n  accepted: " + m.Accept
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// compareWith compares the backup with what exists.
func (r inputs) compareWith(ctx context.Context, workload *kube.Cluster, o Orphan) ([]Mismatch, error) {
	l, err := r.lookAround(ctx, workload, o)
	if err != nil {
		return nil, err
	}
	return mismatches(r.source, l), nil
}

// decide says what follows from what was accepted, and what was not.
func (r inputs) decide(ctx context.Context, found []Mismatch) (d Comparison, open []string, err error) {
	for _, m := range found {
		if m.Accept == "" || !slices.Contains(r.accept, m.ID) {
			open = append(open, m.ID)
			continue
		}
		d.Accepted = append(d.Accepted, m.ID)
		if m.accepted != nil {
			m.accepted(&d)
		}
	}
	ids, err := pivot.ServerIDs(ctx, r.cfg, r.tools)
	d.Servers = slices.DeleteFunc(ids, func(id int64) bool { return slices.Contains(d.Others, id) })
	if want := max(r.source.Replicas(), d.Replicas); err == nil {
		d.Made = max(0, int(want)-r.managed(d))
	}
	return d, open, err
}

// managed counts the control plane's Machines that are put back.
func (r inputs) managed(d Comparison) int {
	n := len(d.Adopted)
	for _, m := range r.source.Machines() {
		if m.ControlPlane && !slices.Contains(d.LeftOut, m.Name) {
			n++
		}
	}
	return n
}

// judge compares, and refuses where anything is not accepted.
func (r inputs) judge(ctx context.Context, workload *kube.Cluster, o Orphan) (Comparison, error) {
	found, err := r.compareWith(ctx, workload, o)
	if err != nil {
		return Comparison{}, err
	}
	d, open, err := r.decide(ctx, found)
	if err == nil && len(open) > 0 {
		found = slices.DeleteFunc(found, func(m Mismatch) bool { return !slices.Contains(open, m.ID) })
		err = &UnacceptedError{found}
	}
	return d, err
}

// compareAll is the comparison before anything is made.
func (r inputs) compareAll(ctx context.Context, _ flow.Say, o Orphan) (Comparison, error) {
	if o.Released {
		return Comparison{}, nil // the controllers work again, and may differ from the backup
	}
	workload, err := connect.Cluster(r.tools, platform.Kubeconfig)
	if err != nil {
		return Comparison{}, err
	}
	return r.judge(ctx, workload, o)
}
