// Package drill loses a cluster in a lab of its own, restores it from its backup, and compares the two; it also
// rehearses an upgrade, or another change of the configuration, on what a backup restores.
package drill

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

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

const (
	// writesAfterBackup are what a user writes between the backup and the loss, and loses.
	writesAfterBackup = 8
	// restoreAttempts is how often a drill runs a restore that faults make fail, as a person would.
	restoreAttempts = 5
)

// Options are the choices of a drill, or of the rehearsal of a change.
type Options struct {
	Backup  *operations.OpenedBackup // is restored; nil: that of a cluster which the drill creates
	State   statedir.Dir             // of the cluster: what was applied last is read from it; empty: it is not
	Faults  uint64                   // seed of faults during the restore; 0: none
	KeepLab bool                     // leave its lab up

	// Displays returns what shows the events of one run of the drill. Optional.
	Displays func() []session.Display
	// Part is called before each part of the drill. Optional.
	Part func(report string, number, of int, name, why string)
}

// RehearsalFolder is the state folder of a rehearsal: beside the one that --state-dir names, which is the cluster's,
// unless it is empty.
func RehearsalFolder(k session.Cluster) (statedir.Dir, error) {
	cluster := statedir.New(k.StateDir, k.Cfg.ClusterName, k.Caller.WorkDir)
	if entries, err := os.ReadDir(string(cluster)); err == nil && len(entries) > 0 && k.StateDir != "" {
		k.StateDir = string(cluster) + folderSuffix()
	}
	return Folder(k)
}

// folderSuffix tells the folder of a drill from that of the cluster.
func folderSuffix() string { return ".drill-" + time.Now().UTC().Format("20060102T150405Z") }

// Folder is the state folder of a drill, by default a new one beside those of clusters. It refuses one that holds
// anything.
func Folder(k session.Cluster) (statedir.Dir, error) {
	dir := k.StateDir
	if dir == "" {
		dir = filepath.Join(statedir.StateFolderIn, k.Cfg.ClusterName+folderSuffix())
	}
	state := statedir.New(dir, k.Cfg.ClusterName, k.Caller.WorkDir)
	entries, err := os.ReadDir(string(state))
	switch {
	case err == nil && len(entries) > 0:
		return state, usage.Errorf("%s is not empty: a drill has a state folder of its own; name one that does not exist, "+
			"or none", state)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return state, usage.Errorf("look at the drill's state folder: %w", err)
	}
	return state, nil
}

// Run rehearses the loss of everything in a lab of its own: it creates a cluster, backs it up, deletes its servers,
// restores it, and compares. With Options.Backup it restores that in an empty lab.
func Run(ctx context.Context, k session.Cluster, o Options) (_ Report, err error) {
	d, err := newRun(k, o)
	if err != nil {
		return Report{}, err
	}
	d.report.Kind, d.parts = "drill", 6
	defer func() { err = d.end(ctx, d.report.Passed, err) }()
	if o.Backup != nil {
		d.parts = 2
		err = d.runOnBackup(ctx)
	} else {
		err = d.run(ctx)
	}
	return d.report, err
}

// run is one drill.
type run struct {
	cluster session.Cluster // in the drill's lab
	state   statedir.Dir
	options Options
	parts   int // of them
	report  Report
	lost    time.Time // when
}

func newRun(k session.Cluster, o Options) (d *run, err error) {
	d = &run{cluster: k, options: o}
	if d.state, err = Folder(k); err != nil {
		return nil, err
	}
	caller := *k.Caller // with nothing in its environment that opens or seals other backups: takeOwnKey
	caller.Environment, caller.KeepStateLocal = maps.Clone(caller.Environment), true
	d.cluster.Caller = &caller
	request := &d.cluster.Request
	request.StateDir, request.LabDir, request.Lab, request.Yes = string(d.state), "", true, true
	if request.LabUntil == 0 && !o.KeepLab {
		request.LabUntil = os.Getpid() // also a drill that is killed leaves no lab
	}
	if err := d.cluster.CheckLab(); err != nil {
		return nil, err
	}
	d.report = Report{Cluster: k.Cfg.ClusterName, Began: time.Now().UTC(), Seed: o.Faults}
	return d, nil
}

// endWithin bounds the end of a drill's lab, which Ctrl-C does not cut off.
const endWithin = 2 * time.Minute

