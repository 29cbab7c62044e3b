package destroy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/platform"
)

// plantCluster puts a whole cluster k8s into a project, and things of others that look like it. foreign are the latter.
func plantCluster(s *hetznertest.Server) (foreign []string) {
	mine := map[string]string{"caph-cluster-k8s": "owned"}
	ours := map[string]string{"slipway-cluster": "k8s"}
	nbg1 := schema.Location{Name: "nbg1"}
	server := func(id int64, name string, image int64, labels map[string]string) {
		s.Put("servers", id, schema.Server{Name: name, Labels: labels, Location: nbg1,
			ServerType: schema.ServerType{Name: "cx33"}, Image: &schema.Image{ID: image},
			PublicNet: schema.ServerPublicNet{IPv4: schema.ServerPublicNetIPv4{IP: "127.0.0.1"}}})
	}
	balancer := func(id, network int64, name string, labels map[string]string, targets ...int64) {
		lb := schema.LoadBalancer{Name: name, Labels: labels, Location: nbg1,
			LoadBalancerType: schema.LoadBalancerType{Name: "lb11"}}
		if network != 0 {
			lb.PrivateNet = []schema.LoadBalancerPrivateNet{{Network: network}}
		}
		for _, t := range targets {
			lb.Targets = append(lb.Targets,
				schema.LoadBalancerTarget{Type: "server", Server: &schema.LoadBalancerTargetServer{ID: t}})
		}
		s.Put("load_balancers", id, lb)
	}
	selector := func(what string) []schema.FirewallResource {
		return []schema.FirewallResource{{Type: "label_selector",
			LabelSelector: &schema.FirewallResourceLabelSelector{Selector: what}}}
	}
	one, upload := int64(1),
		map[string]string{"slipway-cluster": "k8s", "slipway-run": "0", "apricote.de/created-by": "hcloud-upload-image"}

	server(1, "k8s-a", 70, mine)
	server(2, "k8s-b", 70, mine)
	server(3, "hcloud-image-upload", 70, upload)
	s.Put("ssh_keys", 4, schema.SSHKey{Name: "hcloud-image-upload", Labels: upload})
	s.Put("networks", 10, schema.Network{Name: "k8s", Labels: mine, IPRange: "10.10.0.0/16", Servers: []int64{1, 2}})
	balancer(20, 10, "k8s-kube-apiserver-x", mine, 1, 2)
	balancer(21, 10, "a1b2c3", map[string]string{"hcloud-ccm/service-uid": "u-1"}, 1)
	s.Put("placement_groups", 30, schema.PlacementGroup{Name: "k8s-control-plane", Labels: mine, Servers: []int64{1, 2}})
	s.Put("firewalls", 40, schema.Firewall{Name: "k8s", Labels: ours, AppliedTo: selector("caph-cluster-k8s==owned")})
	s.Put("volumes", 50, schema.Volume{Name: "pvc-1", Size: 10, Labels: map[string]string{"managed-by": "csi-driver"},
		Server: &one, Location: nbg1})
	s.Put("primary_ips", 60, schema.PrimaryIP{Name: "k8s", Type: "ipv4", Labels: ours, Location: nbg1})
	s.Put("images", 70, schema.Image{Type: "snapshot",
		Labels: map[string]string{"slipway-cluster": "k8s", "caph-image-name": "talos", "os": "talos"}})

	// Names, prefixes and values that are nearly right; and another cluster of the same project.
	other := map[string]string{"caph-cluster-k8s2": "owned"}
	server(101, "k8s-control-plane-a", 170, map[string]string{"caph-cluster": "k8s", "machine_type": "control_plane"})
	server(102, "k8s-b2", 170, other)
	s.Put("networks", 110,
		schema.Network{Name: "k8s-copy", IPRange: "10.10.0.0/16", Labels: map[string]string{"caph-cluster-k8s": "shared"}})
	s.Put("networks", 111, schema.Network{Name: "k8s2", IPRange: "10.11.0.0/16", Labels: other})
	balancer(120, 0, "k8s-kube-apiserver-y", map[string]string{"caph-cluster-": "owned"})
	balancer(121, 111, "d4e5f6", map[string]string{"hcloud-ccm/service-uid": "u-2"}, 102)
	balancer(122, 0, "g7h8i9", map[string]string{"hcloud-ccm/service-uid": "u-3"})
	s.Put("placement_groups", 130,
		schema.PlacementGroup{Name: "k8s-control-plane-2", Labels: map[string]string{"slipway-cluster": ""}})
	s.Put("firewalls", 140, schema.Firewall{Name: "k8s-hand-made", AppliedTo: selector("caph-cluster-k8s==owned")})
	s.Put("volumes", 150,
		schema.Volume{Name: "pvc-2", Labels: map[string]string{"managed-by": "csi-driver"}, Location: nbg1})
	s.Put("images", 170, schema.Image{Type: "snapshot",
		Labels: map[string]string{"caph-image-name": "talos", "os": "talos"}})
	s.Put("ssh_keys", 180,
		schema.SSHKey{Name: "k8s", Labels: map[string]string{"caph-cluster-k8s": "owned", "caph-cluster-k8s2": "owned"}})
	return []string{"firewalls/140", "images/170", "load_balancers/120", "load_balancers/121", "load_balancers/122",
		"networks/110", "networks/111",
		"placement_groups/130", "servers/101", "servers/102", "ssh_keys/180", "volumes/150"}
}

