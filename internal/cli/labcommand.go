package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// labOf is the cluster whose lab is asked for, its state folder, and the lab.
func labOf(ctx context.Context, c *call) (k session.Cluster, state statedir.Dir, l *lab.Lab, err error) {
	if k, err = c.load(); err != nil {
		return k, "", nil, err
	}
	if state, err = k.StateForLab(ctx); err != nil {
		return k, state, nil, err
	}
	l, err = k.LabToStart(state)
	return k, state, l, err
}

func runLabUp(ctx context.Context, c *call) error {
	_, _, l, err := labOf(ctx, c)
	if err != nil {
		return err
	}
	return labTask(c, func(say flow.Say) error {
		_, err := l.Up(ctx, say)
		return err
	})
}

func runLabDown(ctx context.Context, c *call) error {
	_, _, l, err := labOf(ctx, c)
	if err != nil {
		return err
	}
	was, err := l.Down(ctx)
	switch {
	case err != nil:
		return err
	case !was:
		return c.say("no lab is up in %s", l.Dir)
	}
	return c.say("the lab in %s is down; its state is kept", l.Dir)
}

// labTask shows work on the lab. It runs to its end even where the reader of the output is gone.
func labTask(c *call, work func(flow.Say) error) error {
	outliveReaders()
	h := c.hub("")
	defer h.Close()
	return h.Task("lab", "asked for", work)
}

func newLabCommand(c *call) *cobra.Command {
	return c.parent("lab", groupLab, "manage the lab: up, status, down, build, save, load, fault",
		c.command("up", "", "start the lab without a run", runLabUp),
		c.command("status", "", "show what runs in the lab, and what of it is real, a stand-in or simulated",
			runLabStatus),
		c.command("down", "", "stop the lab; its state is kept", runLabDown), newLabBuildCommand(c),
		c.command("save FOLDER", "", "copy the running lab with all its state", withCluster(runLabSave)),
		c.command("load FOLDER", "", "start a lab from a folder of lab save", runLabLoad), newLabFaultCommand(c))
}

func newLabBuildCommand(c *call) *cobra.Command {
	var check, prune bool
	cmd := c.command("build", "", "build the lab's programs, or fetch their images",
		func(ctx context.Context, c *call) error {
			_, _, l, err := labOf(ctx, c)
			if err != nil {
				return err
			}
			if check {
				return l.Built(ctx)
			}
			return labTask(c, func(say flow.Say) error { return l.Build(ctx, prune, say) })
		})
	cmd.Flags().BoolVar(&check, "check", false, "say whether the lab's programs are there; build and fetch nothing")
	cmd.Flags().BoolVar(&prune, "prune", false,
		"delete the programs of other versions that no lab runs, and images that no program is of")
	return cmd
}
