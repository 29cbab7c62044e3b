package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/operation/drill"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

const (
	// writesAfterBackup are what a user writes between the backup and the loss, and loses.
	writesAfterBackup = 8
	// restoreAttempts is how often a drill runs a restore that faults make fail, as a person would.
	restoreAttempts = 5
)

// runDrill rehearses the loss of everything in a lab of its own: the same targets
// that a person would ask for, one after another, and a comparison.
func runDrill(ctx context.Context, c *console, a arguments, o drillOptions) (err error) {
	d, err := newDrill(c, a, o)
	if err != nil {
		return err
	}
	defer func() { err = d.end(ctx, err) }()
	if o.Backup != "" {
		err = d.runOnBackup(ctx)
	} else {
		err = d.run(ctx)
	}
	if err != nil {
		return err
	}
	if err := d.report.print(c.stdout, a.Options.Output); err != nil {
		return err
	}
	if !d.report.Passed {
		return errors.New("the drill has failed: what was restored is not what was lost")
	}
	return nil
}

// drillRun is one drill.
type drillRun struct {
	*console           // with nothing in its environment that opens or seals other backups
	given    arguments // of the drill
	options  drillOptions
	state    statedir.Dir
	parts    int // of them
	report   drillReport
	writes   []drill.Write
	lost     time.Time // when
}

// newDrill makes room for a drill. It never works in a folder where anything
// lies.
func newDrill(c *console, a arguments, o drillOptions) (*drillRun, error) {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return nil, err
	}
	if a.Options.StateDir == "" {
		a.Options.StateDir = filepath.Join(statedir.StateFolderIn, cfg.ClusterName+".drill-"+
			time.Now().UTC().Format("20060102T150405Z"))
	}
	state := statedir.New(a.Options.StateDir, cfg.ClusterName, c.workDir)
	if entries, err := os.ReadDir(string(state)); err == nil && len(entries) > 0 {
		return nil, usage.Errorf("%s is not empty: a drill has a state folder of its own; name one that does not exist, or "+
			"none", state)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, usage.Errorf("look at the drill's state folder: %w", err)
	}
	a.Options.Lab = true
	if o.Backup == "" { // else the configuration is the backup's
		if err := c.cluster(a, cfg).CheckLab(); err != nil {
			return nil, err
		}
	}
	own := *c
	own.environment, own.keepStateLocal = maps.Clone(c.environment), true
	d := &drillRun{console: &own, given: a, options: o, state: state, parts: 6,
		report: drillReport{Kind: "drill", Cluster: cfg.ClusterName, Began: time.Now().UTC(), Seed: o.Faults}}
	if o.Backup != "" {
		d.parts = 2
	}
	own.given.Options.StateDir = string(state)
	return d, nil
}

// end takes the drill's lab down, whatever became of the drill, and with a
// drill that passed everything that it left.
func (d *drillRun) end(ctx context.Context, err error) error {
	if d.options.KeepLab {
		fmt.Fprintf(d.stderr, "the drill's lab is kept: to look at it: %s; to end it: %s\n",
			commandLine(d.console, targetStatus), commandLine(d.console, "lab", "down"))
		return err
	}
	// Ctrl-C ends the drill, and not the end of its lab.
	drilled := d.cluster(d.given, settings.Configuration{}).LabToInspect(d.state)
	if _, downErr := drilled.Down(context.WithoutCancel(ctx)); downErr != nil {
		return errors.Join(err, fmt.Errorf("take the drill's lab down: %w; it is in %s", downErr, d.state))
	}
	if interrupted := errors.Is(errors.Join(err, context.Cause(ctx)), flow.ErrInterrupted); interrupted {
		err = &session.InterruptedError{Text: "interrupted: the drill's lab is down, and nothing of the drill is left",
			Err: errors.Join(err, context.Cause(ctx))}
	} else if err != nil {
		if _, statErr := os.Stat(string(d.state)); statErr != nil {
			return err
		}
		return fmt.Errorf("%w\nthe drill's lab is down; its logs and state are in %s, which can be deleted", err, d.state)
	}
	if removeErr := os.RemoveAll(string(d.state)); removeErr != nil {
		return errors.Join(err, fmt.Errorf("remove what the drill left: %w", removeErr))
	}
	return err
}

// run loses a cluster of one's own configuration.
func (d *drillRun) run(ctx context.Context) error {
	if err := d.takeOwnKey(); err != nil {
		return err
	}
	var marks *drill.Marks
	var file string
	for _, p := range []struct {
		name, why string
		do        func(context.Context) error
	}{
		{partBootstrap, "the whole first day, with your configuration",
			func(ctx context.Context) error { return d.bootstrap(ctx) }},
		{"mark", "data, a Secret and a service account's token, to be found again",
			func(ctx context.Context) (err error) { marks, err = d.mark(ctx); return err }},
		{"back up", "while a client writes",
			func(ctx context.Context) (err error) { file, err = d.backUp(ctx, marks); return err }},
		{"lose", "every server at once", func(ctx context.Context) error { return d.lose(ctx) }},
		{partRestore, "out of the backup alone", func(ctx context.Context) error { return d.restore(ctx, file) }},
		{"compare", "with what was there before", func(ctx context.Context) error { return d.compare(ctx, marks) }},
	} {
		if err := d.part(ctx, p.name, p.why, p.do); err != nil {
			return err
		}
	}
	d.report.conclude()
	return nil
}

