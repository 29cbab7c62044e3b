package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/quorum"
)

// TestRecoverQuorum wipes two of the three servers of a cluster that manages itself, and recovers etcd from the third,
// with kills before and after each call that creates an etcd or wipes one.
func TestRecoverQuorum(t *testing.T) {
	l := &lostCluster{command: bootstrapped(t, "all")}
	l.mark(t)
	l.write(t, "last", "ConfigMap", map[string]string{"written": "a moment before"})
	servers, before := l.clusterServerIDs(t), serverWrites(t, l.command)

	o := l.run(nil, "recover-quorum", "--yes", "--lab")
	if o.exit != 1 || !strings.Contains(o.output, "etcd has its quorum") {
		t.Errorf("a recovery of an etcd that works: exit %d\n%s", o.exit, o.end())
	}
	l.noRecoveryFolder(t)

	if d := l.diagnose(t); d.Disaster != "none" || d.Command != "" {
		t.Errorf("of a cluster that is well: %+v", d)
	}
	l.loseQuorum(t)
	d := l.diagnose(t)
	if d.Disaster != "quorum-lost" || !strings.HasPrefix(d.Command, "bootstrap recover-quorum --lab") ||
		d.Takes.Seconds <= 0 {
		t.Errorf("of a cluster without a quorum: %+v", d)
	}
	held := quorumFilesIn(t, l.state)
	if o := l.run(nil, "recover-quorum", "-n", "--lab"); o.exit != 0 ||
		!strings.Contains(o.output, `"kind":"recover-quorum-plan"`) ||
		!strings.Contains(o.output, `"survivor":"`) ||
		!strings.Contains(o.output, `"command":"bootstrap recover-quorum --lab`) {
		t.Errorf("recover-quorum -n: exit %d\n%s", o.exit, o.end())
	}
	if after := quorumFilesIn(t, l.state); !slices.Equal(held, after) {
		t.Errorf("recover-quorum -n: the state folder had %v, and has %v", held, after)
	}
	if o := l.run(nil, "recover-quorum", "--lab"); o.exit != 2 || !strings.Contains(o.output, "--yes") {
		t.Errorf("without a terminal: exit %d\n%s", o.exit, o.end())
	}
	madeBefore, restoredBefore := l.etcdsMade(t)
	l.recoverKilled(t)
	made, restored := l.etcdsMade(t)
	made, restored = added(madeBefore, made), added(restoredBefore, restored)
	if len(restored) != 1 || len(made) < 1 ||
		slices.ContainsFunc(made, func(line string) bool { return !strings.Contains(line, "true") }) {
		t.Errorf("servers were asked to make an etcd:\n%sand restored one:\n%s", strings.Join(made, ""),
			strings.Join(restored, ""))
	}

	l.isRecovered(t)
	if now := l.clusterServerIDs(t); !slices.Equal(now, servers) {
		t.Errorf("the servers are %v, they were %v", now, servers)
	}
	if o := l.run(nil, "all", "--lab"); o.exit != 0 {
		t.Errorf("all, after the recovery: exit %d\n%s", o.exit, o.end())
	}
	if after := serverWrites(t, l.command); len(after) != len(before) {
		t.Errorf("servers were made or deleted: %v", after[len(before):])
	}
}

func (l *lostCluster) clusterServerIDs(t *testing.T) (ids []int64) {
	t.Helper()
	for _, s := range l.project().clusterServers(t) {
		ids = append(ids, s.ID)
	}
	return ids
}

func (l *lostCluster) talos(t *testing.T) *talos.Credentials {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(l.state, "talosconfig"))
	if err != nil {
		t.Fatal(err)
	}
	return must(talos.Parse(data))(t)
}

// loseQuorum wipes the disks of two servers until the third has no leader any more. A server that is wiped and boots
// before the other one has ended joins etcd again, which then keeps its quorum: both are wiped once more.
func (l *lostCluster) loseQuorum(t *testing.T) {
	t.Helper()
	credentials := l.talos(t)
	endpoints, nodes := credentials.Targets()
	wipe := func(ctx context.Context) error {
		var all errgroup.Group
		for _, node := range nodes[1:] {
			all.Go(func() error {
				return credentials.WipeEphemeral(ctx, talos.Route{Endpoint: endpoints[0], Node: node})
			})
		}
		return all.Wait()
	}
	if err := wipe(t.Context()); err != nil {
		t.Fatal(err)
	}
	wiped := time.Now()
	eventually(t, "the quorum to be lost", 3*time.Minute, func(ctx context.Context) string {
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if _, err := credentials.LocalEtcdMembers(asking, talos.Route{Endpoint: endpoints[0], Node: nodes[0]}); err == nil {
			if time.Since(wiped) > 20*time.Second {
				t.Logf("etcd still has a leader: wiping both servers again: %v", wipe(ctx))
				wiped = time.Now()
			}
			return "the third server still has a leader"
		}
		if _, err := l.cluster(t).UID(asking); err == nil {
			return "the API still answers"
		}
		return ""
	})
}

