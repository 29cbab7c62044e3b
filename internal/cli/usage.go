package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/settings"
	"github.com/slipway-k8s/slipway/internal/telemetry"
)

const rootLong = `Bootstrap a Talos Linux Kubernetes cluster on Hetzner Cloud through Cluster API, or rehearse it on this machine.

A journal records every step: run the same command again to resume.
Exit codes: 0 done, 1 failed, 2 bad usage or configuration, 130 interrupted.
Targets that are steps can be combined; without a target it is bootstrap. KEY=VALUE and flags may be anywhere.`

// printVariables prints the variables that the command reads.
func printVariables(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nVariables, in the environment, as KEY=VALUE, and in camel case in bootstrap.yaml:")
	for _, v := range config.Variables() {
		text := v.Doc
		if v.Default != "" {
			text += " (" + v.Default + ")"
		}
		fmt.Fprintf(w, "  %s\t%s\n", v.Name, text)
	}
	fmt.Fprintln(w, "\nOnly in the environment:")
	for _, v := range environmentOnly() {
		fmt.Fprintf(w, "  %s\t%s\n", v.name, v.doc)
	}
	_ = w.Flush()
}

// environmentOnly are the variables that are read from the environment and are no configuration.
func environmentOnly() []explained {
	return []explained{
		{settings.TokenVariable, "the Hetzner Cloud API token (read and write); or name " + settings.TokenFileKey + " or " +
			settings.TokenCommandKey + " in bootstrap.yaml"},
		{settings.PassphraseVariable, "a passphrase that opens backups, in place of BACKUP_PASSPHRASE_FILE and _COMMAND"},
		{settings.AuthenticationKeyVariable, "the key that authenticates the backups of the cluster, in place of " +
			"BACKUP_AUTHENTICATION_KEY_FILE"},
		{settings.GitTokenVariable, "a token that reads the Git repository of GITOPS, in place of GIT_TOKEN_FILE and " +
			"_COMMAND"},
		{settings.StateIdentityVariable, "a secret key that opens the state in STATE, in place of STATE_IDENTITY_FILE"},
		{settings.AccessKeyVariable + ", " + settings.SecretKeyVariable, "the keys of the S3 store of backups or of the state (" +
			settings.SessionVariable + " too, where they are temporary)"},
		{settings.EndpointVariable, "another address of the Hetzner API"},
		{settings.GithubVariable, "a GitHub token: more requests an hour while Cluster API's providers are fetched"},
		{telemetry.Endpoint, "send spans of a run's steps and calls to this OpenTelemetry collector"},
		{settings.LabTokenVariable, "with --lab: in place of the lab's own token, to rehearse a wrong one"},
	}
}
