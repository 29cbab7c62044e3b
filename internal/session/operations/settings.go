package operations

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// Settings are the values of the configuration of a cluster, and where each comes from: in the lab those that a run
// there uses. No command for the token is run, and no file of one is read.
func Settings(ctx context.Context, k session.Cluster) (all []settings.Setting, err error) {
	if all = settings.List(k.Cfg); k.Lab {
		if all, err = settingsInLab(ctx, k); err != nil {
			return nil, err
		}
	}
	return append(all, secretSettings(k)...), nil
}

// settingsInLab are the values that a run in the lab uses. What only a lab that
// is up can tell is unknown while it is down.
func settingsInLab(ctx context.Context, k session.Cluster) ([]settings.Setting, error) {
	state, err := k.LocalState(ctx)
	if err != nil {
		return nil, err
	}
	info, err := k.LabToInspect(state).Answering(ctx)
	if errors.Is(err, lab.ErrDown) {
		all := settings.List(k.Cfg)
		for _, d := range lab.Decides(k.Cfg, lab.Info{}) {
			i := slices.IndexFunc(all, func(s settings.Setting) bool { return s.Variable == d.Variable })
			all[i].Value, all[i].Unknown = "", true
			all[i].Source = "the lab, which is down"
		}
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	in, _, err := lab.Configure(k.Cfg, info)
	if err != nil {
		return nil, err
	}
	before, all := settings.List(k.Cfg), settings.List(in)
	for i, s := range all {
		if was := before[i]; s.Source != was.Source && was.Source != "default" {
			all[i].Source += fmt.Sprintf(", in place of %s from %s", was.Value, was.Source)
		}
	}
	return all, nil
}

// secretSettings tell whether there is a secret and who would give it, and nothing of the secret. A command may hold
// one in its arguments.
func secretSettings(k session.Cluster) []settings.Setting {
	hidden := func(value string) string {
		if value == "" {
			return ""
		}
		return "[hidden]"
	}
	inEnvironment := func(name string, show func(string) string) settings.Setting {
		s := settings.Setting{Variable: name, Value: show(k.Caller.Environment[name]), Source: "none"}
		if s.Value != "" {
			s.Source = "environment variable " + name
		}
		return s
	}
	token := inEnvironment(settings.TokenVariable, hidden)
	switch {
	case token.Value != "":
	case k.Cfg.TokenFile != "":
		token.Value, token.Source = hidden(k.Cfg.TokenFile), settings.TokenFileKey
	case k.Cfg.TokenCommand != "":
		token.Value, token.Source = hidden(k.Cfg.TokenCommand), settings.TokenCommandKey
	}
	return []settings.Setting{
		token,
		{Field: settings.TokenFileKey, Value: k.Cfg.TokenFile, Source: k.Cfg.Place(settings.TokenFileKey)},
		{Field: settings.TokenCommandKey, Value: hidden(k.Cfg.TokenCommand), Source: k.Cfg.Place(settings.TokenCommandKey)},
		inEnvironment(settings.GithubVariable, hidden),
		inEnvironment(settings.EndpointVariable, kube.WithoutCredentials),
	}
}
