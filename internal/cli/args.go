package cli

import (
	"errors"
	"flag"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/settings"
	"github.com/slipway-k8s/slipway/internal/usage"
	"github.com/slipway-k8s/slipway/steps"
)

// arguments is the command line, taken apart. Nothing in it was looked up yet
// but the names of variables.
type arguments struct {
	Targets []string              // as they were written, in their order
	Values  []settings.Assignment // KEY=VALUE, in their order
	Options options

	base    []byte // a configuration to begin with in place of the defaults: a backup's
	workDir string // what relative paths are relative to; empty: the process's own
}

// options are the flags.
type options struct {
	Config     string // path of bootstrap.yaml; empty: the default one, where it exists
	Dir        string // folder of the operator's manifests/ and bootstrap/; empty: that of the configuration file
	Lab        bool
	LabLatency string // "fast" or "real"
	LabImages  string // file with a mapping of images to programs
	LabUntil   int    // process with whose end a lab that is started ends, too; 0: none
	StateDir   string // empty: .slipway/<cluster>
	Yes        bool
	Output     string // "text", "json", or a form that the target has besides
	Parallel   int
	Prune      bool          // of image: delete the snapshots that are too many; of lab build: the programs that no lab uses
	Packer     bool          // of image: print the call of Packer
	Abort      bool          // of pivot: put back what was not finished
	DryRun     bool          // only say what would be done
	Images     bool          // of destroy: the snapshots too
	Volumes    bool          // of destroy: the volumes too
	To         string        // of backup: where; empty: BACKUP_TO
	Keep       int           // of backup: how many stay; 0: BACKUP_KEEP
	Every      time.Duration // of backup: again and again; 0: once
	Plain      bool          // of backup: unencrypted
	Identity   string        // of backup, restore and drill: file with the keys; empty: BACKUP_IDENTITY_FILE
	Since      time.Duration // of logs: how far back; 0: as far as Tail
	Tail       int64         // of logs: lines of each container; below 0: by whether it follows
	NoFollow   bool          // of logs: end behind what is there
	Accept     string        // of readopt: IDs of differences, with commas between
	List       bool          // of report: list the runs
	Out        string        // of report: where; empty: into the folder of the run
	Watch      bool          // of status: again whenever it has changed
	Diagnose   bool          // of restore: only find out what is lost
	Check      bool          // of lab build: tell whether it is built, build nothing
	Backup     string        // of drill: restore this one; empty: of a cluster that the drill makes
	Faults     uint64        // of drill: a seed for faults during the restore; 0: none
	KeepLab    bool          // of drill: leave its lab up
	SkipDoctor bool          // run without the doctor's look
	Help       bool
}

// flags declares the flags over o. It prints nothing by itself.
func flags(o *options) *flag.FlagSet {
	set := flag.NewFlagSet("bootstrap", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&o.Config, "config", "", "read the configuration from `FILE` (default bootstrap.yaml, where it exists)")
	set.StringVar(&o.Dir, "dir", "", "use the folders manifests/ and bootstrap/ in `DIR` (default: those beside the configuration file)")
	set.BoolVar(&o.Lab, "lab", false, "rehearse in the lab: no account, no Docker, no internet")
	set.StringVar(&o.LabLatency, "lab-latency", "fast", "how long things take in the lab: `fast or real`")
	set.StringVar(&o.LabImages, "lab-images", "", "run other programs as the lab's pods: `FILE` with images and executables")
	set.IntVar(&o.LabUntil, "lab-until-gone", 0, "have a lab that is started end when the process `PID` has ended, as a test that it serves")
	set.StringVar(&o.StateDir, "state-dir", "", "keep the journal, kubeconfigs and logs in `DIR` (default .slipway/<cluster>)")
	set.BoolVar(&o.Yes, "yes", false, "do not ask: neither before a run, nor before something is deleted or servers are replaced")
	set.StringVar(&o.Output, "output", "text", "`text or json`: one event a line; graph has more forms")
	set.IntVar(&o.Parallel, "parallel", 0, "run at most `N` steps at once (0: as many as can)")
	set.BoolVar(&o.Prune, "prune", false, "with image: keep the newest available snapshot of the name, delete the others; with lab build: delete the programs of other versions that no lab runs")
	set.BoolVar(&o.Packer, "packer", false, "with image: print the call of Packer that makes the same image")
	set.BoolVar(&o.Abort, "abort", false, "with pivot: put a pivot back that has not deleted anything yet")
	set.BoolVar(&o.DryRun, "dry-run", false, "only say what would be done (see plan); with destroy: what would go and what it costs; with readopt: what differs; with recover-quorum: which member is kept and what is wiped")
	set.BoolVar(&o.DryRun, "n", false, "as --dry-run")
	set.BoolVar(&o.Images, "images", false, "with destroy: delete the snapshots that were made for the cluster, too")
	set.BoolVar(&o.Volumes, "volumes", false, "with destroy: delete the volumes that were made in the cluster, too, with their data")
	set.StringVar(&o.To, "to", "", "with backup: `DIR or s3://bucket/prefix`, in place of BACKUP_TO")
	set.IntVar(&o.Keep, "keep", 0, "with backup: keep the newest `N` of this cluster there, in place of BACKUP_KEEP")
	set.DurationVar(&o.Every, "every", 0, "with backup: go on, with a backup every `6h`")
	set.BoolVar(&o.Plain, "unencrypted", false, "with backup: for everybody to read, with all keys of the cluster in it")
	set.DurationVar(&o.Since, "since", 0, "with logs: begin with what is not older than `10m`")
	set.Int64Var(&o.Tail, "tail", -1, "with logs: begin with the last `N` lines of each container (default 10; all with --since or --no-follow)")
	set.BoolVar(&o.NoFollow, "no-follow", false, "with logs: end behind what has been written so far, in the order of its times")
	set.StringVar(&o.Accept, "accept", "", "with readopt: accept the differences `ID[,ID…]` between backup and cluster, as the list of them names them")
	set.StringVar(&o.Identity, "identity", "", "with backup verify, restore, readopt and drill: open it with the keys in `FILE`, in place of BACKUP_IDENTITY_FILE")
	set.StringVar(&o.Out, "out", "", "with report: write it to `FILE`, not into the folder of the run; with config files: write the built-in files into a folder")
	set.BoolVar(&o.List, "list", false, "with report: list the runs: when, how long, what for, how they ended, how much they changed")
	set.BoolVar(&o.Watch, "watch", false, "with status: show it again whenever it has changed, until Ctrl-C")
	set.BoolVar(&o.Diagnose, "diagnose", false, "with restore: only find out which disaster it is, what to type, and what would be lost; a backup may be named or not")
	set.BoolVar(&o.Check, "check", false, "with lab build: tell whether the lab's programs are built, build nothing")
	set.StringVar(&o.Backup, "backup", "", "with drill: restore the backup `FILE`, in place of one of a cluster that is made for the drill")
	set.Uint64Var(&o.Faults, "faults", 0, "with drill: have things go wrong during the restore; the same `SEED` chooses the same")
	set.BoolVar(&o.KeepLab, "keep-lab", false, "with drill: leave its lab up, to look around")
	set.BoolVar(&o.SkipDoctor, "skip-doctor", false, "do not have the doctor look before a run that makes what costs money")
	set.BoolVar(&o.Help, "help", false, "print this")
	set.BoolVar(&o.Help, "h", false, "print this")
	return set
}

