package lab

import (
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

func TestAClusterHasTheRangesThatTheLabGaveIt(t *testing.T) {
	info := Info{NetworkCIDR: "127.64.0.0/16", ControlPlaneCIDR: "127.64.64.0/25", PodCIDR: "127.64.128.0/17",
		ServiceCIDR: "127.64.96.0/20", Clusters: map[string]ClusterRanges{"other": {NetworkCIDR: "127.64.0.0/16",
			ControlPlaneCIDR: "127.64.65.0/25", PodCIDR: "127.64.0.0/21", ServiceCIDR: "127.64.96.0/20"}}}
	for name, want := range map[string]string{"k8s": "127.64.64.0/25", "other": "127.64.65.0/25"} {
		c := config.Defaults()
		c.ClusterName = name
		in, _, err := Configure(settings.Configuration{Config: c}, info)
		if err != nil || in.ControlPlaneCIDR != want {
			t.Errorf("%s: its servers are in %s, not %s; %v", name, in.ControlPlaneCIDR, want, err)
		}
	}
}
