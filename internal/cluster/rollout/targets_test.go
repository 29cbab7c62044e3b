package rollout_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/planning/bootstrapped"
)

// A wait adds the servers that CAPH left out of the load balancer, but for those that go and those that are no Ready
// nodes; who only looks adds nothing.
func TestReaderAddsMissingTargets(t *testing.T) {
	w := clustertest.New(t)
	if _, err := bootstrapped.Run(t, w, w.Config(), flow.Memory()); err != nil {
		t.Fatal(err)
	}
	connect := func(kubeconfig []byte) *kube.Cluster {
		t.Helper()
		c, err := w.Tools().WithDefaults().Connect(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	balancer := w.Hetzner.LoadBalancers()[0]
	targets := func(ids ...int64) {
		balancer.Targets = nil
		for _, id := range ids {
			balancer.Targets = append(balancer.Targets, schema.LoadBalancerTarget{Type: "server",
				Server: &schema.LoadBalancerTargetServer{ID: id}})
		}
		w.Hetzner.SetLoadBalancers(balancer)
	}
	has := func() string {
		var ids []string
		for _, target := range w.Hetzner.LoadBalancers()[0].Targets {
			ids = append(ids, fmt.Sprint(target.Server.ID))
		}
		return strings.Join(ids, " ")
	}
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	read := func(balance flow.Say) {
		t.Helper()
		reader := rollout.Reader{Cfg: w.Config(), Tools: w.Tools(), Management: connect(w.Management.Kubeconfig()),
			Workload: connect(w.Workload.Kubeconfig()), Balance: balance}
		if _, err := reader.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	targets(100, 101)
	if read(nil); has() != "100 101" {
		t.Fatalf("who only looks has changed the targets: %s", has())
	}
	if read(say); has() != "100 101 102" || len(said) != 1 ||
		!strings.Contains(said[0], "does not have k8s-control-plane-2 among its targets") {
		t.Fatalf("targets %s, said %q", has(), said)
	}
	if read(say); has() != "100 101 102" || len(said) != 1 {
		t.Fatalf("again: targets %s, said %q", has(), said)
	}
	// The Machine of one goes, and the node of another is not Ready.
	targets()
	w.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, "k8s-control-plane-0", clustertest.Map{
		"metadata": clustertest.Map{"deletionTimestamp": "2026-05-04T12:00:00Z", "finalizers": []any{"x"}}})
	if read(say); has() != "101 102" {
		t.Errorf("with a Machine that goes: targets %s", has())
	}
}
