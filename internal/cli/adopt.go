package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/operation/adopt"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/backupfile"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// runAdopt describes a cluster that was created without Slipway in files, and records it in a state folder.
func runAdopt(ctx context.Context, c *call, k session.Cluster) error {
	if !c.DryRun {
		if err := c.refuseUnasked("adopt asks before it reserves the cluster's name",
			"--dry-run only says what would be done"); err != nil {
			return err
		}
	}
	// A wrong key is found before anything is changed.
	if _, err := operations.BackupAccess(k).Seal(ctx, false); err != nil && !backupfile.NoKey(err) {
		return err
	}
	d, err := operations.DescribeCluster(ctx, k)
	if err != nil {
		return err
	}
	described, err := isThere(c)
	if err != nil {
		return err
	}
	if err := c.printLine(d, func(w io.Writer, _ int) error { return printDescription(w, d, described) }); err != nil {
		return err
	}
	own := k.Cfg.Overrides
	f, targets, err := planAdoption(ctx, c, d, described, own)
	if err == nil {
		err = c.printLine(f, f.Print)
	}
	if err != nil || c.DryRun {
		return err
	}
	if !described {
		if err := operations.WriteDescription(operations.Folders{Config: settings.InFolder(c.workDir, "."), Files: own},
			d); err != nil {
			return err
		}
	}
	if k, err = c.load(); err != nil { // with the files that describe the cluster
		return err
	}
	k.Targets = targets
	outliveReaders()
	return k.Do(ctx, c.displays(), func(ctx context.Context, s *session.Session) error {
		if err := s.Connect(ctx); err != nil {
			return err
		}
		b, err := s.Plan()
		if err != nil {
			return err
		}
		result, err := operations.Adopt(ctx, s, b, f, c.questions(s))
		if err != nil {
			return err
		}
		if err := firstBackup(ctx, c, s); err != nil {
			return err
		}
		return conclude(ctx, c, s, result, operations.Outputs{Kubeconfig: b.Plan.Kubeconfig,
			Talosconfig: b.Plan.Talosconfig, Nodes: b.Plan.Nodes, Access: b.Plan.Access})
	})
}

// firstBackup makes the first backup of an adopted cluster, where a key for backups is configured.
func firstBackup(ctx context.Context, c *call, s *session.Session) error {
	const adopted = "cluster %s is this state folder's; \"plan all\" says what a run would still do"
	if _, err := operations.BackupAccess(s.Cluster).Seal(ctx, false); backupfile.NoKey(err) {
		s.Hub.Note(adopted+", and \"backup\" makes its first backup", s.Cfg.ClusterName)
		return nil
	}
	s.Hub.Note(adopted, s.Cfg.ClusterName)
	return backUpInSession(ctx, c, s)
}

// isThere tells whether there is a configuration: then it counts, and none is written.
func isThere(c *call) (bool, error) {
	_, err := os.Stat(settings.InFolder(c.workDir, cmp.Or(c.Config, settings.DefaultConfigFile)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("look for the configuration: %w", err)
	}
	return err == nil, nil
}

// planAdoption predicts an adoption with the files that describe the cluster: without a configuration, with those that
// are about to be written beside the operator's own, in a folder for that.
func planAdoption(ctx context.Context, c *call, d *adopt.Description, described bool, own string) (f forecast.Forecast,
	targets []string, err error) {
	asked, dir := *c, ""
	if !described {
		if dir, err = os.MkdirTemp("", "slipway-adopt-"); err != nil {
			return f, nil, fmt.Errorf("plan the adoption: %w", err)
		}
		defer os.RemoveAll(dir)
		if err := operations.CopyOwnFiles(dir, own); err != nil {
			return f, nil, fmt.Errorf("plan the adoption: %w", err)
		}
		if err := operations.WriteDescription(operations.Folders{Config: dir, Files: dir}, d); err != nil {
			return f, nil, err
		}
		asked.Config, asked.Dir = filepath.Join(dir, settings.DefaultConfigFile), dir
	}
	k, err := asked.load()
	if err != nil {
		return f, nil, err
	}
	f, targets, err = operations.PlanAdoption(ctx, k, d)
	if !described {
		moveFiles(f.Files, dir, own)
	}
	return f, targets, err
}

// moveFiles names files in one folder by the paths that they are to have in another.
func moveFiles(files []render.SourceFile, from, to string) {
	for i := range files {
		if name, err := filepath.Rel(from, files[i].Path); err == nil && filepath.IsLocal(name) {
			files[i].Path = filepath.Join(to, name)
		}
	}
}

func printDescription(w io.Writer, d *adopt.Description, described bool) error {
	manager := "the management cluster at " + d.Manager + " manages it"
	if d.ManagesItself {
		manager = "it manages itself (" + d.Manager + ")"
	}
	fmt.Fprintf(w, "cluster %s: %s\n", d.Cluster, manager)
	for _, f := range d.Files {
		if !described {
			fmt.Fprintf(w, "described in %s: %s\n", f.Path, f.Why)
		}
	}
	for _, n := range d.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	_, err := fmt.Fprintln(w)
	return err
}

func newAdoptCommand(c *call) *cobra.Command {
	cmd := c.command("adopt", groupCluster,
		"take over a cluster that was created without Slipway: describe it in files, and record it without a change",
		withCluster(runAdopt))
	addDryRunFlag(cmd, &c.arguments, "only say what would be written and done")
	addSkipDoctorFlag(cmd, &c.arguments)
	return cmd
}
