package quorum

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
)

// wipeAgain is how long a server that was asked to reset may take to be seen as what it is then, before it is asked
// again.
const wipeAgain = 2 * time.Minute

// wiper resets servers, each once in a while: one that is at it still shows its old data.
type wiper struct{ asked map[string]time.Time }

func (w *wiper) wipe(ctx context.Context, say flow.Say, t talos.Client, n etcdview.Node) error {
	if time.Since(w.asked[n.Server]) < wipeAgain {
		return nil
	}
	say("resetting the EPHEMERAL partition of %s, which holds data of the old etcd", n.Server)
	if err := t.WipeEphemeral(ctx, n.Route); err != nil {
		return err
	}
	w.asked[n.Server] = time.Now()
	return nil
}

// clearOthers wipes the servers that have data of the old etcd, but for the survivor. Left alone, two of three could
// find each other again, and there would be two clusters. If they have done so before, the recovery ends here.
func (q inputs) clearOthers(ctx context.Context, say flow.Say, s etcdview.Survey,
	snapshot Snapshot) (etcdview.Survey,
	error) {
	if err := q.snapshotWhole(snapshot); err != nil {
		return s, err
	}
	wiper := wiper{map[string]time.Time{}}
	w := wait.Wait{What: "the other servers to be empty", Within: q.cfg.ControlPlaneTimeout.D(), Every: q.every,
		Each: time.Minute}
	return s, w.Until(ctx, say, func(ctx context.Context) (string, error) {
		t, nodes, err := etcdview.AskControlPlane(ctx, q.cfg, q.tools)
		if err != nil {
			return "", err
		}
		if err := q.refuseQuorum(ctx, t, nodes); err != nil {
			return "", wait.Final(err)
		}
		if missing := etcdview.Unanswered(nodes, len(s.Servers)); missing != "" {
			return missing, nil
		}
		if len(wiper.asked) == 0 {
			if missing, err := q.unmoved(ctx, t, etcdview.WithData(nodes), s); err != nil || missing != "" {
				return missing, err
			}
		}
		var missing []string
		for _, n := range etcdview.WithData(nodes) {
			switch {
			case n.Server == s.Survivor && s.Target != s.Survivor:
				continue
			case !slices.Contains(s.Wipe, n.Server):
				return "", wait.Final(fmt.Errorf("%s holds data of etcd that it did not have when the servers were looked at "+
					"first: remove %s and run again",
					n.Server, records.QuorumFiles(q.tools.Files)))
			}
			if err := wiper.wipe(ctx, say, t, n); err != nil {
				return "", err
			}
			missing = append(missing, n.Server+" is being reset")
		}
		return strings.Join(missing, "; "), nil
	})
}

// unmoved makes certain that the snapshot still has all that etcd committed: a recovery may have been interrupted for
// days in which the quorum came back and was lost again. Without a quorum no entry of the log is applied that was not
// before, at a restart only again; and a leader begins with an entry of its own, behind all that were ever agreed on.
// So one entry more tells of a quorum, and none of none. One that said how far it is and is silent now may have been in
// it.
func (q inputs) unmoved(ctx context.Context, t talos.Client, nodes []etcdview.Node,
	s etcdview.Survey) (missing string,
	err error) {
	for _, n := range nodes {
		switch index, err := etcdview.IndexOf(ctx, t, n); {
		case err == nil && index > s.Index:
			return "", wait.Final(fmt.Errorf("%s is at index %d of etcd's log; the survey of %s had %d at most: etcd has "+
				"worked since. Remove %s and run again: it is surveyed again", n.Server, index, strings.Join(s.Servers, ", "),
				s.Index, records.QuorumFiles(q.tools.Files)))
		case err != nil && slices.Contains(s.Wipe, n.Server) && !slices.Contains(s.Silent, n.Server):
			missing = fmt.Sprintf("%s holds data of etcd and does not say any more how far it is; if it never will, remove %s "+
				"and run again", n.Server, records.QuorumFiles(q.tools.Files))
		}
	}
	return missing, nil
}

