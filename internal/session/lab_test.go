package session

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/provider/lab/labtest"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/platform"
)

func TestTheLabGetsItsOwnToken(t *testing.T) {
	f := labtest.NewFakeLab(t)
	cfg := settings.Configuration{Config: config.Defaults()}
	for environment, want := range map[string]string{
		"HCLOUD_TOKEN=a-real-token":                              f.Info.Token,
		"HCLOUD_TOKEN=a-real-token LAB_HCLOUD_TOKEN=a-wrong-one": "a-wrong-one",
	} {
		k := Cluster{Cfg: cfg, Caller: &Caller{Environment: settings.Environ(strings.Fields(environment))}}
		_, tools, _, err := k.enterLab(platform.Tools{}, lab.NewClient(f.Dir), f.Info, nil)
		if err != nil || tools.Token.Reveal() != want || tools.Management.Name() != "lab" || tools.Hetzner == nil {
			t.Errorf("%s: token %q, %v", environment, tools.Token.Reveal(), err)
		}
	}
}
