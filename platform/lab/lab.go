// Package lab gives a plan configuration and tools for the lab, for programs that use Slipway as a library.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/ratelimit"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// Use gives a configuration and tools for the lab that is up in the state folder, which is Files of the tools. The lab
// decides the address ranges, and the repositories that are not configured, with their versions. Of the tools it sets
// Hetzner, Token, Management and OwnAddress. It puts the configured image into the simulated Hetzner project. Where no
// lab is up it fails: the target "lab up" starts one.
func Use(
	ctx context.Context, cfg config.Config, tools platform.Tools,
) (config.Config, platform.Tools, error) {
	client := lab.NewClient(statedir.Dir(tools.Files.String()).Lab())
	info, err := client.Admit(ctx, cfg.ClusterName)
	if err != nil {
		return cfg, tools, err
	}
	in, _, err := lab.Configure(settings.Configuration{Config: cfg}, info)
	if err != nil {
		return cfg, tools, err
	}
	if in.GitOps == config.GitOpsFlux && info.Flux.Version == "" {
		return cfg, tools, errors.New("the lab has no Flux: end it with lab down, and start it with lab up GITOPS=flux")
	}
	tools = client.Equip(tools)
	if tools.Git.Empty() && in.GitURL == info.Git.URL {
		tools.Git = info.GitAccess()
	}
	tools.Token = platform.NewSecret(info.Token)
	governor := ratelimit.New(func(format string, args ...any) {
		if tools.Log != nil {
			fmt.Fprintf(tools.Log, format+"\n", args...)
		}
	})
	tools.Hetzner = hcloud.NewClient(append(hetzner.ClientOptions(governor.Transport(http.DefaultTransport)),
		hcloud.WithEndpoint(info.HetznerEndpoint), hcloud.WithToken(info.Token))...)
	return in.Config, tools, client.PrepareImages(ctx, in.Config, func(string, ...any) {})
}
