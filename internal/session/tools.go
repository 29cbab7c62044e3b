package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/factory"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/ratelimit"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// CommonTools are the tools that are the same in the lab and at Hetzner.
func (k Cluster) CommonTools(state statedir.Dir, log io.Writer) platform.Tools {
	return platform.Tools{
		GitHubToken: platform.NewSecret(k.Caller.Environment[settings.GithubVariable]),
		Files:       state.Files(),
		Overrides:   k.Cfg.Overrides,
		Log:         log,
		Version:     Version(),
		CommandLine: k.Caller.Command,
	}
}

// HetznerClient makes a client of the Hetzner API; endpoint may be empty, effects nil. A request that the governor
// sends again is one call to the recorder: a refused one changed nothing.
func HetznerClient(endpoint string, token platform.Secret, effects *effect.Recorder,
	governor *ratelimit.Governor) *hcloud.Client {
	transport := effects.Transport(governor.Transport(http.DefaultTransport), effect.Hetzner, effect.HetznerCall)
	options := append(hetzner.ClientOptions(transport), hcloud.WithToken(token.Reveal()),
		hcloud.WithApplication("slipway", Version()))
	if endpoint != "" {
		options = append(options, hcloud.WithEndpoint(endpoint))
	}
	return hcloud.NewClient(options...)
}

// InspectionGovernor is the governor of what has no run: its messages are notes of the caller.
func (c *Caller) InspectionGovernor() *ratelimit.Governor { return ratelimit.New(c.Note) }

// Connect creates the session's clients for Hetzner, or for the lab, which it starts.
func (s *Session) Connect(ctx context.Context) error {
	if s.Lab {
		if err := s.connectToLab(ctx); err != nil {
			return err
		}
		s.sharePeers(ctx)
		s.resumeManagement(ctx)
		return nil
	}
	s.Tools.Token, s.Tools.Git = s.access.Token, s.access.Git
	s.sharePeers(ctx)
	s.Tools.Factory = factory.Address
	s.Tools.Hetzner = HetznerClient(s.Caller.Environment[settings.EndpointVariable], s.access.Token, s.Effects, s.Limit)
	var err error
	s.Tools.Management, err = s.newManagement(s.Folder, s.Tools.Files, s.Yes, s.Log, s.Effects)
	if err != nil {
		return err
	}
	if s.Caller.Equip != nil {
		s.Caller.Equip(&s.Tools)
	}
	s.resumeManagement(ctx)
	return nil
}

// Inspection is a cluster that is read and not changed, with the tools for it: Cluster.Inspect of one that was begun,
// InspectForPlan also of one that was not, InspectOnline of one whose Hetzner project or lab has to answer.
type Inspection struct {
	Cluster
	Folder statedir.Dir // that the state is read from
	Tools  platform.Tools
	// Offline is why the environment that the cluster is in does not answer; empty: it does, or nothing was begun there.
	Offline string
}

// Inspect has the tools to read from the environment that the state folder belongs to.
func (k Cluster) Inspect(ctx context.Context, state statedir.Dir) (l Inspection, err error) {
	SilenceLibraries()
	if err := k.keepVersions(ctx, state); err != nil {
		return l, err
	}
	k.Caller.Hide.Learn(k.Cfg.Passwords()...)
	l.Cluster, l.Folder = k, state
	if l.Tools, err = k.LocalTools(state); err != nil {
		return l, err
	}
	environment, err := state.Environment()
	if err != nil {
		return l, err
	}
	if k.Lab || environment == statedir.EnvironmentLab {
		return l.inLab(ctx)
	}
	if snapshot, err := state.Journal().Load(ctx); err != nil || len(snapshot.Steps) == 0 {
		return l, err // nothing was begun, so there is nothing to ask about
	}
	at, err := l.WithHetzner(ctx)
	if err != nil && context.Cause(ctx) == nil { // there is a journal to be read
		l.Offline = err.Error()
		return l, nil
	}
	return at, err
}

