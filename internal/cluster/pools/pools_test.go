package pools_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/pools"
	"github.com/slipway-k8s/slipway/platform"
)

type object = clustertest.Map

// environment has tools whose Hetzner sells cx33, cpx32 and cax21 (ARM) in nbg1 and fsn1, and a management cluster.
func environment(t *testing.T, out ...string) (*clustertest.Environment, platform.Tools, *kube.Cluster) {
	t.Helper()
	w := clustertest.New(t)
	market := hetznertest.NewSelling(out...)
	t.Cleanup(market.Close)
	tools := w.Tools().WithDefaults()
	tools.Hetzner = market.Client(nil)
	manager, err := tools.Connect(w.Management.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	return w, tools, manager
}

// live puts a pool into the management cluster as it was made once.
func live(w *clustertest.Environment, pool, serverType, location string) {
	labels := object{"labels": object{capi.WorkerPoolLabel: pool, capi.ClusterNameLabel: "k8s"}}
	w.Management.Put(kubetest.Object(clustertest.CAPH, "HCloudMachineTemplate", config.DefaultNamespace, "k8s-"+pool+"-old", object{
		"metadata": labels, "spec": object{"template": object{"spec": object{"type": serverType}}}}))
	w.Management.Put(kubetest.Object(clustertest.CAPI, "MachineDeployment", config.DefaultNamespace, "k8s-"+pool, object{
		"metadata": labels, "spec": object{"template": object{"spec": object{"failureDomain": location,
			"infrastructureRef": object{"name": "k8s-" + pool + "-old"}}}}}))
}

// TestPlaces has what a pool's next server is: what was chosen, what the pool has where that is configured, and its
// image.
func TestPlaces(t *testing.T) {
	for what, tt := range map[string]struct {
		pool       config.WorkerPool
		has        []string // server type and location
		want, says string
	}{
		"a new pool": {pool: config.WorkerPool{ServerType: "cx33,cpx32", Location: "nbg1,fsn1"},
			want: "cx33 nbg1 talos-amd64-v1.13.9"},
		"what it has": {pool: config.WorkerPool{ServerType: "cx33,cpx32", Location: "nbg1,fsn1"},
			has: []string{"cpx32", "fsn1"}, want: "cpx32 fsn1 talos-amd64-v1.13.9"},
		"what it has is configured no more": {pool: config.WorkerPool{ServerType: "cx33,cpx32", Location: "nbg1,fsn1"},
			has: []string{"cx43", "hel1"}, want: "cx33 nbg1 talos-amd64-v1.13.9"},
		"its location alone is configured": {pool: config.WorkerPool{ServerType: "cx33", Location: "nbg1,fsn1"},
			has: []string{"cpx32", "fsn1"}, want: "cx33 fsn1 talos-amd64-v1.13.9"},
		"an image of its own": {pool: config.WorkerPool{ServerType: "cax21", Image: "talos-own"},
			want: "cax21 nbg1 talos-own"},
		"an architecture without an image": {pool: config.WorkerPool{ServerType: "cax21"}, says: "IMAGE_ARCHITECTURES=arm64"},
		"what it has is of an architecture without an image": {pool: config.WorkerPool{ServerType: "cx33,cax21"},
			has: []string{"cax21", "nbg1"}, says: "its servers of type cax21 are arm64"},
	} {
		t.Run(what, func(t *testing.T) {
			w, tools, manager := environment(t)
			if len(tt.has) > 0 {
				live(w, "db", tt.has[0], tt.has[1])
			}
			cfg := w.Config()
			tt.pool.Name = "db"
			cfg.Workers = config.WorkerPools{tt.pool}
			choices, err := pools.Choose(t.Context(), cfg, tools, "eu-central")
			if err != nil {
				t.Fatal(err)
			}
			places, err := pools.Places(t.Context(), cfg, tools, manager, choices, pools.ConfiguredImages(cfg, "amd64"))
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%+v, %v, want %q", places, err, tt.says)
				}
				return
			}
			is := places["db"]
			if got := strings.Join([]string{is.ServerType, is.Location, is.Image}, " "); err != nil || got != tt.want {
				t.Errorf("%s, %v, want %s", got, err, tt.want)
			}
		})
	}
}

// A journal of a run that had other pools names none for a pool that is new.
func TestAPoolWithoutAChoice(t *testing.T) {
	w, tools, _ := environment(t)
	cfg := w.Config()
	cfg.Workers = config.WorkerPools{{Name: "db", Replicas: 1}}
	_, err := pools.Places(t.Context(), cfg, tools, nil, []pools.Choice{{Pool: "web"}}, cfg.SchematicImage)
	if err == nil || !strings.Contains(err.Error(), "run preflight again") {
		t.Error(err)
	}
}

// Again finds the same choices, in stock or not, with the architecture of today.
func TestAgain(t *testing.T) {
	_, tools, _ := environment(t, "cax21 nbg1")
	was := []pools.Choice{{Pool: "db", ServerType: "cax21", Location: "nbg1"}}
	is, err := pools.Again(t.Context(), tools, was)
	if err != nil || len(is) != 1 || is[0].ServerType != "cax21" || is[0].Architecture != "arm64" {
		t.Errorf("%+v, %v", is, err)
	}
	was[0].ServerType = "cx99"
	if _, err := pools.Again(t.Context(), tools, was); err == nil || !strings.Contains(err.Error(), "worker pool db") {
		t.Error(err)
	}
}