// runOnBackup restores one's own backup, with nothing before it.
func (d *drillRun) runOnBackup(ctx context.Context) error {
	file := d.options.Backup
	b, err := d.open(ctx, file)
	if err != nil {
		return err
	}
	d.given.base, d.report.Cluster = b.arguments.base, b.Source.Contents.Header.Cluster
	if err := d.part(ctx, partRestore, "your backup, in an empty lab", func(ctx context.Context) error {
		d.lost = time.Now()
		return d.restore(ctx, file)
	}); err != nil {
		return err
	}
	return d.part(ctx, "compare", "with what the backup says",
		func(ctx context.Context) error { return d.compareBackup(ctx, b.Source) })
}

// open reads the backup that is rehearsed. It goes into a lab, whatever it is of.
func (d *drillRun) open(ctx context.Context, file string) (openedBackup, error) {
	a := withIdentity(d.given)
	a.Options.Lab = true
	return openBackup(ctx, d.console, a, file, false)
}

// part runs one part, under a heading, and keeps how long it took.
func (d *drillRun) part(ctx context.Context, name, why string, do func(context.Context) error) error {
	if context.Cause(ctx) != nil {
		return context.Cause(ctx)
	}
	if d.given.Options.Output == "text" {
		fmt.Fprintf(d.stdout, "\n%s, %d of %d: %s: %s\n", d.report.Kind, len(d.report.Parts)+1, d.parts, name, why)
	}
	began := time.Now()
	err := do(ctx)
	d.report.Parts = append(d.report.Parts, drillPart{Name: name, Elapsed: time.Since(began)})
	if err != nil {
		return fmt.Errorf("%s, %s: %w", d.report.Kind, name, err)
	}
	return nil
}

// arguments are those of a target that runs in the drill's lab.
func (d *drillRun) arguments(words ...string) arguments {
	g := d.given.Options
	until := g.LabUntil
	if until == 0 && !d.options.KeepLab {
		until = os.Getpid() // also a drill that is killed leaves no lab
	}
	return arguments{
		Targets: words, Values: d.given.Values, base: d.given.base, workDir: d.given.workDir,
		Options: options{
			Options: session.Options{
				Config: g.Config, Dir: g.Dir, Lab: true, LabLatency: g.LabLatency, LabAPI: g.LabAPI,
				LabImages: g.LabImages, LabUntil: until,
				StateDir: string(d.state),
				Yes:      true, Parallel: g.Parallel, SkipDoctor: g.SkipDoctor,
			},
			Output: g.Output, Identity: g.Identity, Unencrypted: g.Unencrypted, Unauthenticated: g.Unauthenticated,
		},
	}
}

// watched is the command with what a part's runs tell kept, in place of their
// summaries.
func (d *drillRun) watched(w *watcher) *console {
	c := *d.console
	c.watch = w
	return &c
}

func (d *drillRun) bootstrap(ctx context.Context) error {
	var w watcher
	if err := runTargets(ctx, d.watched(&w), d.arguments(targetAll)); err != nil {
		return err
	}
	// The lab's own start is no part of a bootstrap.
	d.report.Bootstrap = w.summary.Elapsed
	for _, s := range w.summary.Steps {
		if s.Name == "lab" {
			d.report.Bootstrap -= s.Elapsed
		}
	}
	return nil
}

// looking has the operations on the drill's cluster.
func (d *drillRun) looking(ctx context.Context, name, why string, do func(drill.Drill, flow.Say) error) error {
	a := d.arguments()
	h := &session.Hub{Run: "drill", Hide: d.hide, Displays: []session.Display{newDisplay(d.console, a.Options)}}
	defer h.Close()
	return look(ctx, d.console, a, func(cfg config.Config, tools platform.Tools) error {
		o := drill.NewDrill(cfg, tools)
		return h.Task(name, why, func(say flow.Say) error { return do(o, say) })
	})
}

func (d *drillRun) mark(ctx context.Context) (marks *drill.Marks, err error) {
	err = d.looking(ctx, "mark", "what is to be found again", func(o drill.Drill, say flow.Say) error {
		marks, err = o.Mark(ctx, say)
		return err
	})
	return marks, err
}

