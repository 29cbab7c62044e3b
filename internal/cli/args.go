package cli

import (
	"github.com/slipway-k8s/slipway/internal/session"
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
	session.Options
	Output   string // "text", "json", or a form that the target has besides
	Prune    bool   // of image: delete the snapshots that are too many
	Packer   bool   // of image: print the call of Packer
	Abort    bool   // of pivot: put back what was not finished
	DryRun   bool   // only say what would be done
	Identity string // of backup, restore and drill: file with the keys; empty: BACKUP_IDENTITY_FILE
	// Of those that read a backup: take it although it is a plain file, or although nothing shows who made it.
	Unencrypted, Unauthenticated bool
}