// uploadSnapshot brings the snapshot to the target, unless an etcd is there already: whose that is, is for
// etcd-bootstrap to find out.
func (q inputs) uploadSnapshot(ctx context.Context, say flow.Say, s etcdview.Survey,
	snapshot Snapshot) (etcdview.Survey, error) {
	within := q.cfg.ControlPlaneTimeout.D()
	// one look may be a whole upload
	w := wait.Wait{What: s.Target + " to take the snapshot", Within: within, Every: q.every, Each: within}
	return s, w.Until(ctx, say, func(ctx context.Context) (string, error) {
		asking, cancel := context.WithTimeout(ctx, recovery.QuestionsWithin)
		defer cancel()
		t, nodes, err := etcdview.AskControlPlane(asking, q.cfg, q.tools)
		if err != nil {
			return "", err
		}
		target, err := recovery.TargetAmong(nodes, recovery.Target{Server: s.Target})
		if err != nil {
			return "", err
		}
		if target.Data {
			say("%s holds data of etcd already", s.Target)
			return "", nil
		}
		return "", q.upload(ctx, say, t, target, snapshot)
	})
}

func (q inputs) upload(ctx context.Context, say flow.Say, t talos.Client, target etcdview.Node,
	snapshot Snapshot) error {
	open := func() (io.ReadCloser, int64, error) {
		file, err := os.Open(records.QuorumFiles(q.tools.Files).Path(records.SnapshotFile))
		return file, snapshot.Size, err
	}
	return recovery.Upload(ctx, say, t, target, "the snapshot", open)
}

// bootstrapRecovered has the target restore the snapshot, and waits until the cluster that answers is the one of the
// snapshot.
func (q inputs) bootstrapRecovered(ctx context.Context, say flow.Say, s etcdview.Survey,
	snapshot Snapshot) (recovery.Etcd, error) {
	var out recovery.Etcd
	// A server that was reset since lost the snapshot: one look may be a whole upload here, too.
	within := q.cfg.ControlPlaneTimeout.D()
	w := wait.Wait{What: "etcd on " + s.Target, Within: within, Every: q.every, Each: within}
	err := w.Until(ctx, say, func(ctx context.Context) (string, error) {
		questions, cancel := context.WithTimeout(ctx, recovery.QuestionsWithin)
		defer cancel()
		t, nodes, err := etcdview.AskControlPlane(questions, q.cfg, q.tools)
		if err != nil {
			return "", err
		}
		target, err := recovery.TargetAmong(nodes, recovery.Target{Server: s.Target})
		if err != nil {
			return "", err
		}
		if !target.Data {
			return q.requestRecovery(ctx, say, t, nodes, target, s, snapshot)
		}
		if recovery.Failed(questions, t, target) {
			return "", wait.Final(fmt.Errorf("etcd on %s does not come up on what it has restored: reset it (talosctl reset "+
				"--nodes %s --system-labels-to-wipe EPHEMERAL --reboot --graceful=false) and run again", s.Target, target.Route))
		}
		out, err = q.identify(questions, t, target, snapshot)
		return "", err
	})
	return out, err
}

// requestRecovery asks the target to restore, while no server but the survivor has data of etcd, and all have said
// so.
func (q inputs) requestRecovery(ctx context.Context, say flow.Say, t talos.Client, nodes []etcdview.Node,
	target etcdview.Node,
	s etcdview.Survey, snapshot Snapshot) (string, error) {
	if missing := etcdview.Unanswered(nodes, len(s.Servers)); missing != "" {
		return missing, nil // a server that does not answer may hold an etcd
	}
	for _, n := range etcdview.WithData(nodes) {
		if n.Server != s.Survivor {
			return "", wait.Final(fmt.Errorf("%s holds data of etcd, and only %s may: another etcd is not made beside it. "+
				"Reset it (talosctl reset --nodes %s --system-labels-to-wipe EPHEMERAL --reboot --graceful=false) and run again",
				n.Server, s.Survivor, n.Route))
		}
	}
	if err := q.upload(ctx, say, t, target, snapshot); err != nil {
		return "", err
	}
	if err := recovery.Bootstrap(ctx, say, t, target); err != nil {
		return "", err // that it holds data already, too: the next look tells whose
	}
	return s.Target + " restores it", nil
}

