package test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/release"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// auditAnnotation is documented in docs/releases.md.
const auditAnnotation = "slipway.dev/recovered"

// TestStuckReleases has HelmReleases get stuck as docs/releases.md says that they do, with the helm-controller of a
// release of Flux, and recovers them. It is skipped where Flux's programs are not built.
func TestStuckReleases(t *testing.T) {
	needFlux(t)
	c := newCommand(t)
	args := []string{"bootstrap", "--lab", "GITOPS=flux", "CONTROL_PLANE_REPLICAS=1"}
	first := c.run(nil, args...)
	if first.exit != 0 {
		t.Fatalf("exit %d\n%s", first.exit, first.output)
	}
	if done := first.steps("step-done"); slices.Index(done, "flux-releases") <= slices.Index(done, "flux-sync") {
		t.Errorf("flux-releases is not done after flux-sync: %v", done)
	}
	f := newFluxReleases(t, c)
	f.create("stuck", "pending", "lost", "healthy")
	healthy := f.version("stuck", "healthy")

	f.scale(0)
	f.diesUpgrading("pending")
	f.losesReport("stuck", "lost")
	f.dryRun()
	f.eleven()
	f.recovers()
	f.deleteEleven()
	if is := f.version("stuck", "healthy"); is != healthy {
		t.Errorf("the healthy HelmRelease was changed: %s became %s", healthy, is)
	}

	f.scale(1)
	f.becomesReady("pending", 2, "green")
	f.becomesReady("lost", 1, "blue")
	f.becomesReady("healthy", 1, "blue")
	if is := f.get("stuck", "healthy"); is.GetAnnotations()[auditAnnotation] != "" {
		t.Errorf("the healthy HelmRelease was recovered: %v", is.GetAnnotations())
	}
	f.notTwice("lost")
	f.step(args)
	fluxFromRegistry(t, c)
}

// diesUpgrading leaves a HelmRelease as a helm-controller does that ends within an upgrade: with other values, the
// conditions of an operation at work, and a pending record of the next revision.
func (f *fluxReleases) diesUpgrading(name string) {
	f.t.Helper()
	o, err := f.dynamic.Resource(helmReleases).Namespace("stuck").Patch(f.t.Context(), name, types.MergePatchType,
		[]byte(`{"spec":{"values":{"colour":"green"}}}`), metav1.PatchOptions{FieldManager: "test"})
	if err != nil {
		f.t.Fatal(err)
	}
	f.writeStatus(o,
		f.condition("Reconciling", "True", "Progressing", "Running 'upgrade' action", time.Now(), o.GetGeneration()),
		f.condition("Ready", "Unknown", "Progressing", "Running 'upgrade' action", time.Now(), o.GetGeneration()))
	records := f.records("stuck")
	was, err := records.Deployed(name)
	if err != nil {
		f.t.Fatal(err)
	}
	f.pendingRecord("stuck", *was, release.StatusPendingUpgrade, was.Version+1)
}

// pendingRecord writes a record of an operation that began.
func (f *fluxReleases) pendingRecord(namespace string, of release.Release, status release.Status, revision int) {
	f.t.Helper()
	info := *of.Info
	info.Status, info.Description = status, "Preparing"
	of.Info, of.Version = &info, revision
	if err := f.records(namespace).Create(&of); err != nil {
		f.t.Fatal(err)
	}
}

// losesReport leaves a HelmRelease as one whose helm-controller could not write that it is Ready, an hour ago.
func (f *fluxReleases) losesReport(namespace, name string) {
	f.t.Helper()
	o := f.get(namespace, name)
	f.writeStatus(o, f.condition("Ready", "Unknown", "Progressing", "Fulfilling prerequisites",
		time.Now().Add(-time.Hour), o.GetGeneration()))
}

// dryRun finds both kinds once the time of an operation has passed, and changes nothing.
func (f *fluxReleases) dryRun() {
	f.t.Helper()
	before := f.snapshot()
	eventually(f.t, "the HelmReleases to count as stuck", 2*time.Minute, func(context.Context) string {
		report, exit, output := f.recover("--dry-run")
		if exit != 0 || len(report.Stuck) > 2 {
			f.t.Fatalf("exit %d\n%s", exit, output)
		}
		if report.outcome("pending") != "pending: would recover" || report.outcome("lost") != "status: would recover" ||
			report.Healthy == 0 {
			return output
		}
		return ""
	})
	if after := f.snapshot(); !slices.Equal(before, after) {
		f.t.Errorf("a dry run has changed %v to %v", before, after)
	}
}

// eleven has eleven more get stuck within their installation. Thirteen are refused, with nothing changed.
func (f *fluxReleases) eleven() {
	f.t.Helper()
	f.namespace("many")
	like, err := f.records("stuck").Deployed("healthy")
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range 11 {
		name := fmt.Sprintf("shop-%d", i)
		f.apply("many", name)
		o := f.get("many", name)
		f.writeStatus(o, f.condition("Ready", "Unknown", "Progressing", "Running 'install' action", time.Now(), 1))
		of := *like
		of.Name, of.Namespace = name, "many"
		f.pendingRecord("many", of, release.StatusPendingInstall, 1)
	}
	before := f.snapshot()
	eventually(f.t, "thirteen stuck HelmReleases", 2*time.Minute, func(context.Context) string {
		report, exit, output := f.recover("--dry-run")
		if len(report.Stuck) < 13 {
			return output
		}
		if exit != 1 {
			f.t.Errorf("a dry run with 13: exit %d\n%s", exit, output)
		}
		return ""
	})
	for _, args := range [][]string{nil, {"--namespace", "many"}} {
		report, exit, output := f.recover(args...)
		if exit != 1 || !strings.Contains(output, "something larger is wrong") ||
			report.outcome("shop-3") != "pending: refused" {
			f.t.Errorf("%v: exit %d\n%s", args, exit, output)
		}
	}
	if after := f.snapshot(); !slices.Equal(before, after) {
		f.t.Errorf("a run that was refused has changed %v to %v", before, after)
	}
}

