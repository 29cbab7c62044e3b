package steps

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
)

// afterPivot is an environment after its bootstrap with a journal that says that the pivot is done. The management
// cluster is gone.
func afterPivot(t *testing.T) (*clustertest.Environment, flow.Journal) {
	t.Helper()
	w := clustertest.New(t)
	journal := flow.Memory()
	if _, err := runPlan(t, w, w.Config(), journal, nil); err != nil {
		t.Fatal(err)
	}
	s, err := journal.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Steps["pivot"] = flow.Record{State: flow.StateDone, Output: []byte(`{"cluster":"uid","servers":[100,101,102]}`)}
	if err := journal.Save(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	w.Management.CloseClientConnections()
	w.Management.Close()
	return w, journal
}

// runSteps runs some steps, as they were foreseen.
func runSteps(t *testing.T, w *clustertest.Environment, cfg config.Config, journal flow.Journal,
	targets ...string) *flow.Report {
	t.Helper()
	plan, err := New(cfg, w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	foreseen, err := plan.Graph.Predict(t.Context(), journal, targets, true)
	if err != nil {
		t.Fatal(err)
	}
	report, err := plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: targets})
	if err != nil {
		t.Fatalf("%v\n%s", err, w.Log)
	}
	for i, f := range foreseen {
		s := report.Steps[i]
		if s.Name != f.Name || (f.Action == flow.ActionRun) != (s.Outcome == flow.Ran) ||
			(f.Action == flow.ActionSkip) != (s.Outcome == flow.Skipped) {
			t.Errorf("foreseen: %s %s (%s); came: %s %s (%s)", f.Name, f.Action, f.Why, s.Name, s.Outcome, s.Reason)
		}
	}
	return report
}

// A changed chart version or values file is a Helm upgrade of the cluster itself, and asks nothing of the management
// cluster, which is gone.
func TestReleasesAreUpgradedAfterThePivot(t *testing.T) {
	w, journal := afterPivot(t)
	plan, err := New(w.Config(), w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	if passed, err := plan.PivotPassed(t.Context(), journal); !passed || err != nil {
		t.Fatalf("the pivot was passed: %v, %v", passed, err)
	}
	releases := []string{"cilium", "hcloud-ccm", "talos-ccm"}
	for _, all := range [][]string{plan.All, plan.Managed} {
		for _, name := range releases {
			if !slices.Contains(all, name) {
				t.Errorf("%v lacks %s, which nothing brings after the pivot", all, name)
			}
		}
	}
	if got := ran(runSteps(t, w, w.Config(), journal, releases...)); len(got) > 0 {
		t.Errorf("nothing changed, and %v ran", got)
	}
	write(t, w.Tools().Overrides, "bootstrap/"+bootstrap.Cilium().Values, "hubble: {enabled: false}\n")
	if got := ran(runSteps(t, w, w.Config(), journal, releases...)); !slices.Equal(got, []string{"cilium"}) {
		t.Errorf("the values changed, and %v ran", got)
	}
	if w.Workload.Get("v1", "Secret", "kube-system", "sh.helm.release.v1.cilium.v2") == nil {
		t.Error("the release was not upgraded")
	}
	w.Workload.Remove("v1", "Secret", "kube-system", "hcloud")
	if got := ran(runSteps(t, w, w.Config(), journal, releases...)); !slices.Equal(got, []string{"hcloud-ccm"}) {
		t.Errorf("the CCM's Secret is gone, and %v ran", got)
	}
	_, err = plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: []string{"cilium", "wait-nodes"}})
	var sealed *flow.SealedError
	if !errors.As(err, &sealed) || sealed.Step != "wait-nodes" {
		t.Errorf("a step of the management cluster after the pivot: %v", err)
	}
}

// With the journal lost, but not the pivot's record, a release is found and no other step before the pivot is run.
func TestReleasesWithoutAJournalAfterThePivot(t *testing.T) {
	w, _ := afterPivot(t)
	if err := w.Tools().Files.Folder(records.PivotFolder).Write(records.PivotRecord,
		[]byte(`{"phase":"settled","cluster":"k8s"}`)); err != nil {
		t.Fatal(err)
	}
	before := w.Writes()
	report := runSteps(t, w, w.Config(), flow.Memory(), "cilium", "talos-ccm")
	if got := ran(report); !slices.Equal(got, []string{"cilium", "talos-ccm"}) || len(report.Steps) != 2 {
		t.Errorf("ran %v of %+v", got, report.Steps)
	}
	if w.Workload.Get("v1", "Secret", "kube-system", "sh.helm.release.v1.cilium.v2") != nil || w.Writes() != before {
		t.Errorf("a release was upgraded without a reason")
	}
}

// The image of another version of Talos can be made after the pivot, for the servers of an upgrade.
func TestImageAfterThePivot(t *testing.T) {
	w, journal := afterPivot(t)
	cfg := w.Config()
	clustertest.Configure(t, &cfg, "TALOS_VERSION=v1.13.10")
	plan, err := New(cfg, w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	statuses, err := plan.Graph.Check(t.Context(), journal)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statuses {
		if s.Name == "image" && (s.Sealed != "" || !slices.Equal(s.Changed, []string{"spec talosVersion"})) {
			t.Errorf("status: %+v", s)
		}
	}
	w.Hetzner.SetImages(hetznertest.Image(1, config.Defaults().Image("amd64"), "x86", "available"),
		// it is found; that it is made is the image step's own test
		hetznertest.Image(2, cfg.Image("amd64"), "x86", "available"))
	report := runSteps(t, w, cfg, journal, "image")
	if got := whys(report)["image"]; !strings.Contains(got, "talosVersion") || len(report.Steps) != 2 {
		t.Errorf("image: %q of %+v", got, report.Steps)
	}
	image, ok, err := flow.Restore(t.Context(), journal, plan.Image)
	if err != nil || !ok || image.ID != 2 {
		t.Errorf("image %+v, %v, %v", image, ok, err)
	}
}