// identify asks the target's own etcd for its members, and the cluster for who it is.
func (q inputs) identify(ctx context.Context, t talos.Client, target etcdview.Node,
	snapshot Snapshot) (recovery.Etcd,
	error) {
	members, err := etcdview.MembersOf(ctx, t, target)
	if err != nil {
		return recovery.Etcd{}, err
	}
	if !isMember(members, target.Server) { // others join as soon as it serves
		return recovery.Etcd{}, wait.Final(fmt.Errorf("etcd on %s does not count %s itself: it is another one than this "+
			"recovery makes", target.Server, target.Server))
	}
	workload, err := connect.Cluster(q.tools, platform.Kubeconfig)
	if err != nil {
		return recovery.Etcd{}, err
	}
	is, err := recovery.Identify(ctx, workload)
	if err != nil {
		return recovery.Etcd{}, err
	}
	if is.UID != snapshot.UID || is.Revision < snapshot.Revision {
		return recovery.Etcd{}, wait.Final(fmt.Errorf("another cluster answers at %s: kube-system %s at revision %d, and "+
			"the snapshot has %s at %d. The snapshot is kept in %s", workload.Host(), is.UID, is.Revision, snapshot.UID,
			snapshot.Revision, records.QuorumFiles(q.tools.Files)))
	}
	is.Server = target.Server
	return is, nil
}

func isMember(members []talos.EtcdMember, server string) bool {
	return slices.ContainsFunc(members, func(m talos.EtcdMember) bool { return m.Name == server })
}

// awaitOthers waits until all servers but the survivor vote: they were emptied, and join by themselves.
func (q inputs) awaitOthers(ctx context.Context, say flow.Say, s etcdview.Survey,
	_ recovery.Etcd) (recovery.Membership,
	error) {
	var out recovery.Membership
	w := wait.Wait{What: "the others to join", Within: q.cfg.ControlPlaneTimeout.D(), Every: q.every, Each: time.Minute}
	err := w.Until(ctx, say, func(ctx context.Context) (missing string, err error) {
		_, _, members, err := q.newMembers(ctx, s)
		if err != nil {
			return "", err
		}
		out, missing = voters(s, members, s.Survivor)
		return missing, nil
	})
	return out, err
}

// newMembers asks the target's etcd for its members. The servers are asked for their data before: a server is counted
// before it has data of the new etcd, so what has data and is not counted has data of the old.
func (q inputs) newMembers(ctx context.Context, s etcdview.Survey) (talos.Client, []etcdview.Node,
	[]talos.EtcdMember, error) {
	t, nodes, err := etcdview.AskControlPlane(ctx, q.cfg, q.tools)
	if err != nil {
		return nil, nil, nil, err
	}
	target, err := recovery.TargetAmong(nodes, recovery.Target{Server: s.Target})
	if err != nil {
		return nil, nil, nil, err
	}
	members, err := etcdview.MembersOf(ctx, t, target)
	return t, nodes, members, err
}

// voters says which servers vote, and which but one do not yet.
func voters(s etcdview.Survey, members []talos.EtcdMember, but string) (out recovery.Membership, missing string) {
	var why wait.Reasons
	for _, server := range s.Servers {
		i := slices.IndexFunc(members, func(m talos.EtcdMember) bool { return m.Name == server })
		switch {
		case i >= 0 && !members[i].Learner:
			out.Members = append(out.Members, server)
		case server == but && s.Target != but:
		case i >= 0:
			why.Add(server, "it learns, and does not vote yet")
		default:
			why.Add(server, "it has not joined yet")
		}
	}
	return out, strings.Join(why.Lines(), "; ")
}

// rejoinSurvivor wipes the survivor, now that the new etcd has what it knew, and waits until it votes in that. One that
// the new etcd counts, or a member without a name that may be it, joining, is left alone.
func (q inputs) rejoinSurvivor(ctx context.Context, say flow.Say, s etcdview.Survey,
	_ recovery.Membership) (recovery.Membership,
	error) {
	wiper := wiper{map[string]time.Time{}}
	var out recovery.Membership
	w := wait.Wait{What: s.Survivor + " to join", Within: q.cfg.ControlPlaneTimeout.D(), Every: q.every, Each: time.Minute}
	err := w.Until(ctx, say, func(ctx context.Context) (missing string, err error) {
		t, nodes, members, err := q.newMembers(ctx, s)
		if err != nil {
			return "", err
		}
		if out, missing = voters(s, members, ""); missing == "" || isMember(members, s.Survivor) || isMember(members, "") {
			return missing, nil
		}
		survivor, err := recovery.TargetAmong(nodes, recovery.Target{Server: s.Survivor})
		if err != nil || !survivor.Data {
			return missing, err
		}
		if _, err := etcdview.MembersOf(ctx, t, survivor); err == nil {
			return s.Survivor + " answers as a member of an etcd with a leader, and is not wiped while it does", nil
		}
		return s.Survivor + " is being reset", wiper.wipe(ctx, say, t, survivor)
	})
	return out, err
}