// end takes the drill's lab down, whatever became of the drill, and deletes the folder of a drill that has passed: that
// of another one has the logs.
func (d *run) end(ctx context.Context, passed bool, err error) error {
	caller, started := d.cluster.Caller, d.cluster.LabToInspect(d.state)
	if d.options.KeepLab {
		if _, down := started.Answering(context.WithoutCancel(ctx)); errors.Is(down, lab.ErrDown) {
			return err // it ended before its lab was started
		}
		caller.Note("the drill's lab is kept: to look at it: %s; to end it: %s", caller.Command("status"),
			caller.Command("lab", "down"))
		return err
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	if _, downErr := started.Down(ending); downErr != nil {
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
	} else if !passed {
		caller.Note("the drill's lab is down; its logs and state, with the data and keys of the backup, are in %s: delete it "+
			"when you have read them", d.state)
		return nil
	}
	if removeErr := os.RemoveAll(string(d.state)); removeErr != nil {
		return errors.Join(err, fmt.Errorf("remove what the drill left: %w", removeErr))
	}
	return err
}

// run loses a cluster of the operator's own configuration.
func (d *run) run(ctx context.Context) error {
	if err := d.takeOwnKey(); err != nil {
		return err
	}
	var marks *Marks
	var made operations.OpenedBackup
	for _, p := range []struct {
		name, why string
		do        func(context.Context) error
	}{
		{"bootstrap", "the whole first day, with your configuration", d.bootstrap},
		{"mark", "data, a Secret and a service account's token, to be found again",
			func(ctx context.Context) (err error) { marks, err = d.mark(ctx); return err }},
		{"back up", "while a client writes",
			func(ctx context.Context) (err error) { made, err = d.backUp(ctx, marks); return err }},
		{"lose", "every server at once", d.lose},
		{"restore", "out of the backup alone", func(ctx context.Context) error { return d.restore(ctx, made) }},
		{"compare", "with what was there before", func(ctx context.Context) error { return d.compare(ctx, marks) }},
	} {
		if err := d.part(ctx, p.name, p.why, p.do); err != nil {
			return err
		}
	}
	return nil
}

// runOnBackup restores the operator's own backup, with nothing before it.
func (d *run) runOnBackup(ctx context.Context) error {
	if err := d.restoreGiven(ctx); err != nil {
		return err
	}
	source := d.options.Backup.Source
	return d.part(ctx, "compare", "with what the backup says", func(ctx context.Context) (err error) {
		if d.report.Comparisons, err = d.compareBackup(ctx, source); err != nil {
			return err
		}
		d.report.RPO = Loss{Time: d.lost.Sub(source.Contents.Header.Taken)}
		d.report.conclude()
		return nil
	})
}

func (d *run) restoreGiven(ctx context.Context) error {
	d.report.Cluster = d.options.Backup.Source.Contents.Header.Cluster
	return d.part(ctx, "restore", "your backup, in an empty lab", func(ctx context.Context) error {
		d.lost = time.Now()
		given := *d.options.Backup
		given.Source.Copies = true // the cluster may live
		return d.restore(ctx, given)
	})
}

// part runs one part, and keeps how long it took.
func (d *run) part(ctx context.Context, name, why string, do func(context.Context) error) error {
	if context.Cause(ctx) != nil {
		return context.Cause(ctx)
	}
	if d.options.Part != nil {
		d.options.Part(d.report.Kind, len(d.report.Parts)+1, d.parts, name, why)
	}
	began := time.Now()
	err := do(ctx)
	d.report.Parts = append(d.report.Parts, Part{Name: name, Elapsed: time.Since(began)})
	if err != nil {
		return fmt.Errorf("%s, %s: %w", d.report.Kind, name, err)
	}
	return nil
}

// displays are those of one run, with what keeps the ends of its steps.
func (d *run) displays(more ...session.Display) []session.Display {
	if d.options.Displays == nil {
		return more
	}
	return append(d.options.Displays(), more...)
}

// inspect has what asks the drill's cluster.
func (d *run) inspect(ctx context.Context, name, why string, do func(rehearsed, flow.Say) error) error {
	hub := &session.Hub{Run: "drill", Hide: d.cluster.Caller.Hide, Displays: d.displays()}
	defer hub.Close()
	at, err := d.cluster.InspectOnline(ctx)
	if err != nil {
		return err
	}
	return hub.Task(name, why, func(say flow.Say) error { return do(d.rehearsed(at), say) })
}

func (d *run) rehearsed(at session.Inspection) rehearsed {
	return newRehearsed(at.Cfg.Config, at.Tools, d.cluster.Caller.Hide)
}

func (d *run) bootstrap(ctx context.Context) error {
	k := d.cluster
	k.Targets = []string{session.TargetAll}
	if err := k.Validate(ctx); err != nil {
		return err
	}
	return k.Do(ctx, d.displays(), func(ctx context.Context, s *session.Session) error {
		if err := s.Connect(ctx); err != nil {
			return err
		}
		b, err := s.Plan()
		if err != nil {
			return err
		}
		if _, err := s.Bootstrap(ctx, b, session.Questions{}); err != nil {
			return err
		}
		d.report.Bootstrap = time.Since(s.Began)
		for _, prior := range s.PriorSteps { // the lab's own start is no part of a bootstrap
			d.report.Bootstrap -= prior.Elapsed
		}
		return nil
	})
}

func (d *run) mark(ctx context.Context) (marks *Marks, err error) {
	err = d.inspect(ctx, "mark", "what is to be found again", func(p rehearsed, say flow.Say) error {
		marks, err = p.mark(ctx, say)
		return err
	})
	return marks, err
}

// takeOwnKey makes a key for the drill's backup, and has the drill know of no other, so that nothing is asked of a
// password manager.
func (d *run) takeOwnKey() error {
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
	d.cluster.Caller.Hide.Learn(key.String())
	delete(d.cluster.Caller.Environment, settings.PassphraseVariable)
	delete(d.cluster.Caller.Environment, settings.AuthenticationKeyVariable)
	cfg := &d.cluster.Cfg.Config
	cfg.BackupTo, cfg.BackupKeep = d.state.Path("backups"), 0
	cfg.BackupRecipients, cfg.BackupIdentityFile = key.Recipient().String(), file
	cfg.BackupAuthenticationKeyFile, cfg.BackupPassphraseFile, cfg.BackupPassphraseCommand = "", "", ""
	return nil
}

// backUp makes a backup of the cluster while it is written to.
func (d *run) backUp(ctx context.Context, marks *Marks) (made operations.OpenedBackup, err error) {
	hub := &session.Hub{Run: "backup", Hide: d.cluster.Caller.Hide, Displays: d.displays()}
	defer hub.Close()
	at, err := d.cluster.InspectOnline(ctx)
	if err != nil {
		return made, err
	}
	backups, err := operations.NewBackups(ctx, d.cluster, hub, false)
	if err != nil {
		return made, err
	}
	stop, err := d.rehearsed(at).use(ctx, marks)
	if err != nil {
		return made, err
	}
	saved, err := backups.Create(ctx)
	if err := errors.Join(err, stop(writesAfterBackup)); err != nil {
		return made, err
	}
	file := filepath.Join(d.cluster.Cfg.BackupTo, saved.Name)
	return operations.OpenBackup(ctx, d.cluster, operations.OpenOptions{Name: file, Etcd: true})
}

func (d *run) lose(ctx context.Context) error {
	d.lost = time.Now()
	return d.inspect(ctx, "lose", "all servers of the cluster are deleted",
		func(p rehearsed, say flow.Say) error { return p.loseServers(ctx, say) })
}

// restore restores the backup, and again where faults made that fail.
func (d *run) restore(ctx context.Context, from operations.OpenedBackup) error {
	if err := d.addFaults(ctx); err != nil {
		return err
	}
	var ends stepEnds
	var result session.Result
	for {
		d.report.Attempts++
		err := d.operate(ctx, "restore", &ends, func(ctx context.Context, s *session.Session) (err error) {
			_, result, err = operations.Restore(ctx, s, from, session.Questions{})
			return err
		})
		if err == nil {
			break
		}
		if d.report.Seed == 0 || d.report.Attempts == restoreAttempts || errors.Is(err, flow.ErrInterrupted) ||
			errors.As(err, new(*usage.Error)) {
			return err
		}
		d.cluster.Caller.Note("the faults made the restore fail; it is run again, as a person would: %s",
			text.Printable(err.Error()))
	}
	d.report.recover(d.lost, ends.of(result.Report), time.Now())
	return d.countFaults(ctx)
}

// operate runs an operation in a session of its own.
func (d *run) operate(ctx context.Context, name string, ends *stepEnds,
	do func(context.Context, *session.Session) error) error {
	k := d.cluster
	k.Targets = []string{name}
	return k.Operate(ctx, d.displays(ends), do)
}

func (d *run) compare(ctx context.Context, marks *Marks) error {
	return d.inspect(ctx, "compare", "what is there with what was", func(p rehearsed, say flow.Say) (err error) {
		if d.report.Comparisons, err = p.compare(ctx, say, marks); err != nil {
			return err
		}
		surviving, err := p.surviving(ctx, marks)
		if err != nil {
			return err
		}
		d.report.lose(d.lost, marks.Writes, surviving)
		d.report.conclude()
		return nil
	})
}

// compareBackup compares with the backup itself.
func (d *run) compareBackup(ctx context.Context, source backup.Cluster) (found []Comparison, err error) {
	err = d.inspect(ctx, "compare", "what is there with the backup", func(p rehearsed, say flow.Say) error {
		found, err = p.compareBackup(ctx, say, source)
		return err
	})
	return found, err
}

// stepEnds keeps the ends of steps.
type stepEnds struct{ all []flow.Event }

// Event implements session.Display.
func (s *stepEnds) Event(e flow.Event) {
	if e.Kind == flow.StepDone {
		s.all = append(s.all, e)
	}
}

// Close implements session.Display.
func (*stepEnds) Close() {}

// of are the ends of a graph's steps, without those of the work before them.
func (s *stepEnds) of(report *flow.Report) []flow.Event {
	return slices.DeleteFunc(slices.Clone(s.all), func(e flow.Event) bool {
		return report == nil || !slices.ContainsFunc(report.Steps, func(r flow.StepReport) bool { return r.Name == e.Step })
	})
}
