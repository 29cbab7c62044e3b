package environment

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/lab/talos"
)

const (
	// settleDeadline bounds the wait for clusters that start again. The command that started the lab waits longer.
	settleDeadline = time.Minute
	settlePoll     = 100 * time.Millisecond
)

// settle waits until the clusters of an earlier start serve again, so that a client that reaches the lab also reaches
// them. After settleDeadline the lab continues and logs which cluster is missing.
func (lab *Lab) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleDeadline)
	defer cancel()
	ticker := time.NewTicker(settlePoll)
	defer ticker.Stop()
	for {
		missing := lab.unsettled()
		if missing == "" {
			return
		}
		select {
		case <-ctx.Done():
			lab.cfg.Log.Warn("a cluster of an earlier start is not ready", "missing", missing)
			return
		case <-ticker.C:
		}
	}
}

// servedDeadline bounds how long Pods wait for the workload clusters that they may manage.
const servedDeadline = 20 * time.Second

// awaitServed waits until the workload clusters are served again. Cluster API connects to a cluster at its start, and
// after a failure tries again only after 30 seconds.
func (lab *Lab) awaitServed(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, servedDeadline)
	defer cancel()
	ticker := time.NewTicker(settlePoll)
	defer ticker.Stop()
	for unsettledServer(lab.talos.Status()) != "" {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// unsettled names a part that is not ready again; empty: none.
func (lab *Lab) unsettled() string {
	for _, m := range lab.managements.List() {
		if ended, _ := m.Started(); !ended {
			return "management cluster " + m.Name()
		}
	}
	return unsettledServer(lab.talos.Status())
}

// unsettledServer names a server that still boots, or a server of a cluster without a kube-apiserver. One
// kube-apiserver is enough, the others follow.
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
