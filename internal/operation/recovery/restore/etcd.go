package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

const (
	// bootstrapEvery is the pause between two requests to restore that a node has refused because it is still booting.
	bootstrapEvery = time.Second
)

// addUpload adds the step etcd-recover to a graph.
func (r etcdStep) addUpload(g *flow.Graph, management *flow.Step[steps.Management], cluster *flow.Step[steps.Cluster],
	target *flow.Step[recovery.Target]) *flow.Step[recovery.Target] {
	return flow.Add(g, flow.Task[recovery.Target]{
		Name:     "etcd-recover",
		Doc:      "the chosen server has the etcd snapshot",
		Run:      flow.With3(r.uploadSnapshot, management, cluster, target),
		Spec:     r.source.Identity(),
		Deadline: r.deadline(),
		Waits:    []flow.Wait{wait.ControlPlane(r.cfg)},
	})
}

// addBootstrap adds the step etcd-bootstrap to a graph.
func (r etcdStep) addBootstrap(g *flow.Graph, management *flow.Step[steps.Management],
	cluster *flow.Step[steps.Cluster], target *flow.Step[recovery.Target]) *flow.Step[recovery.Etcd] {
	return flow.Add(g, flow.Task[recovery.Etcd]{
		Name: "etcd-bootstrap",
		Doc: "etcd runs on that one server, on the snapshot's data: the same cluster answers, by its UID and " +
			"revision",
		Run:      flow.With3(r.bootstrapRecovered, management, cluster, target),
		Spec:     r.source.Identity(),
		Verify:   r.verifyEtcd,
		Deadline: r.deadline(),
		Waits:    []flow.Wait{wait.ControlPlane(r.cfg)},
	})
}

// addMembers adds the step etcd-members to a graph.
func (r etcdStep) addMembers(g *flow.Graph, management *flow.Step[steps.Management], cluster *flow.Step[steps.Cluster],
	etcd *flow.Step[recovery.Etcd]) *flow.Step[recovery.Membership] {
	return flow.Add(g, flow.Task[recovery.Membership]{
		Name:     "etcd-members",
		Doc:      "every control plane server is a voting member of that one etcd",
		Run:      flow.With3(r.awaitMembers, management, cluster, etcd),
		Spec:     r.source.Identity(),
		Deadline: r.deadline(),
		Waits:    []flow.Wait{wait.ControlPlane(r.cfg)},
	})
}

// uploadSnapshot brings the snapshot to the chosen server, unless an etcd is there already: whose that is, is for
// etcd-bootstrap to find out.
func (r etcdStep) uploadSnapshot(ctx context.Context, say flow.Say, m steps.Management, c steps.Cluster,
	target recovery.Target) (recovery.Target, error) {
	mgmt, err := connect.Cluster(r.tools, m.Kubeconfig)
	if err != nil {
		return recovery.Target{}, err
	}
	// A server that has just booted refuses until its etcd service waits for data. One look may be a whole upload.
	within := r.cfg.ControlPlaneTimeout.D()
	w := wait.Wait{What: target.Server + " to take the etcd snapshot", Within: within, Every: wait.ControlPlaneEvery,
		Each: within}
	return target, w.Until(ctx, say, func(ctx context.Context) (string, error) {
		return "", r.upload(ctx, say, mgmt, c, target)
	})
}

func (r etcdStep) upload(ctx context.Context, say flow.Say, mgmt *kube.Cluster, c steps.Cluster,
	target recovery.Target) error {
	asking, cancel := context.WithTimeout(ctx, recovery.QuestionsWithin)
	defer cancel()
	t, nodes, err := etcdview.AskMachines(asking, r.tools, mgmt, r.cfg.Namespace, c.Name, c.LoadBalancerIP)
	if err != nil {
		return err
	}
	if has := etcdview.WithData(nodes); len(has) > 0 {
		say("%s holds data of etcd already", has[0].Server)
		return nil
	}
	chosen, err := recovery.TargetAmong(nodes, target)
	if err != nil {
		return err
	}
	switch there, err := etcdview.HasSnapshot(ctx, t, chosen.Route, r.source.Open); {
	case err != nil:
		return err
	case there:
		say("%s has the etcd snapshot already", target.Server)
		return nil
	}
	snapshot, size, err := r.source.Open()
	if err != nil {
		return wait.Final(fmt.Errorf("open the etcd snapshot: %w", err))
	}
	defer snapshot.Close()
	say("uploading the etcd snapshot of %s (%d MiB) to %s", r.source.Contents.Header.Taken.Format(time.RFC3339), size>>20,
		target.Server)
	return t.UploadSnapshot(ctx, chosen.Route, snapshot)
}

