package crash

import (
	"strings"
	"testing"
)

// What the lab's log says, as it does for a fault that was removed, for one that hit as often as
// it was to and for one whose time was up.
func TestHits(t *testing.T) {
	const (
		begun   = `time=2026-11-22T03:34:31.097Z level=INFO msg="a fault is in force" fault=1 is="{\"kind\":\"reset\",\"path\":\"/servers/*\",\"times\":1}"`
		spent   = `time=2026-11-22T03:34:32.097Z level=INFO msg="a fault has ended" fault=1 is="{\"kind\":\"reset\",\"path\":\"/servers/*\",\"times\":1}" hits=1`
		expired = `time=2026-11-22T03:34:46.097Z level=INFO msg="a fault has ended" fault=1 is="{\"kind\":\"webhook-unready\",\"for\":\"15s\",\"service\":\"capi-system/*\"}" hits=0`
		often   = `time=2026-11-22T03:34:46.097Z level=INFO msg="a fault has ended" fault=2 is="{\"kind\":\"stale-lists\",\"delay\":\"2s\",\"for\":\"40s\"}" hits=31`
		other   = `time=2026-11-22T03:34:33.697Z level=INFO msg="a management cluster is ready" cluster=k8s-mgmt endpoint=https://127.67.1.1:6443`
	)
	for name, tc := range map[string]struct {
		log   []string
		hits  int
		known bool
	}{
		"no fault":          {[]string{other}, 0, false},
		"still in force":    {[]string{begun, other}, 0, false},
		"its one hit":       {[]string{begun, other, spent, other}, 1, true},
		"never hit":         {[]string{other, expired}, 0, true},
		"two, one of which": {[]string{expired, often}, 31, true},
	} {
		if hits, known := hitsOf([]byte(strings.Join(tc.log, "\n") + "\n")); hits != tc.hits || known != tc.known {
			t.Errorf("%s: %d hits, known: %v; want %d, %v", name, hits, known, tc.hits, tc.known)
		}
	}
}

// A fault that the stand-in for the lab has end without a hit makes a case that proves nothing.
func TestFaultThatNeverHit(t *testing.T) {
	for hits, want := range map[string]string{"0": "the fault was in force and never hit anything", "3": ""} {
		s := standIn(t, "")
		log := `time=2026-11-22T03:34:46.097Z level=INFO msg="a fault has ended" fault=1 is="{}" hits=` + hits + "\n"
		tr := &trial{Suite: &Suite{Session: s}, c: Case{Kind: Fault}}
		write(t, tr.Place().Lab()+"/lab.log", log)
		if err := tr.removeFaults(t.Context()); err != nil {
			t.Fatal(err)
		}
		if tr.missed != want {
			t.Errorf("after %s hits: %q", hits, tr.missed)
		}
	}
}

func TestResult(t *testing.T) {
	for name, tc := range map[string]struct {
		trial trial
		want  Result
	}{
		"a kill":                 {trial{c: Case{Kind: Single}, kills: 1}, Good},
		"no kill":                {trial{c: Case{Kind: Single}}, Missed},
		"a fault":                {trial{c: Case{Kind: Fault}}, Good},
		"a fault that never hit": {trial{c: Case{Kind: Fault}, missed: "never"}, Missed},
		"that all the same led to something wrong": {trial{c: Case{Kind: Fault}, missed: "never", findings: []string{"x"}},
			Bad},
		"a fault of the machine":  {trial{c: Case{Kind: Disk}}, Good},
		"one that it cannot have": {trial{c: Case{Kind: Disk}, skipped: "no namespace"}, Skipped},
	} {
		if got := tc.trial.result(); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
