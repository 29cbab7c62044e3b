package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/settings"
	"github.com/slipway-k8s/slipway/internal/telemetry"
)

const rootLong = `Make a Talos Linux Kubernetes cluster on Hetzner Cloud through Cluster API, or rehearse it on this machine.

What is done is kept in a journal: run the same command again to go on.
Exit codes: 0 done, 1 failed, 2 bad usage or configuration, 130 interrupted.
Targets that stand for steps can be asked for together, without one: bootstrap. KEY=VALUE and flags may stand anywhere.`

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
	fmt.Fprintf(w, "  %s\tthe Hetzner Cloud API token (read and write); or name %s or %s in bootstrap.yaml\n",
		settings.TokenVariable, settings.TokenFileKey, settings.TokenCommandKey)
	fmt.Fprintf(w, "  %s\ta passphrase that opens backups, in place of BACKUP_PASSPHRASE_FILE and _COMMAND\n", settings.PassphraseVariable)
	fmt.Fprintf(w, "  %s, %s\tthe keys of the S3 store that backups go to (%s too, where they are temporary)\n",
		settings.AccessKeyVariable, settings.SecretKeyVariable, settings.SessionVariable)
	fmt.Fprintf(w, "  %s\tanother address of the Hetzner API\n", settings.EndpointVariable)
	fmt.Fprintf(w, "  %s\ta GitHub token: more requests an hour while Cluster API's providers are fetched\n", settings.GithubVariable)
	fmt.Fprintf(w, "  %s\tsend spans of a run's steps and calls to this OpenTelemetry collector\n", telemetry.Endpoint)
	fmt.Fprintf(w, "  %s\twith --lab: in place of the lab's own token, to rehearse a wrong one\n", settings.LabTokenVariable)
	_ = w.Flush()
}
