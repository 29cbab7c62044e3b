package forecast

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
)

// addConsequences asks what a run does to the cluster that exists.
func (f *Forecast) addConsequences(ctx context.Context, plan source, foreseen []flow.Prediction) {
	all, err := plan.Consequences(ctx, foreseen)
	if err != nil {
		f.Unforeseen = err.Error()
		return
	}
	f.Consequences = all
	f.NeedsConsent = slices.ContainsFunc(all, changes.Consequence.Destructive)
	f.Refused = slices.ContainsFunc(all, immutable)
}

func immutable(c changes.Consequence) bool { return c.Effect == changes.EffectImmutable }

// Agreed are the consequences that a person who has read the forecast agrees to.
func (f *Forecast) Agreed() (summaries []string) {
	for _, c := range f.Consequences {
		if c.Destructive() {
			summaries = append(summaries, c.Summary())
		}
	}
	return summaries
}

// rollout is how long the servers are being replaced: those of the control plane and of each MachineDeployment at the
// same time.
func (f *Forecast) rollout() (longest time.Duration) {
	for _, c := range f.Consequences {
		longest = max(longest, c.Expected)
	}
	return longest
}

func (f *Forecast) printConsequences(w io.Writer, words func(string, ...any)) {
	if f.Unforeseen != "" {
		fmt.Fprintln(w)
		words("what the run does to the cluster that exists is not known: %s", text.Printable(f.Unforeseen))
	}
	if len(f.Consequences) == 0 {
		return
	}
	fmt.Fprintln(w)
	words("what the run does to the cluster that exists:")
	for _, c := range f.Consequences {
		mark := " "
		if c.Destructive() || c.Effect == changes.EffectImmutable {
			mark = "!"
		}
		words("%s %s", mark, text.Printable(c.Text))
	}
	switch {
	case slices.ContainsFunc(f.Consequences, immutable):
		words("!: an immutable field: the run refuses, and changes nothing; set the live value again")
	case f.NeedsConsent:
		words("!: done with consent only: --yes, or the answer to the question before a run at a terminal; " +
			"without it the run fails and changes nothing")
	}
}

// priceChange is what the consequences change in what the cluster costs a month; empty: nothing.
func (f *Forecast) priceChange() string {
	var sum float64
	var currency string
	for _, c := range f.Consequences {
		switch {
		case c.Monthly == nil:
		case c.Monthly.Unknown:
			return "the difference in price is not known"
		default:
			sum, currency = sum+c.Monthly.Monthly, c.Monthly.Currency
		}
	}
	switch {
	case sum > 0:
		return fmt.Sprintf("%.2f %s a month more, VAT included", sum, currency)
	case sum < 0:
		return fmt.Sprintf("%.2f %s a month less, VAT included", -sum, currency)
	}
	return ""
}

func (f *Forecast) printNothingNew(text func(string, ...any)) {
	replaced := slices.ContainsFunc(f.Consequences, func(c changes.Consequence) bool {
		return c.Effect == changes.EffectReplaces
	})
	switch change := f.priceChange(); {
	case change != "":
		text("together %s", change)
	case replaced:
		text("the new servers cost what the old ones do")
	default:
		text("nothing is created at Hetzner")
	}
	if replaced {
		text("while servers are replaced there is one more of them, paid by the hour")
	}
}
