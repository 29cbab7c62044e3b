package steps

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/ensure/flux"
	"github.com/slipway-k8s/slipway/platform"
)

// A registry takes the place of the Git repository: an OCIRepository reads the tag, with a Secret of the type of
// registries. The GitRepository stays, and a run names it.
func TestFluxFromRegistry(t *testing.T) {
	w, _, cfg, tools := fluxWorld(t)
	journal := flow.Memory()
	said := ""
	run := func() []string {
		t.Helper()
		plan, err := New(cfg, tools)
		if err != nil {
			t.Fatal(err)
		}
		said = ""
		report, err := clustertest.Run(t, plan.Graph, []string{"flux-sync"}, journal,
			func(e flow.Event) { said += e.Message + "\n" })
		if err != nil {
			t.Fatal(err)
		}
		return ran(report)
	}
	run()
	if strings.Contains(said, "does not read") {
		t.Errorf("a first run says %s", said)
	}
	git := fluxObject(w, "GitRepository")
	cfg.GitURL, cfg.OCITag = "oci://registry.example.com/fleet", "v1.2.0"
	if got := run(); !slices.Equal(got, []string{"flux-sync"}) {
		t.Errorf("%v ran", got)
	}
	if !strings.Contains(said, "does not read GitRepository flux-system/flux-system any more; to remove it: kubectl "+
		"--namespace flux-system delete gitrepository flux-system") {
		t.Errorf("it says %s", said)
	}
	if is := fluxObject(w, "GitRepository"); is == nil || is.GetUID() != git.GetUID() {
		t.Error("the GitRepository was removed")
	}
	secret := w.Workload.Get("v1", "Secret", flux.Namespace, flux.RegistrySecret)
	if secret == nil {
		t.Fatal("there is no Secret")
	}
	config := base64.StdEncoding.EncodeToString([]byte(`{"auths":{"registry.example.com":{"password":"first-token",` +
		`"username":"git"}}}`))
	for _, want := range []struct {
		o     *unstructured.Unstructured
		value string
		field []string
	}{
		{fluxObject(w, "OCIRepository"), cfg.GitURL, []string{"spec", "url"}},
		{fluxObject(w, "OCIRepository"), "v1.2.0", []string{"spec", "ref", "tag"}},
		{fluxObject(w, "OCIRepository"), flux.RegistrySecret, []string{"spec", "secretRef", "name"}},
		{fluxObject(w, "Kustomization"), "OCIRepository", []string{"spec", "sourceRef", "kind"}},
		{secret, "kubernetes.io/dockerconfigjson", []string{"type"}},
		{secret, config, []string{"data", ".dockerconfigjson"}},
	} {
		if is, _, _ := unstructured.NestedString(want.o.Object, want.field...); is != want.value {
			t.Errorf("%s: %v is %q, want %q", want.o.GetKind(), want.field, is, want.value)
		}
	}
	writes := w.Writes()
	if got := run(); len(got) > 0 || w.Writes() != writes {
		t.Errorf("nothing changed, and %v ran", got)
	}
	tools.Git.Token = platform.NewSecret("second-token")
	if got := run(); !slices.Equal(got, []string{"flux-sync"}) {
		t.Errorf("another token, and %v ran", got)
	}
	cfg.OCITag = "v1.3.0"
	if got := run(); !slices.Equal(got, []string{"flux-sync"}) {
		t.Errorf("another tag, and %v ran", got)
	}
	w.Workload.Remove("source.toolkit.fluxcd.io/v1", "OCIRepository", flux.Namespace, flux.Name)
	if got := run(); !slices.Equal(got, []string{"flux-sync"}) || fluxObject(w, "OCIRepository") == nil {
		t.Errorf("the OCIRepository is gone, and %v ran", got)
	}
}
