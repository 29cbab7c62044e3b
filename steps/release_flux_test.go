package steps

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

// A release that a HelmRelease of Flux has taken over is left alone, whatever is configured for it; without GITOPS, and
// before Flux has taken it over, it is not.
func TestReleaseThatFluxManages(t *testing.T) {
	w, _, cfg, tools := fluxWorld(t)
	journal := flow.Memory()
	var said string
	run := func() []string {
		t.Helper()
		plan, err := New(cfg, tools)
		if err != nil {
			t.Fatal(err)
		}
		said = ""
		report, err := clustertest.Run(t, plan.Graph, []string{"talos-ccm"}, journal,
			func(e flow.Event) { said += e.Message + "\n" })
		if err != nil {
			t.Fatal(err)
		}
		return ran(report)
	}
	run()
	const name, namespace = "talos-cloud-controller-manager", "kube-system"
	if !deployed(w, namespace, name, "1") {
		t.Fatal("the release is not there")
	}
	taken := func(history ...any) {
		w.Workload.Put(kubetest.Object("helm.toolkit.fluxcd.io/v2", "HelmRelease", "flux-system", "talos-ccm",
			clustertest.Map{"status": clustertest.Map{"storageNamespace": namespace, "history": history}}))
	}
	// another revision, as the helm-controller makes one
	nextRevision(t, w, namespace, name)

	taken()
	if got := run(); !slices.Contains(got, "talos-ccm") {
		t.Errorf("Flux has not taken the release over, and %v ran", got)
	}
	taken(clustertest.Map{"name": name, "namespace": namespace, "version": 2})
	nextRevision(t, w, namespace, name)
	if got := run(); slices.Contains(got, "talos-ccm") {
		t.Errorf("Flux has another revision, and %v ran: %s", got, said)
	}
	cfg.TalosCCMVersion = "0.5.9" // of which there is no chart
	writes := w.Writes()
	if got := run(); !slices.Contains(got, "talos-ccm") || w.Writes() != writes ||
		!strings.Contains(said, "HelmRelease flux-system/talos-ccm manages release "+name+", chart version 0.5.4") ||
		!strings.Contains(said, "change it in HelmRelease flux-system/talos-ccm in the Git repository") {
		t.Errorf("another version, %v ran with %d writes: %s", got, w.Writes()-writes, said)
	}
	if got := run(); slices.Contains(got, "talos-ccm") {
		t.Errorf("nothing changed, and %v ran", got)
	}
}

// nextRevision has another process upgrade a release to what it is.
func nextRevision(t *testing.T, w *clustertest.Environment, namespace, name string) {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(w.Workload.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s := storage.Init(driver.NewSecrets(clients.CoreV1().Secrets(namespace)))
	was, err := s.Deployed(name)
	if err != nil {
		t.Fatal(err)
	}
	next, info := *was, *was.Info
	next.Version, next.Info = was.Version+1, &info
	was.Info.Status = release.StatusSuperseded
	if err := errors.Join(s.Update(was), s.Create(&next)); err != nil {
		t.Fatal(err)
	}
}
