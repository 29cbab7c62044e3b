package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/internal/ensure/stockout"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// bootstrapEvery is the pause between two requests to restore that a node has refused because it is still booting.
const bootstrapEvery = time.Second

// uploadSnapshot brings the snapshot to the chosen server, unless an etcd is there already: whose that is, is for
// etcd-bootstrap to find out.
func (r inputs) uploadSnapshot(ctx context.Context, say flow.Say, m steps.Management, c steps.Cluster,
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

func (r inputs) upload(ctx context.Context, say flow.Say, mgmt *kube.Cluster, c steps.Cluster,
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
	taken := r.source.Contents.Header.Taken.Format(time.RFC3339)
	return recovery.Upload(ctx, say, t, chosen, "the etcd snapshot of "+taken, r.source.Open)
}

// bootstrapRecovered has the chosen server restore the snapshot, and waits until the cluster that answers is the one of
// the snapshot. It asks for that only while no server at all has data of etcd; where one does, it looks at whose they
// are.
func (r inputs) bootstrapRecovered(ctx context.Context, say flow.Say, m steps.Management, c steps.Cluster,
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
		for _, n := range etcdview.WithData(nodes) {
			if recovery.Failed(asking, t, n) {
				return "", wait.Final(fmt.Errorf("etcd on %s does not come up on what it has restored: a snapshot that is damaged "+
					"or of another etcd version. Reset the server (talosctl reset --nodes %s --system-labels-to-wipe EPHEMERAL "+
					"--reboot --graceful=false) and run again, with another backup if it fails again", n.Server, n.Route))
			}
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
func (r inputs) requestRestoration(ctx context.Context, say flow.Say, mgmt *kube.Cluster, c steps.Cluster,
	t talos.Client,
	nodes []etcdview.Node, target recovery.Target) (string, error) {
	chosen, err := recovery.TargetAmong(nodes, target)
	if err != nil {
		return "", wait.Final(err)
	}
	if err := r.upload(ctx, say, mgmt, c, target); err != nil {
		return "", err
	}
	err = recovery.Bootstrap(ctx, say, t, chosen)
	if errors.Is(err, talos.ErrEtcdData) {
		return target.Server + " holds data of etcd already: they are looked at", nil
	}
	return target.Server + " restores it", err
}

// identify asks the cluster who it is. A new etcd has another kube-system, and begins at
// revision 1.
func (r inputs) identify(ctx context.Context, mgmt *kube.Cluster, c steps.Cluster) (recovery.Etcd, error) {
	config, err := connect.WorkloadKubeconfig(ctx, mgmt, r.cfg.Namespace, c.Name)
	if err != nil {
		return recovery.Etcd{}, err
	}
	workload, err := r.tools.Connect(config)
	if err != nil {
		return recovery.Etcd{}, err
	}
	is, err := recovery.Identify(ctx, workload)
	if err != nil {
		return recovery.Etcd{}, err
	}
	h := r.source.Contents.Header
	switch {
	case is.UID != h.UID:
		return recovery.Etcd{}, wait.Final(fmt.Errorf("another cluster answers at %s: its kube-system has the UID %s, the "+
			"backup's has %s. Its etcd was not restored from the backup; destroy it and restore again", workload.Host(), is.UID,
			h.UID))
	case is.Revision < h.Etcd.Revision:
		return recovery.Etcd{}, wait.Final(fmt.Errorf("etcd at %s is at revision %d, and the snapshot was taken at %d or "+
			"later: it was not restored from this backup", workload.Host(), is.Revision, h.Etcd.Revision))
	}
	return is, nil
}

// verifyEtcd asks the restored cluster who it is. Silence is no answer.
func (r inputs) verifyEtcd(ctx context.Context, was recovery.Etcd) flow.Verdict {
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
func (r inputs) awaitMembers(ctx context.Context, say flow.Say, m steps.Management, c steps.Cluster,
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
func (r inputs) membership(ctx context.Context, mgmt *kube.Cluster, c steps.Cluster) (recovery.Membership, string,
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

// chooseTarget waits until every server answers, and chooses the one that gets the snapshot: that has it already, where
// an earlier run came so far, else the first by name. A server that does not answer may hold an etcd, so all have to.
func (r inputs) chooseTarget(ctx context.Context, say flow.Say, m steps.Management, c steps.Cluster) (recovery.Target,
	error) {
	mgmt, err := connect.Cluster(r.tools, m.Kubeconfig)
	if err != nil {
		return recovery.Target{}, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := mgmt.Changes(watching,
		kube.Selection{List: capi.ListOf(capi.MachineKind), Options: capi.OfCluster(r.cfg.Namespace, c.Name)},
		kube.Selection{List: capi.ListOf(capi.HCloudMachineKind), Options: capi.OfCluster(r.cfg.Namespace, c.Name)},
		kube.Selection{List: capi.ListOf(capi.TalosControlPlaneKind),
			Options: []client.ListOption{client.InNamespace(r.cfg.Namespace)}},
	)
	var out recovery.Target
	stock := stockout.Watch{Cfg: r.cfg, Tools: r.tools, Sources: r.sources, Say: say}
	w := wait.Wait{What: "the servers", Within: r.cfg.ControlPlaneTimeout.D(), Every: wait.ControlPlaneEvery,
		Changes: changes,
		Explain: r.observer.Progress(mgmt,
			situation.Watched{Namespace: r.cfg.Namespace, Name: c.Name, ControlPlane: c.ControlPlane,
				LoadBalancerIP: c.LoadBalancerIP})}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		_, nodes, err := etcdview.AskMachines(ctx, r.tools, mgmt, r.cfg.Namespace, c.Name, c.LoadBalancerIP)
		if kube.Absent(err) {
			return "there is no talosconfig yet", nil
		}
		if err != nil {
			return "", err
		}
		if missing := etcdview.Unanswered(nodes, c.Replicas); missing != "" {
			_, lacks, err := stock.Check(ctx, mgmt)
			return wait.Sentences(missing, lacks), err
		}
		chosen := nodes[0]
		if has := etcdview.WithData(nodes); len(has) > 0 {
			chosen = has[0]
		}
		out = recovery.Target{Machine: chosen.Machine, Server: chosen.Server}
		return "", nil
	})
	return out, err
}

// verifyTarget verifies that the chosen server is still one of the cluster's. One that was replaced meanwhile does not
// have the snapshot.
func (r inputs) verifyTarget(ctx context.Context, was recovery.Target) flow.Verdict {
	mgmt, err := connect.Cluster(r.tools, platform.ManagementKubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	machine, err := capi.Get(ctx, mgmt, r.cfg.Namespace, capi.MachineKind, was.Machine)
	if err != nil {
		return kube.Verdict(err)
	}
	if machine.GetDeletionTimestamp() != nil {
		return flow.Gone("Machine %s is being deleted", was.Machine)
	}
	return flow.Holds()
}

// releaseControlPlane removes what was set in the control plane's status, so that the provider looks itself: it lists
// etcd's folder on the servers, finds data and concludes that etcd is bootstrapped. On servers without data it would
// bootstrap one, so this is done only while every one of them has some.
func (r inputs) releaseControlPlane(ctx context.Context, say flow.Say, m steps.Management,
	c steps.Cluster) (steps.Cluster, error) {
	mgmt, err := connect.Cluster(r.tools, m.Kubeconfig)
	if err != nil {
		return steps.Cluster{}, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := mgmt.Changes(watching, kube.Selection{List: capi.ListOf(capi.TalosControlPlaneKind),
		Options: []client.ListOption{client.InNamespace(r.cfg.Namespace)}})
	released := false
	w := wait.Wait{What: "the control plane provider to see the restored etcd", Within: r.cfg.ControlPlaneTimeout.D(),
		Changes: changes}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		tcp, err := capi.Get(ctx, mgmt, r.cfg.Namespace, capi.TalosControlPlaneKind, c.ControlPlane)
		if err != nil {
			return "", err
		}
		if capi.ConditionTrue(tcp, recovery.BootstrappedCondition) {
			return "", nil
		}
		if !released {
			if err := r.release(ctx, say, mgmt, c, tcp); err != nil {
				return "", err
			}
			released = true
		}
		if t := why.Said(tcp); t != "" {
			return t, nil
		}
		return "it has not looked yet", nil
	})
	return c, err
}

func (r inputs) release(ctx context.Context, say flow.Say, mgmt *kube.Cluster, c steps.Cluster,
	tcp *unstructured.Unstructured) error {
	_, nodes, err := etcdview.AskMachines(ctx, r.tools, mgmt, r.cfg.Namespace, c.Name, c.LoadBalancerIP)
	if err != nil {
		return err
	}
	if missing := etcdview.Unanswered(nodes, c.Replicas); missing != "" {
		return errors.New(missing)
	}
	if has := etcdview.WithData(nodes); len(has) != len(nodes) {
		return wait.Final(fmt.Errorf("of %d servers %d hold data of etcd: the control plane provider is not "+
			"released, because it might bootstrap another etcd", len(nodes), len(has)))
	}
	say("letting the control plane provider look for itself")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"bootstrapped":false}}`))
	if err := mgmt.Status().Patch(ctx, tcp.DeepCopy(), patch); err != nil {
		return fmt.Errorf("set status.bootstrapped of %s: %w", kube.Describe(tcp), err)
	}
	return nil
}

func (r inputs) verifyRelease(ctx context.Context, was steps.Cluster) flow.Verdict {
	mgmt, err := connect.Cluster(r.tools, platform.ManagementKubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	tcp, err := capi.Get(ctx, mgmt, r.cfg.Namespace, capi.TalosControlPlaneKind, was.ControlPlane)
	if err != nil {
		return kube.Verdict(err)
	}
	if !capi.ConditionTrue(tcp, recovery.BootstrappedCondition) {
		return flow.Gone("the control plane provider does not call %s bootstrapped", was.ControlPlane)
	}
	return flow.Holds()
}
