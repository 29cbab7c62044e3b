package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/drift"
	"github.com/slipway-k8s/slipway/internal/effect"
	"github.com/slipway-k8s/slipway/internal/lab"
	"github.com/slipway-k8s/slipway/internal/settings"
	"github.com/slipway-k8s/slipway/internal/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// commonTools are the tools that are the same in both worlds.
func commonTools(state statedir.Dir, cfg settings.Configuration, environment map[string]string, log io.Writer) platform.Tools {
	return platform.Tools{
		GitHubToken: platform.NewSecret(environment[settings.GithubVariable]),
		Files:       state.Files(),
		Overrides:   cfg.Overrides,
		Log:         log,
	}
}

// hetznerClient makes a client of the Hetzner API; endpoint may be empty, effects
// nil.
func hetznerClient(endpoint string, token platform.Secret, effects *effect.Recorder) *hcloud.Client {
	options := []hcloud.ClientOption{
		hcloud.WithHTTPClient(&http.Client{Transport: effects.Transport(http.DefaultTransport, effect.Hetzner, effect.HetznerCall)}),
		hcloud.WithToken(token.Reveal()),
		hcloud.WithApplication("slipway", version()),
	}
	if endpoint != "" {
		options = append(options, hcloud.WithEndpoint(endpoint))
	}
	return hcloud.NewClient(options...)
}

// enterLab swaps the two things that are different in the lab, and configures
// what anyone could: address ranges, repositories and the versions in them.
func enterLab(cfg settings.Configuration, tools platform.Tools, client *lab.Client, info lab.Info, environment map[string]string) (settings.Configuration, platform.Tools, []string, error) {
	cfg, notes, err := configInLab(cfg, info)
	if err != nil {
		return cfg, tools, nil, err
	}
	// Never the environment's own token: a real one must not reach the lab.
	token := info.Token
	if wrong := environment[settings.LabTokenVariable]; wrong != "" {
		token = wrong
	}
	tools.Token = platform.NewSecret(token)
	tools.Hetzner = hetznerClient(info.HetznerEndpoint, tools.Token, tools.Effects)
	tools.Management = lab.Management{Client: client}
	// Everything in the lab sees this machine by its loopback.
	tools.OwnAddress = func(context.Context) (netip.Addr, error) { return netip.MustParseAddr("127.0.0.1"), nil }
	return cfg, tools, notes, nil
}

// configInLab is the configuration with what the lab decides: the lab's addresses
// always, its repositories and their versions unless others are configured. The
// notes name what was replaced.
func configInLab(c settings.Configuration, info lab.Info) (settings.Configuration, []string, error) {
	var notes []string
	places, decided := c.Places, decidedInLab(c, info)
	c.Places = map[string]string{}
	for field, place := range places {
		c.Places[field] = place
	}
	set := func(name, value string) error {
		v := settings.Variable(name)
		was := v.Get(c.Config)
		if value == "" || value == was {
			return nil
		}
		if place, ok := places[v.Field]; ok || strings.HasSuffix(name, "_VERSION") && was != "" {
			if !ok {
				place = "default"
			}
			notes = append(notes, fmt.Sprintf("%s is %s in the lab, in place of %s (%s)", name, value, was, place))
		}
		c.Places[v.Field] = drift.LabPlace
		return v.Set(&c.Config, value)
	}
	for _, p := range decided {
		if err := set(p.variable, p.value); err != nil {
			return c, nil, fmt.Errorf("the lab says: %w", err)
		}
	}
	slices.Sort(notes)
	return c, notes, c.Check()
}

// labDecision is a variable with the value that a lab gives it.
type labDecision struct{ variable, value string }

// decidedInLab are the variables that a lab decides, in place of this
// configuration.
func decidedInLab(c settings.Configuration, info lab.Info) []labDecision {
	own := func(name string) bool { _, ok := c.Places[settings.Variable(name).Field]; return ok }
	all := []labDecision{
		{"NETWORK_CIDR", info.NetworkCIDR}, {"CONTROL_PLANE_CIDR", info.ControlPlaneCIDR},
		{"POD_CIDR", info.PodCIDR}, {"SERVICE_CIDR", info.ServiceCIDR},
	}
	if !own("PROVIDER_REPOSITORY") {
		all = append(all, labDecision{"PROVIDER_REPOSITORY", info.ProviderRepository})
		for _, name := range []string{"CAPI", "CAPH", "CABPT", "CACPPT"} {
			all = append(all, labDecision{name + "_VERSION", info.Versions[name]})
		}
	}
	if !own("CERT_MANAGER_URL") {
		all = append(all, labDecision{"CERT_MANAGER_URL", info.CertManagerURL}, labDecision{"CERT_MANAGER_VERSION", info.CertManagerVersion})
	}
	for name, chart := range map[string]string{
		"CILIUM": "cilium", "HCLOUD_CCM": "hcloud-cloud-controller-manager", "TALOS_CCM": "talos-cloud-controller-manager",
	} {
		if !own(name + "_REPOSITORY") {
			all = append(all, labDecision{name + "_REPOSITORY", info.ChartRepositories[chart]}, labDecision{name + "_VERSION", info.Versions[name]})
		}
	}
	return all
}

// prepareImages puts the configured image into the lab's project, where nobody
// has built one, under the name that it has for each architecture.
func prepareImages(ctx context.Context, client *lab.Client, cfg config.Config, say flow.Say) error {
	var names []string
	for _, architecture := range []string{"amd64", "arm64"} {
		if name := cfg.Image(architecture); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if err := client.EnsureImage(ctx, name); err != nil {
			return err
		}
	}
	say("image %s is in the simulated project", strings.Join(names, ", "))
	return nil
}
