package steps

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/ensure/releases"
	"github.com/slipway-k8s/slipway/platform"
)

const helmReleaseVersion = "helm.toolkit.fluxcd.io/v2"

// releasesWorld is an environment with Flux whose API server has a clock that a test can advance.
type releasesWorld struct {
	*clustertest.Environment
	t       *testing.T
	cfg     config.Config
	tools   platform.Tools
	journal flow.Journal
	passed  atomic.Int64
}

func newReleasesWorld(t *testing.T) *releasesWorld {
	t.Helper()
	w := &releasesWorld{t: t, journal: flow.Memory()}
	w.Environment, _, w.cfg, w.tools = fluxWorld(t)
	w.tools.Version = "v9.9.9"
	w.Workload.Now = func() time.Time { return time.Now().Add(time.Duration(w.passed.Load())) }
	return w
}

func (w *releasesWorld) pass(d time.Duration) { w.passed.Add(int64(d)) }

// run runs the step with what it depends on: the steps that ran, and what flux-releases said.
func (w *releasesWorld) run() (steps []string, said string, err error) {
	w.t.Helper()
	plan, err := New(w.cfg, w.tools)
	if err != nil {
		w.t.Fatal(err)
	}
	report, err := clustertest.Run(w.t, plan.Graph, []string{"flux-releases"}, w.journal, func(e flow.Event) {
		if e.Step == "flux-releases" {
			said += e.Message + "\n"
		}
	})
	return ran(report), said, err
}

// pending stores a HelmRelease whose controller has begun to install it just now.
func (w *releasesWorld) pending(name string) {
	w.Workload.Put(kubetest.Object(helmReleaseVersion, "HelmRelease", "apps", name, clustertest.Map{
		"metadata": clustertest.Map{"generation": 1}, "spec": clustertest.Map{"interval": "1h"},
		"status": clustertest.Map{"conditions": []any{clustertest.Map{"type": "Ready", "status": "Unknown",
			"reason": "Progressing", "lastTransitionTime": w.Workload.Now().UTC().Format(time.RFC3339)}}}}))
	w.Workload.Put(kubetest.Object("v1", "Secret", "apps", "sh.helm.release.v1."+name+".v1", clustertest.Map{
		"type": "helm.sh/release.v1", "metadata": clustertest.Map{"labels": clustertest.Map{"owner": "helm", "name": name,
			"version": "1", "status": "pending-install"}}}))
}

func (w *releasesWorld) record(name string) bool {
	return w.Workload.Get("v1", "Secret", "apps", "sh.helm.release.v1."+name+".v1") != nil
}

// A HelmRelease that its controller works on neither delays nor fails the step; once it is stuck, a run recovers it,
// and says what it did.
func TestFluxReleases(t *testing.T) {
	w := newReleasesWorld(t)
	w.pending("shop")
	steps, said, err := w.run()
	if err != nil || !slices.Contains(steps, "flux-releases") || !w.record("shop") ||
		!strings.Contains(said, "HelmRelease apps/shop: not Ready, left alone: revision 1 is pending-install since") {
		t.Fatalf("%v ran, %v: %s", steps, err, said)
	}
	writes := w.Writes()
	if steps, said, err = w.run(); err != nil || len(steps) > 0 || w.Writes() != writes {
		t.Errorf("nothing changed, and %v ran with %d writes, %v: %s", steps, w.Writes()-writes, err, said)
	}

	w.pass(time.Hour)
	steps, said, err = w.run()
	if err != nil || !slices.Equal(steps, []string{"flux-releases"}) || w.record("shop") ||
		!strings.Contains(said, "HelmRelease apps/shop: recovered: suspend it, delete Helm's record "+
			"sh.helm.release.v1.shop.v1") {
		t.Fatalf("%v ran, %v: %s", steps, err, said)
	}
	audit := w.Workload.Get(helmReleaseVersion, "HelmRelease", "apps", "shop").GetAnnotations()[releases.AuditAnnotation]
	if !strings.Contains(audit, `"by":"slipway v9.9.9"`) || !strings.Contains(audit, `"state":"done"`) {
		t.Errorf("the annotation is %s", audit)
	}
	plan, err := New(w.cfg, w.tools)
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := flow.Restore(t.Context(), w.journal, plan.FluxReleases)
	if err != nil || len(out.Recovered) != 1 || out.Recovered[0].Name != "shop" || out.Recovered[0].Kind != "pending" {
		t.Errorf("its output is %+v, %v", out, err)
	}
	writes = w.Writes()
	if steps, said, err = w.run(); err != nil || len(steps) > 0 || w.Writes() != writes {
		t.Errorf("nothing is stuck, and %v ran with %d writes, %v: %s", steps, w.Writes()-writes, err, said)
	}
}

// More than ten at once end the run, with nothing changed, each time.
func TestFluxReleasesRefusesMany(t *testing.T) {
	w := newReleasesWorld(t)
	for i := range releases.Most + 1 {
		w.pending(fmt.Sprintf("shop-%d", i))
	}
	if _, said, err := w.run(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	w.pass(time.Hour)
	for range 2 {
		writes := w.Writes()
		steps, said, err := w.run()
		var many *releases.TooManyError
		if !errors.As(err, &many) || !strings.Contains(err.Error(), "something larger is wrong") ||
			len(many.Names) != releases.Most+1 || w.Writes() != writes {
			t.Errorf("%v ran with %d writes, %v: %s", steps, w.Writes()-writes, err, said)
		}
	}
}

// Flux without its helm-controller has no HelmReleases.
func TestFluxReleasesWithoutTheKind(t *testing.T) {
	w := clustertest.New(t)
	api := kubetest.New("uid")
	t.Cleanup(api.Close)
	tools := w.Tools().WithDefaults()
	if err := tools.Files.Write(platform.Kubeconfig, api.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	set := newSet(w.Config(), tools, render.Sources{})
	out, err := set.runFluxReleases(t.Context(), t.Logf, workloadOf(t, set))
	if err != nil || len(out.Recovered) > 0 {
		t.Errorf("%+v, %v", out, err)
	}
	if v := set.verifyFluxReleases(t.Context(), workloadOf(t, set), out); v.Answer() != flow.AnswerHolds {
		t.Error(v)
	}
	api.Close()
	if v := set.verifyFluxReleases(t.Context(), workloadOf(t, set), out); v.Answer() != flow.AnswerUnknown {
		t.Error(v)
	}
}
