package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/backupfile"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/backup/source"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/operation/doctor"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/restore"
	"github.com/slipway-k8s/slipway/internal/operation/scale"
	"github.com/slipway-k8s/slipway/internal/operation/upgrade"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// runRestore makes a cluster again, all servers of which are lost.
func runRestore(ctx context.Context, c *console, a arguments, o restoreOptions) error {
	if o.Diagnose {
		return runDiagnose(ctx, c, a)
	}
	if len(a.Targets) < 2 {
		return usage.Errorf("restore needs FILE: write %s; or %s, which only looks", commandLine(c, "restore", "FILE"),
			commandLine(c, "restore", "--diagnose"))
	}
	b, err := openBackup(ctx, c, withIdentity(a), a.Targets[1], true)
	if err != nil {
		return err
	}
	b.source.Copies = o.Copies
	if _, err := restore.New(b.cfg.Config, session.OfflineTools(b.cfg), b.source); err != nil {
		return &usage.Error{Err: err}
	}
	if a.Options.DryRun {
		return predictRestore(ctx, c, b.arguments, b.cfg, b.source)
	}
	return operate(ctx, c, b.arguments, func(ctx context.Context, r *running) error {
		return restoreCluster(ctx, r, b.file, b.source)
	})
}

// predictRestore prints what a restore would do. It changes nothing.
func predictRestore(ctx context.Context, c *console, a arguments, cfg settings.Configuration,
	source source.Backup) error {
	if err := c.cluster(a, cfg).CheckEnvironment(ctx); err != nil {
		return err
	}
	platform.RedirectLibraryLogs(io.Discard)
	state, err := c.cluster(a, cfg).State(ctx)
	if err != nil {
		return err
	}
	at, err := c.cluster(a, cfg).LookAhead(ctx, state)
	if err != nil {
		return err
	}
	tools, offline := at.Tools, at.Offline
	cfg = at.Cfg
	if c.equip != nil {
		c.equip(&tools)
	}
	plan, err := restore.New(cfg.Config, tools, source)
	if err != nil {
		return &usage.Error{Err: err}
	}
	f := forecast.Forecast{Kind: "plan", Cluster: cfg.ClusterName, Environment: a.Options.Environment(), State: string(state),
		Offline: offline}
	if f.Files, err = render.SourceFiles(cfg.Overrides); err != nil {
		return &usage.Error{Err: err}
	}
	if err := predictRestoration(ctx, &f, plan, state); err != nil {
		return err
	}
	return printForecast(c, f, a.Options.Output)
}

// predictRestoration finds out what the rest of a restore would do, from its own journal.
func predictRestoration(ctx context.Context, f *forecast.Forecast, plan *restore.Plan,
	state statedir.Dir) (err error) {
	if f.Offline == "" {
		if f.Losses, err = plan.Losses(ctx, time.Now()); err != nil {
			return err
		}
	}
	journal := flow.Folder(records.RestoreFiles(state.Files()).String())
	return f.Ask(ctx, plan, plan.Graph, journal, plan.All, runs.ReadDurations(state, f.Environment))
}

// openedBackup is a backup that was read to its end, with the arguments and the configuration that it leads to.
type openedBackup struct {
	file      backupfile.File
	source    source.Backup
	arguments arguments
	cfg       settings.Configuration
}

// openBackup reads a backup to its end, so that a damaged file is found before anything is changed; with etcd, it
// restores the etcd snapshot in a scratch folder, too. It says what the file is and who made it, and refuses one that
// is not shown to be the operator's, or not of the cluster that is meant.
func openBackup(ctx context.Context, c *console, a arguments, name string, etcd bool) (b openedBackup, err error) {
	if b.cfg, err = loadConfig(a, c.environment); err != nil {
		return b, err
	}
	b.file = accessTo(c, b.cfg).File(name, backupfile.Accept{Acts: true, Unencrypted: a.Options.Unencrypted,
		Unauthenticated: a.Options.Unauthenticated})
	if etcd {
		b.source.Contents, _, err = b.file.Verify(ctx)
	} else {
		b.source.Contents, err = b.file.Read(ctx, io.Discard)
	}
	if err != nil {
		return b, backupfile.Refusal(ctx, err)
	}
	fmt.Fprintf(c.stderr, "%s: %s\n", text.Printable(name), describe(b.source.Contents))
	if made := b.source.Contents.Header.Environment; made == statedir.EnvironmentLab && !a.Options.Lab {
		return b, usage.Errorf("%s is the backup of a cluster in the lab: nothing of it belongs to a real cluster; with --lab it "+
			"is taken", name)
	}
	b.arguments = a
	b.arguments.base = b.source.Contents.Config
	if b.cfg, err = loadConfig(b.arguments, c.environment); err != nil {
		return b, err
	}
	return b, c.cluster(a, b.cfg).CheckLab()
}

