package session

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

// ManagementFolder is the folder of the local management cluster in a state folder.
const ManagementFolder = "management"

// newManagement is the provider of the management cluster at Hetzner. yes, log and effects are those of a run.
func (k Cluster) newManagement(state statedir.Dir, files platform.Files, yes bool, log io.Writer,
	effects *effect.Recorder) (platform.ManagementProvider, error) {
	if k.Caller.Management != nil {
		return k.Caller.Management, nil
	}
	if err := checkGiven(k.Cfg); err != nil {
		return nil, err
	}
	if !k.Lab { // which needs no container engine
		if err := checkEngine(k.Cfg); err != nil {
			return nil, err
		}
	}
	if k.Cfg.ManagementProvider() != config.ManagementLocal {
		return kind.NewProvider(k.Cfg.Config, files, yes, log, effects), nil
	}
	programs, err := lab.NewPrograms(k.Cfg.Config, k.Caller.WorkDir, k.Cfg.Overrides)
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	return local.New(lab.LocalManagement{Dir: state.Path(ManagementFolder), Programs: programs, WorkDir: k.Caller.WorkDir,
		Environment: k.Caller.Environment}, effects), nil
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
		tools.Management = local.New(lab.LocalManagement{Dir: state.Path(ManagementFolder), WorkDir: l.WorkDir,
			Environment: l.Environment, Rehearsal: l, RehearsalInfo: info}, tools.Effects)
	}
	return tools
}

// resumeManagement starts a local management cluster again that does not run, and gives one that does the program of
// the configured core. What needs it says so if that fails.
func (s *Session) resumeManagement(ctx context.Context) {
	provider, ok := s.Tools.Management.(*local.Provider)
	if !ok {
		return
	}
	name := s.Cfg.ManagementName()
	if provider.Running(ctx) {
		err := s.Hub.Task("management", "the programs of the local management cluster", func(say flow.Say) error {
			return provider.ProvideCore(ctx, say)
		})
		if err != nil {
			s.Hub.Note("management cluster %s was not given Cluster API %s: %v", name, s.Cfg.CAPIVersion, err)
		}
		return
	}
	if stopped, err := provider.Stopped(ctx, name); err != nil || !stopped {
		return
	}
	err := s.Hub.Task("management", "the local management cluster, which does not run", func(say flow.Say) error {
		_, err := provider.Ensure(ctx, name, say)
		return err
	})
	if err != nil {
		s.Hub.Note("management cluster %s was not started again: %v", name, err)
	}
}
