package steps

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

const deployments = "MachineDeployment"

// groupsOf are the placement groups that the HetznerCluster lists.
func groupsOf(w *clustertest.Environment) (names []string) {
	o := w.Management.Get(clustertest.CAPH, "HetznerCluster", config.DefaultNamespace, "k8s")
	listed, _, _ := unstructured.NestedSlice(o.Object, "spec", "hcloudPlacementGroups")
	for _, one := range listed {
		names = append(names, one.(map[string]any)["name"].(string))
	}
	return names
}

func replicasOf(t *testing.T, w *clustertest.Environment, name string) string {
	t.Helper()
	o := w.Management.Get(clustertest.CAPI, deployments, config.DefaultNamespace, name)
	if o == nil {
		t.Fatalf("there is no MachineDeployment %s", name)
	}
	n, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "replicas")
	return fmt.Sprint(n)
}

// Pools are applied, found again, scaled and divided: what removes or replaces servers with consent alone. What happens
// to a pool that is left out of the configuration is in TestWorkers of the end-to-end tests.
func TestWorkerPools(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	cfg := w.Config()
	if _, err := runPlan(t, w, cfg, journal, nil); err != nil {
		t.Fatal(err)
	}
	if got := groupsOf(w); !slices.Equal(got, []string{"control-plane"}) {
		t.Errorf("placement groups %v without workers", got)
	}
	scheduled := func() string {
		tcp := w.Management.Get(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane")
		patches, _ := json.Marshal(tcp.Object["spec"])
		if strings.Contains(string(patches), "allowSchedulingOnControlPlanes: true") {
			return "true"
		}
		return "false"
	}
	run := func(consent bool, pools ...config.WorkerPool) (*flow.Report, error) {
		t.Helper()
		c, tools := cfg, w.Tools()
		c.Workers, tools.Consent = pools, consent
		return runTargets(t, w, c, tools, journal, "workers")
	}
	general := func(n int) config.WorkerPool { return config.WorkerPool{Name: "general", Replicas: n} }

	if _, err := run(false, general(2)); err != nil {
		t.Fatal(err)
	}
	if n := replicasOf(t, w, "k8s-general"); n != "2" {
		t.Errorf("%s replicas", n)
	}
	if got := groupsOf(w); !slices.Equal(got, []string{"control-plane", "general"}) {
		t.Errorf("placement groups %v", got)
	}
	if scheduled() != "true" {
		t.Error("a control plane that exists was changed, because it got workers")
	}
	writes := w.Writes()
	report, err := run(false, general(2))
	if err != nil || len(ran(report)) > 0 || w.Writes() != writes {
		t.Errorf("again: %v ran, %d writes, %v", ran(report), w.Writes()-writes, err)
	}
	w.Management.Remove(clustertest.CAPI, deployments, config.DefaultNamespace, "k8s-general")
	if report, err = run(false, general(2)); err != nil || !slices.Contains(ran(report), "workers") {
		t.Errorf("it was deleted: %v, %v", ran(report), err)
	}

	if _, err = run(false, general(10)); err != nil || replicasOf(t, w, "k8s-general") != "9" ||
		replicasOf(t, w, "k8s-general-2") != "1" {
		t.Errorf("ten do not fit into a placement group: %v", err)
	}
	for says, pools := range map[string][]config.WorkerPool{
		"removes 8 of the 9 servers of MachineDeployment k8s-general: replicas 9 → 1": {general(1)},
		"replaces all 9 servers of MachineDeployment k8s-general one after another: server type cx33 → cx43": {
			{Name: "general", Replicas: 10, ServerType: "cx43"}},
	} {
		if _, err := run(false, pools...); err == nil || !strings.Contains(err.Error(), says) ||
			!strings.Contains(err.Error(), "--yes") || replicasOf(t, w, "k8s-general") != "9" {
			t.Errorf("it should say %q, and change nothing: %v", says, err)
		}
	}
	if _, err := run(true, general(1)); err != nil || replicasOf(t, w, "k8s-general") != "1" {
		t.Errorf("with consent: %v", err)
	}
}

// A run that is configured without a pool, and does not delete it without consent, leaves it its placement groups: CAPH
// deletes one that the HetznerCluster does not list.
func TestPlacementGroupsOfAPoolStay(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	cfg := w.Config()
	cfg.Workers = config.WorkerPools{{Name: "general", Replicas: 10}}
	if _, err := runTargets(t, w, cfg, w.Tools(), journal, "workers"); err != nil {
		t.Fatal(err)
	}
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	all := []string{"control-plane", "general", "general-2"}
	for _, pools := range []config.WorkerPools{nil, {{Name: "general", Replicas: 2}}} {
		cfg.Workers = pools
		_, err := runTargets(t, w, cfg, w.Tools(), journal, "workers")
		if got := groupsOf(w); err == nil || !strings.Contains(err.Error(), "--yes") || !slices.Equal(got, all) {
			t.Errorf("with %v: placement groups %v, %v", pools, got, err)
		}
	}
	tools := w.Tools()
	tools.Consent = true
	if _, err := runTargets(t, w, cfg, tools, journal, "workers"); err != nil {
		t.Fatal(err)
	}
	if _, err := runTargets(t, w, cfg, tools, flow.Memory(), "workers"); err != nil || !slices.Equal(groupsOf(w),
		all[:2]) {
		t.Errorf("with consent: placement groups %v, %v", groupsOf(w), err)
	}
}

// What the cluster autoscaler may choose is changed in place, and the run says so.
func TestAChangeOfMinAndMaxIsTold(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	cfg := w.Config()
	cfg.Workers = config.WorkerPools{{Name: "db", Min: 1, Max: 4}}
	if _, err := runTargets(t, w, cfg, w.Tools(), journal, "workers"); err != nil {
		t.Fatal(err)
	}
	cfg.Workers = config.WorkerPools{{Name: "db", Min: 1, Max: 6}}
	plan, err := New(cfg, w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	var says []string
	if _, err := clustertest.Run(t, plan.Graph, []string{"workers"}, journal, func(e flow.Event) {
		says = append(says, e.Message)
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(says, "this changes MachineDeployment k8s-db in place: max 4 → 6") {
		t.Errorf("%q", says)
	}
	d := w.Management.Get(clustertest.CAPI, deployments, config.DefaultNamespace, "k8s-db")
	if d.GetAnnotations()[capi.AutoscalerMax] != "6" {
		t.Errorf("%v", d.GetAnnotations())
	}
}

// Labels and taints get where they have an effect, and an autoscaled pool has no number of its own.
func TestWorkerPoolsObjects(t *testing.T) {
	w := clustertest.New(t)
	cfg := w.Config()
	cfg.Workers = config.WorkerPools{{Name: "db", Min: 1, Max: 4, Location: "fsn1,nbg1", ServerType: "cx43",
		Labels:  map[string]string{"team": "a", "node-role.kubernetes.io/db": ""},
		Taints:  []config.Taint{{Key: "dedicated", Value: "db", Effect: "NoSchedule"}},
		Patches: []string{"machine:\n  sysctls:\n    vm.max_map_count: \"262144\"\n"}}}
	journal := flow.Memory()
	if _, err := runTargets(t, w, cfg, w.Tools(), journal, "workers"); err != nil {
		t.Fatal(err)
	}
	d := w.Management.Get(clustertest.CAPI, deployments, config.DefaultNamespace, "k8s-db")
	_, hasReplicas, _ := unstructured.NestedInt64(d.Object, "spec", "replicas")
	labels, _, _ := unstructured.NestedStringMap(d.Object, "spec", "template", "metadata", "labels")
	_, ofTalos := labels["team"]
	_, role := labels["node-role.kubernetes.io/db"]
	if hasReplicas || d.GetAnnotations()[capi.AutoscalerMin] != "1" || d.GetAnnotations()[capi.AutoscalerMax] != "4" ||
		!role || ofTalos || capi.Text(d, "spec", "template", "spec", "failureDomain") != "nbg1" {
		t.Errorf("%v", d.Object)
	}
	read := func(group, kind, field string) *unstructured.Unstructured {
		o := w.Management.Get(group, kind, config.DefaultNamespace, capi.Text(d, "spec", "template", "spec", field, "name"))
		if o == nil {
			name, _, _ := unstructured.NestedString(d.Object, "spec", "template", "spec", "bootstrap", "configRef", "name")
			o = w.Management.Get(group, kind, config.DefaultNamespace, name)
		}
		return o
	}
	server := read(clustertest.CAPH, "HCloudMachineTemplate", "infrastructureRef")
	if capi.Text(server, "spec", "template", "spec", "type") != "cx43" ||
		capi.Text(server, "spec", "template", "spec", "placementGroupName") != "db" ||
		capi.Text(server, "spec", "template", "spec", "imageName") != cfg.Image("amd64") {
		t.Errorf("%v", server.Object)
	}
	talos := read("bootstrap.cluster.x-k8s.io/v1alpha3", "TalosConfigTemplate", "")
	text, _ := json.Marshal(talos.Object["spec"])
	for _, want := range []string{"registerWithTaints", "dedicated", "team: a", "vm.max_map_count"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the configuration of Talos lacks %s: %s", want, text)
		}
	}
	if strings.Contains(string(text), "node-role") {
		t.Errorf("a kubelet may not set its role: %s", text)
	}
	tcp := w.Management.Get(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane")
	if patches, _ := json.Marshal(tcp.Object["spec"]); !strings.Contains(string(patches),
		"allowSchedulingOnControlPlanes: false") {
		t.Error("the control plane of a new cluster with workers takes Pods of everyone")
	}
}

// wait-workers waits for the MachineDeployment, its Machines, nodes and servers.
func TestWaitWorkersSaysWhatIsMissing(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	cfg := w.Config()
	if _, err := runPlan(t, w, cfg, journal, nil); err != nil {
		t.Fatal(err)
	}
	w.Management.Put(kubetest.Object(clustertest.CAPI, deployments, config.DefaultNamespace, "k8s-general",
		clustertest.Map{
			"metadata": clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "k8s"}},
			"spec":     clustertest.Map{"replicas": int64(2)}, "status": clustertest.Map{"replicas": int64(1)}}))
	cfg.NodesTimeout = config.Duration(2e9)
	_, err := runTargets(t, w, cfg, w.Tools(), flow.Memory(), "wait-workers")
	for _, says := range []string{"MachineDeployment k8s-general: 1 of 2 servers created",
		"0 worker Machines instead of 2"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("it should say %q: %v", says, err)
		}
	}
}

// A limit of the project ends the wait for a worker pool long before its deadline.
func TestWaitWorkersEndsAtALimit(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	cfg := w.Config()
	if _, err := runPlan(t, w, cfg, journal, nil); err != nil {
		t.Fatal(err)
	}
	labels := clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "k8s"}}
	w.Management.Put(kubetest.Object(clustertest.CAPI, deployments, config.DefaultNamespace, "k8s-general",
		clustertest.Map{
			"metadata": labels, "spec": clustertest.Map{"replicas": int64(1)}, "status": clustertest.Map{"replicas": int64(1)}}))
	w.Management.Put(kubetest.Object(clustertest.CAPI, "Machine", config.DefaultNamespace, "k8s-general-x",
		clustertest.Map{
			"metadata": labels, "spec": clustertest.Map{"infrastructureRef": clustertest.Map{"name": "k8s-general-x"}}}))
	w.Management.Put(kubetest.Object(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, "k8s-general-x",
		clustertest.Map{"metadata": labels, "status": clustertest.Map{"conditions": []any{clustertest.Map{
			"type": "ServerCreateSucceeded", "status": "False", "severity": "Error", "reason": "ServerLimitExceeded",
			"message": "server limit reached", "lastTransitionTime": "2126-05-04T12:00:00Z"}}}}))
	const deadline = 10 * time.Minute // longer than the test may take
	cfg.NodesTimeout = config.Duration(deadline)
	_, err := runTargets(t, w, cfg, w.Tools(), flow.Memory(), "wait-workers")
	if err == nil || !strings.Contains(err.Error(), "k8s-general-x: the project's limit of servers is reached") ||
		!strings.Contains(err.Error(), "raise the limit") {
		t.Errorf("got %v", err)
	}
}

