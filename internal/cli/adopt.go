package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/operation/adopt"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// runAdopt describes a cluster that was created without Slipway in files, and records it in a state folder.
func runAdopt(ctx context.Context, c *call) error {
	k, err := c.load()
	if err != nil {
		return err
	}
	if !c.DryRun {
		if err := c.refuseUnasked("adopt asks before it reserves the cluster's name", "--dry-run only says what would be done"); err != nil {
			return err
		}
	}
	d, err := operations.DescribeCluster(ctx, k)
	if err != nil {
		return err
	}
	written, done, err := writeDescription(c, k, d)
	if err != nil {
		return err
	}
	defer done()
	if err := c.printLine(d, func(w io.Writer, _ int) error { return printDescription(w, d, written) }); err != nil {
		return err
	}
	if k, err = c.load(); err != nil { // with the files that describe the cluster
		return err
	}
	f, targets, err := operations.PlanAdoption(ctx, k, d)
	if err != nil || c.DryRun {
		return errors.Join(err, c.printLine(f, f.Print))
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
		result, err := s.Bootstrap(ctx, b, c.questions(s))
		if err != nil {
			return err
		}
		s.Hub.Note("cluster %s is this state folder's; \"plan all\" says what a run would still do, and \"backup\" makes its "+
			"first backup", d.Cluster)
		return conclude(ctx, c, s, result, operations.Outputs{Kubeconfig: b.Plan.Kubeconfig,
			Talosconfig: b.Plan.Talosconfig, Nodes: b.Plan.Nodes, Access: b.Plan.Access})
	})
}

// writeDescription writes the files that describe a cluster, unless there is a configuration already, which then
// counts. With --dry-run they are written to a folder of their own, which done removes.
func writeDescription(c *call, k session.Cluster, d *adopt.Description) (written bool, done func(), err error) {
	done = func() {}
	config := settings.InFolder(c.workDir, settings.DefaultConfigFile)
	if c.Config != "" {
		config = settings.InFolder(c.workDir, c.Config)
	}
	if _, err := os.Stat(config); err == nil {
		return false, done, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, done, fmt.Errorf("look for the configuration: %w", err)
	}
	folders := operations.Folders{Config: settings.InFolder(c.workDir, "."), Files: k.Cfg.Overrides}
	if c.DryRun {
		dir, err := os.MkdirTemp("", "slipway-adopt-")
		if err != nil {
			return false, done, err
		}
		done = func() { _ = os.RemoveAll(dir) }
		folders = operations.Folders{Config: dir, Files: dir}
		c.Config, c.Dir = settings.InFolder(dir, settings.DefaultConfigFile), dir
	}
	return !c.DryRun, done, operations.WriteDescription(folders, d)
}

func printDescription(w io.Writer, d *adopt.Description, written bool) error {
	manager := "the management cluster at " + d.Manager + " manages it"
	if d.ManagesItself {
		manager = "it manages itself (" + d.Manager + ")"
	}
	fmt.Fprintf(w, "cluster %s: %s\n", d.Cluster, manager)
	for _, f := range d.Files {
		verb := "described by"
		if written {
			verb = "written"
		}
		fmt.Fprintf(w, "%s: %s (%s)\n", verb, f.Path, f.Why)
	}
	for _, n := range d.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	_, err := fmt.Fprintln(w)
	return err
}

func newAdoptCommand(c *call) *cobra.Command {
	cmd := c.command("adopt", groupRecovery,
		"take over a cluster that was created without Slipway: describe it in files, and record it without a change", runAdopt)
	addDryRunFlag(cmd, &c.arguments, "only say what would be written and done")
	addSkipDoctorFlag(cmd, &c.arguments)
	return cmd
}
