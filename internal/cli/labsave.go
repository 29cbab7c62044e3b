package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/provider/local"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// runLabLoad makes a state folder of one that lab save made, and starts the lab on it.
func runLabLoad(ctx context.Context, c *call) error {
	k, state, l, err := labOf(ctx, c)
	if err != nil {
		return err
	}
	from := filepath.Clean(settings.InFolder(c.workDir, c.word(2)))
	about, err := lab.ReadSaved(from)
	if err != nil {
		return err
	}
	if about.Cluster != k.Cfg.ClusterName {
		return usage.Errorf("%s holds the cluster %s, not %s: write %s", from, about.Cluster, k.Cfg.ClusterName,
			commandLineFor(c, about.Cluster, "lab", "load", c.word(2)))
	}
	if err := l.MakeRoom(ctx, state, c.Yes); err != nil {
		return err
	}
	if err := lab.CheckAddress(ctx, about.Endpoint); err != nil {
		return err
	}
	return labTask(c, func(say flow.Say) error {
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
func runLabSave(ctx context.Context, c *call, k session.Cluster) error {
	state, err := k.StateForLab(ctx)
	if err != nil {
		return err
	}
	to := filepath.Clean(settings.InFolder(c.workDir, c.word(2)))
	if err := lab.CheckSaveFolder(to, state); err != nil {
		return err
	}
	if local.New(lab.LocalManagement{Dir: state.Path(session.ManagementFolder)}, nil).Running(ctx) {
		return usage.Errorf("the local management cluster of %s runs outside of the lab and cannot be saved with it: "+
			"save before kind-create, or after clean", state)
	}
	return labTask(c, func(say flow.Say) error {
		return k.LabToInspect(state).Save(ctx, state, k.Cfg.ClusterName, to, say)
	})
}
