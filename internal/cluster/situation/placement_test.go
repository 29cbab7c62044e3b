package situation

import (
	"reflect"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// A cluster keeps what is configured for it, and gets what was chosen where its own is not configured any more.
func TestKeptPlacement(t *testing.T) {
	cfg := config.Defaults()
	cfg.ServerType, cfg.Location = "cx33,cpx32", "nbg1,fsn1"
	chosen := render.Placement{ServerType: "cx33", Location: "nbg1", Locations: []string{"nbg1"}}
	for what, tt := range map[string]struct{ live, want render.Placement }{
		"a new cluster": {render.Placement{}, chosen},
		"all of it": {render.Placement{ServerType: "cpx32", Location: "fsn1", Locations: []string{"fsn1", "nbg1"}},
			render.Placement{ServerType: "cpx32", Location: "fsn1", Locations: []string{"fsn1", "nbg1"}}},
		"another server type": {render.Placement{ServerType: "cx43", Location: "nbg1", Locations: []string{"nbg1"}}, chosen},
		"a location that is not configured": {render.Placement{ServerType: "cx33", Location: "nbg1",
			Locations: []string{"nbg1", "hel1"}}, chosen},
	} {
		if got := KeptPlacement(cfg, chosen, tt.live); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", what, got, tt.want)
		}
	}
}
