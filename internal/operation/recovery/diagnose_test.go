package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/recoverytest"
	"github.com/slipway-k8s/slipway/platform"
)

func backupOf(uid string, taken time.Time) *backup.Cluster {
	return &backup.Cluster{Contents: &backup.Contents{
		Header: backup.Header{Cluster: "k8s", UID: uid, Taken: taken, Etcd: backup.Etcd{Revision: 7}},
		Objects: []unstructured.Unstructured{*kubetest.Object(clustertest.CAPH, "HetznerCluster", config.DefaultNamespace,
			"k8s",
			nil)},
	}}
}

// TestWhichDisasterItIs asks an environment in each state, and wants nothing to be changed by that.
func TestWhichDisasterItIs(t *testing.T) {
	all := []string{recoverytest.Cp0, recoverytest.Cp1, recoverytest.Cp2}
	for what, c := range map[string]struct {
		etcd     *recoverytest.BrokenEtcd
		broken   func(*clustertest.Environment, *inputs)
		disaster Disaster
		target   string
		says     []string
	}{
		"healthy": {etcd: &recoverytest.BrokenEtcd{Members: all}, disaster: NoDisaster,
			says: []string{"management cluster k8s-mgmt holds the Cluster object"}},
		"healthy but for one": {etcd: &recoverytest.BrokenEtcd{Members: []string{recoverytest.Cp0, recoverytest.Cp2}},
			disaster: NoDisaster,
			says:     []string{"replace-machine " + recoverytest.Cp1}},
		"management lost": {etcd: &recoverytest.BrokenEtcd{Members: all},
			broken: func(w *clustertest.Environment, _ *inputs) {
				w.Management.Remove(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s")
			},
			disaster: ManagementLost, target: "readopt b.slipway", says: []string{"does not hold the Cluster object"}},
		"management gone": {etcd: &recoverytest.BrokenEtcd{Members: all},
			broken: func(w *clustertest.Environment, o *inputs) {
				w.Provider.There = false
				_ = o.tools.Files.Remove(platform.ManagementKubeconfig)
			}, disaster: ManagementLost, target: "readopt b.slipway", says: []string{"there is no management cluster"}},
		"management silent": {etcd: &recoverytest.BrokenEtcd{Members: all},
			broken: func(_ *clustertest.Environment, o *inputs) {
				_ = o.tools.Files.Remove(platform.ManagementKubeconfig)
			},
			disaster: Unclear, says: []string{"exists and does not answer", "start the management cluster"}},
		"management cannot be asked for": {etcd: &recoverytest.BrokenEtcd{Members: all},
			broken: func(w *clustertest.Environment, o *inputs) {
				w.Provider.ExistsError = errors.New("no Docker")
				_ = o.tools.Files.Remove(platform.ManagementKubeconfig)
			}, disaster: Unclear, says: []string{"no Docker"}},
		"quorum lost": {etcd: &recoverytest.BrokenEtcd{Old: map[string]uint64{recoverytest.Cp1: 5}}, disaster: QuorumLost,
			target: "recover-quorum",
			says: []string{recoverytest.Cp1 + " is running at Hetzner, its etcd has no leader, and has come farthest (index 5)",
				"holds no data of etcd"}},
		"all wiped": {disaster: ServersLost, target: "restore b.slipway", says: []string{"all were wiped",
			"delete the servers"}},
		"servers lost": {broken: func(w *clustertest.Environment, _ *inputs) { w.Hetzner.SetServers() },
			disaster: ServersLost,
			target:   "restore b.slipway",
			says:     []string{"has no control plane server", "2h0m0s ago", "makes them anew, without data"}},
		"no way to Talos": {etcd: &recoverytest.BrokenEtcd{Old: map[string]uint64{recoverytest.Cp1: 5}},
			broken:   func(_ *clustertest.Environment, o *inputs) { _ = o.tools.Files.Remove(platform.Talosconfig) },
			disaster: Unclear, says: []string{"put the cluster's talosconfig"}},
		"Talos silent": {etcd: &recoverytest.BrokenEtcd{Old: map[string]uint64{recoverytest.Cp1: 5}},
			broken: func(_ *clustertest.Environment, o *inputs) {
				o.tools.Talos = func([]byte) (talos.Client, error) { return deafTalos{}, nil }
			}, disaster: Unclear, says: []string{"powered on"}},
		"a restore is under way": {etcd: &recoverytest.BrokenEtcd{Members: all},
			broken: func(_ *clustertest.Environment, o *inputs) {
				_ = records.Restore{Began: time.Now()}.Write(o.tools.Files)
			}, disaster: ServersLost, target: "restore b.slipway", says: []string{"resumes it"}},
		"a readoption is under way": {etcd: &recoverytest.BrokenEtcd{Members: all},
			broken: func(_ *clustertest.Environment, o *inputs) {
				_ = records.Readopt{Began: time.Now()}.Write(o.tools.Files)
			}, disaster: ManagementLost, target: "readopt b.slipway", says: []string{"resumes it"}},
		"servers lost in the middle of a recovery": {broken: func(w *clustertest.Environment, o *inputs) {
			w.Hetzner.SetServers()
			_ = records.Consent{Began: time.Now()}.BeginQuorum(o.tools.Files)
			_ = records.Readopt{Began: time.Now()}.Write(o.tools.Files)
		}, disaster: ServersLost, target: "restore b.slipway", says: []string{"are gone"}},
		"a recovery is under way": {etcd: &recoverytest.BrokenEtcd{Members: []string{recoverytest.Cp0}},
			broken: func(_ *clustertest.Environment,
				o *inputs) {
				_ = records.Consent{Began: time.Now()}.BeginQuorum(o.tools.Files)
			}, disaster: QuorumLost, target: "recover-quorum", says: []string{"resumes it"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			e := c.etcd
			if e == nil {
				e = &recoverytest.BrokenEtcd{}
			}
			w, cfg, tools := recoverytest.BrokenCluster(t, e)
			o := &inputs{cfg, tools}
			if c.broken != nil {
				c.broken(w, o)
			}
			before := w.Writes()
			d, err := Diagnose(t.Context(), o.cfg, o.tools, backupOf("workload", time.Now().Add(-2*time.Hour)), "b.slipway")
			if err != nil {
				t.Fatal(err)
			}
			if d.Disaster != c.disaster || strings.Join(d.Target, " ") != c.target || (len(d.Steps) > 0) != (c.target != "") {
				t.Errorf("it says %s, and to type %v (%v): %s", d.Disaster, d.Target, d.Steps, d.Sentence)
			}
			text := strings.Join(slices.Concat([]string{d.Sentence}, d.Seen, d.First, d.Does, d.Lost), "\n")
			for _, s := range c.says {
				if !strings.Contains(text, s) {
					t.Errorf("it does not say %q:\n%s", s, text)
				}
			}
			if wrote := w.Writes() - before; wrote > 0 || len(e.Calls) > 0 {
				t.Errorf("a diagnosis changed something: %d writes, %v", wrote, e.Calls)
			}
		})
	}
}

type deafTalos struct{ clustertest.HealthyTalos }

func (deafTalos) HasEtcdData(context.Context, talos.Route) (bool, error) {
	return false, errors.New("connection refused")
}

// In a state folder that has nothing to open a cluster with, the API is not said to be silent: it was not asked. The
// diagnosis says how the kubeconfig comes there.
func TestADiagnosisWithoutAKubeconfig(t *testing.T) {
	for what, missing := range map[string][]string{
		"both":           {platform.Kubeconfig, platform.Talosconfig, platform.ManagementKubeconfig},
		"the kubeconfig": {platform.Kubeconfig, platform.ManagementKubeconfig},
	} {
		t.Run(what, func(t *testing.T) {
			w, cfg, tools := recoverytest.BrokenCluster(t, &recoverytest.BrokenEtcd{Members: []string{recoverytest.Cp0,
				recoverytest.Cp1, recoverytest.Cp2}})
			w.Provider.There = false
			for _, file := range missing {
				if err := tools.Files.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
			d, err := Diagnose(t.Context(), cfg, tools, nil, "")
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(slices.Concat([]string{d.Sentence}, d.Seen, d.First), "\n")
			for _, s := range []string{"does not have the cluster's kubeconfig", "the API was not asked", "bootstrap " +
				"state pull",
				"talosctl kubeconfig", "bootstrap restore --diagnose FILE"} {
				if !strings.Contains(text, s) {
					t.Errorf("it does not say %q:\n%s", s, text)
				}
			}
			if strings.Contains(text, "the API does not answer") || d.Disaster != Unclear || len(d.Target) > 0 {
				t.Errorf("%s, %v:\n%s", d.Disaster, d.Target, text)
			}
		})
	}
}

// TestADiagnosisTellsABackupOfAnotherCluster judges what is seen, without an environment.
func TestADiagnosisTellsABackupOfAnotherCluster(t *testing.T) {
	f := facts{
		cluster: "k8s", now: time.Now(), servers: []hetzner.Server{{Name: recoverytest.Cp0}},
		nodes:  []etcdview.Node{{Server: recoverytest.Cp0, Data: true}},
		leader: []string{recoverytest.Cp0},
		api:    "https://127.0.0.1", uid: "living", beside: besideNone, self: true, source: backupOf("other", time.Now()),
	}
	if d := f.judge(); d.Disaster != NoDisaster || !strings.Contains(strings.Join(d.Seen, "\n"),
		"another cluster of this name") {
		t.Errorf("%+v", d)
	}
	f.api, f.self, f.apiErr = "", false, errors.New("no route")
	if d := f.judge(); d.Disaster != Unclear || !strings.Contains(d.Sentence, "the API does not answer") {
		t.Errorf("with a leader and no API: %+v", d)
	}
	f.leader, f.nodes[0].Data, f.servers, f.nodes = nil, false, nil, nil
	f.balancer = &hetzner.Survivor{Name: "lb", IPv4: "192.0.2.1"}
	if d := f.judge(); d.Disaster != ServersLost || !strings.Contains(strings.Join(d.Does, "\n"), "192.0.2.1 stays") ||
		slices.Contains(d.Steps, "pivot") {
		t.Errorf("with a load balancer: %+v", d)
	}
	// Who makes the lost servers anew is to go, and the load balancer, whose address the restore keeps, is not.
	f.beside, f.besideOf = besideHolds, "k8s-mgmt"
	for what, restoring := range map[string]*records.Restore{"never restored": nil, "restored before": {Began: time.Now(),
		Ended: time.Now()}} {
		f.restoring = restoring
		d := f.judge()
		does, first := strings.Join(d.Does, "\n"), strings.Join(d.First, "\n")
		if strings.Contains(does, "192.0.2.1 stays") || !strings.Contains(first, "kind delete cluster --name k8s-mgmt") ||
			!strings.Contains(first, "protect the load balancer") {
			t.Errorf("%s, with a management cluster that holds it: %+v", what, d)
		}
	}
	f.restoring = &records.Restore{Began: time.Now()}
	if d := f.judge(); len(d.First) > 0 || !strings.Contains(strings.Join(d.Does, "\n"), "192.0.2.1 stays") {
		t.Errorf("in the middle of a restore, whose management cluster it is: %+v", d)
	}
	f.beside, f.restoring = besideNone, nil
	f.source, f.balancer = nil, nil
	if d := f.judge(); !slices.Equal(d.Target, []string{"restore", "FILE"}) ||
		!strings.Contains(strings.Join(d.Lost, "\n"), "name the FILE") || !slices.Contains(d.Steps, "pivot") {
		t.Errorf("without a file: %+v", d)
	}
}

// A diagnosis names commands as they are typed for this very cluster.
func TestADiagnosisComposesItsCommands(t *testing.T) {
	f := facts{
		cluster: "k8s", tools: platform.Tools{CommandLine: func(target ...string) string {
			return "type " +
				strings.Join(target, " ") + " --here"
		}},
		servers: []hetzner.Server{{Name: recoverytest.Cp0}, {Name: recoverytest.Cp1}},
		nodes:   []etcdview.Node{{Server: recoverytest.Cp0, Data: true}, {Server: recoverytest.Cp1}},
		leader:  []string{recoverytest.Cp0}, apiErr: errors.New("no route"),
	}
	if first := strings.Join(f.judge().First, "\n"); !strings.Contains(first, "type replace-machine "+recoverytest.Cp1+
		" --here") ||
		!strings.Contains(first, "type access --here") {
		t.Error(first)
	}
}

// Where the objects are lost, and no backup is named, it says that the servers have what makes one.
func TestADiagnosisWithoutABackup(t *testing.T) {
	f := facts{
		cluster: "k8s", now: time.Now(), servers: []hetzner.Server{{Name: recoverytest.Cp0}},
		nodes:  []etcdview.Node{{Server: recoverytest.Cp0, Data: true}},
		leader: []string{recoverytest.Cp0}, api: "https://127.0.0.1", uid: "living", beside: besideNone,
	}
	d := f.judge()
	if d.Disaster != ManagementLost || !strings.Contains(strings.Join(d.First, "\n"), "backup --from-servers") {
		t.Errorf("%+v", d)
	}
	f.source = backupOf("living", time.Now())
	if d := f.judge(); d.Disaster != ManagementLost || len(d.First) > 0 {
		t.Errorf("with a backup: %+v", d)
	}
}

// Servers that boot are told as such by a diagnosis.
func TestADiagnosisTellsServersThatBoot(t *testing.T) {
	f := facts{cluster: "k8s", now: time.Now(), servers: []hetzner.Server{{Name: recoverytest.Cp0}}, beside: besideNone,
		whose:  errors.New("nobody tells"),
		apiErr: errors.New("connection refused"),
		nodes:  []etcdview.Node{{Server: recoverytest.Cp0, Err: fmt.Errorf("%w: it waits", etcdview.ErrNotMounted)}}}
	d := f.judge()
	if seen := strings.Join(d.Seen, "\n"); !strings.Contains(d.Sentence, "are booting") ||
		!strings.Contains(seen, "Talos answers; its disk may not be mounted yet") {
		t.Errorf("%s\n%s", d.Sentence, seen)
	}
	f.nodes[0].Err = errors.New("connection refused")
	if d := f.judge(); d.Disaster != Unclear || !strings.Contains(d.Sentence, "nor Talos answers") {
		t.Errorf("of silent ones: %+v", d)
	}
}

// inputs are what a diagnosis is made with.
type inputs struct {
	cfg   config.Config
	tools platform.Tools
}
