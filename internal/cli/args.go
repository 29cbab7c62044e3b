package cli

import (
	"github.com/slipway-k8s/slipway/internal/state/settings"
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

// options are the flags of several commands. Those of one are in a type of its own.
type options struct {
	Config     string // path of bootstrap.yaml; empty: the default one, where it exists
	Dir        string // folder of the operator's manifests/ and bootstrap/; empty: that of the configuration file
	Lab        bool
	LabLatency string // "fast" or "real"
	LabAPI     string // date of the simulated Hetzner API: lab.APIDates
	LabImages  string // file with a mapping of images to programs
	LabDir     string // folder of the lab; empty: in the state folder
	LabUntil   int    // process with whose end a lab that is started ends, too; 0: none
	StateDir   string // empty: .slipway/<cluster>
	Yes        bool
	Output     string // "text", "json", or a form that the target has besides
	Parallel   int
	Prune      bool   // of image: delete the snapshots that are too many
	Packer     bool   // of image: print the call of Packer
	Abort      bool   // of pivot: put back what was not finished
	DryRun     bool   // only say what would be done
	Identity   string // of backup, restore and drill: file with the keys; empty: BACKUP_IDENTITY_FILE
	// Of those that read a backup: take it although it is a plain file, or although nothing shows who made it.
	Unencrypted, Unauthenticated bool

	SkipDoctor bool // run without the doctor's look
}
