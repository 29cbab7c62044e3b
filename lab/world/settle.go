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

// settle waits until the clusters that were there before serve again, so that whoever finds the lab up
// finds them up. After settleDeadline the lab goes on without, and says what is missing: a cluster that
// cannot come back is no reason for none.
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

// servedDeadline bounds how long Pods that come back wait for the clusters that they may look after.
const servedDeadline = 20 * time.Second

// awaitServed waits until the clusters that the servers form are served again. Cluster API tries to connect to a
// cluster as it starts, and in vain tries again only after 30 seconds.
func (w *World) awaitServed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, servedDeadline)
	defer cancel()
	ticker := time.NewTicker(settlePoll)
	defer ticker.Stop()
	for unsettledServer(w.talos.Status()) != "" {
		select {
		case <-ctx.Done():
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
	return unsettledServer(w.talos.Status())
}

// unsettledServer names a server that still boots, or one of a cluster of which no kube-apiserver is back: one of them
// serves it, and the others follow, one after the other.
func unsettledServer(servers []talos.Status) string {
	served := map[string]bool{}
	for _, t := range servers {
		if t.Endpoint != "" {
			served[t.Cluster] = true
		}
	}
	for _, t := range servers {
		if t.Phase == talos.PhaseBooting || t.Phase == talos.PhaseRunning && t.EtcdData && !served[t.Cluster] {
			return fmt.Sprintf("server %s (%s, etcd %s)", t.Name, t.Phase, t.Etcd)
		}
	}
	return ""
}