// The steps of the workers ask a cluster again that did not answer once which cluster manages it.
func TestWorkersStepsAskASilentClusterAgain(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	cfg := w.Config()
	if _, err := runPlan(t, w, cfg, journal, nil); err != nil {
		t.Fatal(err)
	}
	w.Hetzner.SetLoadBalancers(hetznertest.LoadBalancer(70, "k8s-control-plane", "127.0.0.1", clustertest.OwnedByCAPH,
		6443))
	for name, run := range map[string]func(*Set, flow.Say) error{
		"workers": func(s *Set, say flow.Say) error {
			_, err := s.runWorkers(t.Context(), say, Placement{}, Image{})
			return err
		},
		"wait-workers": func(s *Set, say flow.Say) error {
			_, err := s.runWaitWorkers(t.Context(), say, Workers{})
			return err
		},
	} {
		s, err := NewSet(cfg, w.Tools())
		if err != nil {
			t.Fatal(err)
		}
		var failed atomic.Bool
		w.Workload.Fail = func(r *http.Request) (int, string) {
			if strings.HasSuffix(r.URL.Path, "/customresourcedefinitions") && !failed.Swap(true) {
				return http.StatusServiceUnavailable, "etcdserver: no leader"
			}
			return 0, ""
		}
		var said []string
		say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
		if err := run(s, say); err != nil || !failed.Load() {
			t.Errorf("%s: %v (asked: %v)", name, err, failed.Load())
		}
		if len(said) == 0 || !strings.HasPrefix(said[0], "waiting for "+wait.Answer.For) {
			t.Errorf("%s said %q", name, said)
		}
	}
}