// bootstrapRecovered has the chosen server restore the snapshot, and waits until the cluster that answers is the one of
// the snapshot. It asks for that only while no server at all has data of etcd; where one does, it looks at whose they
// are.
func (r etcdStep) bootstrapRecovered(ctx context.Context, say flow.Say, m steps.Management, c steps.Cluster,
	target recovery.Target) (recovery.Etcd, error) {
	mgmt, err := connect.Cluster(r.tools, m.Kubeconfig)
	if err != nil {
		return recovery.Etcd{}, err
	}
	var out recovery.Etcd
	var asked time.Time
	// A server that was reset since lost the snapshot: one look may be a whole upload here, too.
	within := r.cfg.ControlPlaneTimeout.D()
	w := wait.Wait{What: "etcd to be restored", Within: within, Every: wait.ControlPlaneEvery, Each: within}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		asking, cancel := context.WithTimeout(ctx, recovery.QuestionsWithin)
		defer cancel()
		t, nodes, err := etcdview.AskMachines(asking, r.tools, mgmt, r.cfg.Namespace, c.Name, c.LoadBalancerIP)
		if err != nil {
			return "", err
		}
		if len(etcdview.WithData(nodes)) == 0 {
			if missing := etcdview.Unanswered(nodes, c.Replicas); missing != "" {
				return missing, nil // a server that does not answer may hold an etcd
			}
			if time.Since(asked) < bootstrapEvery {
				return target.Server + " has not begun to restore it", nil
			}
			asked = time.Now()
			return r.requestRestoration(ctx, say, mgmt, c, t, nodes, target)
		}
		if failed := r.failedEtcd(asking, t, etcdview.WithData(nodes)); failed != nil {
			return "", wait.Final(failed)
		}
		out, err = r.identify(asking, mgmt, c)
		if err != nil {
			return "", err
		}
		out.Server = etcdview.WithData(nodes)[0].Server
		return "", nil
	})
	return out, err
}

// requestRestoration asks the chosen server to restore. A snapshot that it lost, because it was created again
// meanwhile, is uploaded again.
func (r etcdStep) requestRestoration(ctx context.Context, say flow.Say, mgmt *kube.Cluster, c steps.Cluster,
	t talos.Client,
	nodes []etcdview.Node, target recovery.Target) (string, error) {
	chosen, err := recovery.TargetAmong(nodes, target)
	if err != nil {
		return "", wait.Final(err)
	}
	if err := r.upload(ctx, say, mgmt, c, target); err != nil {
		return "", err
	}
	say("asking %s to restore the snapshot", target.Server)
	asking, cancel := context.WithTimeout(ctx, recovery.QuestionsWithin)
	defer cancel()
	err = t.BootstrapRecovered(asking, chosen.Route)
	if errors.Is(err, talos.ErrEtcdData) {
		return target.Server + " holds data of etcd already: they are looked at", nil
	}
	return target.Server + " restores it", err
}

// failedEtcd is an etcd that no waiting brings up: half of a restoration, most likely.
func (r etcdStep) failedEtcd(ctx context.Context, t talos.Client, nodes []etcdview.Node) error {
	for _, n := range nodes {
		asking, cancel := context.WithTimeout(ctx, etcdview.AskWithin)
		is, err := t.Ask(asking, n.Route)
		cancel()
		if err == nil && is.Etcd == etcdview.Failed {
			return fmt.Errorf("etcd on %s does not come up on what it has restored: a snapshot that is damaged or of another "+
				"etcd version. Reset the server (talosctl reset --nodes %s --system-labels-to-wipe EPHEMERAL --reboot "+
				"--graceful=false) and run again, with another backup if it fails again",
				n.Server, n.Route)
		}
	}
	return nil
}

