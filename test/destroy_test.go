package test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
)

// killing is a point in a bootstrap at which the command is killed: a while after an event of a step.
type killing struct {
	step  string
	line  string // regular expression of a progress line; empty: the step begins
	after time.Duration
	lost  bool // the management cluster is deleted, too
	short bool // one of the few that every run tries
}

func killings() []killing {
	return []killing{
		{step: "image", line: "server", short: true},
		{step: "kind-create"},
		{step: "capi-init"},
		{step: "capi-init", after: 5 * time.Second},
		{step: "apply"},
		{step: "apply", line: "waiting for"},
		{step: "wait-cp"},
		{step: "wait-cp", line: "of 3 servers"},
		{step: "wait-cp", line: "Talos|the API"},
		{step: "wait-cp", line: "the API"},
		{step: "cilium"},
		{step: "hcloud-ccm", lost: true, short: true},
	}
}

// TestDestroy destroys clusters whose bootstrap was killed. Afterwards the simulated project has the resources of
// others, and nothing else.
func TestDestroy(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	if out, err := c.exec(context.Background(), "lab", "up"); err != nil {
		t.Fatalf("lab up: %v\n%s", err, out)
	}
	p := c.project()
	p.plantForeign(t)
	foreign := p.everything(t)
	for i, k := range killings() {
		if !k.short && os.Getenv(crashVariable) == "" {
			continue
		}
		t.Run(fmt.Sprintf("%02d killed in %s", i+1, k.step), func(t *testing.T) {
			inner := *c
			inner.t = t
			inner.killBootstrap(k)
			if k.lost {
				p.plantControllers(t)
				inner.loseManagement()
			}
			was := p.everything(t)
			for _, f := range foreign {
				if !slices.Contains(was, f) {
					t.Fatalf("before destroy, %s is not there any more", f)
				}
			}
			t.Logf("killed: the cluster has %d resources", len(was)-len(foreign))
			o := inner.run(nil, "destroy", "--yes", "--images", "--volumes", "--lab")
			if o.exit != 0 {
				t.Fatalf("destroy: exit %d\n%s", o.exit, o.end())
			}
			t.Logf("destroyed in %.1fs", o.elapsed.Seconds())
			if left := p.everything(t); !slices.Equal(left, foreign) {
				t.Errorf("left\n%s\nwant only the resources of others\n%s", strings.Join(left, "\n"), strings.Join(foreign, "\n"))
			}
			again := inner.run(nil, "destroy", "--yes", "--lab")
			if again.exit != 0 || strings.Contains(again.output, "deleting ") {
				t.Errorf("destroy of nothing: exit %d\n%s", again.exit, again.output)
			}
		})
	}
}

// killBootstrap starts a bootstrap and kills it with SIGKILL.
func (c *command) killBootstrap(k killing) {
	c.t.Helper()
	reached, line := false, regexp.MustCompile(k.line)
	o := c.run(func(e event, p *os.Process) {
		begins := k.line == "" && e.Kind == "step-started"
		says := k.line != "" && e.Kind == "step-progress" && line.MatchString(e.Message)
		if reached || e.Step != k.step || !begins && !says {
			return
		}
		reached = true
		time.AfterFunc(k.after, func() { _ = p.Kill() })
	}, "--lab")
	if !reached {
		c.t.Fatalf("the bootstrap never reached %+v: exit %d\n%s", k, o.exit, o.end())
	}
	if o.exit == 0 {
		c.t.Fatal("the bootstrap ended before it was killed")
	}
}

// loseManagement removes the management cluster.
func (c *command) loseManagement() {
	c.t.Helper()
	if err := c.labCall(http.MethodDelete, "/v1/management/k8s-mgmt", nil); err != nil {
		c.t.Fatal(err)
	}
}

// project is the simulated Hetzner project.
type project struct{ *hcloud.Client }

func (c *command) project() project {
	c.t.Helper()
	var info struct {
		HetznerEndpoint string `json:"hetznerEndpoint"`
		Token           string `json:"token"`
	}
	c.labGet("/v1/info", &info)
	return project{hcloud.NewClient(hcloud.WithEndpoint(info.HetznerEndpoint), hcloud.WithToken(info.Token),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(100 * time.Millisecond)}))}
}

