package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

func TestListEffects(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	state := statedir.Dir(filepath.Join(dir, "state"))
	if r := execute(t, t.Context(), dir, "", "effects", "--state-dir", "state"); r.code != ExitFailed ||
		!strings.Contains(r.stderr, "changed anything yet") {
		t.Errorf("of nothing: %+v", r)
	}
	write := func(run string, lines ...effect.Line) {
		t.Helper()
		var text strings.Builder
		for _, l := range lines {
			if err := json.NewEncoder(&text).Encode(l); err != nil {
				t.Fatal(err)
			}
		}
		if err := state.Files().Folder(statedir.RunsFolder).Folder(run).Write(statedir.EffectsFile,
			[]byte(text.String())); err != nil {
			t.Fatal(err)
		}
	}
	call := func(seq, nth int, phase effect.Phase, verb, object string) effect.Line {
		return effect.Line{Seq: seq, System: effect.Hetzner, Verb: verb, Object: object, Nth: nth, Phase: phase,
			Step: "firewall"}
	}
	write("20260101-a",
		call(1, 1, effect.Leaves, "create", "firewalls/k8s"), call(1, 1, effect.Failed, "create", "firewalls/k8s"),
		call(2, 2, effect.Leaves, "create", "firewalls/k8s"), call(2, 2, effect.Applied, "create", "firewalls/k8s"),
		call(3, 1, effect.Leaves, "delete", "servers/*"))
	write("20260102-b", call(1, 1, effect.Leaves, "update", "x"), call(1, 1, effect.Applied, "update", "x"))
	write("20260103-c") // changed nothing
	before := folderContents(t, dir)

	r := execute(t, t.Context(), dir, "", "effects", "20260101", "--state-dir", "state")
	for _, says := range []string{"hetzner create firewalls/k8s (1 failed)",
		"hetzner delete servers/* (1 without an answer)", "3 changes of 2 kinds", "20260101-a/effects.jsonl"} {
		if r.code != ExitDone || !strings.Contains(r.stdout, says) {
			t.Errorf("it does not say %q: %+v", says, r)
		}
	}
	if r := execute(t, t.Context(), dir, "", "effects", "--state-dir", "state"); !strings.Contains(r.stdout,
		"hetzner update x") || strings.Contains(r.stdout, "firewalls") {
		t.Errorf("of the last that changed anything: %+v", r)
	}
	var told struct {
		Run     string
		Effects []runs.Effect
	}
	r = execute(t, t.Context(), dir, "", "effects", "20260101-a", "--output", "json", "--state-dir", "state")
	if err := json.Unmarshal([]byte(r.stdout), &told); err != nil || told.Run != "20260101-a" || len(told.Effects) != 2 ||
		told.Effects[0].Times != 2 || told.Effects[0].Failed != 1 {
		t.Errorf("%+v, %v: %+v", told, err, r)
	}
	for _, run := range []string{"2026010", "1999"} {
		if r := execute(t, t.Context(), dir, "", "effects", run, "--state-dir", "state"); r.code != ExitUsage {
			t.Errorf("run %s: %+v", run, r)
		}
	}
	if after := folderContents(t, dir); after != before {
		t.Error("listing changed the folder")
	}
	if err := os.Remove(state.Path(filepath.Join(statedir.RunsFolder, "20260103-c", statedir.EffectsFile))); err != nil {
		t.Fatal(err)
	}
	if r := execute(t, t.Context(), dir, "", "effects", "--state-dir", "state"); r.code != ExitDone {
		t.Errorf("with a run of an earlier version: %+v", r)
	}
}
