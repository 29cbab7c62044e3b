package quorum

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/platform"
)

// silencePatience is how many times the patience a member gets to say how far it is: an etcd that Talos starts again
// and again is seldom up, and what it knows more than the survivor is wiped.
const silencePatience = 4

// survey makes certain that no member has a leader for a while, and finds the one with the most recent data.
func (q inputs) survey(ctx context.Context, say flow.Say) (etcdview.Survey, error) {
	by, err := ownership.Identity(q.tools)
	if err != nil {
		return etcdview.Survey{}, err
	}
	return q.surveyFor(ctx, say, by, q.cfg.ControlPlaneTimeout.D())
}

// surveyFor is a survey for a state folder with an identity; empty: it has none. It only reads.
func (q inputs) surveyFor(ctx context.Context, say flow.Say, by string, within time.Duration) (out etcdview.Survey,
	err error) {
	if err := claims.RefuseRecovering(ctx, q.cfg, q.tools, by); err != nil {
		return etcdview.Survey{}, err
	}
	since := time.Now()
	w := wait.Wait{What: "certainty that etcd has no leader", Within: within, Every: q.every, Each: time.Minute}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		t, nodes, err := etcdview.AskControlPlane(ctx, q.cfg, q.tools)
		if err != nil {
			return "", err
		}
		if len(nodes) == 0 {
			return "", wait.Final(fmt.Errorf("cluster %s has no control plane server at Hetzner: all are lost, so restore it "+
				"from a backup (%s)", q.cfg.ClusterName, q.tools.Command("restore", "FILE")))
		}
		if err := q.refuseQuorum(ctx, t, nodes); err != nil {
			return "", wait.Final(err)
		}
		if missing := etcdview.Unanswered(nodes, len(nodes)); missing != "" {
			since = time.Now()
			return missing + " (one that does not answer may be a member: a server beyond repair has to be deleted first)", nil
		}
		out = etcdview.ChooseSurvivor(ctx, t, nodes)
		if out.Survivor == "" {
			return "no server has an etcd that serves: if none ever will, delete the servers and restore a backup", nil
		}
		if len(out.Silent) > 0 && time.Since(since) < min(silencePatience*q.patience, within/2) {
			return strings.Join(out.Silent, ", ") + " holds data of etcd and does not say how far it is", nil
		}
		if time.Since(since) < q.patience {
			return fmt.Sprintf("for %s none has", time.Since(since).Round(time.Second)), nil
		}
		return "", nil
	})
	if err == nil {
		say("etcd has no quorum; %s knows most (index %d), %s gets its data", out.Survivor, out.Index, out.Target)
	}
	return out, err
}

// refuseQuorum asks every member for what only one with a leader answers, and the cluster's API for what etcd must
// agree on.
func (q inputs) refuseQuorum(ctx context.Context, t talos.Client, nodes []etcdview.Node) error {
	refusals := make([]error, len(nodes)+1)
	var asking sync.WaitGroup
	for i, n := range etcdview.WithData(nodes) {
		asking.Go(func() { refusals[i] = q.refuseMember(ctx, t, n) })
	}
	asking.Go(func() { refusals[len(nodes)] = q.refuseAPI(ctx) })
	asking.Wait()
	for _, err := range refusals {
		if err != nil {
			return err
		}
	}
	return nil
}

func (q inputs) refuseMember(ctx context.Context, t talos.Client, n etcdview.Node) error {
	members, err := etcdview.MembersOf(ctx, t, n)
	if err != nil {
		return nil // it has no leader
	}
	var names []string
	for _, m := range members {
		names = append(names, m.Name)
	}
	return fmt.Errorf("%w: %s answers as a member of %s. For a single broken machine there is %s; a server that is none "+
		"of these and holds data of another etcd is reset by talosctl reset --system-labels-to-wipe EPHEMERAL --reboot "+
		"--graceful=false", ErrQuorum, n.Server, strings.Join(names, ", "), q.tools.Command("replace-machine", "NAME"))
}

func (q inputs) refuseAPI(ctx context.Context) error {
	workload, err := connect.Cluster(q.tools, platform.Kubeconfig)
	if err != nil {
		return nil // a second opinion; the members are asked themselves
	}
	ctx, cancel := context.WithTimeout(ctx, etcdview.AskWithin)
	defer cancel()
	if _, err := workload.UID(ctx); err != nil {
		return nil
	}
	return fmt.Errorf("%w: the cluster's API answers at %s", ErrQuorum, workload.Host())
}