func TestChoicesSayWhy(t *testing.T) {
	w, tools, _ := environment(t, "cx33 nbg1")
	cfg := w.Config()
	cfg.Workers = config.WorkerPools{{Name: "db", ServerType: "cx33,cpx32"}}
	choices, err := pools.Choose(t.Context(), cfg, tools, "eu-central")
	if err != nil || len(choices) != 1 ||
		choices[0].Describe() != "server type cpx32 in nbg1 (cx33 is out of stock in nbg1)" {
		t.Errorf("%+v, %v", choices, err)
	}
}

// Render gives a plan what a run would apply; without pools it asks nothing.
func TestRender(t *testing.T) {
	w, tools, manager := environment(t)
	cfg := w.Config()
	sources := clustertest.Sources(t, cfg, "")
	if objects, err := pools.Render(t.Context(), cfg, platform.Tools{}, sources, nil); err != nil || len(objects) > 0 {
		t.Errorf("without pools: %d objects, %v", len(objects), err)
	}
	live(w, "db", "cpx32", "fsn1")
	cfg.Workers = config.WorkerPools{{Name: "db", Replicas: 11, ServerType: "cx33,cpx32", Location: "nbg1,fsn1"}}
	objects, err := pools.Render(t.Context(), cfg, tools, sources, manager)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, o := range objects {
		kinds[o.GetKind()]++
		if o.GetLabels()[capi.WorkerPoolLabel] != "db" {
			t.Errorf("%s has labels %v", o.GetName(), o.GetLabels())
		}
		if o.GetKind() == "HCloudMachineTemplate" && capi.Text(o, "spec", "template", "spec", "type") != "cpx32" {
			t.Errorf("%v", o.Object["spec"])
		}
	}
	if want := map[string]int{"HCloudMachineTemplate": 2, "TalosConfigTemplate": 2, "MachineDeployment": 2,
		"MachineHealthCheck": 2}; !maps.Equal(kinds, want) {
		t.Errorf("%v, want %v", kinds, want)
	}
}

// Live lists what belongs to pools, and not the control plane's template or a MachineDeployment of other manifests.
func TestLive(t *testing.T) {
	w, _, manager := environment(t)
	live(w, "db", "cx33", "nbg1")
	w.Management.Put(kubetest.Object(clustertest.CAPH, "HCloudMachineTemplate", config.DefaultNamespace, "k8s-control-plane", nil))
	w.Management.Put(kubetest.Object(clustertest.CAPI, "MachineDeployment", config.DefaultNamespace, "own", object{
		"metadata": object{"labels": object{capi.ClusterNameLabel: "k8s"}}}))
	deployments, templates, err := pools.Live(t.Context(), manager, config.DefaultNamespace, "k8s")
	if err != nil || len(deployments) != 1 || deployments[0].GetName() != "k8s-db" || len(templates) != 1 ||
		templates[0].GetName() != "k8s-db-old" {
		t.Errorf("%d, %d, %v", len(deployments), len(templates), err)
	}
}

// TestPlacementGroups lists what is missing once, and takes out what holds no server and is not wanted.
func TestPlacementGroups(t *testing.T) {
	w, _, manager := environment(t)
	group := func(name string) any { return object{"name": name, "type": "spread"} }
	w.Management.Put(kubetest.Object(clustertest.CAPH, "HetznerCluster", config.DefaultNamespace, "k8s", object{
		"spec": object{"hcloudPlacementGroups": []any{group("control-plane"), group("empty"), group("used"),
			group("by-hand")}}}))
	w.Management.Put(kubetest.Object(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, "k8s-used-a-b", object{
		"metadata": object{"labels": object{capi.ClusterNameLabel: "k8s"}}, "spec": object{"placementGroupName": "used"}}))
	var templates []unstructured.Unstructured
	for _, name := range []string{"empty", "used", "db"} {
		templates = append(templates, *kubetest.Object(clustertest.CAPH, "HCloudMachineTemplate", config.DefaultNamespace, name,
			object{"spec": object{"template": object{"spec": object{"placementGroupName": name}}}}))
	}
	for range 2 {
		err := pools.EnsurePlacementGroups(t.Context(), flow.Say(clustertest.Silent), manager, config.DefaultNamespace, "k8s", []string{"db"}, templates)
		if err != nil {
			t.Fatal(err)
		}
		o := w.Management.Get(clustertest.CAPH, "HetznerCluster", config.DefaultNamespace, "k8s")
		listed, _, _ := unstructured.NestedSlice(o.Object, "spec", "hcloudPlacementGroups")
		if !slices.EqualFunc(listed, []string{"control-plane", "used", "by-hand", "db"}, func(one any, name string) bool {
			return one.(map[string]any)["name"] == name
		}) {
			t.Errorf("%v", listed)
		}
	}
	if n := len(w.Management.Writes()); n > 1 {
		t.Errorf("%d writes", n)
	}
}
