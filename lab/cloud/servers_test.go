package cloud

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

func TestServerIsBornCompleteAndRuns(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	net := w.network()
	group := must[hcloud.PlacementGroupCreateResult](t)(w.PlacementGroup.Create(ctx,
		hcloud.PlacementGroupCreateOpts{Name: "spread", Type: hcloud.PlacementGroupTypeSpread})).PlacementGroup
	made := w.server("cp-1", func(o *hcloud.ServerCreateOpts) {
		o.Networks = []*hcloud.Network{net}
		o.PlacementGroup = group
		o.UserData = "planted-user-data"
		o.Labels = map[string]string{"role": "cp"}
	})

	if made.Status != hcloud.ServerStatusRunning || made.Locked {
		t.Errorf("the server is %s, locked %v", made.Status, made.Locked)
	}
	if got := made.PrivateNet[0].IP.String(); got != "127.40.64.1" {
		t.Errorf("its private IP is %s, not the first of the subnet", got)
	}
	if got := made.PublicNet.IPv4.IP.String(); got != "127.41.4.1" {
		t.Errorf("its public IPv4 is %s, not the first of the pool", got)
	}
	if ones, _ := made.PublicNet.IPv6.Network.Mask.Size(); ones != 64 {
		t.Errorf("its IPv6 network is a /%d", ones)
	}
	if made.Location.Name != "nbg1" || made.PlacementGroup.ID != group.ID || made.Image.OSFlavor != "unknown" {
		t.Errorf("the server is %+v", made)
	}
	if seen := w.cloud.Servers()[0]; seen.UserData != "planted-user-data" || seen.Image.Labels["os"] != "talos" ||
		seen.Datacenter != "nbg1-dc3" || seen.PrivateIP().String() != "127.40.64.1" {
		t.Errorf("its machine sees %+v", seen)
	}
	if got := w.machines.history(); got != "start cp-1" {
		t.Errorf("its machine went through %q", got)
	}
	group = must[*hcloud.PlacementGroup](t)(w.PlacementGroup.GetByID(ctx, group.ID))
	if !slices.Equal(group.Servers, []int64{made.ID}) {
		t.Errorf("the placement group has %v", group.Servers)
	}
}

func TestServerPower(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	one := w.server("one", func(o *hcloud.ServerCreateOpts) { o.StartAfterCreate = new(bool) })
	status := func() hcloud.ServerStatus {
		return must[*hcloud.Server](t)(w.Server.GetByID(ctx, one.ID)).Status
	}
	if status() != hcloud.ServerStatusOff {
		t.Fatalf("without start_after_create the server is %s", status())
	}
	steps := []struct {
		do   func() (*hcloud.Action, *hcloud.Response, error)
		want hcloud.ServerStatus
	}{
		{func() (*hcloud.Action, *hcloud.Response, error) { return w.Server.Poweron(ctx, one) }, hcloud.ServerStatusRunning},
		{func() (*hcloud.Action, *hcloud.Response, error) { return w.Server.Reboot(ctx, one) }, hcloud.ServerStatusRunning},
		{func() (*hcloud.Action, *hcloud.Response, error) { return w.Server.Reset(ctx, one) }, hcloud.ServerStatusRunning},
		{func() (*hcloud.Action, *hcloud.Response, error) { return w.Server.Shutdown(ctx, one) }, hcloud.ServerStatusOff},
		{func() (*hcloud.Action, *hcloud.Response, error) { return w.Server.Poweron(ctx, one) }, hcloud.ServerStatusRunning},
		{func() (*hcloud.Action, *hcloud.Response, error) { return w.Server.Poweroff(ctx, one) }, hcloud.ServerStatusOff},
	}
	for i, step := range steps {
		w.done(must[*hcloud.Action](t)(step.do()))
		if got := status(); got != step.want {
			t.Errorf("after step %d the server is %s, not %s", i, got, step.want)
		}
	}
	want := "start one, stop one, start one, cut one, start one, stop one, start one, cut one"
	if got := w.machines.history(); got != want {
		t.Errorf("its machine went through %q, not %q", got, want)
	}
}

