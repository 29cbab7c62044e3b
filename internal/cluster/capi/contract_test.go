package capi_test

import (
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// A core of the new line prefers v1beta2, and serves v1beta1: objects are read where their fields are. One that serves
// v1beta2 alone is read in that.
func TestVersionThatIsRead(t *testing.T) {
	for want, served := range map[string][]string{"v1beta1": {"v1beta2", "v1beta1"}, "v1beta2": {"v1beta2"}} {
		t.Run(want, func(t *testing.T) {
			var kinds []kubetest.Resource
			for _, version := range served {
				kinds = append(kinds,
					kubetest.Resource{Group: "cluster.x-k8s.io", Version: version, Kind: "Cluster", Plural: "clusters"})
			}
			s := kubetest.New("cluster", kinds...)
			t.Cleanup(s.Close)
			t.Cleanup(s.CloseClientConnections)
			c, err := kube.Connect(s.Kubeconfig())
			if err != nil {
				t.Fatal(err)
			}
			define(s, "Cluster", "clusters")
			s.Put(kubetest.Object("cluster.x-k8s.io/"+want, "Cluster", namespace, "k8s", nil))
			moved, err := capi.MovedKinds(t.Context(), c)
			if err != nil || len(moved) != 1 || moved[0].Version != want {
				t.Errorf("%v, %v", moved, err)
			}
			inv, err := capi.ReadInventory(t.Context(), c, namespace)
			if err != nil || !slices.Equal(names(inv.Moved), []string{"Cluster k8s"}) ||
				inv.Moved[0].GroupVersionKind().Version != want {
				t.Errorf("%v, %v", inv.Moved, err)
			}
			clusters, err := capi.Clusters(t.Context(), c)
			if err != nil || len(clusters) != 1 {
				t.Errorf("%v, %v", clusters, err)
			}
		})
	}
}

func TestInstalledContract(t *testing.T) {
	s, c := connect(t)
	if contract, err := capi.InstalledContract(t.Context(), c); contract != "" || err != nil {
		t.Errorf("without a core: %q, %v", contract, err)
	}
	define(s, "Cluster", "clusters") // which stores v1beta1, and serves v1alpha4 too
	if contract, err := capi.InstalledContract(t.Context(), c); contract != capi.ContractV1Beta1 || err != nil {
		t.Errorf("%q, %v", contract, err)
	}
	s.Close()
	if _, err := capi.InstalledContract(t.Context(), c); err == nil {
		t.Error("a cluster that does not answer has a contract")
	}
}

func TestCompatible(t *testing.T) {
	for _, tt := range []struct {
		core, provider string
		runs           bool
	}{
		{capi.ContractV1Beta1, capi.ContractV1Beta1, true},
		{capi.ContractV1Beta1, capi.ContractV1Beta2, false},
		{capi.ContractV1Beta2, capi.ContractV1Beta1, true},
		{capi.ContractV1Beta2, capi.ContractV1Beta2, true},
		{capi.ContractV1Beta2, "v1alpha4", false},
	} {
		if capi.Compatible(tt.core, tt.provider) != tt.runs {
			t.Errorf("a core of %s runs providers of %s: not %v", tt.core, tt.provider, tt.runs)
		}
	}
}

// What only a newer version has comes in an annotation, and contains the status: it says nothing of a difference.
func TestDataOfAConversionDoNotDiffer(t *testing.T) {
	was := kubetest.Object("cluster.x-k8s.io/v1beta1", "Machine", namespace, "m1", object{"metadata": object{
		"annotations": object{"a": "b", "cluster.x-k8s.io/conversion-data": `{"status":{"x":1}}`}}})
	is := kubetest.Object("cluster.x-k8s.io/v1beta1", "Machine", namespace, "m1", object{"metadata": object{
		"annotations": object{"a": "b", "cluster.x-k8s.io/conversion-data": `{"status":{}}`}}})
	if d := capi.Differences(was, is); len(d) > 0 {
		t.Errorf("%v", d)
	}
	is.SetAnnotations(nil)
	if d := capi.Differences(was, is); !slices.Equal(d, []string{"metadata.annotations[a]"}) {
		t.Errorf("%v", d)
	}
	annotations := capi.Metadata(was)["metadata"].(map[string]any)["annotations"].(map[string]string)
	if len(annotations) != 1 || annotations["a"] != "b" {
		t.Errorf("written: %v", annotations)
	}
}
