package readopt

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// TestOneOfTwoReadoptions: two people with a management cluster each would both manage the same servers.
func TestOneOfTwoReadoptions(t *testing.T) {
	w := newReadoptWorld(t)
	first, second := w.plan(t).in, w.plan(t).in
	second.tools.Files = platform.FilesIn(t.TempDir())
	mine, err := first.claimReadopt(t.Context(), w.say)
	if err != nil {
		t.Fatal(err)
	}
	var recovering *claims.RecoveringError
	if _, err := second.claimReadopt(t.Context(), w.say); !errors.As(err, &recovering) ||
		recovering.Claim.By != mine.By {
		t.Errorf("the second is told %v", err)
	}
	// The first one's folder is lost, and what it has put back is found.
	w.Provider.There = true
	w.Management.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s",
		clustertest.Map{"metadata": clustertest.Map{"annotations": clustertest.Map{capi.ReadoptedAnnotation: "5a5a"}},
			"spec": clustertest.Map{"paused": true}}))
	if taken, err := second.claimReadopt(t.Context(), w.say); err != nil || taken.By == mine.By {
		t.Errorf("it is not taken over: %+v, %v", taken, err)
	}
	if v := claims.VerifyRecovery(t.Context(), first.cfg, first.tools, mine.By); v.Answer() != flow.AnswerGone {
		t.Error("the claim that was taken over is said to stand")
	}
}

// TestLeftObjectsAreReplacedWhereThatIsAccepted: an object without its Cluster object blocks the readoption, and stays
// until a person agrees.
func TestLeftObjectsAreReplacedWhereThatIsAccepted(t *testing.T) {
	w := newReadoptWorld(t)
	w.Provider.There = true
	left := func() *unstructured.Unstructured {
		return w.Management.Get(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, "k8s-control-plane-1")
	}
	w.Management.Put(kubetest.Object(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, "k8s-control-plane-1",
		clustertest.Map{
			"metadata": clustertest.Map{"uid": "left", "finalizers": []any{"hcloudmachine.infrastructure.cluster.x-k8s.io"}},
			"spec":     clustertest.Map{"type": "another"}}))
	const id = "object-left/HCloudMachine.k8s-control-plane-1"
	found, err := w.plan(t).Inspect(t.Context(), w.say)
	if err != nil || !slices.Equal(found.Open, []string{id}) {
		t.Fatalf("open: %v, %v", found.Open, err)
	}
	p := w.plan(t, id)
	o, err := p.in.ensureOrphaned(t.Context(), w.say)
	if err != nil {
		t.Fatal(err)
	}
	d, err := p.in.compareAll(t.Context(), w.say, o)
	if err != nil || len(d.Left) != 1 || d.Left[0].UID != "left" {
		t.Fatalf("%+v, %v", d, err)
	}
	if left().GetUID() != "left" {
		t.Error("the comparison has removed it")
	}
	if err := p.in.tools.Files.Write(platform.ManagementKubeconfig, w.Management.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	m := steps.Management{Kubeconfig: platform.ManagementKubeconfig}
	for range 2 { // the second time as after a kill: what was put back is nothing that was left
		if _, err := p.in.putBack(t.Context(), w.say, m, d); err != nil {
			t.Fatal(err)
		}
		if is := left(); is == nil || is.GetUID() == "left" || capi.Text(is, "spec", "type") != "cx33" ||
			capi.Text(is, "spec", "providerID") != "hcloud://101" {
			t.Fatalf("in its place is %v", is)
		}
	}
	if is := w.Management.Get(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, "k8s-control-plane-0"); is == nil ||
		capi.Text(is, "spec", "type") != "cx33" {
		t.Errorf("beside it is %v", is)
	}
}

// TestProvidersWithoutKindsAreInstalledAnew: their list says that they are there, as after the operator deleted the
// definitions.
func TestProvidersWithoutKindsAreInstalledAnew(t *testing.T) {
	w := newReadoptWorld(t)
	p := w.plan(t)
	if err := p.in.tools.Files.Write(platform.ManagementKubeconfig, w.Management.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	m, before := steps.Management{Kubeconfig: platform.ManagementKubeconfig}, config.Defaults()
	w.Install(before)
	if _, err := p.in.installAgain(t.Context(), w.say, m); err != nil || len(w.Inits) > 0 {
		t.Fatalf("with all kinds there: %v, installed %d times", err, len(w.Inits))
	}
	const provider = "clusterctl.cluster.x-k8s.io/v1alpha3"
	stale := w.Management.Get(provider, "Provider", "infrastructure-hetzner", "infrastructure-hetzner").GetUID()
	w.Management.Fail = func(r *http.Request) (int, string) {
		if strings.Contains(r.URL.Path, "/hcloudmachines") {
			return http.StatusNotFound, "the server could not find the requested resource"
		}
		return 0, ""
	}
	if _, err := p.in.installAgain(t.Context(), w.say, m); err != nil || len(w.Inits) != 1 {
		t.Fatalf("without the kind of the servers: %v, installed %d times\n%s", err, len(w.Inits), strings.Join(w.said, "\n"))
	}
	if is := w.Management.Get(provider, "Provider", "infrastructure-hetzner", "infrastructure-hetzner"); is == nil ||
		is.GetUID() == stale {
		t.Error("the list of the providers was not made anew: clusterctl leaves alone what stands in it")
	}
	if !strings.Contains(strings.Join(w.said, "\n"), "HCloudMachines are not known any more") {
		t.Errorf("it said %v", w.said)
	}
	// A question that is not answered is no proof that the kinds are gone.
	w.Management.Fail = func(r *http.Request) (int, string) {
		if strings.Contains(r.URL.Path, "/hcloudmachines") {
			return http.StatusServiceUnavailable, "not ready"
		}
		return 0, ""
	}
	if _, err := p.in.installAgain(t.Context(), w.say, m); err == nil || len(w.Inits) != 1 {
		t.Errorf("with an API server that does not answer: %v, installed %d times", err, len(w.Inits))
	}
}
