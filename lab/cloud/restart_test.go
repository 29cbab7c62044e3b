package cloud

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

func TestRestart(t *testing.T) {
	needsLoopback(t)
	w := newHarness(t)
	ctx := t.Context()
	w.machines.serve = apiPort
	network := w.network()
	lb := w.balanced(network)
	in := func(o *hcloud.ServerCreateOpts) {
		o.Networks, o.UserData = []*hcloud.Network{network}, "user data"
	}
	on := w.server("on", in)
	off := w.server("off", in)
	w.done(must[*hcloud.Action](t)(w.Server.Poweroff(ctx, off)))
	w.aim(lb, on, true)
	public := net.JoinHostPort(lb.PublicNet.IPv4.IP.String(), "6443")
	eventually(t, "the load balancer listens", func() bool { return !refused(public) })

	if err := w.cloud.Close(); err != nil {
		t.Fatal(err)
	}
	if !refused(public) {
		t.Error("a closed Cloud still listens")
	}
	w.machines.stopAll()
	again := startWorld(t, w.config)
	again.machines.serve = apiPort
	if got := again.machines.history(); got != "start on" {
		t.Errorf("after the restart the machines went through %q", got)
	}
	if seen := again.machines.running[on.ID]; seen.UserData != "user data" || seen.PrivateIP().String() != "127.40.64.2" {
		t.Errorf("the machine is started with %+v", seen)
	}
	after := must[*hcloud.Server](t)(again.Server.GetByName(ctx, "off"))
	if after.ID != off.ID || after.Status != hcloud.ServerStatusOff || !after.Created.Equal(off.Created) {
		t.Errorf("after the restart the server is %+v", after)
	}
	// The health check finds a machine that starts again, as before.
	again.done(must[*hcloud.Action](t)(again.Server.Reset(ctx, on)))
	eventually(t, "the load balancer forwards again", func() bool {
		heard, _ := say(public, "")
		return heard == "on heard "
	})
	fresh := must[hcloud.PlacementGroupCreateResult](t)(again.PlacementGroup.Create(ctx,
		hcloud.PlacementGroupCreateOpts{Name: "new", Type: hcloud.PlacementGroupTypeSpread}))
	if fresh.PlacementGroup.ID <= off.ID {
		t.Errorf("the id %d was given out before", fresh.PlacementGroup.ID)
	}
}

func TestRestartTakesUpUnfinishedActions(t *testing.T) {
	slow := InstantLatency()
	slow.Actions["create_server"] = Span{Min: 200 * time.Millisecond, Max: 200 * time.Millisecond}
	w := newHarness(t, func(c *Config) { c.Latency = slow })
	made := must[hcloud.ServerCreateResult](t)(w.Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "one", ServerType: &hcloud.ServerType{Name: "cx33"}, Image: &hcloud.Image{Name: "debian-12"},
	}))
	again := w.restart()
	again.done(append(made.NextActions, made.Action)...)
	if seen := again.cloud.Servers()[0]; seen.Status != statusRunning || again.machines.history() != "start one" {
		t.Errorf("the server that was being made is %s, its machine went through %q", seen.Status, again.machines.history())
	}
}

func TestStateIsPrivateAndWhole(t *testing.T) {
	w := newHarness(t)
	w.server("one", nil)
	path := filepath.Join(w.config.Dir, "state.json")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the state is %v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(w.config.Dir)
	if err != nil || len(entries) != 2 { // and the request log
		t.Errorf("the folder holds %v, %v", entries, err)
	}
	if data, err := os.ReadFile(path); err != nil || strings.Contains(string(data), testToken) {
		t.Errorf("the state holds the token, or %v", err)
	}
	if err := os.WriteFile(path, []byte(`{"servers":`), 0o600); err != nil {
		t.Fatal(err)
	}
	config := w.config
	config.RequestLog = ""
	if _, err := New(config); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a broken state is met with %v", err)
	}
}