// parseArguments takes the command line apart. Flags may stand anywhere among
// targets and KEY=VALUE. Every error is a usageError.
func parseArguments(args []string) (arguments, error) {
	var a arguments
	set := flags(&a.Options)
	for len(args) > 0 {
		if err := set.Parse(args); err != nil {
			return arguments{}, flagError(err, set)
		}
		args = set.Args()
		if len(args) == 0 {
			break
		}
		word := args[0]
		args = args[1:]
		if t, found := asked(a.Targets); found && strings.Contains(t.optional, "=") {
			a.Targets = append(a.Targets, word) // its own, and no variable's
			continue
		}
		if !strings.Contains(word, "=") {
			if slices.ContainsFunc(steps.Variables(), func(v steps.Variable) bool { return v.Name == word }) {
				return arguments{}, usage.Errorf("%s is a variable, not a target: write %s=value", word, word)
			}
			a.Targets = append(a.Targets, word)
			continue
		}
		value, err := settings.ParseAssignment(word)
		if err != nil {
			return arguments{}, &usage.Error{Err: err}
		}
		a.Values = append(a.Values, value)
	}
	o := a.Options
	switch {
	case o.LabLatency != "fast" && o.LabLatency != "real":
		return arguments{}, usage.Errorf("--lab-latency %q is neither fast nor real", o.LabLatency)
	case o.DryRun && (o.Prune || o.Abort || o.Packer):
		return arguments{}, usage.Errorf("--dry-run does not go with --prune, --abort and --packer")
	case o.Since < 0:
		return arguments{}, usage.Errorf("--since %s is negative: 10m means what is not older than ten minutes", o.Since)
	case o.LabUntil < 0:
		return arguments{}, usage.Errorf("--lab-until-gone %d is no process's id", o.LabUntil)
	case o.Parallel < 0:
		return arguments{}, usage.Errorf("--parallel %d is negative: 0 means as many steps at once as can", o.Parallel)
	}
	if o.Help {
		return a, nil
	}
	return a, errors.Join(checkOutput(a.Targets, o.Output), checkTargets(a.Targets, flagsOf(set)))
}

// flagsOf are the names of the flags that were given.
func flagsOf(set *flag.FlagSet) []string {
	var names []string
	set.Visit(func(f *flag.Flag) { names = append(names, f.Name) })
	return names
}

var unknownFlag = regexp.MustCompile(`^flag provided but not defined: -+(.*)$`)

// flagError says "did you mean" where the flag package only says no.
func flagError(err error, set *flag.FlagSet) error {
	found := unknownFlag.FindStringSubmatch(err.Error())
	if found == nil {
		return usage.Errorf("%s", strings.Replace(err.Error(), " -", " --", 1)) // as the usage text writes flags
	}
	var names []string
	set.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	return usage.Errorf("there is no flag --%s%s", found[1], usage.DidYouMean("--", found[1], names))
}
