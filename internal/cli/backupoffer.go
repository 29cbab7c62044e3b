package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/slipway-k8s/slipway/internal/session"
)

// offerBackup asks the operator whether to back the cluster up before something that cannot be undone. Where the
// operator cannot be asked, or no key for a backup is configured, it says how to make one. With --yes it is silent. A
// backup that fails ends the run; a no does not.
func offerBackup(ctx context.Context, r *running, danger string) error {
	a := r.arguments
	if r.options.Yes {
		return nil
	}
	if _, err := r.Tools.Files.Read("kubeconfig"); errors.Is(err, fs.ErrNotExist) {
		return nil // there is no cluster yet
	}
	_, unsealed := accessTo(r.console, r.Cfg).Seal(ctx, false)
	if unsealed != nil || r.console.width() == 0 || !canPrompt(r.console) || r.options.Output != "text" {
		r.Hub.Note("%s: the target backup writes a backup first (docs/backup.md)", danger)
		return nil
	}
	question := fmt.Sprintf("%s. Back cluster %s up to %s first? [yes/no] ", danger, r.Cfg.ClusterName, r.Cfg.BackupTo)
	if err := confirm(ctx, r.console, question, "yes"); errors.Is(err, errNotConfirmed) {
		return nil
	} else if err != nil {
		return err
	}
	o := a.Options
	return runBackup(ctx, r.console, arguments{
		Targets: []string{"backup"}, Values: a.Values,
		Options: options{Options: session.Options{Config: o.Config, Lab: o.Lab, LabLatency: o.LabLatency, LabAPI: o.LabAPI,
			StateDir: o.StateDir}, Output: o.Output},
	}, backupOptions{})
}