func TestServerRequestsThatAreRefused(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	w.server("taken", nil)
	fine := func() hcloud.ServerCreateOpts {
		return hcloud.ServerCreateOpts{
			Name: "new", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "ubuntu-24.04"},
			Location: &hcloud.Location{Name: "fsn1"},
		}
	}
	for name, test := range map[string]struct {
		change func(*hcloud.ServerCreateOpts)
		code   string
	}{
		"a name in use":       {func(o *hcloud.ServerCreateOpts) { o.Name = "taken" }, "uniqueness_error"},
		"a name that is none": {func(o *hcloud.ServerCreateOpts) { o.Name = "not_a_host" }, "invalid_input"},
		"no such type":        {func(o *hcloud.ServerCreateOpts) { o.ServerType.Name = "cx99" }, "invalid_input"},
		"a retired type":      {func(o *hcloud.ServerCreateOpts) { o.ServerType.Name = "cx22" }, "invalid_server_type"},
		"a type elsewhere":    {func(o *hcloud.ServerCreateOpts) { o.Location.Name = "ash" }, "invalid_input"},
		"no such location":    {func(o *hcloud.ServerCreateOpts) { o.Location.Name = "mars1" }, "invalid_input"},
		"no such image":       {func(o *hcloud.ServerCreateOpts) { o.Image.Name = "templeos" }, "invalid_input"},
		"no such network": {func(o *hcloud.ServerCreateOpts) { o.Networks = []*hcloud.Network{{ID: 7}} },
			"invalid_input"},
		"no such key": {func(o *hcloud.ServerCreateOpts) { o.SSHKeys = []*hcloud.SSHKey{{ID: 7}} }, "invalid_input"},
		"no such group": {func(o *hcloud.ServerCreateOpts) { o.PlacementGroup = &hcloud.PlacementGroup{ID: 7} },
			"invalid_input"},
		"no such firewall": {func(o *hcloud.ServerCreateOpts) {
			o.Firewalls = []*hcloud.ServerCreateFirewall{{Firewall: hcloud.Firewall{ID: 7}}}
		}, "invalid_input"},
		"no such volume": {func(o *hcloud.ServerCreateOpts) { o.Volumes = []*hcloud.Volume{{ID: 7}} },
			"invalid_input"},
		"too long a user data": {func(o *hcloud.ServerCreateOpts) { o.UserData = strings.Repeat("x", largestUserData+1) },
			"invalid_input"},
		"a label that is none": {func(o *hcloud.ServerCreateOpts) { o.Labels = map[string]string{"k": "not a value"} },
			"invalid_input"},
		"nothing but isolation": {func(o *hcloud.ServerCreateOpts) { o.PublicNet = &hcloud.ServerCreatePublicNet{} },
			"invalid_input"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := fine()
			test.change(&opts)
			_, _, err := w.Server.Create(ctx, opts)
			wants(t, test.code, err)
		})
	}
	if made := w.cloud.Servers(); len(made) != 1 {
		t.Errorf("refused requests left %d servers", len(made))
	}
	if addresses := must[[]*hcloud.PrimaryIP](t)(w.PrimaryIP.List(ctx, hcloud.PrimaryIPListOpts{})); len(addresses) != 2 {
		t.Errorf("refused requests left %d primary IPs", len(addresses))
	}
	must[hcloud.ServerCreateResult](t)(w.Server.Create(ctx, fine()))
}

func TestServerIsLockedWhileItIsMade(t *testing.T) {
	slow := InstantLatency()
	slow.Actions["create_server"] = Span{Min: 1 << 40, Max: 1 << 40} // 18 minutes: until the test ends
	w := newHarness(t, func(c *Config) { c.Latency = slow })
	made := must[hcloud.ServerCreateResult](t)(w.Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "one", ServerType: &hcloud.ServerType{Name: "cax11"}, Image: &hcloud.Image{Name: "debian-12"},
	}))
	if made.Server.Status != hcloud.ServerStatusInitializing || !made.Server.Locked || made.RootPassword == "" {
		t.Errorf("the new server is %s, locked %v, with a password of %d characters", made.Server.Status, made.Server.Locked,
			len(made.RootPassword))
	}
	if made.Server.Image.Architecture != hcloud.ArchitectureARM {
		t.Errorf("an arm type got an image for %s", made.Server.Image.Architecture)
	}
	if made.Action.Status != hcloud.ActionStatusRunning || made.Action.Progress > 99 || len(made.NextActions) != 1 ||
		made.NextActions[0].Command != "start_server" {
		t.Errorf("its actions are %+v and %+v", made.Action, made.NextActions)
	}
	_, _, err := w.Server.Poweroff(t.Context(), made.Server)
	wants(t, "locked", err)
	_, _, err = w.Server.DeleteWithResult(t.Context(), made.Server)
	wants(t, "locked", err)
}

