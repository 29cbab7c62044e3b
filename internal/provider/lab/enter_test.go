package lab

import (
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// TestOfferedToWhatOnlyLooks has versions that a lab is given by the next run.
func TestOfferedToWhatOnlyLooks(t *testing.T) {
	has := Info{
		Versions:   map[string]string{"CAPI": "v1.10.10", "CILIUM": "1.18.6", "CAPH": "v1.0.7"},
		Offers:     map[string][]string{"CAPI": {"v1.10.10"}, "CILIUM": {"1.18.6"}, "CAPH": {"v1.0.7", "v1.0.12"}},
		AnyVersion: []string{"CILIUM"}, CoreSets: []ProgramSet{{For: "v1.10.10", Runs: "v1.10.10"}},
	}
	older := has
	older.AnyVersion, older.CoreSets = nil, nil
	for _, tt := range []struct {
		in   Info
		name string
		want string
	}{
		{has, "CAPI", "v1.13.6"}, {has, "CILIUM", "1.19.9"}, {has, "CAPH", "v1.0.7"},
		{older, "CAPI", "v1.10.10"}, {older, "CILIUM", "1.18.6"},
	} {
		c := settings.Configuration{Config: config.Defaults()}
		c.CAPIVersion, c.CiliumVersion, c.CAPHVersion = "v1.13.6", "1.19.9", "v1.1.8"
		if got := tt.in.offered(tt.name, c); got != tt.want {
			t.Errorf("%s of %v: %s, want %s", tt.name, tt.in.Offers, got, tt.want)
		}
	}
}
