package rollout_test

import (
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/planning/bootstrapped"
)

// counting counts requests.
type counting struct{ requests atomic.Int64 }

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return http.DefaultTransport.RoundTrip(r)
}

// A wait does not ask Hetzner at first while something else is missing, and asks each time once nothing else is: what
// it takes for complete is so at Hetzner.
func TestReaderAsksHetznerWhereItMatters(t *testing.T) {
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
	asked := &counting{}
	tools := w.Tools()
	tools.Hetzner = hcloud.NewClient(hcloud.WithEndpoint(w.Hetzner.URL), hcloud.WithToken(hetznertest.Token),
		hcloud.WithHTTPClient(&http.Client{Transport: asked}))
	reader := rollout.Reader{Cfg: w.Config(), Tools: tools, Management: connect(w.Management.Kubeconfig()),
		Workload: connect(w.Workload.Kubeconfig())}
	read := func(times int, want string, requests int64) {
		t.Helper()
		before := asked.requests.Load()
		for range times {
			r, err := reader.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(r.Missing(w.Config().NetworkCIDR), "; ")
			if want == "" && got != "" || !strings.Contains(got, want) {
				t.Fatalf("missing %q, not %q", got, want)
			}
		}
		if n := asked.requests.Load() - before; n != requests {
			t.Errorf("%d looks asked Hetzner %d times, not %d", times, n, requests)
		}
	}
	replicas := func(n int64) {
		kind := capi.TalosControlPlaneKind
		w.Management.Change(kind.GroupVersion().String(), kind.Kind, config.DefaultNamespace, w.Config().ControlPlaneName(),
			clustertest.Map{"spec": clustertest.Map{"replicas": n}})
	}
	replicas(5)
	read(4, "Machines instead of 5", 0)
	if r, err := reader.Read(t.Context()); err != nil || strings.Contains(strings.Join(
		r.Missing(w.Config().NetworkCIDR), "; "), "servers") {
		t.Errorf("it judges servers that it has not asked for: %v, %v", r.Missing(w.Config().NetworkCIDR), err)
	}
	replicas(int64(w.Config().ControlPlaneReplicas))
	read(3, "", 3)
	w.Hetzner.SetServers() // as the last look must see
	read(2, "0 control plane servers for", 2)
	replicas(5)
	read(2, "0 control plane servers for", 0)
}

// A wait for workers asks Hetzner each time while nothing is missing, and at its pace where servers alone differ.
func TestWorkersAreComparedWithHetznerAtItsPace(t *testing.T) {
	w := clustertest.New(t)
	if _, err := bootstrapped.Run(t, w, w.Config(), flow.Memory()); err != nil {
		t.Fatal(err)
	}
	tools := w.Tools().WithDefaults()
	management, err := tools.Connect(w.Management.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	workload, err := tools.Connect(w.Workload.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	asked := &counting{}
	tools.Hetzner = hcloud.NewClient(hcloud.WithEndpoint(w.Hetzner.URL), hcloud.WithToken(hetznertest.Token),
		hcloud.WithHTTPClient(&http.Client{Transport: asked}))
	kind := capi.MachineDeploymentKind
	w.Management.Put(kubetest.Object(kind.GroupVersion().String(), kind.Kind, config.DefaultNamespace, "general",
		clustertest.Map{"metadata": clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "k8s"}},
			"spec": clustertest.Map{"replicas": int64(0)}}))
	reader := rollout.Reader{Cfg: w.Config(), Tools: tools, Management: management, Workload: workload}
	read := func(times int, want string, requests int64) {
		t.Helper()
		before := asked.requests.Load()
		for range times {
			r, err := reader.ReadWorkers(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(r.Missing(w.Config().NetworkCIDR), "; "); got != want {
				t.Fatalf("missing %q, not %q", got, want)
			}
		}
		if n := asked.requests.Load() - before; n != requests {
			t.Errorf("%d looks asked Hetzner %d times, not %d", times, n, requests)
		}
	}
	read(3, "", 3)
	servers := w.Hetzner.Servers()
	stray := servers[0]
	stray.ID, stray.Name = 999, "k8s-general-abcde-fghij"
	stray.Labels = maps.Clone(stray.Labels)
	stray.Labels["machine_type"] = "worker"
	w.Hetzner.SetServers(append(servers, stray)...)
	read(1, "1 worker servers for 0 Machines", 1)
	read(3, "1 worker servers for 0 Machines", 0)
}
