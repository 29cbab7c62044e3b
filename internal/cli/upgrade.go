package cli

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/operation/upgrade"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// examinesWithin bounds what --dry-run asks of Hetzner, of both clusters and of every API server.
const examinesWithin = 2 * time.Minute

// upgradeOptions are the flags of upgrade.
type upgradeOptions struct {
	ToSet      string   // version set
	Via        []string // patch releases of Kubernetes to go through
	PauseAfter string   // stage
	InPlace    bool     // Talos, without replacing servers
	Abort      bool     // undo the replacement of the first server
	rehearsalOptions
}

const upgradeName = "upgrade"

func newUpgradeCommand(c *call) *cobra.Command {
	var own upgradeOptions
	cmd := c.command(upgradeName, groupCluster,
		"upgrade Talos, Kubernetes, the providers and the charts to the configured versions, stage by stage, checking each",
		func(ctx context.Context, c *call) error { return runUpgrade(ctx, c, own) })
	o := &c.arguments
	addDryRunFlag(cmd, o, "only say which stages it has, what each replaces, and what cannot be undone")
	addSkipDoctorFlag(cmd, o)
	addAcceptFlags(cmd, o)
	flags := cmd.Flags()
	flags.StringVar(&own.ToSet, "to-set", "", "to the versions of the `SET`, whatever else is configured: "+
		strings.Join(config.Shipped().SetNames(), ", "))
	flags.StringSliceVar(&own.Via, "via", nil, "the patch `RELEASE` of Kubernetes to go through where several minor "+
		"versions are in between, in place of the newest of each")
	addPauseAfterFlag(cmd, &own.PauseAfter)
	flags.BoolVar(&own.Abort, "abort", false, "undo the replacement of the first control plane server, by an upgrade "+
		"or by apply: the new server is deleted")
	flags.BoolVar(&own.InPlace, "in-place", false, "upgrade Talos to a patch release on the control plane servers that "+
		"there are, one after another, instead of replacing them")
	own.addFlags(cmd, "upgrade it")
	return cmd
}

// addPauseAfterFlag adds the flag of commands that change the control plane's servers stage by stage.
func addPauseAfterFlag(cmd *cobra.Command, stage *string) {
	cmd.Flags().StringVar(stage, "pause-after", "", "end after a `STAGE`, or after "+upgrade.FirstServer+": the first "+
		"control plane server; the same command without it does the rest")
}

// abortUpgrade undoes what an upgrade, or apply, has done to the first server.
func abortUpgrade(ctx context.Context, c *call, o upgradeOptions) error {
	if o.Rehearse != "" || o.ToSet != "" || o.PauseAfter != "" || o.InPlace || len(o.Via) > 0 {
		return usage.Errorf("--abort goes with no other flag of upgrade")
	}
	k, err := c.load()
	if err != nil {
		return err
	}
	if !c.DryRun {
		return c.operate(ctx, k, func(ctx context.Context, s *session.Session) error {
			_, err := operations.AbortUpgrade(ctx, s, c.questions(s))
			return err
		})
	}
	at, err := k.InspectOnline(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, examinesWithin)
	defer cancel()
	a, err := upgrade.ExamineAbort(ctx, at.Cfg.Config, at.Tools)
	if err != nil {
		return err
	}
	return c.print(a, func(io.Writer, int) error { return c.say("%s", a) })
}

