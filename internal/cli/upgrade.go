package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/operation/upgrade"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/platform"
)

// examinesWithin bounds what --dry-run asks of Hetzner, of both clusters and of every API server.
const examinesWithin = 2 * time.Minute

// upgradeOptions are the flags of upgrade.
type upgradeOptions struct {
	ToSet      string   // version set
	Via        []string // patch releases of Kubernetes to go through
	PauseAfter string   // stage
	InPlace    bool     // Talos, without replacing servers
	Rehearse   string   // backup
	KeepLab    bool     // of a rehearsal
}

func newUpgradeCommand(in *invocation) *cobra.Command {
	var own upgradeOptions
	cmd := in.command("upgrade", groupCluster,
		"upgrade Talos, Kubernetes, the providers and the charts to the configured versions, stage by stage, checking each",
		func(ctx context.Context, c *console, a arguments) error { return runUpgrade(ctx, c, a, own) })
	o := &in.arguments.Options
	addDryRunFlag(cmd, o, "only say which stages it has, what each replaces, and what cannot be undone")
	addSkipDoctorFlag(cmd, o)
	addAcceptFlags(cmd, o)
	flags := cmd.Flags()
	flags.StringVar(&own.ToSet, "to-set", "", "to the versions of the `SET`, whatever else is configured: "+
		strings.Join(setNames(), ", "))
	flags.StringSliceVar(&own.Via, "via", nil, "the patch `RELEASE` of Kubernetes to go through where several minor "+
		"versions are in between, in place of the newest of each")
	flags.StringVar(&own.PauseAfter, "pause-after", "", "end after a `STAGE`; the same command without it does the rest")
	flags.BoolVar(&own.InPlace, "in-place", false, "upgrade Talos to a patch release on the control plane servers that "+
		"there are, one after another, instead of replacing them")
	flags.StringVar(&own.Rehearse, "rehearse", "", "restore the backup `FILE` into a lab of its own, and upgrade it there")
	flags.BoolVar(&own.KeepLab, "keep-lab", false, "with --rehearse: leave the lab up at the end")
	return cmd
}

func setNames() (names []string) {
	for _, s := range config.VersionSets() {
		names = append(names, s.Name)
	}
	return names
}

// runUpgrade brings the cluster to the configured versions.
func runUpgrade(ctx context.Context, c *console, a arguments, o upgradeOptions) error {
	given := a
	a, err := withSet(a, o.ToSet)
	if err != nil {
		return err
	}
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return err
	}
	if err := operations.RefuseWrittenVersions(cfg); err != nil {
		return err
	}
	if o.Rehearse != "" {
		return rehearseUpgrade(ctx, c, a, given, o)
	}
	if a.Options.DryRun {
		return look(ctx, c, a, func(cfg config.Config, tools platform.Tools) error {
			ctx, cancel := context.WithTimeout(ctx, examinesWithin)
			defer cancel()
			x, err := upgrade.Examine(ctx, cfg, tools, upgrade.Options{Via: o.Via, InPlace: o.InPlace}, func(string, ...any) {})
			if err != nil {
				return err
			}
			return printUpgrade(c, cfg, x, a.Options.Output)
		})
	}
	return operate(ctx, c, a, func(ctx context.Context, r *running) error {
		result, err := operations.Upgrade(ctx, r.Session, operations.UpgradeOptions{Via: o.Via, PauseAfter: o.PauseAfter,
			InPlace: o.InPlace, Again: upgradeAgain(given, c.environment, o)}, r.questions())
		if err != nil || !result.Done {
			return err
		}
		return adviseVersions(r, given, result.Examination)
	})
}

// withSet adds the versions of a set to the arguments, but for those that are among them.
func withSet(a arguments, name string) (arguments, error) {
	if name == "" {
		return a, nil
	}
	set, known := config.VersionSetOf(name)
	if !known {
		return a, usage.Errorf("--to-set %s: there is no such version set; there are %s%s", name,
			strings.Join(setNames(), ", "), usage.DidYouMean("", name, setNames()))
	}
	values := slices.Clone(a.Values)
	for _, variable := range slices.Sorted(maps.Keys(set.Versions)) {
		if !slices.ContainsFunc(a.Values, func(v settings.Assignment) bool { return v.Variable.Name == variable }) {
			values = append(values, settings.Assign(variable, set.Versions[variable]))
		}
	}
	a.Values = append(values, settings.Assign("VERSIONS", name))
	return a, nil
}

// upgradeAgain are the words of the command that resumes an upgrade: with the versions that the operator gave to this
// one.
func upgradeAgain(given arguments, environment map[string]string, o upgradeOptions) []string {
	words := []string{"upgrade"}
	if o.ToSet != "" {
		words = append(words, "--to-set", o.ToSet)
	}
	if len(o.Via) > 0 {
		words = append(words, "--via", strings.Join(o.Via, ","))
	}
	if o.InPlace {
		words = append(words, "--in-place")
	}
	versions := upgrade.VersionsOf(config.Defaults())
	for _, v := range config.Variables() {
		if _, is := versions[v.Name]; !is && v.Name != "VERSIONS" {
			continue
		}
		at := slices.IndexFunc(given.Values, func(a settings.Assignment) bool { return a.Variable.Name == v.Name })
		switch value := environment[v.Name]; {
		case at >= 0:
			words = append(words, given.Values[at].Shown())
		case value != "" && o.ToSet == "": // another shell does not have it
			words = append(words, v.Name+"="+value)
		}
	}
	return words
}

// withoutVersions are the arguments without those that are versions.
func withoutVersions(a arguments) arguments {
	versions := upgrade.VersionsOf(config.Defaults())
	a.Values = slices.DeleteFunc(slices.Clone(a.Values), func(v settings.Assignment) bool {
		_, version := versions[v.Variable.Name]
		return version || v.Variable.Name == "VERSIONS"
	})
	return a
}

// adviseVersions says which versions of the configuration are not those of the cluster now, which later runs would
// name.
func adviseVersions(r *running, given arguments, x upgrade.Examination) error {
	cfg, err := loadConfig(withoutVersions(given), r.console.environment)
	if err != nil {
		return err
	}
	configured := upgrade.VersionsOf(cfg.Config)
	var lines []string
	for _, v := range config.Variables() {
		if to, is := x.To[v.Name]; is && configured[v.Name] != to && r.Cfg.Places[v.Field] != settings.LabPlace {
			lines = append(lines, v.Field+": "+to)
		}
	}
	if len(lines) > 0 {
		r.Hub.Note("set in bootstrap.yaml what the cluster has now, or later runs name the difference: %s",
			strings.Join(lines, ", "))
	}
	return nil
}

// printUpgrade prints what an upgrade would do.
func printUpgrade(c *console, cfg config.Config, x upgrade.Examination, output string) error {
	if output == "json" {
		encoder := json.NewEncoder(c.stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(x)
	}
	_, err := fmt.Fprintln(c.stdout, strings.Join(operations.UpgradeLines(cfg, x), "\n"))
	return err
}