// recovers recovers those of one namespace, and leaves the others as they are.
func (f *fluxReleases) recovers() {
	f.t.Helper()
	many := f.version("many", "shop-3")
	report, exit, output := f.recover("--namespace", "stuck")
	if exit != 0 || report.outcome("pending") != "pending: recovered" || report.outcome("lost") != "status: recovered" ||
		report.Healthy != 1 {
		f.t.Fatalf("exit %d\n%s", exit, output)
	}
	if f.version("many", "shop-3") != many {
		f.t.Error("a HelmRelease of another namespace was changed")
	}
	history, err := f.records("stuck").History("pending")
	if err != nil || len(history) != 1 {
		f.t.Errorf("Helm has %d records, %v", len(history), err)
	}
	for _, name := range []string{"pending", "lost"} {
		o := f.get("stuck", name)
		var audit struct {
			State, By, What string
			Generation      int64
		}
		if err := json.Unmarshal([]byte(o.GetAnnotations()[auditAnnotation]), &audit); err != nil || audit.State != "done" ||
			audit.Generation != o.GetGeneration() || !strings.HasPrefix(audit.By, "slipway ") || audit.What == "" {
			f.t.Errorf("%s: the annotation is %s, of generation %d, %v", name, o.GetAnnotations()[auditAnnotation],
				o.GetGeneration(), err)
		}
		if suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend"); suspended {
			f.t.Errorf("%s is suspended", name)
		}
	}
	if ready := readyOf(f.get("stuck", "lost")); ready["status"] != "True" || ready["reason"] != "StatusRecovered" {
		f.t.Errorf("Ready of lost is %v", ready)
	}
}

// deleteEleven deletes the HelmReleases that no controller has seen, with their records.
func (f *fluxReleases) deleteEleven() {
	f.t.Helper()
	err := f.dynamic.Resource(helmReleases).Namespace("many").DeleteCollection(f.t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{})
	if err == nil {
		err = f.client.CoreV1().Secrets("many").DeleteCollection(f.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// becomesReady asks the helm-controller to reconcile a HelmRelease, and waits until it has reported that it is Ready,
// at a revision and with the values of today.
func (f *fluxReleases) becomesReady(name string, revision int, colour string) {
	f.t.Helper()
	requested := f.request(helmReleases, "stuck", name)
	eventually(f.t, "HelmRelease "+name+" with a helm-controller again", 3*time.Minute, func(ctx context.Context) string {
		o := f.get("stuck", name)
		ready := readyOf(o)
		handled, _, _ := unstructured.NestedString(o.Object, "status", "lastHandledReconcileAt")
		if ready["status"] != "True" || handled != requested {
			return fmt.Sprintf("%s, handled %s: %v", requested, handled, ready)
		}
		return ""
	})
	is, err := f.records("stuck").Deployed(name)
	if err != nil || is.Version != revision {
		f.t.Errorf("%s: revision %+v is deployed, want %d: %v", name, is, revision, err)
	}
	shop, err := f.client.CoreV1().ConfigMaps("stuck").Get(f.t.Context(), name+"-shop", metav1.GetOptions{})
	if err != nil || shop.Data["colour"] != colour {
		f.t.Errorf("%s: its ConfigMap is %v, %v", name, shop.Data, err)
	}
}

// notTwice loses the report of a HelmRelease again, which is left alone then.
func (f *fluxReleases) notTwice(name string) {
	f.t.Helper()
	f.losesReport("stuck", name)
	before := f.version("stuck", name)
	report, exit, output := f.recover("--namespace", "stuck")
	if exit != 0 || len(report.Stuck) > 0 || len(report.Left) != 1 || report.Left[0].Name != name ||
		!strings.Contains(report.Left[0].Why, "is not recovered twice") {
		f.t.Errorf("exit %d\n%s", exit, output)
	}
	if f.version("stuck", name) != before {
		f.t.Error("it was changed")
	}
}

// step has a run of the bootstrap recover a HelmRelease, and nothing else; the run after it changes nothing.
func (f *fluxReleases) step(args []string) {
	f.t.Helper()
	f.losesReport("stuck", "healthy")
	run := f.c.run(nil, args...)
	if ran := run.steps("step-started"); run.exit != 0 || !slices.Equal(ran, []string{"flux-releases"}) ||
		!strings.Contains(run.output, "HelmRelease stuck/healthy: recovered: set the condition Ready to True") {
		f.t.Errorf("exit %d, %v ran\n%s", run.exit, ran, run.output)
	}
	if ready := readyOf(f.get("stuck", "healthy")); ready["status"] != "True" || ready["reason"] != "StatusRecovered" {
		f.t.Errorf("Ready is %v", ready)
	}
	again := f.c.run(nil, args...)
	if ran := again.steps("step-started"); again.exit != 0 || len(ran) > 0 {
		f.t.Errorf("exit %d, %v ran\n%s", again.exit, ran, again.output)
	}
}