func restoreCluster(ctx context.Context, r *running, file backupfile.File, source source.Backup) error {
	if err := r.RefuseWentOver(ctx); err != nil {
		return err
	}
	if err := r.ExamineFor(ctx, doctor.ForRestore); err != nil {
		return err
	}
	if err := records.PrepareRestore(r.Tools.Files, source); err != nil {
		return err
	}
	if r.options.Lab {
		source = source.Elsewhere(r.Cfg.Config)
	}
	folder := records.RestoreFiles(r.Tools.Files)
	source.Snapshot = folder.Path(records.SnapshotFile)
	plan, err := restore.New(r.Cfg.Config, r.Tools, source)
	if err != nil {
		return &usage.Error{Err: err}
	}
	if err := r.Agree(ctx, r.questions(), func(f *forecast.Forecast) error {
		return predictRestoration(ctx, f, plan, r.Folder)
	}); err != nil {
		return err
	}
	if err := refuseToBegin(ctx, r, plan); err != nil {
		return err
	}
	restored, err := source.Configure(r.Cfg.Config)
	if err != nil {
		return &usage.Error{Err: err}
	}
	if err := r.ProvideKubernetes(ctx, restored.KubernetesVersion); err != nil {
		return err
	}
	if err := r.Hub.Task("backup", "the etcd snapshot, out of the backup", func(say flow.Say) error {
		say("of %s, cluster %s", source.Contents.Header.Taken.Format(time.RFC3339), source.Contents.Header.Cluster)
		return extractSnapshot(ctx, r, file, source.Contents.Snapshot, folder)
	}); err != nil {
		return backupfile.Refusal(ctx, err)
	}
	end := func(files platform.Files) error { // what was begun on the lost cluster is not under way in this one
		return errors.Join(upgrade.End(files), scale.Forget(files), records.EndRestore(files))
	}
	return runRecovery(ctx, r, plan.Graph, plan.All, folder, end, outputs{
		cluster: plan.Cluster, kubeconfig: plan.Kubeconfig, talosconfig: plan.Talos, nodes: plan.Nodes,
	})
}

// refuseToBegin refuses a restore that would be refused by its first step, before the snapshot, which holds every
// secret of the cluster, lies in the folder. One that is under way has it there, and its steps ask.
func refuseToBegin(ctx context.Context, r *running, plan *restore.Plan) error {
	record, err := records.ReadRestore(r.Tools.Files)
	if err != nil || record != nil {
		return err
	}
	_, err = plan.Losses(ctx, time.Now())
	return err
}

// runRecovery runs the graph of a recovery, which has a journal of its own in a folder of its own, ends its record and
// prints the summary.
func runRecovery(
	ctx context.Context, r *running, graph *flow.Graph, targets []string, folder platform.Files,
	end func(platform.Files) error, of outputs,
) error {
	result, err := r.RunGraph(ctx, graph, folder, targets)
	r.Hub.Close()
	if err != nil {
		return err
	}
	if err := end(r.Tools.Files); err != nil {
		return fmt.Errorf("everything is done, but its record cannot be closed: %w", err)
	}
	return conclude(ctx, r, result, of)
}

// extractSnapshot takes the etcd snapshot out of a backup. The name is given to the complete file only.
func extractSnapshot(ctx context.Context, r *running, file backupfile.File, wanted backup.Snapshot,
	folder platform.Files) error {
	if err := os.MkdirAll(folder.String(), 0o700); err != nil {
		return fmt.Errorf("make the folder of the restore: %w", err)
	}
	temporary := folder.Path(records.SnapshotFile + ".new")
	contents, err := file.Extract(ctx, temporary)
	if err == nil && contents.Snapshot != wanted {
		err = errors.Join(errors.New("the file was replaced by another backup since it was read first"), os.Remove(temporary))
	}
	if err != nil {
		return err
	}
	silenced, err := restore.SilenceSnapshot(source.Backup{Contents: contents, Snapshot: temporary})
	switch {
	case err != nil: // the file may be damaged now
		r.Hub.Note("the Cluster API in the snapshot wakes up with it, and is stopped then: %v", err)
		if _, err := file.Extract(ctx, temporary); err != nil {
			return err
		}
	case len(silenced) > 0:
		r.Hub.Note("taken out of the snapshot's copy, because they would create the lost servers again: Deployments %s",
			strings.Join(silenced, ", "))
	}
	return os.Rename(temporary, folder.Path(records.SnapshotFile))
}

// restoreOptions are the flags of restore.
type restoreOptions struct {
	Diagnose bool // only find out what is lost
	Copies   bool // the cluster may live: a rehearsal makes a copy of it in a lab
}

func newRestoreCommand(in *invocation) *cobra.Command {
	var own restoreOptions
	cmd := in.command("restore [FILE]", groupRecovery,
		"the cluster of a backup, after all its servers were lost: same data, same keys; --diagnose only tells what is lost",
		func(ctx context.Context, c *console, a arguments) error {
			return runRestore(ctx, c, a, own)
		})
	o := &in.arguments.Options
	addAcceptFlags(cmd, o)
	addSkipDoctorFlag(cmd, o)
	addDryRunFlag(cmd, o, "only say what would be done")
	cmd.Flags().BoolVar(&own.Diagnose, "diagnose", false,
		"only find out which disaster it is, what to type, and what would be lost; a backup may be named or not")
	return cmd
}
