package cli

import (
	"io"
	"net/http"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/ratelimit"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// commonTools are the tools that are the same in the lab and at Hetzner.
func commonTools(state statedir.Dir, cfg settings.Configuration, environment map[string]string,
	log io.Writer) platform.Tools {
	return platform.Tools{
		GitHubToken: platform.NewSecret(environment[settings.GithubVariable]),
		Files:       state.Files(),
		Overrides:   cfg.Overrides,
		Log:         log,
		Version:     version(),
	}
}

// hetznerClient makes a client of the Hetzner API; endpoint may be empty, effects
// nil. A request that the governor sends again is one call to the recorder: a refused one changed nothing.
func hetznerClient(endpoint string, token platform.Secret, effects *effect.Recorder,
	governor *ratelimit.Governor) *hcloud.Client {
	transport := effects.Transport(governor.Transport(http.DefaultTransport), effect.Hetzner, effect.HetznerCall)
	options := append(hetzner.ClientOptions(transport), hcloud.WithToken(token.Reveal()),
		hcloud.WithApplication("slipway", version()))
	if endpoint != "" {
		options = append(options, hcloud.WithEndpoint(endpoint))
	}
	return hcloud.NewClient(options...)
}

// enterLab swaps the two things that are different in the lab, and configures
// what anyone could: address ranges, repositories and the versions in them.
func enterLab(cfg settings.Configuration, tools platform.Tools, client *lab.Client, info lab.Info,
	environment map[string]string, governor *ratelimit.Governor,
) (settings.Configuration, platform.Tools, []string, error) {
	cfg, notes, err := lab.Configure(cfg, info)
	if err != nil {
		return cfg, tools, nil, err
	}
	// Never the environment's own token: a real one must not reach the lab.
	token := info.Token
	if wrong := environment[settings.LabTokenVariable]; wrong != "" {
		token = wrong
	}
	tools.Token = platform.NewSecret(token)
	tools.Hetzner = hetznerClient(info.HetznerEndpoint, tools.Token, tools.Effects, governor)
	return cfg, client.Equip(tools), notes, nil
}

// lookGovernor is the governor of a command that has no run: its messages go to standard error.
func lookGovernor(c *console) *ratelimit.Governor {
	return ratelimit.New(func(format string, args ...any) { tell(c, format, args...) })
}