// demolisher is a destroyer of cluster k8s without any management cluster.
func demolisher(t *testing.T, s *hetznertest.Server, transport http.RoundTripper) *Destroyer {
	t.Helper()
	d := New(config.Defaults(),
		platform.Tools{Hetzner: s.Client(transport), Management: &clustertest.Provider{},
			Files: platform.FilesIn(t.TempDir())})
	o := &d
	o.sweepEvery, o.sweepSlowest = time.Millisecond, time.Millisecond
	return o
}

// plantEndpoint adds a control plane endpoint: primary_ips/80, protected, that load_balancers/81 has.
func plantEndpoint(s *hetznertest.Server) {
	labels := map[string]string{"slipway-cluster": "k8s", "slipway-role": "control-plane-endpoint"}
	lb, nbg1 := int64(81), schema.Location{Name: "nbg1"}
	s.Put("primary_ips", 80, schema.PrimaryIP{Name: "k8s-control-plane", Type: "ipv4", IP: "127.0.0.80", Labels: labels,
		Location: nbg1, AssigneeType: "load_balancer", AssigneeID: &lb, Protection: schema.PrimaryIPProtection{Delete: true}})
	s.Put("load_balancers", lb, schema.LoadBalancer{Name: "k8s-control-plane", Labels: labels, Location: nbg1,
		LoadBalancerType: schema.LoadBalancerType{Name: "lb11"}})
}

// listAndDestroy does what the command does.
func listAndDestroy(ctx context.Context, o *Destroyer, opts Options, stage Stage) error {
	listed, err := o.Plan(ctx, opts)
	if err != nil {
		return err
	}
	return o.Destroy(ctx, listed, stage)
}

func quietly(_, _ string, do func(flow.Say) error) error { return do(func(string, ...any) {}) }

func sorted(names []string, more ...string) []string {
	all := append(slices.Clone(names), more...)
	slices.Sort(all)
	return all
}

func snapshot(s *hetznertest.Server, what string) string {
	collection, number, _ := strings.Cut(what, "/")
	var id int64
	_, _ = fmt.Sscan(number, &id)
	return s.Snapshot(collection, id)
}

// dying is a network on which a process dies with its n-th request: before it leaves, or after it has arrived.
type dying struct {
	n       int
	arrives bool
	kill    context.CancelFunc
}

func (d *dying) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.n--; d.n > 0 {
		return http.DefaultTransport.RoundTrip(r)
	}
	if d.n == 0 && d.arrives {
		if resp, err := http.DefaultTransport.RoundTrip(r.WithContext(context.WithoutCancel(r.Context()))); err == nil {
			resp.Body.Close()
		}
	}
	d.kill()
	return nil, errors.New("the process is dead")
}
