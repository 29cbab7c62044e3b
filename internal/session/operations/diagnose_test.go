package operations

import (
	"slices"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

func TestAForecastTellsRecordsFromBuiltInFigures(t *testing.T) {
	d := runs.Durations{Recorded: map[string]time.Duration{"survey": 20 * time.Second},
		BuiltIn: map[string]time.Duration{"survey": time.Hour, "let-go": 40 * time.Second}}
	for want, names := range map[string][]string{
		"about 1m00s (1 of its 2 steps by the record of earlier runs, the others by built-in figures)": {"survey", "let-go"},
		"about 20.0s (by the record of earlier runs)":                                                  {"survey"},
		"about 40.0s (built-in figures: there is no record of it yet)":                                 {"let-go"},
	} {
		if f := d.Forecast(names); f.String() != want {
			t.Errorf("%v: %s", names, f)
		}
	}
	// Every step that a diagnosis counts has a figure in both worlds.
	for _, environment := range []string{statedir.EnvironmentLab, statedir.EnvironmentHetzner} {
		took := runs.ReadDurations(statedir.Dir(t.TempDir()), environment)
		for _, name := range slices.Concat(recovery.RestoreSteps, recovery.PivotSteps, recovery.QuorumSteps,
			recovery.ReadoptSteps) {
			if expected, _ := took.Of(name); expected == 0 {
				t.Errorf("%s has no built-in figure for %s", environment, name)
			}
		}
	}
}
