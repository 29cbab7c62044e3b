// Package canary has one node take a new agent of the network before the others, and probes that node's network: an
// upgrade that breaks a node's host network stops there.
//
// The release's own values hold what is needed to resume: the agents' DaemonSet is held back by a value of its chart,
// and the Pods' labels say which of them run the new template.
package canary

import (
	"context"
	"maps"
	"time"

	"helm.sh/helm/v3/pkg/chart"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// Upgrade is a change of the release whose DaemonSet runs an agent of the network on every node.
type Upgrade struct {
	Cluster   *kube.Cluster
	Helm      *kube.Helm
	Namespace string
	Release   string // and the name of its DaemonSet
	Container string // of the agent, in the DaemonSet's Pods
	// Chart and Values are what the release is to be.
	Chart  *chart.Chart
	Values func() (map[string]any, error) // a copy
	// Apply brings the release to the chart and to values.
	Apply func(ctx context.Context, values map[string]any) error
	// Within bounds what comes before Apply, and what comes after it: the new agent on the canary node, and its probe.
	Within time.Duration
	// Log is the command that shows the agents' log, Kubeconfig the file that opens the cluster: for people.
	Log, Kubeconfig string
	// Known are the problems that are known of an upgrade from a version of the chart.
	Known func(from string) []string

	ends time.Time
}

// Waits are the waits of First, which begins with Helm's work.
func Waits(within time.Duration) []flow.Wait {
	return []flow.Wait{
		{For: "Helm's work before the canary node (RELEASE_TIMEOUT)", Within: within},
		{For: "the canary node's new agent, and the probe of the node (RELEASE_TIMEOUT)", Within: within},
	}
}

// First upgrades the release with its DaemonSet held back, has one node take the new agent, and probes that node. The
// caller upgrades the release to its own values afterwards, with which the other nodes follow. It does nothing where no
// agent is replaced: in a first installation, on a single node, where the release is as it is to be, and where its
// values leave the replacement of Pods to the operator.
//
// Its error after a failed probe is a *FailedError; the DaemonSet is held back then.
func First(ctx context.Context, say flow.Say, u Upgrade) error {
	u.ends = time.Now().Add(u.Within)
	if err := u.removeProbes(ctx, say); err != nil {
		return err
	}
	changes, err := u.changes()
	if err != nil || !changes {
		return err
	}
	var have agents
	err = u.until(ctx, say, "the agents of the network", func(ctx context.Context) (_ string, err error) {
		have, err = u.agents(ctx)
		return "", err
	})
	if err != nil || len(have.pods) < 2 {
		return err
	}
	values, err := u.Values()
	if err != nil {
		return err
	}
	if err := u.Apply(ctx, heldBack(values)); err != nil {
		return err
	}
	u.ends = time.Now().Add(u.Within)
	if have, err = u.outdated(ctx, say); err != nil || have.hash == "" {
		return err
	}
	node, err := u.choose(ctx, say, have)
	if err != nil {
		return err
	}
	say("node %s takes the new agent first: %d other nodes keep theirs until it has been probed", node, len(have.pods)-1)
	if err := u.replace(ctx, say, have, node); err != nil {
		return u.failed(ctx, have, node, nil, err)
	}
	if targets, err := u.probe(ctx, say, node); err != nil {
		return u.failed(ctx, have, node, targets, err)
	}
	say("node %s reaches the Kubernetes API with the new agent: the other nodes follow", node)
	return nil
}

// changes tells whether a release that was installed is another than it is to be, and its agents are replaced by the
// DaemonSet controller. One whose last upgrade did not end is another.
func (u Upgrade) changes() (bool, error) {
	was, err := u.Helm.LastDeployed(u.Release, func(*kube.DeployedRelease) bool { return true })
	if err != nil || was == nil {
		return false, err
	}
	values, err := u.Values()
	if err != nil || onDelete(values) {
		return false, err
	}
	is, err := u.Helm.Current(u.Release, u.Chart, values)
	return !is, err
}

// The chart's value that holds the DaemonSet back.
const (
	strategyValue = "updateStrategy"
	typeValue     = "type"
	heldType      = "OnDelete"
)

// onDelete tells whether values leave the replacement of Pods to whoever deletes them.
func onDelete(values map[string]any) bool {
	strategy, _ := values[strategyValue].(map[string]any)
	return strategy[typeValue] == heldType
}

// Stopped tells whether a release is held back by an upgrade that has not come past its canary node, and the release of
// before that, nil where Helm does not keep it any more. values are the release's own.
func Stopped(h *kube.Helm, release string, values map[string]any) (before *kube.DeployedRelease, stopped bool,
	err error) {
	is, err := h.Deployed(release)
	if err != nil || is == nil || !onDelete(is.Values) || onDelete(values) {
		return nil, false, err
	}
	before, err = h.LastDeployed(release, func(d *kube.DeployedRelease) bool { return !onDelete(d.Values) })
	return before, err == nil, err
}

// heldBack are values with which the DaemonSet controller replaces a Pod only after that was deleted.
func heldBack(values map[string]any) map[string]any {
	held := maps.Clone(values)
	if held == nil {
		held = map[string]any{}
	}
	strategy, _ := held[strategyValue].(map[string]any)
	strategy = maps.Clone(strategy)
	if strategy == nil {
		strategy = map[string]any{}
	}
	strategy[typeValue] = heldType
	held[strategyValue] = strategy
	return held
}

// until waits for what a look finds missing, until the time is over, with a look at once where the agents change.
func (u Upgrade) until(ctx context.Context, say flow.Say, what string,
	look func(context.Context) (missing string, err error)) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	within := max(time.Second, time.Until(u.ends).Round(time.Second))
	w := wait.Wait{What: what, Within: within, Changes: u.Cluster.Changes(watching, u.selected()...)}
	return w.Until(ctx, say, look)
}