// everything lists the project's resources of all kinds, with their labels.
func (p project) everything(t *testing.T) []string {
	t.Helper()
	var all []string
	add := func(kind string, id int64, name string, labels map[string]string) {
		all = append(all, fmt.Sprintf("%s %d %s %v", kind, id, name, labels))
	}
	ctx := t.Context()
	for _, v := range must(p.Server.All(ctx))(t) {
		add("server", v.ID, v.Name, v.Labels)
	}
	for _, v := range must(p.LoadBalancer.All(ctx))(t) {
		add("load balancer", v.ID, v.Name, v.Labels)
	}
	for _, v := range must(p.Network.All(ctx))(t) {
		add("network", v.ID, v.Name, v.Labels)
	}
	for _, v := range must(p.PlacementGroup.All(ctx))(t) {
		add("placement group", v.ID, v.Name, v.Labels)
	}
	for _, v := range must(p.Firewall.All(ctx))(t) {
		add("firewall", v.ID, v.Name, v.Labels)
	}
	for _, v := range must(p.Volume.All(ctx))(t) {
		add("volume", v.ID, v.Name, v.Labels)
	}
	for _, v := range must(p.PrimaryIP.All(ctx))(t) {
		add("primary IP", v.ID, v.Name, v.Labels)
	}
	for _, v := range must(p.SSHKey.All(ctx))(t) {
		add("SSH key", v.ID, v.Name, v.Labels)
	}
	for _, v := range must(p.Image.AllWithOpts(ctx,
		hcloud.ImageListOpts{Type: []hcloud.ImageType{hcloud.ImageTypeSnapshot}}))(t) {
		add("snapshot", v.ID, v.Description, v.Labels)
	}
	slices.Sort(all)
	return all
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// plantForeign creates resources that do not belong to the cluster: with its names, and with labels that are almost its
// own.
func (p project) plantForeign(t *testing.T) {
	t.Helper()
	ctx, nbg1 := t.Context(), &hcloud.Location{Name: "nbg1"}
	fail := func(what string, err error) {
		if err != nil {
			t.Fatalf("plant a foreign %s: %v", what, err)
		}
	}
	server, _, err := p.Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: "k8s-control-plane-abcde", ServerType: &hcloud.ServerType{Name: "cx23"},
		Image: &hcloud.Image{Name: "ubuntu-24.04"}, Location: nbg1,
		Labels:           map[string]string{"caph-cluster-k8s": "shared", "machine_type": "control_plane"},
		StartAfterCreate: hcloud.Ptr(false),
	})
	fail("server", err)
	fail("server", p.Action.WaitFor(ctx, append(server.NextActions, server.Action)...))
	_, ipRange, _ := net.ParseCIDR("127.250.0.0/16")
	_, _, err = p.Network.Create(ctx, hcloud.NetworkCreateOpts{Name: "k8s-network", IPRange: ipRange,
		Labels: map[string]string{"caph-cluster-k8s2": "owned"}})
	fail("network", err)
	balancer, _, err := p.LoadBalancer.Create(ctx, hcloud.LoadBalancerCreateOpts{
		Name: "k8s-kube-apiserver-abcde", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: nbg1,
		Labels: map[string]string{"hcloud-ccm/service-uid": "of-another-cluster"},
	})
	fail("load balancer", err)
	fail("load balancer", p.Action.WaitFor(ctx, balancer.Action))
	_, _, err = p.Firewall.Create(ctx,
		hcloud.FirewallCreateOpts{Name: "k8s-firewall", Labels: map[string]string{"slipway-cluster": "k8s2"}})
	fail("firewall", err)
	snapshot, _, err := p.Server.CreateImage(ctx, server.Server, &hcloud.ServerCreateImageOpts{
		Type: hcloud.ImageTypeSnapshot, Description: hcloud.Ptr("talos-amd64-v1.13.9"),
		Labels: map[string]string{"os": "talos"},
	})
	fail("snapshot", err)
	fail("snapshot", p.Action.WaitFor(ctx, snapshot.Action))
}

// plantControllers creates what hcloud-ccm and the CSI driver would create in the cluster: a load balancer that blocks
// its network; neither resource names the cluster.
func (p project) plantControllers(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	network, err := hetzner.NetworkID(ctx, p.Client, "k8s")
	if err != nil || network == 0 {
		t.Fatalf("the cluster's network: %d, %v", network, err)
	}
	servers := must(hetzner.Servers(ctx, p.Client, "k8s"))(t)
	balancer, _, err := p.LoadBalancer.Create(ctx, hcloud.LoadBalancerCreateOpts{
		Name: "a0b1c2d3", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "nbg1"},
		Network: &hcloud.Network{ID: network}, Labels: map[string]string{"hcloud-ccm/service-uid": "0d1e"},
	})
	if err == nil {
		err = p.Action.WaitFor(ctx, balancer.Action)
	}
	if err != nil {
		t.Fatal(err)
	}
	volume, _, err := p.Volume.Create(ctx, hcloud.VolumeCreateOpts{
		Name: "pvc-0", Size: 10, Server: &hcloud.Server{ID: servers[0].ID},
		Labels: map[string]string{"managed-by": "csi-driver"},
	})
	if err == nil {
		err = p.Action.WaitFor(ctx, append(volume.NextActions, volume.Action)...)
	}
	if err != nil {
		t.Fatal(err)
	}
}
