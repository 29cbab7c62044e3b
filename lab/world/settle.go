package world

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/lab/talos"
)

const (
	// settleDeadline bounds the wait for what comes back at a start. The command that started the lab waits longer.
	settleDeadline = time.Minute
	settlePoll     = 100 * time.Millisecond
)

// settle waits until the clusters that were there before are there again, so that whoever finds the lab up finds them up. After
// settleDeadline the lab goes on without, and says what is missing: a cluster that cannot come back is no reason for none.
func (w *World) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleDeadline)
	defer cancel()
	ticker := time.NewTicker(settlePoll)
	defer ticker.Stop()
	for {
		missing := w.unsettled()
		if missing == "" {
			return
		}
		select {
		case <-ctx.Done():
			w.cfg.Log.Warn("not everything has come back", "missing", missing)
			return
		case <-ticker.C:
		}
	}
}

// unsettled names something that is still coming back; empty: nothing.
func (w *World) unsettled() string {
	for _, m := range w.managements.list() {
		select {
		case <-m.started:
		default:
			return "management cluster " + m.name()
		}
	}
	for _, t := range w.talos.Status() {
		if returning(t) {
			return fmt.Sprintf("server %s (%s, etcd %s)", t.Name, t.Phase, t.Etcd)
		}
	}
	return ""
}

// returning says whether a server that was switched on is on its way to what it was before.
func returning(t talos.Status) bool {
	switch t.Phase {
	case talos.PhaseBooting:
		return true
	case talos.PhaseRunning:
		return t.EtcdData && t.Endpoint == ""
	default:
		return false
	}
}
