package steps

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/platform"
)

// A load balancer that was deleted is noticed by the next run, with and without the journal, and nothing is made.
func TestDeletedLoadBalancerIsExplained(t *testing.T) {
	for name, tt := range map[string]struct {
		now  string // address of the one that CAPH made in its place; empty: none
		says string
	}{
		"none in its place":     {says: "and none in its place"},
		"another in its place":  {now: "127.0.0.10", says: "load balancer k8s-kube-apiserver-d3e4f at 127.0.0.10"},
		"somebody else's there": {says: "and none in its place"},
	} {
		t.Run(name, func(t *testing.T) {
			w, journal := clustertest.New(t), flow.Memory()
			cfg := w.Config()
			cfg.ControlPlaneEndpoint = config.EndpointLoadBalancer
			if _, err := runPlan(t, w, cfg, journal, nil); err != nil {
				t.Fatal(err)
			}
			w.Hetzner.SetLoadBalancers(hetznertest.LoadBalancer(11, "of-others", clustertest.LoadBalancerIP, nil, 6443))
			if tt.now != "" {
				w.Hetzner.SetLoadBalancers(hetznertest.LoadBalancer(12, "k8s-kube-apiserver-d3e4f", tt.now, clustertest.OwnedByCAPH,
					6443))
			}
			before := w.Writes()
			again := func(what string, j flow.Journal) {
				t.Helper()
				_, err := runPlan(t, w, cfg, j, nil)
				var lost *situation.LostEndpointError
				if !errors.As(err, &lost) || lost.Address != clustertest.LoadBalancerIP || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%s: %v", what, err)
				}
			}
			again("with the journal", journal)
			if n := w.Writes(); n != before {
				t.Errorf("%d requests changed something", n-before)
			}
			again("without the journal", flow.Memory())
		})
	}
}

// Where people's own manifests name the address, it need not be a load balancer's.
func TestAnEndpointOfTheirOwnIsNotJudged(t *testing.T) {
	for name, edit := range map[string][2]string{
		"an address":       {`host: "${LOAD_BALANCER_IP:=}"`, `host: "127.0.0.77"`},
		"no load balancer": {"controlPlaneLoadBalancer:\n    enabled: true", "controlPlaneLoadBalancer:\n    enabled: false"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPivotWorld(t)
			if err := situation.CheckEndpoint(t.Context(), w.b.cfg, w.b.tools, w.b.sources,
				"127.0.0.77"); !situation.IsLost(err) {
				t.Errorf("with the project's own manifests: %v", err)
			}
			dir := t.TempDir()
			data, err := manifests.Files.ReadFile("cluster.yaml")
			if err != nil {
				t.Fatal(err)
			}
			edited := strings.Replace(string(data), edit[0], edit[1], 1)
			if edited == string(data) {
				t.Fatalf("manifests/cluster.yaml has no %q", edit[0])
			}
			if err := os.MkdirAll(filepath.Join(dir, "manifests"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "manifests", "cluster.yaml"), []byte(edited), 0o644); err != nil {
				t.Fatal(err)
			}
			if w.b.sources, err = render.Read(render.VariablesOf(w.b.cfg), dir); err != nil {
				t.Fatal(err)
			}
			if err := situation.CheckEndpoint(t.Context(), w.b.cfg, w.b.tools, w.b.sources, "127.0.0.77"); err != nil {
				t.Error(err)
			}
		})
	}
}

// After the pivot the cluster is asked at the address that was lost. That it is silent is explained, and its kubeconfig
// kept.
func TestSilenceIsExplainedAfterThePivot(t *testing.T) {
	w := newPivotWorld(t)
	w.target.CloseClientConnections()
	w.target.Close()
	v := verifyIn(w.b, platform.Kubeconfig, w.b.verifyPivot)(t.Context(), Pivot{Cluster: "x"})
	if v.Answer() != flow.AnswerUnknown || !situation.IsLost(v.Err()) {
		t.Errorf("without a load balancer: %s, %v", v.Answer(), v.Err())
	}
	w.hetzner.SetLoadBalancers(hetznertest.LoadBalancer(9, "k8s-kube-apiserver-a1b2c", "127.0.0.1",
		clustertest.OwnedByCAPH, 6443))
	if v := verifyIn(w.b, platform.Kubeconfig, w.b.verifyPivot)(t.Context(), Pivot{Cluster: "x"}); v.Answer() != flow.AnswerUnknown ||
		situation.IsLost(v.Err()) {
		t.Errorf("with it: %s, %v", v.Answer(), v.Err())
	}
}