// runUpgrade brings the cluster to the configured versions.
func runUpgrade(ctx context.Context, c *call, o upgradeOptions) error {
	if o.Abort {
		return abortUpgrade(ctx, c, o)
	}
	if err := o.check(c); err != nil {
		return err
	}
	table, err := c.Table(c.workDir)
	if err != nil {
		return err
	}
	set, err := setValues(table, c.Values, o.ToSet)
	if err != nil {
		return err
	}
	if o.ToSet != "" { // what is recorded names the set itself: another release may have a newer one
		named, _ := table.Set(o.ToSet)
		o.ToSet = named.Name
	}
	k, err := c.load(set...)
	if err != nil {
		return err
	}
	if err := operations.RefuseWrittenVersions(k.Cfg); err != nil {
		return err
	}
	if o.Rehearse != "" {
		return rehearseUpgrade(ctx, c, set, o)
	}
	if c.DryRun {
		return predictUpgrade(ctx, c, k, o)
	}
	return c.operate(ctx, k, func(ctx context.Context, s *session.Session) error {
		result, err := operations.Upgrade(ctx, s, operations.UpgradeOptions{Via: o.Via, PauseAfter: o.PauseAfter,
			InPlace: o.InPlace, Again: upgradeAgain(c.Values, c.environment, o)}, c.questions(s))
		if err != nil || !result.Done {
			return err
		}
		return adviseVersions(c, s, result.Examination)
	})
}

// predictUpgrade prints what an upgrade would do.
func predictUpgrade(ctx context.Context, c *call, k session.Cluster, o upgradeOptions) error {
	at, err := k.InspectOnline(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, examinesWithin)
	defer cancel()
	x, err := upgrade.Examine(ctx, at.Cfg.Config, at.Tools, upgrade.Options{Via: o.Via, InPlace: o.InPlace},
		func(string, ...any) {})
	if err != nil {
		return err
	}
	return c.print(x, func(io.Writer, int) error {
		return c.say("%s", strings.Join(operations.UpgradeLines(at.Cfg.Config, x), "\n"))
	})
}

// setValues are the versions of a set, but for those that are given, and the set's name; none where no set is named.
func setValues(table *config.Table, given []settings.Assignment,
	name string) (values []settings.Assignment, err error) {
	if name == "" {
		return nil, nil
	}
	set, known := table.Set(name)
	if !known {
		names := table.SetNames()
		return nil, usage.Errorf("--to-set %s: there is no such version set; there are %s%s", name,
			strings.Join(names, ", "), usage.DidYouMean("", name, names))
	}
	for _, variable := range slices.Sorted(maps.Keys(set.Versions)) {
		if !slices.ContainsFunc(given, func(v settings.Assignment) bool { return v.Variable.Name == variable }) {
			values = append(values, settings.Assign(variable, set.Versions[variable]))
		}
	}
	return append(values, settings.Assign("VERSIONS", set.Name)), nil
}

// upgradeAgain are the words of the command that resumes an upgrade: with the versions that the operator gave to this
// one.
func upgradeAgain(given []settings.Assignment, environment map[string]string, o upgradeOptions) []string {
	words := []string{upgradeName}
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
		at := slices.IndexFunc(given, func(a settings.Assignment) bool { return a.Variable.Name == v.Name })
		switch value := environment[v.Name]; {
		case at >= 0:
			words = append(words, given[at].Shown())
		case value != "" && o.ToSet == "": // another shell does not have it
			words = append(words, v.Name+"="+value)
		}
	}
	return words
}

// withoutVersions are values of the configuration without those that are versions.
func withoutVersions(given []settings.Assignment) []settings.Assignment {
	versions := upgrade.VersionsOf(config.Defaults())
	return slices.DeleteFunc(slices.Clone(given), func(v settings.Assignment) bool {
		_, version := versions[v.Variable.Name]
		return version || v.Variable.Name == "VERSIONS"
	})
}

// adviseVersions says which versions of the configuration are not those of the cluster now, which later runs would
// name.
func adviseVersions(c *call, s *session.Session, x upgrade.Examination) error {
	q := c.Request
	q.Values = withoutVersions(c.Values)
	k, err := session.Load(s.Caller, q)
	if err != nil {
		return err
	}
	configured := upgrade.VersionsOf(k.Cfg.Config)
	var lines []string
	for _, v := range config.Variables() {
		if to, is := x.To[v.Name]; is && configured[v.Name] != to && s.Cfg.Places[v.Field] != settings.LabPlace {
			lines = append(lines, v.Field+": "+to)
		}
	}
	if len(lines) > 0 {
		s.Hub.Note("set in bootstrap.yaml what the cluster has now, or later runs name the difference: %s",
			strings.Join(lines, ", "))
	}
	return nil
}
