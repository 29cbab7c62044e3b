package steps

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// TestManifestsFollowTheSchemas validates every rendered object by the CRD by which its API server will validate it,
// and refuses fields that would be dropped in silence.
func TestManifestsFollowTheSchemas(t *testing.T) {
	all := map[string][]byte{"Cluster API": clusterAPISchemas(t), "CACPPT": schemas(t, "cacppt-v0.5.13"),
		"CABPT": schemas(t, "cabpt-v0.6.12")}
	of := map[string]string{"Cluster": "Cluster API", "MachineHealthCheck": "Cluster API", "HetznerCluster": "CAPH",
		"HCloudMachineTemplate": "CAPH", "TalosControlPlane": "CACPPT", "TalosConfig": "CABPT"}
	b := planner(t, "", "OIDC_ISSUER_URL=https://auth.example.com/", "OIDC_CLIENT_ID=kubernetes")
	two, err := render.Manifests(b.cfg, b.sources, render.ManifestVariables(b.sources, "talos", "eu-central", render.Endpoint{}))
	if err != nil {
		t.Fatal(err)
	}
	objects := append(withIP(t, b).Now, two.Now...)
	// The control plane's inner configuration is a TalosConfigSpec, which CABPT has a CRD for.
	spec, _, err := unstructured.NestedMap(find(t, objects, "TalosControlPlane").Object, "spec", "controlPlaneConfig",
		"controlplane")
	if err != nil {
		t.Fatal(err)
	}
	objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha3", "kind": "TalosConfig", "metadata": map[string]any{"name": "x"},
		"spec": spec,
	}})
	for _, caph := range []string{"caph-v1.0.7", "caph-v1.1.8"} {
		all["CAPH"] = schemas(t, caph)
		for _, o := range objects {
			t.Run(caph+"/"+o.GetKind(), func(t *testing.T) {
				crds, known := all[of[o.GetKind()]]
				if !known {
					t.Fatal("no schema is known for this kind")
				}
				hold(t, o, crds)
			})
		}
	}
}

// hold validates an object by its kind's CRD, among the given ones.
func hold(t *testing.T, o *unstructured.Unstructured, crds []byte) {
	t.Helper()
	known := checks.Kinds{}
	if err := known.Learn(crds); err != nil {
		t.Fatal(err)
	}
	wrong, held := known.Check(o)
	if !held {
		t.Fatalf("no CRD is of the group of %s %s", o.GetAPIVersion(), o.GetKind())
	}
	for _, w := range wrong {
		t.Error(w.Text)
	}
}

// schemas reads a provider's CRDs of a version, which are copied to testdata/crds.
func schemas(t *testing.T, name string) []byte {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "crds", name+".yaml.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	in, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// clusterAPISchemas reads the CRDs of the Cluster API that this module is built with, from its module.
func clusterAPISchemas(t *testing.T) []byte {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "config/crd/bases", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the CRDs of Cluster API below %s: %v, %v", dir, files, err)
	}
	var all bytes.Buffer
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(append(data, "\n---\n"...))
	}
	return all.Bytes()
}

// The copies are of the versions of the set guide, of the default set and of the lab.
func TestCopiedSchemasAreOfTheVersionsInUse(t *testing.T) {
	lab, err := os.ReadFile("../lab/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/crds/*.gz")
	if err != nil || len(files) != 4 {
		t.Fatalf("%v, %v", files, err)
	}
	modules := map[string]string{
		"cacppt": "github.com/siderolabs/cluster-api-control-plane-provider-talos ",
		"cabpt":  "github.com/siderolabs/cluster-api-bootstrap-provider-talos ",
	}
	for _, file := range files {
		name, version, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".yaml.gz"), "-")
		inUse := strings.Contains(string(lab), modules[name]+version+" ")
		if name == "caph" {
			guide, _ := config.Shipped().Set("guide")
			inUse = version == config.Defaults().CAPHVersion || version == guide.Versions["CAPH_VERSION"]
		}
		if !inUse {
			t.Errorf("%s is not of the version in use: replace it as testdata/crds/README.md says", file)
		}
	}
}
