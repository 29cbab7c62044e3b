package environment

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/lab/talos"
)

func TestUnsettledServer(t *testing.T) {
	up := talos.Status{Name: "up", Cluster: "k8s", Phase: talos.PhaseRunning, EtcdData: true,
		Endpoint: "https://127.64.64.2:6443"}
	follows := talos.Status{Name: "follows", Cluster: "k8s", Phase: talos.PhaseRunning, EtcdData: true}
	other := talos.Status{Name: "other", Cluster: "else", Phase: talos.PhaseRunning, EtcdData: true}
	worker := talos.Status{Name: "worker", Cluster: "else", Phase: talos.PhaseRunning}
	boots := talos.Status{Name: "boots", Phase: talos.PhaseBooting}
	off := talos.Status{Name: "off", Phase: "off", EtcdData: true}
	for _, tt := range []struct {
		servers []talos.Status
		want    string // empty: nothing is missing
	}{
		{nil, ""},
		{[]talos.Status{up, follows, off, worker}, ""},
		{[]talos.Status{follows}, "follows"},
		{[]talos.Status{up, other}, "other"},
		{[]talos.Status{up, boots}, "boots"},
	} {
		got := unsettledServer(tt.servers)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%v: %q, want %q", tt.servers, got, tt.want)
		}
	}
}
