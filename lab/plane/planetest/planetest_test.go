package planetest

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestVersions: tests run the programs of the set that is the default.
func TestVersions(t *testing.T) {
	data, err := os.ReadFile("../../../config/versions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Default string
		Sets    []struct {
			Name     string
			Versions map[string]string
		}
	}
	if err := yaml.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	for _, set := range table.Sets {
		if set.Name == table.Default && strings.HasPrefix(set.Versions["KUBERNETES_VERSION"], kubernetesMinor+".") &&
			strings.HasPrefix(set.Versions["CAPI_VERSION"], coreMinor+".") {
			return
		}
	}
	t.Errorf("the default set has not Kubernetes %s and Cluster API %s", kubernetesMinor, coreMinor)
}
