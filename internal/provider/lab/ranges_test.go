package lab

import (
	"strings"
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

// A lab runs the configured version of what it offers; else the newest of its minor; a core, what stands in for it.
func TestOfferedVersions(t *testing.T) {
	info := Info{Versions: map[string]string{"CAPH": "v1.0.7", "CAPI": "v1.10.10"},
		Offers:   map[string][]string{"CAPH": {"v1.0.7", "v1.0.12", "v1.1.8"}, "CAPI": {"v1.10.10", "v1.13.6"}},
		CoreSets: []ProgramSet{{For: "v1.10.10", Runs: "v1.10.10"}, {For: "v1.14.3", Runs: "v1.13.6"}}}
	for configured, want := range map[string]string{
		"CAPH v1.0.7": "v1.0.7", "CAPH v1.0.9": "v1.0.12", "CAPH v1.1.13": "v1.1.8", "CAPH v1.2.0": "v1.0.7",
		"CAPI v1.13.6": "v1.13.6", "CAPI v1.13.4": "v1.13.6", "CAPI v1.14.3": "v1.13.6", "CAPI v1.10.2": "v1.10.10",
	} {
		name, version, _ := strings.Cut(configured, " ")
		c := settings.Configuration{Config: config.Defaults()}
		if err := settings.Variable(name+"_VERSION").Set(&c.Config, version); err != nil {
			t.Fatal(err)
		}
		if got := info.offered(name, c); got != want {
			t.Errorf("%s is %s in the lab, want %s", configured, got, want)
		}
	}
}
