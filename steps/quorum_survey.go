package steps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/connect"
	"github.com/slipway-k8s/slipway/internal/etcdview"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/talos"
	"github.com/slipway-k8s/slipway/internal/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// QuorumSurvey is what is known of a broken etcd.
type QuorumSurvey struct {
	Servers  []string `json:"servers"`        // of the control plane
	Survivor string   `json:"survivor"`       // the one whose member is the most advanced
	Index    uint64   `json:"index"`          // how far, in etcd's log
	Wipe     []string `json:"wipe,omitempty"` // the others that hold data of the old etcd
	Target   string   `json:"target"`         // the one that gets the survivor's data: another one, if there is another
	// Silent are those that hold data of etcd and did not say how far it is: they could not be compared.
	Silent []string `json:"silent,omitempty"`
}

// silencePatience is how many times the patience a member gets to say how far it is: an etcd that Talos starts again
// and again is seldom up, and what it knows more than the survivor is wiped.
const silencePatience = 4

// talosRoutes asks every control plane server whether it holds data of etcd, all at once. The management cluster may be
// on them, so they are found at Hetzner.
func talosRoutes(ctx context.Context, cfg config.Config, tools platform.Tools) (talos.Client, []etcdNode, error) {
	config, err := tools.Files.Read(platform.Talosconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, wait.Final(fmt.Errorf("the state folder has no talosconfig, with which the servers are asked: put "+
			"the cluster's there, as %s", tools.Files.Path(platform.Talosconfig)))
	}
	if err != nil {
		return nil, nil, err
	}
	servers, err := controlPlaneServers(ctx, cfg, tools)
	if err != nil {
		return nil, nil, err
	}
	return askServers(ctx, tools, config, servers)
}

func controlPlaneServers(ctx context.Context, cfg config.Config, tools platform.Tools) ([]hetzner.Server, error) {
	servers, err := hetzner.Servers(ctx, tools.Hetzner, cfg.ClusterName)
	return slices.DeleteFunc(servers, func(s hetzner.Server) bool { return !s.ControlPlane }), err
}

// askServers does so for some servers, with a talosconfig.
func askServers(ctx context.Context, tools platform.Tools, config []byte, servers []hetzner.Server) (talos.Client,
	[]etcdNode, error) {
	credentials, err := talos.Parse(config)
	if err != nil {
		return nil, nil, err
	}
	balancers, _ := credentials.Targets()
	t, err := tools.Talos(config)
	if err != nil {
		return nil, nil, err
	}
	nodes := make([]etcdNode, len(servers))
	var asking sync.WaitGroup
	for i, s := range servers {
		asking.Go(func() { nodes[i] = askServer(ctx, t, s, etcdview.RoutesTo(s, balancers)) })
	}
	asking.Wait()
	return t, nodes, nil
}

// askServer asks one server, over the first route that reaches it.
func askServer(ctx context.Context, t talos.Client, s hetzner.Server, routes []talos.Route) etcdNode {
	n := etcdNode{server: s.Name, err: fmt.Errorf("it has no address (it is %s at Hetzner)", s.Status)}
	for i, route := range routes {
		asking, cancel := context.WithTimeout(ctx, etcdview.AskWithin)
		data, err := etcdData(asking, t, route)
		cancel()
		if err == nil {
			n.route, n.data, n.err = route, data, nil
			return n
		}
		if i == 0 {
			n.err = err
		}
	}
	return n
}

// survey makes certain that no member has a leader for a while, and finds the one that knows most.
func (q *quorum) survey(ctx context.Context, say flow.Say) (QuorumSurvey, error) {
	by, err := ownership.Identity(q.tools)
	if err != nil {
		return QuorumSurvey{}, err
	}
	return q.surveyFor(ctx, say, by, q.cfg.ControlPlaneTimeout.D())
}

// surveyFor is a survey for a state folder with an identity; empty: it has none. It only reads.
func (q *quorum) surveyFor(ctx context.Context, say flow.Say, by string, within time.Duration) (out QuorumSurvey,
	err error) {
	if err := refuseRecovering(ctx, q.cfg, q.tools, by); err != nil {
		return QuorumSurvey{}, err
	}
	since := time.Now()
	w := wait.Wait{What: "certainty that etcd has no leader", Within: within, Every: q.every, Each: time.Minute}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		t, nodes, err := talosRoutes(ctx, q.cfg, q.tools)
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
		if missing := unanswered(nodes, len(nodes)); missing != "" {
			since = time.Now()
			return missing + " (one that does not answer may be a member: a server beyond repair has to be deleted first)", nil
		}
		out = chooseSurvivor(ctx, t, nodes)
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
func (q *quorum) refuseQuorum(ctx context.Context, t talos.Client, nodes []etcdNode) error {
	refusals := make([]error, len(nodes)+1)
	var asking sync.WaitGroup
	for i, n := range withData(nodes) {
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

func (q *quorum) refuseMember(ctx context.Context, t talos.Client, n etcdNode) error {
	members, err := ownMembers(ctx, t, n)
	if err != nil {
		return nil // it has no leader
	}
	var names []string
	for _, m := range members {
		names = append(names, m.Name)
	}
	return fmt.Errorf("%w: %s answers as a member of %s. For a single broken machine there is %s; a server that is none "+
		"of these and holds data of another etcd is reset by talosctl reset --system-labels-to-wipe EPHEMERAL --reboot "+
		"--graceful=false", ErrQuorum, n.server, strings.Join(names, ", "), q.tools.Command("replace-machine", "NAME"))
}

func (q *quorum) refuseAPI(ctx context.Context) error {
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

func ownMembers(ctx context.Context, t talos.Client, n etcdNode) ([]talos.EtcdMember, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdview.AskWithin)
	defer cancel()
	return t.EtcdMembersOf(ctx, n.route)
}

// indexOf is how far a server's own member of etcd is.
func indexOf(ctx context.Context, t talos.Client, n etcdNode) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdview.AskWithin)
	defer cancel()
	return t.EtcdIndex(ctx, n.route)
}

// chooseSurvivor finds the member that has applied most of etcd's log, which is the one of the highest revision, and
// the server that gets its data.
func chooseSurvivor(ctx context.Context, t talos.Client, nodes []etcdNode) QuorumSurvey {
	var out QuorumSurvey
	for _, n := range nodes {
		out.Servers = append(out.Servers, n.server)
		if !n.data {
			continue
		}
		switch index, err := indexOf(ctx, t, n); {
		case err != nil:
			out.Silent = append(out.Silent, n.server)
		case out.Survivor == "" || index > out.Index:
			out.Survivor, out.Index = n.server, index
		}
	}
	out.Target = out.Survivor
	for _, n := range nodes {
		if n.server == out.Survivor {
			continue
		}
		if n.data {
			out.Wipe = append(out.Wipe, n.server)
		}
		if out.Target == out.Survivor {
			out.Target = n.server
		}
	}
	if out.Survivor != "" && out.Target == out.Survivor {
		out.Wipe = append(out.Wipe, out.Survivor)
	}
	return out
}
