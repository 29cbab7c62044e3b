package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/operation/doctor"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/session"
)

// examination is what doctor prints as JSON.
type examination struct {
	Kind   string              `json:"kind"` // "doctor"
	Checks []doctor.Finding    `json:"checks"`
	Failed int                 `json:"failed"` // how many checks
	Files  []render.SourceFile `json:"files"`  // that the cluster is made from
}

// runDoctor examines what a run would meet. It changes nothing.
func runDoctor(ctx context.Context, c *console, a arguments) error {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return err
	}
	k := c.cluster(a, cfg)
	k.NoteLiterals()
	if err := k.CheckRepository(); err != nil {
		return err
	}
	at, err := k.InspectForPlan(ctx)
	if err != nil {
		return err
	}
	if a.Options.Lab && at.Offline != "" {
		return usage.Errorf("%s: start it first", at.Offline)
	}
	b, err := planning.New(at.Cfg.Config, at.Tools)
	if err != nil {
		return &usage.Error{Err: err}
	}
	examiner, err := session.Doctor(ctx, b, at.Folder)
	if err != nil {
		return err
	}
	files, err := render.SourceFiles(at.Cfg.Overrides)
	if err != nil {
		return &usage.Error{Err: err}
	}
	found := session.WithoutSecrets(c.hide, examiner.Examine(ctx))
	unwell := doctor.Count(found, doctor.Failed)
	if a.Options.Output == "json" {
		err = ui.PrintJSON(c.stdout, examination{"doctor", found, unwell, files})
	} else {
		if line := forecast.UsedFiles(files); line != "" {
			fmt.Fprintln(c.stdout, strings.Join(text.Within(text.Printable(line), c.width()-1), "\n"))
		}
		err = printFindings(c.stdout, found, c.width())
	}
	return cmp.Or(err, session.FailedChecks(found))
}

// printFindings prints them, in lines of the terminal's width where there is one.
func printFindings(out io.Writer, found []doctor.Finding, width int) error {
	const taken = len("address-ranges") + len("unknown") + 4 // by the columns before the text
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CHECK\tVERDICT\tWHY")
	for _, f := range found {
		lines := text.Within(text.Printable(f.Reason), width-1-taken)
		if f.Verdict != doctor.OK && f.WayOut != "" {
			lines = append(lines, text.Within("→ "+f.WayOut, width-1-taken)...)
		}
		for i, line := range lines {
			if i == 0 {
				fmt.Fprintf(w, "%s\t%s\t%s\n", f.Check, f.Verdict, line)
			} else {
				fmt.Fprintf(w, "\t\t%s\n", line)
			}
		}
	}
	fmt.Fprintf(w, "\n%d checks: %d ok, %d failed, %d unknown\n", len(found), doctor.Count(found, doctor.OK),
		doctor.Count(found, doctor.Failed), doctor.Count(found, doctor.Unknown))
	return w.Flush()
}

func newDoctorCommand(in *invocation) *cobra.Command {
	return in.command("doctor", groupLook,
		"check whether a bootstrap would succeed: token, project, names, ranges, versions, files, sources", runDoctor)
}
