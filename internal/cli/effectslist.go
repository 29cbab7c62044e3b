package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// effectList is what effects prints as JSON.
type effectList struct {
	Run     string        `json:"run"`
	File    string        `json:"file"` // that has every call
	Effects []runs.Effect `json:"effects"`
}

// runEffects shows what a run changed, in the order in which it began to.
func runEffects(ctx context.Context, c *call, k session.Cluster) error {
	state, err := k.State(ctx)
	if err != nil {
		return err
	}
	run, lines, err := runs.Effects(state, c.word(1))
	if err != nil {
		return err
	}
	rows := runs.CountEffects(lines)
	path := state.Path(filepath.Join(statedir.RunsFolder, run, statedir.EffectsFile))
	return c.print(effectList{run, path, rows}, func(out io.Writer, width int) error {
		return printEffects(out, width, path, lines, rows)
	})
}

func printEffects(out io.Writer, width int, path string, lines []effect.Line, rows []runs.Effect) error {
	var cells [][]string
	calls := 0
	for _, r := range rows {
		calls += r.Times
		note := ""
		if r.Failed > 0 {
			note += fmt.Sprintf(" (%d failed)", r.Failed)
		}
		if r.Unanswered > 0 {
			note += fmt.Sprintf(" (%d without an answer)", r.Unanswered)
		}
		cells = append(cells, []string{text.Elapsed(r.First.Sub(lines[0].Time)), text.Dash(r.Step), strconv.Itoa(r.Times),
			text.Printable(r.Effect) + note})
	}
	text.Table(out, width, []string{"AT", "STEP", "TIMES", "EFFECT"}, cells...)
	_, err := fmt.Fprintf(out, "\n%s", text.Fold(fmt.Sprintf("%d changes of %d kinds; each call, with its failures: %s\n",
		calls, len(rows), path), width))
	return err
}

func newEffectsCommand(c *call) *cobra.Command {
	return c.command("effects [RUN]", groupLook,
		"list what a run changed outside of its process, call by call; default: the last run", withCluster(runEffects))
}
