package runs

import (
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/text"
)

// ForecastOfSteps is how long something should take.
type ForecastOfSteps struct {
	Seconds float64 `json:"seconds"`
	// Recorded is how many of its steps were seen in earlier runs; the others' figures are built in.
	Recorded int `json:"recordedSteps"`
	Steps    int `json:"steps"`
}

// Forecast adds steps up that come one after the other; nil for none.
func (d Durations) Forecast(names []string) *ForecastOfSteps {
	if len(names) == 0 {
		return nil
	}
	f := &ForecastOfSteps{Steps: len(names)}
	for _, name := range names {
		took, recorded := d.Of(name)
		f.Seconds += took.Seconds()
		if recorded {
			f.Recorded++
		}
	}
	return f
}

// String is "about 1m20s (built-in figures: there is no record of it yet)".
func (f ForecastOfSteps) String() string {
	from := fmt.Sprintf("%d of its %d steps by the record of earlier runs, the others by built-in figures",
		f.Recorded, f.Steps)
	switch f.Recorded {
	case 0:
		from = "built-in figures: there is no record of it yet"
	case f.Steps:
		from = "by the record of earlier runs"
	}
	return fmt.Sprintf("about %s (%s)", text.Elapsed(time.Duration(f.Seconds*float64(time.Second))), from)
}
