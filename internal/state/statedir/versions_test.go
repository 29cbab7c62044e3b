package statedir

import (
	"encoding/json"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
)

// TestVersionSet: a folder keeps the set of its cluster from the first step that makes something on, and one of a
// release that recorded none has none.
func TestVersionSet(t *testing.T) {
	s, of := Dir(t.TempDir()), func(set string) Owner { return Owner{Cluster: "k8s", Versions: set} }
	claim := func(set string) {
		t.Helper()
		if err := s.Claim(t.Context(), of(set), EnvironmentHetzner, quiet); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when, set string, made bool) {
		t.Helper()
		if is, has := s.VersionSet(t.Context(), of("")); is != set || has != made {
			t.Errorf("%s: the set is %q of a cluster: %t, want %q, %t", when, is, has, set, made)
		}
	}
	expect("an empty folder", "", false)
	claim("guide")
	record(t, s, "preflight")
	expect("before anything was made", "", false)
	claim("2026-11") // another choice counts until then
	record(t, s, "image")
	expect("made", "2026-11", true)
	claim("guide")
	expect("claimed by a run of another set", "2026-11", true)
	if err := s.KeepVersionSet("2027-02"); err != nil {
		t.Fatal(err)
	}
	expect("upgraded", "2027-02", true)
	if is, has := s.VersionSet(t.Context(), Owner{Cluster: "other"}); has {
		t.Errorf("of another cluster: %q", is)
	}
	if err := ownership.Update(s.Files(), func(r *ownership.Record) { r.Versions = "" }); err != nil {
		t.Fatal(err)
	}
	expect("of an older release", "", true)
	claim("2026-11")
	expect("of an older release, after a run of this one", "", true)
}

// TestVersionSetOfAFolderWithoutARecord: releases before there was one left a journal alone.
func TestVersionSetOfAFolderWithoutARecord(t *testing.T) {
	begun := Dir(t.TempDir())
	record(t, begun, "image") // names no cluster
	if set, made := begun.VersionSet(t.Context(), Owner{Cluster: "k8s"}); set != "" || !made {
		t.Errorf("begun: %q, %t", set, made)
	}
	s := Dir(t.TempDir())
	recordOutput(t, s, "apply", `{"name":"k8s"}`)
	if set, made := s.VersionSet(t.Context(), Owner{Cluster: "k8s", Versions: "2026-11"}); set != "" || !made {
		t.Errorf("%q, %t", set, made)
	}
	if err := s.Claim(t.Context(), Owner{Cluster: "k8s", Versions: "2026-11"}, EnvironmentHetzner, quiet); err != nil {
		t.Fatal(err)
	}
	if set, made := s.VersionSet(t.Context(), Owner{Cluster: "k8s"}); set != "" || !made {
		t.Errorf("once it is claimed: %q, %t", set, made)
	}
}

// recordOutput writes a journal in which one step is done.
func recordOutput(t *testing.T, s Dir, step, output string) {
	t.Helper()
	if err := s.Journal().Save(t.Context(), flow.Snapshot{Format: flow.Format, Graph: "slipway",
		Steps: map[string]flow.Record{step: {State: flow.StateDone, Output: json.RawMessage(output)}}}); err != nil {
		t.Fatal(err)
	}
}
