package canary

import (
	"context"
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// FailedError is an upgrade that stopped at its canary node.
type FailedError struct {
	Node string
	text string
	err  error // what was observed
}

// Error implements error.
func (e *FailedError) Error() string { return e.text }

// Unwrap gives what was observed.
func (e *FailedError) Unwrap() error { return e.err }

// failed says what was seen of the canary node, how the others are, and what to do. An interrupted run has seen
// nothing.
func (u Upgrade) failed(ctx context.Context, have agents, node string, probed []target, err error) error {
	if ctx.Err() != nil {
		return err
	}
	looking, cancel := context.WithTimeout(ctx, wait.LookWithin)
	defer cancel()
	if now, err := u.agents(looking); err == nil && now.hash == have.hash {
		have = now
	}
	text := fmt.Sprintf("the upgrade of release %s stopped at its canary node %s: %v", u.Release, node, err)
	if probed != nil {
		text += fmt.Sprintf(". Probed from the host's network of the node: %s", sentence(probed))
	}
	return &FailedError{Node: node, err: err, text: text + ". " + others(have, node) + ". " + u.advice(node)}
}

// others says which agents the other nodes run.
func others(have agents, node string) string {
	var newer []string
	for other := range have.pods {
		if other != node && have.runs(other) {
			newer = append(newer, other)
		}
	}
	if len(newer) == 0 {
		return fmt.Sprintf("The %d other nodes run the old agent, and keep it", len(have.pods)-1)
	}
	return fmt.Sprintf("Of the other nodes %d run the old agent, and keep it; %d run the new one", len(have.old()),
		len(newer))
}

// advice says how to go on and how to go back, and what is known of the version.
func (u Upgrade) advice(node string) string {
	text := fmt.Sprintf("To look at it: %s. To try again, run the same command", u.Log)
	values, err := u.Values()
	if err != nil {
		return text
	}
	before, err := u.Helm.LastDeployed(u.Release, func(d *kube.DeployedRelease) bool {
		return !onDelete(d.Values) && !d.MadeOf(u.Chart, values)
	})
	if err != nil || before == nil {
		return text
	}
	text += fmt.Sprintf(". To go back: helm rollback %s %d --namespace %s --kubeconfig %s, after which only node %s takes "+
		"the old agent, and configure what it was (chart version %s). A node that stays cut off has to be restarted: "+
		"talosctl reboot", u.Release, before.Revision, u.Namespace, u.Kubeconfig, node, before.Version)
	if known := u.Known(before.Version); len(known) > 0 {
		text += ". Known: " + strings.Join(known, "; ")
	}
	return text
}

func sentence(targets []target) string {
	var all []string
	for _, t := range targets {
		all = append(all, t.String())
	}
	return strings.Join(all, ", ")
}
