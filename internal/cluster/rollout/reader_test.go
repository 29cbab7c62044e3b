package rollout_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube"
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
