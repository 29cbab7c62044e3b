package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/telemetry"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

const (
	overviewHead = `Talos Linux Kubernetes clusters on Hetzner Cloud, by Cluster API; --lab rehearses on this machine.

Usage: bootstrap [TARGET ...] [KEY=VALUE ...] [--FLAG ...]    without a target it is bootstrap

`
	overviewTail = `
bootstrap help TARGET     more about one target or step, with its flags
bootstrap help steps      what each step ensures; targets that are steps can be combined
bootstrap help flags      the flags of every target
bootstrap help variables  every KEY, as an environment variable and in bootstrap.yaml
Exit codes: 0 done, 1 failed, 2 bad usage or configuration, 130 interrupted; again: it resumes.
`
)

// printOverview prints the help of the command itself, which fits on one screen: a line for each target, the names of
// the steps and the most used flags.
func printOverview(out io.Writer, root *cobra.Command) {
	fmt.Fprint(out, overviewHead)
	for _, group := range root.Groups() {
		var names []string
		for _, cmd := range root.Commands() {
			if cmd.GroupID == group.ID {
				names = append(names, cmd.Name())
			}
		}
		if group.ID == groupOther || group.ID == groupSteps {
			fmt.Fprintf(out, "%-9s  %s\n", group.Title, strings.Join(names, ", "))
			continue
		}
		for i, name := range names {
			title := group.Title
			if i > 0 {
				title = ""
			}
			cmd, _, _ := root.Find([]string{name})
			fmt.Fprintf(out, "%-9s  %-17s %s\n", title, name, inBrief(name, cmd.Short))
		}
	}
	fmt.Fprintln(out, "flags      --lab, --dry-run (-n), --yes, --config FILE, --state-dir DIR, --output json")
	fmt.Fprint(out, overviewTail)
}

// briefDocs are the sentences of commands whose own ones are too long for a line of the overview.
var briefDocs = map[string]string{
	"scale":           "another number of servers, of the control plane or a worker pool",
	"upgrade":         "other versions of Talos, Kubernetes, providers and charts",
	"replace-machine": "a new control plane machine in the place of one",
	targetStatus:      "show the steps, what is missing and why, servers, etcd, cost",
	"plan":            "show what a run would do and why, what it costs, how long it takes",
	"graph":           "draw the steps, what each depends on, and its state",
	"backup":          "back up everything that a restore needs, to one encrypted file",
	"adopt":           "take over a cluster that was created without Slipway",
	"readopt":         "the management of a cluster whose servers live, out of a backup",
	"drill":           "rehearse the loss and the restore of a cluster in a lab of its own",
	"recover-quorum":  "etcd again, where it has lost its quorum and servers live",
}

// inBrief is a command's sentence as far as its line has room for it.
func inBrief(name, doc string) string {
	if brief, has := briefDocs[name]; has {
		return brief
	}
	if len(doc) <= briefDoc {
		return doc
	}
	doc, _, _ = strings.Cut(doc, "; ")
	doc, _, _ = strings.Cut(doc, ": ")
	return doc
}

const briefDoc = 70

// topics are what help is about besides targets, in their order.
func topics() []topic {
	return []topic{
		{"steps", printSteps},
		{"flags", func(out io.Writer, root *cobra.Command) { fmt.Fprint(out, root.Flags().FlagUsages()) }},
		{"variables", func(out io.Writer, _ *cobra.Command) { printVariables(out) }},
	}
}

type topic struct {
	name  string
	print func(io.Writer, *cobra.Command)
}

// printSteps prints what each step ensures.
func printSteps(out io.Writer, root *cobra.Command) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "Targets that are one step, with the steps that it depends on:")
	for _, cmd := range root.Commands() {
		if cmd.GroupID == groupSteps {
			fmt.Fprintf(w, "  %s\t%s\n", cmd.Name(), cmd.Short)
		}
	}
	_ = w.Flush()
}

// printVariables prints the variables that the command reads.
func printVariables(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "Variables, in the environment, as KEY=VALUE, and in camel case in bootstrap.yaml:")
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
