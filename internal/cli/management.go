package cli

import (
	"context"
	"io"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/provider/kind"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/provider/local"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// managementFolder, in a state folder, is that of the local management cluster.
const managementFolder = "management"

// newManagement is the provider of the management cluster at Hetzner. yes, log and effects are those of a run.
func newManagement(c *console, cfg settings.Configuration, state statedir.Dir, files platform.Files, yes bool,
	log io.Writer, effects *effect.Recorder) (platform.ManagementProvider, error) {
	if err := checkGiven(cfg); err != nil {
		return nil, err
	}
	if cfg.ManagementProvider() != config.ManagementLocal {
		return kind.NewProvider(cfg.Config, files, yes, log, effects), nil
	}
	programs, err := lab.NewPrograms(cfg.Config, c.workDir, cfg.Overrides)
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	return local.New(lab.LocalManagement{Dir: state.Path(managementFolder), Programs: programs, WorkDir: c.workDir,
		Environment: c.environment}, effects), nil
}

// checkGiven refuses an existing management cluster that no kubeconfig opens, outside of a Pod.
func checkGiven(cfg settings.Configuration) error {
	if cfg.ManagementProvider() != config.ManagementExisting || cfg.ManagementKubeconfig != "" {
		return nil
	}
	return kind.CheckPod()
}

// checkEngine refuses a container engine that kind does not know.
func checkEngine(cfg settings.Configuration) error {
	if cfg.ManagementProvider() != config.ManagementKind {
		return nil
	}
	return kind.CheckEngine()
}

// rehearsedManagement puts the local management cluster, or one that exists, in the place of the lab's, where that is
// configured.
func rehearsedManagement(cfg settings.Configuration, tools platform.Tools, state statedir.Dir, l *lab.Lab,
	info lab.Info) platform.Tools {
	switch cfg.ManagementProvider() {
	case config.ManagementExisting:
		tools.Management = kind.NewProvider(cfg.Config, tools.Files, tools.Consent, io.Discard, tools.Effects)
	case config.ManagementLocal:
		tools.Management = local.New(lab.LocalManagement{Dir: state.Path(managementFolder), WorkDir: l.WorkDir,
			Environment: l.Environment, Rehearsal: l, RehearsalInfo: info}, tools.Effects)
	}
	return tools
}

// resumeManagement starts a local management cluster again that does not run. What needs it says so if that fails.
func resumeManagement(ctx context.Context, r *running) {
	provider, ok := r.tools.Management.(*local.Provider)
	if !ok {
		return
	}
	name := r.cfg.ManagementName()
	if stopped, err := provider.Stopped(ctx, name); err != nil || !stopped {
		return
	}
	err := r.hub.Task("management", "the local management cluster, which does not run", func(say flow.Say) error {
		_, err := provider.Ensure(ctx, name, say)
		return err
	})
	if err != nil {
		r.hub.Note("management cluster %s was not started again: %v", name, err)
	}
}