// LocalTools has the tools of the state folder, with nothing behind them that answers.
func (k Cluster) LocalTools(state statedir.Dir) (tools platform.Tools, err error) {
	tools = k.CommonTools(state, io.Discard)
	tools.Management, err = k.newManagement(state, tools.Files, false, io.Discard, nil)
	return tools, err
}

func (l Inspection) inLab(ctx context.Context) (Inspection, error) {
	is := l.LabToInspect(l.Folder)
	l.Tools.Management = lab.Management{Client: is.Client, Kubernetes: l.Cfg.KubernetesVersion}
	info, err := is.Answering(ctx)
	if errors.Is(err, lab.ErrDown) {
		l.Offline = "the lab is down (" + l.Caller.Command("lab", "up") + ")"
		return l, nil
	}
	if err != nil {
		return l, err
	}
	l.Caller.Hide.Learn(info.Token)
	l.Cfg, l.Tools, _, err = l.enterLab(l.Tools, is.Client, info, l.Caller.InspectionGovernor())
	l.Tools = rehearsedManagement(l.Cfg, l.Tools, l.Folder, is, info)
	return l, err
}

// WithHetzner adds a client to look at Hetzner with, without a recorder. Without a token Offline says so.
func (l Inspection) WithHetzner(ctx context.Context) (Inspection, error) {
	token, err := l.Caller.tokenOnce(ctx, l.Cfg)
	if errors.Is(err, settings.ErrNoToken) {
		l.Offline = settings.TokenVariable + " is not set"
		return l, nil
	}
	if err != nil {
		return l, err
	}
	l.useHetzner(token)
	return l, nil
}

// useHetzner adds the client of a token.
func (l *Inspection) useHetzner(token platform.Secret) {
	l.Tools.Token = token
	l.Tools.Hetzner = HetznerClient(l.Caller.Environment[settings.EndpointVariable], token, nil,
		l.Caller.InspectionGovernor())
	if l.Caller.Equip != nil {
		l.Caller.Equip(&l.Tools)
	}
}

// InspectOnline is Inspect for what needs Hetzner, or the lab, to answer: it takes no lock, leaves no files and starts
// no lab.
func (k Cluster) InspectOnline(ctx context.Context) (l Inspection, err error) {
	state, err := k.State(ctx)
	if err != nil {
		return l, err
	}
	if k.Lab {
		l, err = k.Inspect(ctx, state)
		if err == nil && l.Offline != "" {
			err = errors.New(l.Offline)
		}
		return l, err
	}
	if err := RefuseOtherEnvironment(state, k.Lab); err != nil {
		return l, err
	}
	SilenceLibraries()
	if err := k.keepVersions(ctx, state); err != nil {
		return l, err
	}
	k.Caller.Hide.Learn(k.Cfg.Passwords()...)
	token, err := k.Caller.token(ctx, k.Cfg) // each time: a token may be replaced while backup --every runs
	if err != nil {
		return l, err
	}
	l = Inspection{Cluster: k, Folder: state}
	if l.Tools, err = k.LocalTools(state); err != nil {
		return l, err
	}
	l.useHetzner(token)
	return l, nil
}

// InspectForPlan is Inspect for what a run would work with, also before the first one. It refuses a state folder of the
// other environment.
func (k Cluster) InspectForPlan(ctx context.Context) (l Inspection, err error) {
	state, err := k.State(ctx)
	if err != nil {
		return l, err
	}
	if err := RefuseOtherEnvironment(state, k.Lab); err != nil {
		return l, err
	}
	if l, err = k.Inspect(ctx, state); err != nil {
		return l, err
	}
	switch {
	case l.Tools.Hetzner != nil:
	case k.Lab:
		snapshot, err := state.Journal().Load(ctx)
		if err == nil && len(snapshot.Steps) > 0 {
			err = fmt.Errorf("%s: without it the plan would compare what was created in the lab "+
				"with what is configured for Hetzner", l.Offline)
		}
		if err != nil {
			return l, err
		}
	default:
		if l, err = l.WithHetzner(ctx); err != nil {
			return l, err
		}
	}
	return l, nil
}
