package cli

import (
	"time"

	"github.com/slipway-k8s/slipway/internal/settings"
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
}
