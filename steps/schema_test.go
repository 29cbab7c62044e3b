package steps

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestManifestsFollowTheSchemas holds every rendered object against the CRD that its API server will hold it against,
// and refuses fields that would be dropped in silence.
func TestManifestsFollowTheSchemas(t *testing.T) {
	sets := map[string][]string{
		"Cluster API": crds(t, moduleDir(t, "..", "sigs.k8s.io/cluster-api"), "config/crd/bases"),
		"CAPH":        crds(t, sharedDir(), "crds"),
		"CACPPT":      crds(t, moduleDir(t, "../lab", "github.com/siderolabs/cluster-api-control-plane-provider-talos"), "config/crd/bases"),
		"CABPT":       crds(t, moduleDir(t, "../lab", "github.com/siderolabs/cluster-api-bootstrap-provider-talos"), "config/crd/bases"),
	}
	kinds := map[string]string{
		"Cluster": "Cluster API", "MachineHealthCheck": "Cluster API", "HetznerCluster": "CAPH", "HCloudMachineTemplate": "CAPH",
		"TalosControlPlane": "CACPPT",
	}
	b := planner(t, "", "OIDC_ISSUER_URL=https://auth.example.com/", "OIDC_CLIENT_ID=kubernetes")
	two, err := render(b.cfg, b.sources, manifestVariables(b.sources, "talos", "eu-central", ""))
	if err != nil {
		t.Fatal(err)
	}
	objects := append(withIP(t, b).now, two.now...)
	for _, o := range objects {
		t.Run(o.GetKind(), func(t *testing.T) {
			files, known := sets[kinds[o.GetKind()]]
			if !known {
				t.Fatal("no schema is known for this kind")
			}
			if len(files) == 0 {
				t.Skipf("the CRDs of %s are not at hand", kinds[o.GetKind()])
			}
			hold(t, o, files)
		})
	}
	// The control plane's inner configuration is a TalosConfigSpec, which CABPT has a CRD for.
	t.Run("TalosConfig", func(t *testing.T) {
		if len(sets["CABPT"]) == 0 {
			t.Skip("the CRDs of CABPT are not at hand")
		}
		spec, _, err := unstructured.NestedMap(find(t, objects, "TalosControlPlane").Object, "spec", "controlPlaneConfig", "controlplane")
		if err != nil {
			t.Fatal(err)
		}
		hold(t, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha3", "kind": "TalosConfig", "metadata": map[string]any{"name": "x"}, "spec": spec,
		}}, sets["CABPT"])
	})
}

// hold validates an object by its kind's CRD, among the given files.
func hold(t *testing.T, o *unstructured.Unstructured, files []string) {
	t.Helper()
	known := kinds{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := known.learn(data); err != nil {
			t.Fatal(err)
		}
	}
	wrong, held := known.check(o)
	if !held {
		t.Fatalf("no CRD among %d files is of the group of %s %s", len(files), o.GetAPIVersion(), o.GetKind())
	}
	for _, w := range wrong {
		t.Error(w.text)
	}
}

// moduleDir is where a module lies that the module in dir depends on; empty where it is not at hand.
func moduleDir(t *testing.T, dir, path string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "go", "list", "-m", "-f", "{{.Dir}}", path)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// sharedDir is the folder of shared material beside the repository; empty where there is none.
func sharedDir() string {
	dir, err := filepath.Abs("../../shared")
	if err != nil {
		return ""
	}
	return dir
}

func crds(t *testing.T, dir, folder string) []string {
	t.Helper()
	if dir == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(dir, folder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}
