package situation_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/platform"
)

// A cluster that may have the Cluster object and does not answer is no cluster that has none: its address is named, and
// what to do.
func TestAManagingClusterThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	w := clustertest.New(t)
	cfg, tools := w.Config(), w.Tools().WithDefaults()
	silent := kubetest.New("silent")
	silent.Close()
	ask := func() error {
		_, _, err := situation.ManagingCluster(t.Context(), cfg, tools, render.ReadOrEmpty(cfg, tools.Overrides),
			clustertest.Silent)
		return err
	}
	address := silent.Listener.Addr().String()
	for what, kubeconfigs := range map[string]map[string][]byte{
		"the cluster itself (API https://" + address: {platform.Kubeconfig: silent.Kubeconfig(),
			platform.ManagementKubeconfig: w.Management.Kubeconfig()},
		"management cluster " + cfg.ManagementName() + " (API https://" + address: {
			platform.Kubeconfig: w.Workload.Kubeconfig(), platform.ManagementKubeconfig: silent.Kubeconfig()},
	} {
		for file, data := range kubeconfigs {
			if err := tools.Files.Write(file, data); err != nil {
				t.Fatal(err)
			}
		}
		err := ask()
		for _, says := range []string{"which cluster manages cluster k8s cannot be determined", what, "refused",
			"run again once it answers (bootstrap status"} {
			if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "no cluster manages") {
				t.Errorf("it should say %q: %v", says, err)
			}
		}
	}
	for file, data := range map[string][]byte{platform.Kubeconfig: w.Workload.Kubeconfig(),
		platform.ManagementKubeconfig: w.Management.Kubeconfig()} {
		if err := tools.Files.Write(file, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask(); err == nil || !strings.Contains(err.Error(), "no cluster manages cluster k8s: neither") {
		t.Errorf("both answer that they do not: %v", err)
	}
}
