package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/slipway-k8s/slipway/internal/kube"
)

// runConfigShow prints every value of the configuration and where it comes from. It
// runs no command for the token and reads no file of one.
func runConfigShow(ctx context.Context, c *console, a arguments) error {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return err
	}
	if a.Options.Lab {
		if _, err := stateOf(ctx, c, a, cfg); err != nil {
			return err
		}
	}
	all := settingsOf(cfg)
	if a.Options.Lab {
		if all, err = settingsInLab(ctx, c, a.Options, cfg); err != nil {
			return err
		}
	}
	all = append(all, secretSettings(c, cfg)...)
	if a.Options.Output == "json" {
		return printJSON(c.stdout, map[string]any{"settings": all})
	}
	unknown := false
	head, rows := []string{"VARIABLE", "IN bootstrap.yaml", "VALUE", "FROM"}, [][]string{}
	for _, s := range all {
		from, value := s.Source, dash(s.Value)
		if s.Unknown {
			value, unknown = "unknown", true
		}
		if s.Default != "" && s.Default != s.Value && !s.Unknown {
			from += " (default " + s.Default + ")"
		}
		rows = append(rows, []string{dash(s.Variable), dash(s.Field), value, printable(from)})
	}
	if width := c.width(); 0 < width && width < wide { // the name in the file is the variable's in other letters
		head = []string{"VARIABLE", "FROM", "VALUE"}
		for i, row := range rows {
			rows[i] = []string{row[0], row[3], row[2]}
		}
	}
	table(c.stdout, c.width(), head, rows...)
	if unknown {
		state := newStateFolder(a.Options.StateDir, cfg.ClusterName, c.workDir)
		_, err = fmt.Fprintf(c.stdout, "\nno lab is up in %s: what it decides is known once it is (%s)\n", state.lab(), commandLine(c, "lab", "up", "--state-dir", string(state)))
	}
	return err
}

// settingsInLab are the values that a run in the lab uses. What only a lab that
// is up can tell is unknown while it is down.
func settingsInLab(ctx context.Context, c *console, o options, cfg configuration) ([]setting, error) {
	info, err := newLab(c, o, newStateFolder(o.StateDir, cfg.ClusterName, c.workDir)).answering(ctx)
	if errors.Is(err, errLabDown) {
		all := settingsOf(cfg)
		for _, d := range decidedInLab(cfg, labInfo{}) {
			i := slices.IndexFunc(all, func(s setting) bool { return s.Variable == d.variable })
			all[i].Value, all[i].Unknown = "", true
			all[i].Source = "the lab, which is down"
		}
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	in, _, err := configInLab(cfg, info)
	if err != nil {
		return nil, err
	}
	before, all := settingsOf(cfg), settingsOf(in)
	for i, s := range all {
		if was := before[i]; s.Source != was.Source && was.Source != "default" {
			all[i].Source += fmt.Sprintf(", in place of %s from %s", was.Value, was.Source)
		}
	}
	return all, nil
}

// secretSettings tell whether there is a secret and who would give it, and
// nothing of the secret. A command may hold one in its arguments.
func secretSettings(c *console, cfg configuration) []setting {
	const hidden = "[hidden]"
	hide := func(value string) string {
		if value == "" {
			return ""
		}
		return hidden
	}
	token := setting{Variable: tokenVariable, Source: "none"}
	switch {
	case c.environment[tokenVariable] != "":
		token.Value, token.Source = hidden, "environment variable "+tokenVariable
	case cfg.tokenFile != "":
		token.Value, token.Source = hidden, tokenFileKey
	case cfg.tokenCommand != "":
		token.Value, token.Source = hidden, tokenCommandKey
	}
	github := setting{Variable: githubVariable, Value: hide(c.environment[githubVariable]), Source: "none"}
	if github.Value != "" {
		github.Source = "environment variable " + githubVariable
	}
	endpoint := setting{Variable: endpointVariable, Value: kube.WithoutCredentials(c.environment[endpointVariable]), Source: "none"}
	if endpoint.Value != "" {
		endpoint.Source = "environment variable " + endpointVariable
	}
	return []setting{
		token,
		{Field: tokenFileKey, Value: cfg.tokenFile, Source: cfg.place(tokenFileKey)},
		{Field: tokenCommandKey, Value: hide(cfg.tokenCommand), Source: cfg.place(tokenCommandKey)},
		github,
		endpoint,
	}
}

// runConfigSchema prints the JSON Schema of bootstrap.yaml.
func runConfigSchema(_ context.Context, c *console, _ arguments) error {
	return printJSON(c.stdout, schemaOfConfig())
}