// takeOwnKey makes a key for the drill's backup and has its commands know of no
// other, so that nothing is asked of a password manager.
func (d *drillRun) takeOwnKey() error {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(d.state), 0o700); err != nil {
		return fmt.Errorf("make the drill's state folder: %w", err)
	}
	file := d.state.Path("drill.key")
	if err := os.WriteFile(file, []byte(key.String()+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the key of the drill's backup: %w", err)
	}
	d.hide.Learn(key.String())
	delete(d.environment, settings.PassphraseVariable)
	delete(d.environment, settings.AuthenticationKeyVariable)
	d.given.Options.Identity = ""
	d.given.Values = slices.Concat(d.given.Values, []settings.Assignment{
		settings.Assign("BACKUP_TO", d.state.Path("backups")), settings.Assign("BACKUP_KEEP", "0"),
		settings.Assign("BACKUP_RECIPIENTS", key.Recipient().String()), settings.Assign("BACKUP_IDENTITY_FILE", file),
		settings.Assign("BACKUP_AUTHENTICATION_KEY_FILE", ""), settings.Assign("BACKUP_PASSPHRASE_FILE", ""),
		settings.Assign("BACKUP_PASSPHRASE_COMMAND", ""),
	})
	return nil
}

// backUp makes a backup of the cluster in use.
func (d *drillRun) backUp(ctx context.Context, marks *drill.Marks) (file string, err error) {
	err = look(ctx, d.console, d.arguments(), func(cfg config.Config, tools platform.Tools) error {
		stop, err := drill.NewDrill(cfg, tools).Use(ctx, marks)
		if err != nil {
			return err
		}
		err = runBackup(ctx, d.console, d.arguments("backup"), backupOptions{})
		return errors.Join(err, stop(writesAfterBackup))
	})
	if err != nil {
		return "", err
	}
	d.writes = marks.Writes
	folder := backup.Folder(d.state.Path("backups"))
	all, err := folder.List(ctx)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%d backups are in %s instead of one", len(all), folder)
	}
	if err != nil {
		return "", err
	}
	return filepath.Join(string(folder), all[0].Name), nil
}

func (d *drillRun) lose(ctx context.Context) error {
	d.lost = time.Now()
	return d.looking(ctx, "lose", "all servers of the cluster are deleted",
		func(o drill.Drill, say flow.Say) error { return o.LoseServers(ctx, say) })
}

// restore runs the target, and again where faults made it fail.
func (d *drillRun) restore(ctx context.Context, file string) error {
	var w watcher
	if err := d.addFaults(ctx); err != nil {
		return err
	}
	a := d.arguments("restore", file)
	for {
		d.report.Attempts++
		err := runRestore(ctx, d.watched(&w), a, restoreOptions{Copies: d.options.Backup != ""})
		if err == nil {
			break
		}
		if d.report.Seed == 0 || d.report.Attempts == restoreAttempts || errors.Is(err, flow.ErrInterrupted) ||
			exitCode(err) == ExitUsage {
			return err
		}
		fmt.Fprintf(d.stderr, "the faults made the restore fail; it is run again, as a person would: %s\n",
			d.hide.Text(text.Printable(err.Error())))
	}
	d.report.recover(d.lost, w.events, time.Now())
	return d.countFaults(ctx)
}

func (d *drillRun) compare(ctx context.Context, marks *drill.Marks) error {
	return d.looking(ctx, "compare", "what is there with what was", func(o drill.Drill, say flow.Say) (err error) {
		if d.report.Comparisons, err = o.Compare(ctx, say, marks); err != nil {
			return err
		}
		surviving, err := o.Surviving(ctx, marks)
		if err == nil {
			d.report.lose(d.lost, d.writes, surviving)
		}
		return err
	})
}

// compareBackup compares with the backup itself.
func (d *drillRun) compareBackup(ctx context.Context, source backup.Cluster) error {
	return d.looking(ctx, "compare", "what is there with the backup", func(o drill.Drill, say flow.Say) (err error) {
		if d.report.Comparisons, err = o.CompareBackup(ctx, say, source); err != nil {
			return err
		}
		d.report.RPO = drillLoss{Time: d.lost.Sub(source.Contents.Header.Taken)}
		d.report.conclude()
		return nil
	})
}

// drillOptions are the flags of drill.
type drillOptions struct {
	Backup  string // restore this one; empty: of a cluster that the drill makes
	Faults  uint64 // a seed for faults during the restore; 0: none
	KeepLab bool   // leave its lab up
}

func newDrillCommand(in *invocation) *cobra.Command {
	var own drillOptions
	cmd := in.command("drill", groupRecovery,
		"lose everything in a lab of its own and get it back: what came back, how long it took, how much was lost",
		func(ctx context.Context, c *console, a arguments) error {
			return runDrill(ctx, c, a, own)
		})
	o := &in.arguments.Options
	addAcceptFlags(cmd, o)
	cmd.Flags().StringVar(&own.Backup, "backup", "",
		"restore the backup `FILE`, in place of one of a cluster that is created for the drill")
	cmd.Flags().Uint64Var(&own.Faults, "faults", 0,
		"have things go wrong during the restore; the same `SEED` chooses the same")
	cmd.Flags().BoolVar(&own.KeepLab, "keep-lab", false, "leave its lab up, to look around")
	return cmd
}
