package cli

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
)

// addSharedFlags declares the flags that go with every command.
func addSharedFlags(root *cobra.Command, o *arguments) {
	set := root.PersistentFlags()
	set.StringVar(&o.Config, "config", "", "read the configuration from `FILE` (default bootstrap.yaml, where it exists)")
	set.StringVar(&o.Dir, "dir", "",
		"use the folders manifests/ and bootstrap/ in `DIR` (default: those beside the configuration file)")
	set.StringVar(&o.VersionsFile, "versions-file", "",
		"take what is known of versions from `FILE`, a newer config/versions.yaml, not from the table inside the command")
	set.BoolVar(&o.Lab, "lab", false, "rehearse in the lab: no account, no Docker, no internet")
	set.StringVar(&o.LabDir, "lab-dir", "",
		"use the lab in `DIR`, which several clusters can share (default: lab in the state folder)")
	set.StringVar(&o.LabLatency, "lab-latency", "fast", "how long things take in the lab: `fast or real`")
	set.StringVar(&o.LabAPI, "lab-api", lab.NewestAPI, "date of the Hetzner API that the lab simulates: `2026-02 or "+
		"2026-11`")
	set.StringVar(&o.LabImages, "lab-images", "",
		"run other programs as the lab's pods: `FILE` with images and executables")
	set.IntVar(&o.LabUntil, "lab-until-gone", 0,
		"end a lab that this run starts when the process `PID`, a test for example, has ended")
	set.StringVar(&o.StateDir, "state-dir", "",
		"keep the journal, kubeconfigs and logs in `DIR` (default .slipway/<cluster>)")
	set.BoolVar(&o.Yes, "yes", false,
		"do not ask: neither before a run, nor before something is deleted or servers are replaced")
	set.StringVar(&o.Output, "output", "text", "`text or json`: one event a line; graph and deps graph have more forms")
	set.IntVar(&o.Parallel, "parallel", 0, "run at most `N` steps at once (0: as many as can)")
	for name, values := range map[string][]string{"lab-latency": {"fast", "real"}, "lab-api": lab.APIDates()} {
		_ = root.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	_ = root.RegisterFlagCompletionFunc("output",
		func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return outputForms(cmd), cobra.ShellCompDirectiveNoFileComp
		})
}

// addRunFlags declares the flags of every run of steps.
func addRunFlags(cmd *cobra.Command, o *arguments) {
	addDryRunFlag(cmd, o, "only say what would be done (see plan)")
	addSkipDoctorFlag(cmd, o)
}

func addDryRunFlag(cmd *cobra.Command, o *arguments, doc string) {
	cmd.Flags().BoolVarP(&o.DryRun, "dry-run", "n", false, doc)
}

func addSkipDoctorFlag(cmd *cobra.Command, o *arguments) {
	cmd.Flags().BoolVar(&o.SkipDoctor, "skip-doctor", false,
		"skip the doctor's checks before a run that creates what costs money")
}

func addIdentityFlag(cmd *cobra.Command, o *arguments) {
	cmd.Flags().StringVar(&o.Identity, "identity", "",
		"open the backup with the keys in `FILE`, in place of BACKUP_IDENTITY_FILE")
}

// addAcceptFlags are those of the commands that take a cluster from a backup.
func addAcceptFlags(cmd *cobra.Command, o *arguments) {
	addIdentityFlag(cmd, o)
	addUnencryptedFlag(cmd, o)
	cmd.Flags().BoolVar(&o.Unauthenticated, "unauthenticated", false, "take the backup although nothing shows who made it: "+
		"its maker decides the configuration, the authorities and the data of the cluster")
}

func addUnencryptedFlag(cmd *cobra.Command, o *arguments) {
	cmd.Flags().BoolVar(&o.Unencrypted, "unencrypted", false, "take the backup although it is a plain file: everyone who "+
		"can write its place may have made it")
}

func addToFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "to", "", "`DIR or s3://bucket/prefix`, in place of BACKUP_TO")
}

func addEveryFlag(cmd *cobra.Command, every *time.Duration, doc string) {
	cmd.Flags().DurationVar(every, "every", 0, doc)
}

// flagOwners are the commands that a flag goes with, and whether it goes with every run of steps.
func flagOwners(root *cobra.Command, name string) (owners []string, ofRuns bool) {
	walk(root, func(cmd *cobra.Command) {
		if cmd.LocalNonPersistentFlags().Lookup(name) == nil &&
			cmd.LocalNonPersistentFlags().ShorthandLookup(short(name)) == nil {
			return
		}
		if cmd == root {
			ofRuns = true
		}
		if _, steps := cmd.Annotations[ofSteps]; !steps || root.LocalNonPersistentFlags().Lookup(name) == nil &&
			root.LocalNonPersistentFlags().ShorthandLookup(short(name)) == nil {
			owners = append(owners, pathOf(cmd))
		}
	})
	slices.Sort(owners)
	return owners, ofRuns
}

// short is a name that can be a flag's short one.
func short(name string) string {
	if len(name) == 1 {
		return name
	}
	return ""
}

// misplacedFlag says which commands a flag goes with that another one was given; nil: there is no such flag.
func misplacedFlag(root *cobra.Command, written, name string) error {
	owners, ofRuns := flagOwners(root, name)
	switch {
	case len(owners) == 0 && ofRuns:
		return usage.Errorf("%s goes with a run of steps, and with nothing else", written)
	case len(owners) == 0:
		return nil
	case ofRuns:
		return usage.Errorf("%s goes with the target %s, and with a run of steps", written, strings.Join(owners, " or "))
	default:
		return usage.Errorf("%s goes with the target %s, and no other", written, strings.Join(owners, " or "))
	}
}

var unknownFlag = regexp.MustCompile(`^unknown (?:flag: --(\S+)|shorthand flag: '(.)' in .*)$`)

// flagError says what a flag goes with, or "did you mean", where cobra only says no.
func flagError(root, cmd *cobra.Command, err error) error {
	found := unknownFlag.FindStringSubmatch(err.Error())
	if found == nil {
		return &usage.Error{Err: err}
	}
	name, written := found[1], "--"+found[1]
	if name == "" {
		name, written = found[2], "-"+found[2]
	}
	if err := misplacedFlag(root, written, name); err != nil {
		return err
	}
	var names []string
	walk(root, func(other *cobra.Command) {
		other.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains(names, f.Name) && (other == root || other == cmd) {
				names = append(names, f.Name)
			}
		})
	})
	return usage.Errorf("there is no flag %s%s", written, usage.DidYouMean("--", name, names))
}
