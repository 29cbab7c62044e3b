package status

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/planning/bootstrapped"
	"github.com/slipway-k8s/slipway/platform"
)

// silentAddress is a server that accepts connections and never answers.
func silentAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// silentKubeconfig is a kubeconfig of a cluster that never answers.
func silentKubeconfig(t *testing.T, s *kubetest.Server) []byte {
	t.Helper()
	return []byte(strings.Replace(string(s.Kubeconfig()), s.URL, "https://"+silentAddress(t), 1))
}

// look returns the overview of an environment with a journal in which the control plane is done, and the pivot as
// given.
func lookAt(t *testing.T, w *clustertest.Environment, pivot flow.State) (Overview, time.Duration) {
	t.Helper()
	began := time.Now()
	l := begin(t, w, w.Config(), Recorded{APIAnswered: true, Pivot: pivot})
	defer l.Close()
	return l.Overview(), time.Since(began)
}

// begin begins a look with the built-in files.
func begin(t *testing.T, w *clustertest.Environment, cfg config.Config, recorded Recorded) *Reader {
	t.Helper()
	sources, err := render.Read(render.VariablesOf(cfg), w.Tools().Overrides)
	if err != nil {
		t.Fatal(err)
	}
	return Begin(t.Context(), cfg, w.Tools(), sources, recorded)
}

// overviewOf is a look that nothing was recorded before.
func overviewOf(t *testing.T, w *clustertest.Environment) Overview {
	t.Helper()
	l := begin(t, w, w.Config(), Recorded{})
	defer l.Close()
	return l.Overview()
}

// built is an environment with a complete cluster.
func built(t *testing.T) *clustertest.Environment {
	t.Helper()
	w := clustertest.New(t)
	if _, err := bootstrapped.Run(t, w, w.Config(), flow.Memory()); err != nil {
		t.Fatal(err)
	}
	return w
}

// A cluster whose API has lost its etcd costs two seconds, and nothing of what the others say: not the servers at
// Hetzner, not their Talos.
func TestLookAtASilentCluster(t *testing.T) {
	t.Parallel()
	w := built(t)
	if err := w.Tools().Files.Write(platform.Kubeconfig, silentKubeconfig(t, w.Workload)); err != nil {
		t.Fatal(err)
	}
	role := map[string]string{"caph-cluster-k8s": "owned", "machine_type": "control_plane"}
	w.Hetzner.SetServers(schema.Server{ID: 1, Name: "a", Status: "off", Labels: role},
		schema.Server{ID: 2, Name: "b", Status: "off", Labels: role},
		schema.Server{ID: 3, Name: "c", Status: "running", Labels: role,
			PublicNet: schema.ServerPublicNet{IPv4: schema.ServerPublicNetIPv4{IP: "127.0.0.3"}}})
	o, took := lookAt(t, w, "")
	if took > silentAfter+time.Second {
		t.Errorf("it took %s", took)
	}
	if o.Lost == nil || o.Lost.Command != "bootstrap restore --diagnose" {
		t.Fatalf("it does not say that the API is lost: %+v", o.Lost)
	}
	for _, want := range []string{"the API of cluster k8s does not answer", "the cluster's API gave no answer within 2s",
		"2 of 3 control plane servers do not run: a is off, b is off",
		"etcd has lost its quorum: it runs on 1 of 3 servers, and a majority is 2"} {
		if !strings.Contains(o.Lost.Sentence, want) {
			t.Errorf("%q is not in %q", want, o.Lost.Sentence)
		}
	}
	seen := map[string]Server{}
	for _, s := range o.Servers {
		seen[s.Name] = s
	}
	if seen["a"].State != "off" || seen["c"].State != "running" || seen["c"].Talos != "answers" {
		t.Errorf("the servers are %+v", o.Servers)
	}
	if !strings.Contains(unknowns(o), "the nodes, Pods and Helm releases") || len(o.Etcd) != 3 {
		t.Errorf("unknown are %+v, members %v", o.Unknown, o.Etcd)
	}
}