func TestServerActions(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	net1 := w.network()
	one := w.server("one", nil)

	w.done(must[*hcloud.Action](t)(w.Server.AttachToNetwork(ctx, one,
		hcloud.ServerAttachToNetworkOpts{Network: net1, AliasIPs: []net.IP{net.ParseIP("127.40.64.77")}})))
	_, _, err := w.Server.AttachToNetwork(ctx, one, hcloud.ServerAttachToNetworkOpts{Network: net1})
	wants(t, "server_already_attached", err)
	w.done(must[*hcloud.Action](t)(w.Server.ChangeAliasIPs(ctx, one,
		hcloud.ServerChangeAliasIPsOpts{Network: net1, AliasIPs: []net.IP{net.ParseIP("127.40.64.78")}})))
	one = must[*hcloud.Server](t)(w.Server.GetByID(ctx, one.ID))
	if place := one.PrivateNet[0]; place.IP.String() != "127.40.64.1" || place.Aliases[0].String() != "127.40.64.78" ||
		place.MACAddress == "" {
		t.Errorf("the server is attached as %+v", place)
	}
	w.done(must[*hcloud.Action](t)(w.Server.DetachFromNetwork(ctx, one,
		hcloud.ServerDetachFromNetworkOpts{Network: net1})))
	_, _, err = w.Server.DetachFromNetwork(ctx, one, hcloud.ServerDetachFromNetworkOpts{Network: net1})
	wants(t, "invalid_input", err)
	if got, want := w.machines.history(), "start one, addresses one 1, addresses one 1, addresses one 0"; got != want {
		t.Errorf("the machine went through %q, not %q", got, want)
	}

	rescue := must[hcloud.ServerEnableRescueResult](t)(w.Server.EnableRescue(ctx, one,
		hcloud.ServerEnableRescueOpts{Type: hcloud.ServerRescueTypeLinux64}))
	w.done(rescue.Action)
	w.done(must[*hcloud.Action](t)(w.Server.Reset(ctx, one)))
	if !w.machines.running[one.ID].Rescue {
		t.Error("the machine did not boot into the rescue system")
	}
	one = must[*hcloud.Server](t)(w.Server.GetByID(ctx, one.ID))
	if one.RescueEnabled {
		t.Error("the rescue system lasts longer than a boot")
	}
	w.done(must[*hcloud.Action](t)(w.Server.DisableRescue(ctx, one)))
	w.done(must[hcloud.ServerResetPasswordResult](t)(w.Server.ResetPassword(ctx, one)).Action)
	w.done(must[*hcloud.Action](t)(w.Server.ChangeDNSPtr(ctx, one, one.PublicNet.IPv4.IP.String(),
		hcloud.Ptr("one.example"))))
	w.done(must[*hcloud.Action](t)(w.Server.ChangeDNSPtr(ctx, one, "2001:db8:0:1::7", hcloud.Ptr("seven.example"))))
	one = must[*hcloud.Server](t)(w.Server.GetByID(ctx, one.ID))
	if one.PublicNet.IPv4.DNSPtr != "one.example" || one.PublicNet.IPv6.DNSPtr["2001:db8:0:1::7"] != "seven.example" {
		t.Errorf("its reverse names are %q and %v", one.PublicNet.IPv4.DNSPtr, one.PublicNet.IPv6.DNSPtr)
	}

	rebuilt := must[hcloud.ServerRebuildResult](t)(w.Server.RebuildWithResult(ctx, one,
		hcloud.ServerRebuildOpts{Image: &hcloud.Image{Name: "debian-13"}}))
	w.done(rebuilt.Action)
	if got := w.cloud.Servers()[0].Image.Name; got != "debian-13" {
		t.Errorf("after the rebuild its image is %q", got)
	}
	_, _, err = w.Server.ChangeType(ctx, one, hcloud.ServerChangeTypeOpts{ServerType: &hcloud.ServerType{Name: "cx43"}})
	wants(t, "server_not_stopped", err)
	w.done(must[*hcloud.Action](t)(w.Server.Poweroff(ctx, one)))
	w.done(must[*hcloud.Action](t)(w.Server.ChangeType(ctx, one,
		hcloud.ServerChangeTypeOpts{ServerType: &hcloud.ServerType{Name: "cx43"}, UpgradeDisk: true})))
	one = must[*hcloud.Server](t)(w.Server.Update(ctx, one,
		hcloud.ServerUpdateOpts{Name: "two", Labels: map[string]string{"a": "b"}}))
	if one.ServerType.Name != "cx43" || one.PrimaryDiskSize != 160 || one.Name != "two" || one.Labels["a"] != "b" {
		t.Errorf("the changed server is %+v", one)
	}
	_, _, err = w.Server.Update(ctx, one, hcloud.ServerUpdateOpts{Name: "no_host"})
	wants(t, "invalid_input", err)
}

