package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/provider/local"
	"github.com/slipway-k8s/slipway/internal/session"
)

// labOf is the lab of the state folder that the arguments name.
func labOf(ctx context.Context, c *console, a arguments) (*lab.Lab, error) {
	cfg, state, err := labConfigAndState(ctx, c, a)
	if err != nil {
		return nil, err
	}
	return c.cluster(a, cfg).LabToStart(state)
}

func runLabUp(ctx context.Context, c *console, a arguments) error {
	l, err := labOf(ctx, c, a)
	if err != nil {
		return err
	}
	return labTask(c, a.Options, func(say flow.Say) error {
		_, err := l.Up(ctx, say)
		return err
	})
}

func runLabBuild(ctx context.Context, c *console, a arguments, o labBuildOptions) error {
	l, err := labOf(ctx, c, a)
	if err != nil {
		return err
	}
	if o.Check {
		return l.Built(ctx)
	}
	return labTask(c, a.Options, func(say flow.Say) error { return l.Build(ctx, o.Prune, say) })
}

func runLabDown(ctx context.Context, c *console, a arguments) error {
	l, err := labOf(ctx, c, a)
	if err != nil {
		return err
	}
	was, err := l.Down(ctx)
	if err != nil {
		return err
	}
	if !was {
		fmt.Fprintf(c.stdout, "no lab is up in %s\n", l.Dir)
		return nil
	}
	fmt.Fprintf(c.stdout, "the lab in %s is down; its state is kept\n", l.Dir)
	return nil
}

// labTask shows work on the lab. It runs to its end even where the reader of the output is gone.
func labTask(c *console, o options, work func(flow.Say) error) error {
	outliveReaders()
	h := &session.Hub{Hide: c.hide, Displays: []session.Display{newDisplay(c, o)}}
	defer h.Close()
	return h.Task("lab", "asked for", work)
}

// runLabLoad makes a state folder of one that lab save made, and starts the lab on
// it.
func runLabLoad(ctx context.Context, c *console, a arguments) error {
	cfg, state, err := labConfigAndState(ctx, c, a)
	if err != nil {
		return err
	}
	from := absolute(c, a.Targets[2])
	about, err := lab.ReadSaved(from)
	if err != nil {
		return err
	}
	if about.Cluster != cfg.ClusterName {
		return usage.Errorf("%s holds the cluster %s, not %s: write %s", from, about.Cluster, cfg.ClusterName,
			commandLineFor(c, about.Cluster, "lab", "load", a.Targets[2]))
	}
	l, err := c.cluster(a, cfg).LabToStart(state)
	if err != nil {
		return err
	}
	if err := l.MakeRoom(ctx, state, a.Options.Yes); err != nil {
		return err
	}
	if err := lab.CheckAddress(ctx, about.Endpoint); err != nil {
		return err
	}
	return labTask(c, a.Options, func(say flow.Say) error {
		began := time.Now()
		sum, err := lab.LoadState(ctx, state, from)
		if err != nil {
			return fmt.Errorf("load the lab: %w", err)
		}
		say("loaded %s: %d files, %d MB in %s", from, sum.Files, sum.Bytes>>20, time.Since(began).Round(time.Millisecond))
		_, err = l.Up(ctx, say)
		return err
	})
}

// runLabSave copies the whole state folder with the lab in it, which is stopped for that time and then continues.
func runLabSave(ctx context.Context, c *console, a arguments) error {
	cfg, state, err := labConfigAndState(ctx, c, a)
	if err != nil {
		return err
	}
	to := absolute(c, a.Targets[2])
	if err := lab.CheckSaveFolder(to, state); err != nil {
		return err
	}
	if local.New(lab.LocalManagement{Dir: state.Path(session.ManagementFolder)}, nil).Running(ctx) {
		return usage.Errorf("the local management cluster of %s runs outside of the lab and cannot be saved with it: "+
			"save before kind-create, or after clean", state)
	}
	l := c.cluster(a, cfg).LabToInspect(state)
	return labTask(c, a.Options, func(say flow.Say) error { return l.Save(ctx, state, cfg.ClusterName, to, say) })
}

func absolute(c *console, path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.workDir, path)
	}
	return filepath.Clean(path)
}

func newLabCommand(in *invocation) *cobra.Command {
	return in.parent("lab", groupLab, "manage the lab: up, status, down, build, save, load, fault",
		newLabUpCommand(in), newLabStatusCommand(in), newLabDownCommand(in), newLabBuildCommand(in),
		newLabSaveCommand(in), newLabLoadCommand(in), newLabFaultCommand(in))
}

func newLabUpCommand(in *invocation) *cobra.Command {
	return in.command("up", "", "start the lab without a run", runLabUp)
}

func newLabDownCommand(in *invocation) *cobra.Command {
	return in.command("down", "", "stop the lab; its state is kept", runLabDown)
}

// labBuildOptions are the flags of lab build.
type labBuildOptions struct {
	Check bool // tell whether it is built, build nothing
	Prune bool // the programs that no lab uses
}

func newLabBuildCommand(in *invocation) *cobra.Command {
	var own labBuildOptions
	cmd := in.command("build", "", "build the lab's programs, or fetch their images", func(ctx context.Context, c *console,
		a arguments) error {
		return runLabBuild(ctx, c, a, own)
	})
	cmd.Flags().BoolVar(&own.Check, "check", false, "say whether the lab's programs are there; build and fetch nothing")
	cmd.Flags().BoolVar(&own.Prune, "prune", false,
		"delete the programs of other versions that no lab runs, and images that no program is of")
	return cmd
}

func newLabSaveCommand(in *invocation) *cobra.Command {
	return in.command("save FOLDER", "", "copy the running lab with all its state", runLabSave)
}

func newLabLoadCommand(in *invocation) *cobra.Command {
	return in.command("load FOLDER", "", "start a lab from a folder of lab save", runLabLoad)
}