// recoverMoments are the moments at which a recovery is killed: before and after each call that creates an etcd or
// wipes one, and on demand at the beginning and at the end of each step.
func recoverMoments(t *testing.T) (moments []string) {
	t.Helper()
	if everyMoment() {
		cfg, tools := onPaper()
		moments = momentsOf(must(quorum.New(cfg, tools))(t).Graph)
	}
	for _, call := range []string{"EtcdRecover", "Bootstrap", "Reset"} {
		for _, point := range []string{"before", "applied"} {
			moments = append(moments, point+" talos "+call+" machine.MachineService#1")
		}
	}
	return moments
}

// recoverKilled runs recoveries, one killed at each moment, and then one to the end.
func (l *lostCluster) recoverKilled(t *testing.T) {
	t.Helper()
	o := l.killedAt(t, recoverMoments(t), func(moment string) {
		if !strings.HasPrefix(moment, "before talos EtcdRecover") {
			return
		}
		if o := l.run(nil, "all", "--lab"); o.exit != 2 || !strings.Contains(o.output, "recover-quorum") {
			t.Errorf("all, in the middle of a recovery: exit %d\n%s", o.exit, o.end())
		}
	}, "recover-quorum", "--yes", "--lab")
	if strings.Contains(o.output, "plantedSecretOfTheLostCluster") {
		t.Error("a Secret of the cluster is in the output")
	}
}

// isRecovered checks that it is the same cluster, complete, with its data.
func (l *lostCluster) isRecovered(t *testing.T) {
	t.Helper()
	c, ctx := l.cluster(t), t.Context()
	if uid, err := c.UID(ctx); err != nil || uid != l.uid {
		t.Errorf("kube-system has the UID %s (%v), it was %s", uid, err, l.uid)
	}
	if ca, endpoint := l.authority(t); ca != l.ca || endpoint != l.endpoint {
		t.Errorf("the API is at %s (it was at %s), its authority is the same: %v", endpoint, l.endpoint, ca == l.ca)
	}
	l.dataIsBack(t, c)
	if err := c.Get(ctx, client.ObjectKey{Namespace: markedNamespace, Name: "last"}, &corev1.ConfigMap{}); err != nil {
		t.Errorf("what was written a moment before is lost: %v", err)
	}
	l.tokenWorks(t)
	l.nothingIsStale(t, c)
	eventually(t, "the providers to run again", time.Minute, func(ctx context.Context) string {
		providers := &appsv1.DeploymentList{}
		if err := c.List(ctx, providers, client.HasLabels{"cluster.x-k8s.io/provider"}); err != nil ||
			len(providers.Items) < 4 {
			return fmt.Sprintf("%d Deployments of providers, %v", len(providers.Items), err)
		}
		for _, d := range providers.Items {
			if d.Annotations["slipway.dev/replicas-before-recovery"] != "" || d.Spec.Replicas == nil || *d.Spec.Replicas == 0 {
				t.Errorf("%s/%s is left stopped: %v", d.Namespace, d.Name, d.Annotations)
			} else if d.Status.AvailableReplicas == 0 {
				return fmt.Sprintf("%s/%s has no replica that is available", d.Namespace, d.Name)
			}
		}
		return ""
	})
	l.noRecoveryFolder(t)
	for _, g := range must(l.project().PlacementGroup.All(ctx))(t) {
		if strings.HasSuffix(g.Name, ".restore") {
			t.Errorf("the claim on the recovery is left: %s %v", g.Name, g.Labels)
		}
	}
}

func (l *lostCluster) noRecoveryFolder(t *testing.T) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(l.state, "recover-quorum")); err == nil {
		t.Error("the folder of the recovery is left, with every secret of the cluster")
	}
}

// quorumFilesIn are the names of what is in a state folder and in its folder of runs.
func quorumFilesIn(t *testing.T, state string) (names []string) {
	t.Helper()
	for _, folder := range []string{state, filepath.Join(state, "runs")} {
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
	}
	return names
}