func TestServerProtectionAndDeletion(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	one := w.server("one", nil)
	kept := must[*hcloud.PrimaryIPCreateResult](t)(w.PrimaryIP.Create(ctx,
		hcloud.PrimaryIPCreateOpts{Name: "kept", Type: hcloud.PrimaryIPTypeIPv4, Location: "nbg1", AssigneeType: "server"})).
		PrimaryIP
	other := w.server("two", func(o *hcloud.ServerCreateOpts) {
		o.PublicNet = &hcloud.ServerCreatePublicNet{EnableIPv4: true, IPv4: kept}
	})
	if other.PublicNet.IPv4.ID != kept.ID || other.PublicNet.IPv6.IsUnspecified() == false {
		t.Errorf("the second server's public net is %+v", other.PublicNet)
	}

	w.done(must[*hcloud.Action](t)(w.Server.ChangeProtection(ctx, one,
		hcloud.ServerChangeProtectionOpts{Delete: hcloud.Ptr(true), Rebuild: hcloud.Ptr(true)})))
	_, _, err := w.Server.DeleteWithResult(ctx, one)
	wants(t, "protected", err)
	_, _, err = w.Server.RebuildWithResult(ctx, one, hcloud.ServerRebuildOpts{Image: &hcloud.Image{Name: "debian-12"}})
	wants(t, "protected", err)
	w.done(must[*hcloud.Action](t)(w.Server.ChangeProtection(ctx, one,
		hcloud.ServerChangeProtectionOpts{Delete: hcloud.Ptr(false), Rebuild: hcloud.Ptr(false)})))

	for _, gone := range []*hcloud.Server{one, other} {
		w.done(must[*hcloud.ServerDeleteResult](t)(w.Server.DeleteWithResult(ctx, gone)).Action)
	}
	if found := must[*hcloud.Server](t)(w.Server.GetByID(ctx, one.ID)); found != nil {
		t.Errorf("the deleted server is still %+v", found)
	}
	left := must[[]*hcloud.PrimaryIP](t)(w.PrimaryIP.List(ctx, hcloud.PrimaryIPListOpts{}))
	if len(left) != 1 || left[0].ID != kept.ID || left[0].AssigneeID != 0 {
		t.Errorf("the addresses that outlived their servers are %+v", left)
	}
	if got, want := w.machines.history(), "start one, start two, delete one, delete two"; got != want {
		t.Errorf("the machines went through %q, not %q", got, want)
	}
}

func TestPlacementGroupIsFullAtTen(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	group := must[hcloud.PlacementGroupCreateResult](t)(w.PlacementGroup.Create(ctx,
		hcloud.PlacementGroupCreateOpts{Name: "g", Type: hcloud.PlacementGroupTypeSpread})).PlacementGroup
	opts := func(i int) hcloud.ServerCreateOpts {
		return hcloud.ServerCreateOpts{
			Name: "s" + strconv.Itoa(i), ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-12"},
			PlacementGroup: group, StartAfterCreate: new(bool),
		}
	}
	for i := range spreadMax {
		must[hcloud.ServerCreateResult](t)(w.Server.Create(ctx, opts(i)))
	}
	_, _, err := w.Server.Create(ctx, opts(spreadMax))
	wants(t, "placement_error", err)
	_, err = w.PlacementGroup.Delete(ctx, group)
	wants(t, "resource_in_use", err)

	one := must[*hcloud.Server](t)(w.Server.GetByName(ctx, "s0"))
	eventually(t, "the server is off", func() bool { return w.cloud.Servers()[0].Status == statusOff })
	w.done(must[*hcloud.Action](t)(w.Server.RemoveFromPlacementGroup(ctx, one)))
	w.done(must[*hcloud.Action](t)(w.Server.AddToPlacementGroup(ctx, one, group)))
	_, _, err = w.Server.AddToPlacementGroup(ctx, one, group)
	wants(t, "server_already_added", err)
}

func TestOldClientsFindAndNameTheDatacenter(t *testing.T) {
	w := newHarness(t, func(c *Config) { c.API = APIFebruary2026 })
	body := `{"name":"one","server_type":"cx23","image":"debian-12","datacenter":"hel1-dc2"}`
	status, reply := w.raw(http.MethodPost, "/servers", body)
	if status != http.StatusCreated || !strings.Contains(reply, `"datacenter":{"id":3,"name":"hel1-dc2"`) {
		t.Errorf("the reply is %d %s", status, reply)
	}
}

func TestMachineThatCannotStart(t *testing.T) {
	w := newHarness(t)
	w.machines.refuse = errors.New("no such boot disk")
	made := must[hcloud.ServerCreateResult](t)(w.Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "one", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-12"},
	}))
	err := w.Action.WaitFor(t.Context(), made.NextActions...)
	if err == nil || !strings.Contains(err.Error(), "no such boot disk") {
		t.Errorf("the failed start says %v", err)
	}
	if got := w.cloud.Servers()[0].Status; got != statusOff {
		t.Errorf("after a failed start the server is %s", got)
	}
}
