package repository

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterctlyaml "sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
	utilyaml "sigs.k8s.io/cluster-api/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/lab/originals"
	"github.com/slipway-k8s/slipway/lab/plane/planetest"
)

// A lab offers each core that it has, also one that it is given while it runs, and the newer one's definitions serve
// both versions of the API.
func TestCoresSideBySide(t *testing.T) {
	bin, older := planetest.Bin(t), planetest.Core(t, "v1.10")
	dir := t.TempDir()
	contents, err := Write(t.Context(), dir, Options{Bin: bin, Core: []string{older}})
	if err != nil {
		t.Fatal(err)
	}
	first := contents.Versions["CAPI"]
	both, err := contents.WithCore(t.Context(), []string{older, bin})
	if err != nil {
		t.Fatal(err)
	}
	offers := both.Offers["CAPI"]
	if len(contents.Offers["CAPI"]) != 1 || len(offers) != 2 || offers[0] != first || both.Versions["CAPI"] != first {
		t.Fatalf("cores are offered as %v, then as %v", contents.Offers["CAPI"], offers)
	}
	manifest, err := os.ReadFile(filepath.Join(both.Providers, "cluster-api", offers[1], "core-components.yaml"))
	if err != nil || !strings.Contains(string(manifest), released["cluster-api"].image+":"+offers[1]) {
		t.Errorf("the newer one's manifest does not name its image (%v)", err)
	}
	if data, err := os.ReadFile(filepath.Join(both.Providers, "cluster-api", offers[1], metadataFile)); err != nil ||
		!strings.Contains(string(data), "v1beta2") {
		t.Errorf("its metadata are without its contract: %v", err)
	}

	_, access := planetest.Start(t, nil)
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(access, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	expanded, err := clusterctlyaml.NewSimpleProcessor().Process(manifest, func(string) (string, error) { return "", nil })
	if err != nil {
		t.Fatal(err)
	}
	objects, err := utilyaml.ToUnstructured(expanded)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.GetKind() == "CustomResourceDefinition" {
			create(t, client.WithFieldValidation(c, "Strict"), o)
		}
	}
	var crd apiextensionsv1.CustomResourceDefinition
	const name = "clusters.cluster.x-k8s.io"
	established(t, c, name)
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true,
		func(ctx context.Context) (bool, error) {
			err := c.Get(ctx, client.ObjectKey{Name: name}, &crd)
			return err == nil, err
		})
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1beta1", "v1beta2"} {
		if !slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == version && v.Served
		}) {
			t.Errorf("the newer core does not serve %s", version)
		}
	}
	if crd.Spec.Conversion == nil || crd.Spec.Conversion.Webhook == nil {
		t.Errorf("its conversion is %+v, not the manager's webhook", crd.Spec.Conversion)
	}
}

// The charts of stand-ins are on offer as any version that is asked for, beside their own.
func TestChartsOfOtherVersions(t *testing.T) {
	dir := t.TempDir()
	contents := write(t, dir)
	wanted := map[string]string{"CILIUM": "1.19.5", "HCLOUD_CCM": "1.39.0", "TALOS_CCM": "0.5.6"}
	for range 2 { // the second time it is there
		var err error
		if contents, err = contents.WithCharts(dir, wanted, originals.Set{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := contents.Offers["CILIUM"]; !slices.Equal(got, []string{"1.18.6", "1.19.5"}) || contents.Versions["CILIUM"] != "1.18.6" {
		t.Errorf("Cilium is offered as %v", got)
	}
	index, err := os.ReadFile(filepath.Join(dir, chartsFolder, "index.yaml"))
	if err != nil || !strings.Contains(string(index), "version: 0.5.6") || !strings.Contains(string(index), "version: 0.5.4") {
		t.Errorf("the index has not both versions of talos-ccm: %v", err)
	}
	if _, err := contents.WithCharts(dir, map[string]string{"CILIUM": "newest"}, originals.Set{}); err == nil {
		t.Error("a text that is no version is offered")
	}
	if _, err := contents.WithCharts(dir, map[string]string{"OTHER": "1.0.0"}, originals.Set{}); err == nil {
		t.Error("a chart that does not exist is offered")
	}
}