// A cluster that manages itself and is silent is not taken for one whose objects are not applied yet, although a
// management cluster is left.
func TestLookAtASilentClusterThatManagesItself(t *testing.T) {
	t.Parallel()
	w := built(t)
	w.Management.Remove(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s")
	if err := w.Tools().Files.Write(platform.Kubeconfig, silentKubeconfig(t, w.Workload)); err != nil {
		t.Fatal(err)
	}
	o, took := lookAt(t, w, flow.StateDone)
	if took > silentAfter+time.Second || o.Lost == nil || !strings.HasPrefix(o.Sentence, "waiting for the cluster: ") ||
		strings.Contains(o.Sentence, "applied") {
		t.Errorf("after %s it says %q, lost %+v", took, o.Sentence, o.Lost)
	}
}

// Of a cluster whose load balancer was deleted it says that a Primary IP keeps the address, and what to type; without a
// token it says what else it knows.
func TestLookAtAClusterWithoutItsLoadBalancer(t *testing.T) {
	t.Parallel()
	w := built(t)
	if err := w.Tools().Files.Write(platform.Kubeconfig, silentKubeconfig(t, w.Workload)); err != nil {
		t.Fatal(err)
	}
	w.Hetzner.SetLoadBalancers()
	o, _ := lookAt(t, w, "")
	if o.Lost == nil || !strings.Contains(o.Lost.Sentence, "keeps the address "+clustertest.LoadBalancerIP) ||
		!strings.Contains(o.Lost.Sentence, "bootstrap endpoint") {
		t.Errorf("it does not say what keeps the address: %+v", o.Lost)
	}
	tools := w.Tools()
	tools.Hetzner = nil
	sources, err := render.Read(render.VariablesOf(w.Config()), tools.Overrides)
	if err != nil {
		t.Fatal(err)
	}
	l := Begin(t.Context(), w.Config(), tools, sources, Recorded{APIAnswered: true})
	defer l.Close()
	if o := l.Overview(); o.Lost == nil || strings.Contains(o.Lost.Sentence, "keeps the address") {
		t.Errorf("without a token: %+v", o.Lost)
	}
}

// A management cluster that is silent keeps nothing back of what the cluster itself says, nor does Hetzner.
func TestLookWithoutOthers(t *testing.T) {
	t.Parallel()
	w := built(t)
	if err := w.Tools().Files.Write(platform.ManagementKubeconfig, silentKubeconfig(t, w.Management)); err != nil {
		t.Fatal(err)
	}
	o, took := lookAt(t, w, "")
	if took > silentAfter+time.Second || o.Lost != nil || len(o.Releases) != 3 ||
		!strings.Contains(unknowns(o), "the objects of Cluster API") {
		t.Errorf("after %s: lost %+v, %d releases, unknown %+v", took, o.Lost, len(o.Releases), o.Unknown)
	}
	for _, s := range o.Servers {
		if s.Node != "Ready" {
			t.Errorf("%+v", s)
		}
	}

	w = built(t)
	w.Hetzner.CloseClientConnections()
	w.Hetzner.Server.Close()
	o, _ = lookAt(t, w, "")
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "none of the cluster's servers") ||
		!strings.Contains(unknowns(o), "the servers at Hetzner") {
		t.Errorf("without Hetzner it says %s", text)
	}
}

// A pivot that was killed is said, with where the objects are, and what resumes it.
func TestLookAmidAPivot(t *testing.T) {
	t.Parallel()
	w := built(t)
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	w.Management.Change(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s",
		clustertest.Map{"spec": clustertest.Map{"paused": true}})
	if o, _ := lookAt(t, w, flow.StateStarted); o.Pivot == nil || o.Pivot.Phase != "begun" ||
		!strings.Contains(o.Pivot.Sentence, "has moved no object") {
		t.Errorf("before the copy: %+v", o.Pivot)
	}
	if err := records.PivotCopyOf(w.Tools()).SetState(records.PivotState{Phase: records.Moving, Cluster: "k8s",
		UID: "x"}); err != nil {
		t.Fatal(err)
	}
	o, _ := lookAt(t, w, flow.StateStarted)
	if o.Pivot == nil || o.Pivot.Phase != "moving" || o.Pivot.Management != "holds the Cluster object, paused" ||
		o.Pivot.Cluster != "does not hold the Cluster object" ||
		o.Pivot.Command != "bootstrap pivot" || !strings.Contains(o.Pivot.Sentence, "a copy of every object is in ") {
		t.Errorf("amid the move: %+v", o.Pivot)
	}
	if o, _ := lookAt(t, w, flow.StateDone); o.Pivot != nil {
		t.Errorf("after it: %+v", o.Pivot)
	}
}
