package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// settingsList is what config show prints as JSON.
type settingsList struct {
	Settings []settings.Setting `json:"settings"`
}

// runConfigShow prints every value of the configuration and where it comes from. It
// runs no command for the token and reads no file of one.
func runConfigShow(ctx context.Context, c *console, a arguments) error {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return err
	}
	if a.Options.Lab {
		if _, err := c.cluster(a, cfg).LocalState(ctx); err != nil {
			return err
		}
	}
	all := settings.List(cfg)
	if a.Options.Lab {
		if all, err = settingsInLab(ctx, c, a.Options, cfg); err != nil {
			return err
		}
	}
	all = append(all, secretSettings(c, cfg)...)
	if a.Options.Output == "json" {
		return ui.PrintJSON(c.stdout, settingsList{all})
	}
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
		state := statedir.New(a.Options.StateDir, cfg.ClusterName, c.workDir)
		_, err = fmt.Fprintf(c.stdout, "\nno lab is up in %s: what it decides is known once it is (%s)\n",
			c.cluster(a, cfg).LabFolder(state), commandLine(c, "lab", "up", "--state-dir", string(state)))
	}
	return err
}

// settingsInLab are the values that a run in the lab uses. What only a lab that
// is up can tell is unknown while it is down.
func settingsInLab(ctx context.Context, c *console, o options, cfg settings.Configuration) ([]settings.Setting, error) {
	state := statedir.New(o.StateDir, cfg.ClusterName, c.workDir)
	info, err := c.cluster(arguments{Options: o}, cfg).LabToInspect(state).Answering(ctx)
	if errors.Is(err, lab.ErrDown) {
		all := settings.List(cfg)
		for _, d := range lab.Decides(cfg, lab.Info{}) {
			i := slices.IndexFunc(all, func(s settings.Setting) bool { return s.Variable == d.Variable })
			all[i].Value, all[i].Unknown = "", true
			all[i].Source = "the lab, which is down"
		}
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	in, _, err := lab.Configure(cfg, info)
	if err != nil {
		return nil, err
	}
	before, all := settings.List(cfg), settings.List(in)
	for i, s := range all {
		if was := before[i]; s.Source != was.Source && was.Source != "default" {
			all[i].Source += fmt.Sprintf(", in place of %s from %s", was.Value, was.Source)
		}
	}
	return all, nil
}

// secretSettings tell whether there is a secret and who would give it, and
// nothing of the secret. A command may hold one in its arguments.
func secretSettings(c *console, cfg settings.Configuration) []settings.Setting {
	const hidden = "[hidden]"
	hide := func(value string) string {
		if value == "" {
			return ""
		}
		return hidden
	}
	token := settings.Setting{Variable: settings.TokenVariable, Source: "none"}
	switch {
	case c.environment[settings.TokenVariable] != "":
		token.Value, token.Source = hidden, "environment variable "+settings.TokenVariable
	case cfg.TokenFile != "":
		token.Value, token.Source = hidden, settings.TokenFileKey
	case cfg.TokenCommand != "":
		token.Value, token.Source = hidden, settings.TokenCommandKey
	}
	github := settings.Setting{Variable: settings.GithubVariable, Value: hide(c.environment[settings.GithubVariable]),
		Source: "none"}
	if github.Value != "" {
		github.Source = "environment variable " + settings.GithubVariable
	}
	endpoint := settings.Setting{Variable: settings.EndpointVariable,
		Value: kube.WithoutCredentials(c.environment[settings.EndpointVariable]), Source: "none"}
	if endpoint.Value != "" {
		endpoint.Source = "environment variable " + settings.EndpointVariable
	}
	return []settings.Setting{
		token,
		{Field: settings.TokenFileKey, Value: cfg.TokenFile, Source: cfg.Place(settings.TokenFileKey)},
		{Field: settings.TokenCommandKey, Value: hide(cfg.TokenCommand), Source: cfg.Place(settings.TokenCommandKey)},
		github,
		endpoint,
	}
}

// runConfigSchema prints the JSON Schema of bootstrap.yaml.
func runConfigSchema(_ context.Context, c *console, _ arguments) error {
	return ui.PrintJSON(c.stdout, settings.Schema())
}

func newConfigCommand(in *invocation) *cobra.Command {
	return in.parent("config", groupConfig, "show the configuration: show, files, schema",
		newConfigShowCommand(in), newConfigFilesCommand(in), newConfigSchemaCommand(in))
}

func newConfigShowCommand(in *invocation) *cobra.Command {
	return in.command("show", "", "show every value of the configuration and its source; secrets are hidden",
		runConfigShow)
}

func newConfigSchemaCommand(in *invocation) *cobra.Command {
	return in.command("schema", "", "print the JSON Schema of bootstrap.yaml, for editors", runConfigSchema)
}