// identify asks the cluster who it is. A new etcd has another kube-system, and begins at
// revision 1.
func (r etcdStep) identify(ctx context.Context, mgmt *kube.Cluster, c steps.Cluster) (recovery.Etcd, error) {
	config, err := connect.WorkloadKubeconfig(ctx, mgmt, r.cfg.Namespace, c.Name)
	if err != nil {
		return recovery.Etcd{}, err
	}
	workload, err := r.tools.Connect(config)
	if err != nil {
		return recovery.Etcd{}, err
	}
	asking, cancel := context.WithTimeout(ctx, etcdview.AskWithin)
	defer cancel()
	return r.identifyAt(asking, workload)
}

func (r etcdStep) identifyAt(ctx context.Context, workload *kube.Cluster) (recovery.Etcd, error) {
	uid, err := workload.UID(ctx)
	if err != nil {
		return recovery.Etcd{}, err
	}
	revision, err := etcdview.Revision(ctx, workload)
	if err != nil {
		return recovery.Etcd{}, err
	}
	h := r.source.Contents.Header
	switch {
	case uid != h.UID:
		return recovery.Etcd{}, wait.Final(fmt.Errorf("another cluster answers at %s: its kube-system has the UID %s, the "+
			"backup's has %s. Its etcd was not restored from the backup; destroy it and restore again", workload.Host(), uid,
			h.UID))
	case revision < h.Etcd.Revision:
		return recovery.Etcd{}, wait.Final(fmt.Errorf("etcd at %s is at revision %d, and the snapshot was taken at %d or "+
			"later: it was not restored from this backup", workload.Host(), revision, h.Etcd.Revision))
	}
	return recovery.Etcd{UID: uid, Revision: revision}, nil
}

// verifyEtcd asks the restored cluster who it is. Silence is no answer.
func (r etcdStep) verifyEtcd(ctx context.Context, was recovery.Etcd) flow.Verdict {
	mgmt, err := connect.Cluster(r.tools, platform.ManagementKubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	_, err = r.identify(ctx, mgmt, steps.Cluster{Name: r.cfg.ClusterName})
	if err == nil {
		return flow.Holds()
	}
	return flow.Unknown(err)
}

// awaitMembers waits until every control plane server is a voting member of one and the same etcd.
func (r etcdStep) awaitMembers(ctx context.Context, say flow.Say, m steps.Management, c steps.Cluster,
	etcd recovery.Etcd) (recovery.Membership, error) {
	mgmt, err := connect.Cluster(r.tools, m.Kubeconfig)
	if err != nil {
		return recovery.Membership{}, err
	}
	var out recovery.Membership
	w := wait.Wait{What: "etcd's members", Within: r.cfg.ControlPlaneTimeout.D(), Every: wait.ControlPlaneEvery}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		var missing string
		out, missing, err = r.membership(ctx, mgmt, c)
		return missing, err
	})
	return out, err
}

// membership says what of etcd's members is missing. Each server's own member is asked for its list, and for no
// other's: in two etcds of servers of the same names the members' IDs differ.
func (r etcdStep) membership(ctx context.Context, mgmt *kube.Cluster, c steps.Cluster) (recovery.Membership, string,
	error) {
	t, nodes, err := etcdview.AskMachines(ctx, r.tools, mgmt, r.cfg.Namespace, c.Name, c.LoadBalancerIP)
	if err != nil {
		return recovery.Membership{}, "", err
	}
	if missing := etcdview.Unanswered(nodes, c.Replicas); missing != "" {
		return recovery.Membership{}, missing, nil
	}
	var servers []string
	for _, n := range nodes {
		servers = append(servers, n.Server)
	}
	var why wait.Reasons
	var first []talos.EtcdMember
	for _, n := range nodes {
		members, err := etcdview.MembersOf(ctx, t, n)
		if err != nil {
			why.Add(n.Server, err.Error())
			continue
		}
		if first == nil {
			first = members
		}
		view := etcdview.View{Members: members, Health: map[string]error{}}
		if differs := view.Differs(servers); differs != "" {
			why.Add(n.Server, differs)
		} else if !slices.Equal(members, first) {
			why.Add(n.Server, "its etcd counts others of the same names: it is another etcd than that of "+nodes[0].Server)
		}
	}
	return recovery.Membership{Members: servers}, strings.Join(why.Lines(), "; "), nil
}
