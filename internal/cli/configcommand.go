package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// settingsList is what config show prints as JSON.
type settingsList struct {
	Settings []settings.Setting `json:"settings"`
}

// runConfigShow prints every value of the configuration and where it comes from. It
// runs no command for the token and reads no file of one.
func runConfigShow(ctx context.Context, c *call, k session.Cluster) error {
	all, err := operations.Settings(ctx, k)
	if err != nil {
		return err
	}
	return c.print(settingsList{all}, func(io.Writer, int) error { return printSettings(c, k, all) })
}

func printSettings(c *call, k session.Cluster, all []settings.Setting) (err error) {
	unknown := false
	head, rows := []string{"VARIABLE", "IN bootstrap.yaml", "VALUE", "FROM"}, [][]string{}
	for _, s := range all {
		from, value := s.Source, text.Dash(s.Value)
		if s.Unknown {
			value, unknown = "unknown", true
		}
		if s.Default != "" && s.Default != s.Value && !s.Unknown {
			from += " (default " + s.Default + ")"
		}
		rows = append(rows, []string{text.Dash(s.Variable), text.Dash(s.Field), value, text.Printable(from)})
	}
	if width := c.width(); 0 < width && width < text.Wide { // the name in the file is the variable's in other letters
		head = []string{"VARIABLE", "FROM", "VALUE"}
		for i, row := range rows {
			rows[i] = []string{row[0], row[3], row[2]}
		}
	}
	text.Table(c.stdout, c.width(), head, rows...)
	if unknown {
		state := statedir.New(c.StateDir, k.Cfg.ClusterName, c.workDir)
		err = c.say("\nno lab is up in %s: what it decides is known once it is (%s)", k.LabFolder(state),
			commandLine(c, "lab", "up", "--state-dir", string(state)))
	}
	return err
}

// runConfigSchema prints the JSON Schema of bootstrap.yaml.
func runConfigSchema(_ context.Context, c *call) error {
	return ui.PrintJSON(c.stdout, settings.Schema())
}

func newConfigCommand(c *call) *cobra.Command {
	return c.parent("config", groupConfig, "show the configuration: show, files, schema",
		c.command("show", "", "show every value of the configuration and its source; secrets are hidden",
			withCluster(runConfigShow)),
		newConfigFilesCommand(c),
		c.command("schema", "", "print the JSON Schema of bootstrap.yaml, for editors", runConfigSchema))
}
