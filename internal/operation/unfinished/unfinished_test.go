package unfinished

import (
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/operation/scale"
	"github.com/slipway-k8s/slipway/internal/operation/upgrade"
	"github.com/slipway-k8s/slipway/platform"
)

// newTools are tools with an empty state folder.
func newTools(t *testing.T) platform.Tools {
	t.Helper()
	return platform.Tools{Files: platform.FilesIn(t.TempDir())}
}

// beginUpgrade records an upgrade of Talos and Kubernetes.
func beginUpgrade(t *testing.T, tools platform.Tools, said upgrade.Said) {
	t.Helper()
	x := upgrade.Examination{
		From: upgrade.Versions{"TALOS_VERSION": "v1.12.2", "KUBERNETES_VERSION": "v1.32.2"},
		To:   upgrade.Versions{"TALOS_VERSION": "v1.13.9", "KUBERNETES_VERSION": "v1.34.5"},
		Stages: []upgrade.Stage{{Name: "talos"}, {Name: "kubernetes-1-33-13"}, {Name: "kubernetes-1-34-5"},
			{Name: "workers"}},
	}
	if err := upgrade.Begin(tools.Files, x, said); err != nil {
		t.Fatal(err)
	}
}

// ran writes the state of steps into the upgrade's journal.
func ran(t *testing.T, tools platform.Tools, steps map[string]flow.Record) {
	t.Helper()
	journal := flow.Folder(upgrade.Files(tools.Files).String())
	s, err := journal.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Format = flow.Format; s.Steps == nil {
		s.Steps = map[string]flow.Record{}
	}
	for name, record := range steps {
		s.Steps[name] = record
	}
	if err := journal.Save(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func wantOne(t *testing.T, all []Operation, words ...string) Operation {
	t.Helper()
	if len(all) != 1 {
		t.Fatalf("%d operations: %v", len(all), all)
	}
	for _, word := range words {
		if !strings.Contains(all[0].String(), word) {
			t.Errorf("%q is not in %q", word, all[0])
		}
	}
	return all[0]
}

// An upgrade that was killed is said with its target, the stage that it came to and the command that resumes it.
func TestUpgradeThatWasCutOff(t *testing.T) {
	tools := newTools(t)
	beginUpgrade(t, tools, upgrade.Said{Again: []string{"upgrade", "--to-set", "current"}})
	wantOne(t, In(t.Context(), tools, "k8s", ""), "an upgrade to ", "v1.13.9", "v1.34.5", "was cut off before stage "+
		"talos")
	ran(t, tools, map[string]flow.Record{"talos": {State: flow.StateDone},
		"kubernetes-1-33-13": {State: flow.StateStarted}})
	wantOne(t, In(t.Context(), tools, "k8s", ""), "was cut off at stage kubernetes-1-33-13 (done: talos)",
		"run the same again: bootstrap upgrade --to-set current")
	ran(t, tools, map[string]flow.Record{"kubernetes-1-33-13": {State: flow.StateFailed, Error: "no stock"}})
	wantOne(t, In(t.Context(), tools, "k8s", ""), "failed at stage kubernetes-1-33-13 (done: talos): no stock")
	working := wantOne(t, In(t.Context(), tools, "k8s", "process 1 on here"), "is under way", "a run is at work "+
		"(process 1 on here)")
	if working.Command != "" {
		t.Errorf("it is to be resumed while a run is at work: %s", working)
	}
	if err := upgrade.End(tools.Files); err != nil {
		t.Fatal(err)
	}
	if all := In(t.Context(), tools, "k8s", ""); len(all) > 0 {
		t.Errorf("once it has ended: %v", all)
	}
}

// An upgrade that ended after a stage because the operator asked for that was not cut off.
func TestUpgradeThatIsPaused(t *testing.T) {
	tools := newTools(t)
	beginUpgrade(t, tools, upgrade.Said{Again: []string{"upgrade"}, PauseAfter: "talos"})
	ran(t, tools, map[string]flow.Record{"talos": {State: flow.StateDone}})
	wantOne(t, In(t.Context(), tools, "k8s", ""), "was ended after talos, as asked (--pause-after); next is "+
		"kubernetes-1-33-13; run the same again: bootstrap upgrade")
	beginUpgrade(t, tools, upgrade.Said{Again: []string{"upgrade"}}) // resumed without --pause-after, and killed
	wantOne(t, In(t.Context(), tools, "k8s", ""), "was cut off before stage kubernetes-1-33-13")
}

// One that is paused after its first server is resumed without the pause, and one that was cut off before that with it.
func TestUpgradeThatIsPausedAfterTheFirstServer(t *testing.T) {
	tools := newTools(t)
	beginUpgrade(t, tools, upgrade.Said{Again: []string{"upgrade"}, PauseAfter: upgrade.FirstServer})
	ran(t, tools, map[string]flow.Record{upgrade.FirstServer: {State: flow.StateStarted}})
	wantOne(t, In(t.Context(), tools, "k8s", ""), "was cut off at stage first-server; run the same again: "+
		"bootstrap upgrade --pause-after first-server")
	ran(t, tools, map[string]flow.Record{upgrade.FirstServer: {State: flow.StateDone}})
	o := wantOne(t, In(t.Context(), tools, "k8s", ""), "was ended after first-server, as asked (--pause-after); "+
		"next is talos")
	if o.Command != "bootstrap upgrade" {
		t.Errorf("it is resumed by %q", o.Command)
	}
	record, err := upgrade.ReadRecord(tools.Files)
	if err == nil {
		err = record.Abort(tools.Files)
	}
	if err != nil {
		t.Fatal(err)
	}
	o = wantOne(t, In(t.Context(), tools, "k8s", ""), "was aborted at its first server")
	if o.Command != "bootstrap upgrade --abort" {
		t.Errorf("an abort that was cut off is resumed by %q", o.Command)
	}
	beginUpgrade(t, tools, upgrade.Said{Again: []string{"apply"}})
	if record, err = upgrade.ReadRecord(tools.Files); err == nil {
		err = record.Abort(tools.Files)
	}
	if err != nil {
		t.Fatal(err)
	}
	if o = wantOne(t, In(t.Context(), tools, "k8s", ""), "configure what was before"); o.Command != "bootstrap apply" {
		t.Errorf("an aborted change is ended by %q", o.Command)
	}
}

// A record of an older release names the versions in the command.
func TestUpgradeOfAnOlderRelease(t *testing.T) {
	tools := newTools(t)
	if err := upgrade.Files(tools.Files).Write("upgrade.json", []byte(`{"began":"2026-11-26T10:00:00Z",
		"from":{"KUBERNETES_VERSION":"v1.32.2"},"to":{"KUBERNETES_VERSION":"v1.33.13"}}`)); err != nil {
		t.Fatal(err)
	}
	ran(t, tools, map[string]flow.Record{"kubernetes-1-33-13": {State: flow.StateInterrupted}})
	wantOne(t, In(t.Context(), tools, "k8s", ""), "begun at 2026-11-26T10:00:00Z was cut off at stage kubernetes-1-33-13",
		"bootstrap upgrade KUBERNETES_VERSION=v1.33.13")
}

// Only what lies on the way of the operation is explained by it.
func TestWhatAnOperationExplains(t *testing.T) {
	tools := newTools(t)
	beginUpgrade(t, tools, upgrade.Said{})
	if err := scale.Begin(tools.Files, scale.Change{Group: scale.ControlPlaneGroup, From: 3, To: 5}, false); err != nil {
		t.Fatal(err)
	}
	all := In(t.Context(), tools, "k8s", "")
	for _, tt := range []struct {
		variable, wanted, live string
		want                   bool
	}{
		{"KUBERNETES_VERSION", "v1.32.2", "v1.34.5", true},  // the configuration is not changed yet
		{"KUBERNETES_VERSION", "v1.34.5", "v1.33.13", true}, // it is, and the cluster is in between
		{"KUBERNETES_VERSION", "v1.35.0", "v1.33.13", false},
		{"KUBERNETES_VERSION", "v1.34.5", "v1.31.0", false},
		{"CONTROL_PLANE_REPLICAS", "3", "4", true}, {"CONTROL_PLANE_REPLICAS", "5", "3", true},
		{"CONTROL_PLANE_REPLICAS", "7", "4", false}, {"CONTROL_PLANE_REPLICAS", "3", "7", false},
		{"SERVER_TYPE", "cx33", "cx43", false},
	} {
		is := false
		for _, o := range all {
			is = is || o.Explains(changes.Deviation{Variable: tt.variable, Wanted: tt.wanted, Live: tt.live})
		}
		if is != tt.want {
			t.Errorf("%+v: %t", tt, is)
		}
	}
}

// The scaling of a group is recorded until it has ended, each group by itself.
func TestScalingThatWasCutOff(t *testing.T) {
	tools := newTools(t)
	for _, c := range []scale.Change{{Group: scale.ControlPlaneGroup, From: 3, To: 5}, {Group: "workers/general",
		From: 2, To: 4}} {
		if err := scale.Begin(tools.Files, c, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := scale.End(tools.Files, "workers/general"); err != nil {
		t.Fatal(err)
	}
	o := wantOne(t, In(t.Context(), tools, "k8s", ""), "the scaling of the control plane from 3 to 5 servers",
		"was cut off",
		"bootstrap scale control-plane 5")
	if !o.ResumedBy([]string{"scale", "control-plane", "3"}) || o.ResumedBy([]string{"scale", "workers/general", "3"}) {
		t.Error("it is resumed by its own group alone")
	}
	if err := scale.End(tools.Files, scale.ControlPlaneGroup); err != nil {
		t.Fatal(err)
	}
	if all := In(t.Context(), tools, "k8s", ""); len(all) > 0 {
		t.Errorf("once it has ended: %v", all)
	}
}

// A replacement is listed from its record: of today's release, and of one that did not record when it began.
func TestReplacementThatWasCutOff(t *testing.T) {
	for record, says := range map[string]string{
		`{"asked": "k8s-control-plane-a", "machine": "m-1", "began": "2026-11-26T10:00:00Z"}`: "the replacement of Machine m-1 " +
			"begun at 2026-11-26T10:00:00Z was cut off",
		`{"asked": "k8s-control-plane-a", "machine": "m-1"}`: "the replacement of Machine m-1 was cut off",
	} {
		tools := newTools(t)
		if err := tools.Files.Write(connect.ReplacementFile, []byte(record)); err != nil {
			t.Fatal(err)
		}
		wantOne(t, In(t.Context(), tools, "k8s", ""), says, "bootstrap replace-machine k8s-control-plane-a")
	}
}

// The pivot and the recoveries are listed, the oldest first, as long as they have not ended; a record that cannot be
// read is listed, too.
func TestOtherOperations(t *testing.T) {
	tools := newTools(t)
	began := time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC)
	restore := records.Restore{Began: began}
	quorum := records.Consent{Cluster: "k8s", Began: began.Add(time.Hour)}
	readopt := records.Readopt{Began: began, Ended: began}
	for _, err := range []error{restore.Write(tools.Files), quorum.BeginQuorum(tools.Files), readopt.Write(tools.Files),
		records.PivotCopyOf(tools).SetState(records.PivotState{Phase: records.Moving, Cluster: "k8s",
			Since: began.Add(2 * time.Hour)})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var said []string
	all := In(t.Context(), tools, "k8s", "")
	for _, o := range all {
		said = append(said, o.Operation+": "+o.Command)
	}
	const want = "restore: bootstrap restore FILE, recover-quorum: bootstrap recover-quorum, pivot: bootstrap pivot"
	if is := strings.Join(said, ", "); is != want {
		t.Errorf("%s, want %s", is, want)
	}
	if !all[2].ResumedBy([]string{"all"}) || all[0].ResumedBy([]string{"all"}) {
		t.Error("all resumes the pivot, and no restore")
	}
	if err := records.PivotCopyOf(tools).SetState(records.PivotState{Phase: records.Settled, Cluster: "k8s"}); err != nil {
		t.Fatal(err)
	}
	if all := In(t.Context(), tools, "k8s", ""); len(all) != 2 {
		t.Errorf("once the pivot has ended: %v", all)
	}
	damaged := newTools(t)
	if err := upgrade.Files(damaged.Files).Write("upgrade.json", []byte("{")); err != nil {
		t.Fatal(err)
	}
	wantOne(t, In(t.Context(), damaged, "k8s", ""), "whether upgrade was begun and has not ended is not known", "read "+
		"the record of the upgrade")
}
