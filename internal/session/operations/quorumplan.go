package operations

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/quorum"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/runs"
)

// QuorumForecast is what RecoverQuorum would do: `recover-quorum --dry-run --output json`.
type QuorumForecast struct {
	Kind    string `json:"kind"` // "recover-quorum-plan", to tell it from events
	Cluster string `json:"cluster"`
	// Began is when a recovery that is under way was agreed to; zero: none is. Then the survey is that one's.
	Began  time.Time        `json:"began,omitzero"`
	Survey *etcdview.Survey `json:"survey,omitempty"`
	// Reset are the servers whose EPHEMERAL partition is wiped, in that order. The survivor is the last, once the
	// others hold its data.
	Reset   []string              `json:"reset,omitempty"`
	Lost    []string              `json:"lost,omitempty"`
	Takes   *runs.ForecastOfSteps `json:"takes,omitempty"`
	Command string                `json:"command"`
}

// PlanQuorum surveys etcd, and predicts what a recovery would do. It changes nothing: it takes no lock, claims no
// folder and leaves no files. hub shows the survey.
func PlanQuorum(ctx context.Context, k session.Cluster, hub func() *session.Hub) (f QuorumForecast, err error) {
	at, err := k.InspectForPlan(ctx)
	if err != nil {
		return f, err
	}
	if err := session.RefuseDuringRestore(at.Caller, at.Folder); err != nil {
		return f, err
	}
	if at.Offline != "" {
		return f, usage.Errorf("%s: etcd cannot be asked", at.Offline)
	}
	plan, err := quorum.New(at.Cfg.Config, at.Tools)
	if err != nil {
		return f, &usage.Error{Err: err}
	}
	f = QuorumForecast{Kind: "recover-quorum-plan", Cluster: at.Cfg.ClusterName,
		Takes:   runs.ReadDurations(at.Folder, at.Environment()).Forecast(plan.Takes()),
		Command: k.Caller.Command("recover-quorum")}
	record, err := records.ReadQuorum(at.Tools.Files)
	if err != nil {
		return f, err
	}
	if record == nil {
		h := hub()
		defer h.Close()
		err = h.Task("survey", "which member of etcd has the most of its log", func(say flow.Say) error {
			survey, err := plan.Inspect(ctx, say)
			if err == nil {
				f.add(survey)
			}
			return err
		})
		return f, err
	}
	// The survey of the recovery that is under way: some members may have been reset already, and none is asked.
	f.Began = record.Began
	survey, made, err := flow.Restore(ctx, flow.Folder(records.QuorumFiles(at.Tools.Files).String()), plan.Survey)
	if err == nil && made {
		f.add(survey)
	}
	return f, err
}

func (f *QuorumForecast) add(s etcdview.Survey) {
	f.Survey, f.Lost = &s, recoveryLosses(s)
	f.Reset = slices.DeleteFunc(slices.Clone(s.Wipe), func(server string) bool { return server == s.Survivor })
	f.Reset = append(f.Reset, s.Survivor)
}

// String is the forecast for a person.
func (f QuorumForecast) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("")
	if f.Began.IsZero() {
		line("etcd of cluster %s has no quorum. Nothing was changed. A recovery would do this:", f.Cluster)
	} else {
		line("The recovery of cluster %s, begun %s, is under way. Nothing was changed now. "+
			"It does this, and is resumed without a question:",
			f.Cluster, f.Began.Format(time.RFC3339))
	}
	if s := f.Survey; s != nil {
		line("- survivor: %s, whose etcd has applied the most of the log (index %d), of %s", s.Survivor, s.Index,
			strings.Join(s.Servers, ", "))
		line("- a snapshot of it is taken and verified before anything is wiped; %s gets its data first", s.Target)
		if s.Target == s.Survivor {
			line("- reset: %s, as no other server is left; until it has the snapshot, that is in the state folder and "+
				"nowhere else", s.Survivor)
		} else {
			line("- reset, in this order: %s; the survivor only when the new etcd holds its data",
				strings.Join(f.Reset, ", "))
		}
		for _, server := range s.Silent {
			line("- could not be compared: %s holds data of etcd, which does not run there; what only it has "+
				"is wiped", server)
		}
	}
	for _, loss := range f.Lost {
		line("- lost: %s", loss)
	}
	if f.Takes != nil {
		line("- it should take %s", f.Takes)
	}
	line("\nto do it: %s", f.Command)
	return b.String()
}
