package cloud

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/metadata"
)

func TestSnapshots(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	for range 2 { // the second time there is nothing to do
		for _, architecture := range []string{"amd64", "arm"} {
			if err := w.cloud.EnsureSnapshot("talos-1", architecture); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.cloud.EnsureSnapshot("talos-1", "mips"); err == nil {
		t.Error("a snapshot for mips is made")
	}
	find := func(opts hcloud.ImageListOpts) []*hcloud.Image {
		return must[[]*hcloud.Image](t)(w.Image.List(ctx, opts))
	}
	labelled := hcloud.ListOpts{LabelSelector: "caph-image-name==talos-1,os=talos"}
	found := find(hcloud.ImageListOpts{ListOpts: labelled})
	if len(found) != 2 || found[0].Name != "" || found[0].Status != hcloud.ImageStatusAvailable ||
		found[0].Type != hcloud.ImageTypeSnapshot {
		t.Fatalf("the snapshots are %+v", found)
	}
	arm := find(hcloud.ImageListOpts{ListOpts: labelled, Architecture: []hcloud.Architecture{hcloud.ArchitectureARM}})
	if len(arm) != 1 {
		t.Errorf("%d snapshots are for arm", len(arm))
	}
	if named := find(hcloud.ImageListOpts{Name: "talos-1"}); len(named) != 0 {
		t.Error("a snapshot is found by name")
	}
	if system := find(hcloud.ImageListOpts{
		Type: []hcloud.ImageType{hcloud.ImageTypeSystem}, Name: "ubuntu-24.04",
	}); len(system) != 2 || !system[0].RapidDeploy {
		t.Errorf("ubuntu-24.04 is %+v", system)
	}
	creating := find(hcloud.ImageListOpts{Status: []hcloud.ImageStatus{hcloud.ImageStatusCreating}})
	if len(creating) != 0 {
		t.Errorf("images are being made: %+v", creating)
	}

	source := w.server("source", nil)
	taken := must[hcloud.ServerCreateImageResult](t)(w.Server.CreateImage(ctx, source, &hcloud.ServerCreateImageOpts{
		Type: hcloud.ImageTypeSnapshot, Description: hcloud.Ptr("mine"), Labels: map[string]string{"os": "talos"},
	}))
	if taken.Image.Status != hcloud.ImageStatusCreating || taken.Image.CreatedFrom.Name != "source" {
		t.Errorf("the new snapshot is %+v", taken.Image)
	}
	w.done(taken.Action)
	made := must[*hcloud.Image](t)(w.Image.GetByID(ctx, taken.Image.ID))
	if made.Status != hcloud.ImageStatusAvailable || made.ImageSize == 0 || made.Architecture != hcloud.ArchitectureX86 {
		t.Errorf("the finished snapshot is %+v", made)
	}
	made = must[*hcloud.Image](t)(w.Image.Update(ctx, made,
		hcloud.ImageUpdateOpts{Description: hcloud.Ptr("ours"), Labels: map[string]string{"x": "y"}}))
	if made.Description != "ours" || made.Labels["x"] != "y" {
		t.Errorf("the changed snapshot is %+v", made)
	}
	w.done(must[*hcloud.Action](t)(w.Image.ChangeProtection(ctx, made,
		hcloud.ImageChangeProtectionOpts{Delete: hcloud.Ptr(true)})))
	_, err := w.Image.Delete(ctx, made)
	wants(t, "protected", err)
	w.done(must[*hcloud.Action](t)(w.Image.ChangeProtection(ctx, made,
		hcloud.ImageChangeProtectionOpts{Delete: hcloud.Ptr(false)})))

	// A snapshot of which servers exist can be deleted; the servers still show it.
	child := w.server("child", func(o *hcloud.ServerCreateOpts) { o.Image = made })
	if _, err := w.Image.Delete(ctx, made); err != nil {
		t.Fatal(err)
	}
	child = must[*hcloud.Server](t)(w.Server.GetByID(ctx, child.ID))
	if !child.Image.IsDeleted() {
		t.Error("the server's image is not shown as deleted")
	}
	if left := find(hcloud.ImageListOpts{ListOpts: hcloud.ListOpts{LabelSelector: "x"}}); len(left) != 0 {
		t.Error("the deleted snapshot is still listed")
	}
	_, _, err = w.Server.Create(ctx, hcloud.ServerCreateOpts{Name: "late", ServerType: &hcloud.ServerType{Name: "cx33"},
		Image: made})
	wants(t, "invalid_input", err)
	system := find(hcloud.ImageListOpts{Name: "debian-12"})[0]
	_, err = w.Image.Delete(ctx, system)
	wants(t, "forbidden", err)
	_, _, err = w.Image.Update(ctx, system, hcloud.ImageUpdateOpts{Description: hcloud.Ptr("mine")})
	wants(t, "forbidden", err)
}

func TestFirewalls(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	early := w.server("early", func(o *hcloud.ServerCreateOpts) { o.Labels = map[string]string{"k8s": "owned"} })
	rule := hcloud.FirewallRule{
		Direction: hcloud.FirewallRuleDirectionIn, Protocol: hcloud.FirewallRuleProtocolTCP, Port: hcloud.Ptr("6443"),
		SourceIPs: []net.IPNet{*cidr("10.0.0.0/8")}, Description: hcloud.Ptr("api"),
	}
	selector := hcloud.FirewallResource{Type: hcloud.FirewallResourceTypeLabelSelector,
		LabelSelector: &hcloud.FirewallResourceLabelSelector{Selector: "k8s==owned"}}
	made := must[hcloud.FirewallCreateResult](t)(w.Firewall.Create(ctx,
		hcloud.FirewallCreateOpts{Name: "k8s", Rules: []hcloud.FirewallRule{rule},
			ApplyTo: []hcloud.FirewallResource{selector}}))
	w.done(made.Actions...)
	late := w.server("late", func(o *hcloud.ServerCreateOpts) { o.Labels = map[string]string{"k8s": "owned"} })
	plain := w.server("plain", nil)

	wall := must[*hcloud.Firewall](t)(w.Firewall.GetByName(ctx, "k8s"))
	covered := func() (ids []int64) {
		wall = must[*hcloud.Firewall](t)(w.Firewall.GetByID(ctx, wall.ID))
		for _, resource := range wall.AppliedTo {
			if resource.Server != nil {
				ids = append(ids, resource.Server.ID)
			}
			for _, each := range resource.AppliedToResources {
				ids = append(ids, each.Server.ID)
			}
		}
		return ids
	}
	if got := covered(); !slices.Equal(got, []int64{early.ID, late.ID}) {
		t.Errorf("the firewall covers %v, not the servers with its label, also those born later", got)
	}
	if len(late.PublicNet.Firewalls) != 1 || late.PublicNet.Firewalls[0].Status != hcloud.FirewallStatusApplied ||
		len(plain.PublicNet.Firewalls) != 0 {
		t.Errorf("the servers show %+v and %+v", late.PublicNet.Firewalls, plain.PublicNet.Firewalls)
	}
	if len(wall.Rules) != 1 || *wall.Rules[0].Port != "6443" || *wall.Rules[0].Description != "api" {
		t.Errorf("its rules are %+v", wall.Rules)
	}

	single := hcloud.FirewallResource{Type: hcloud.FirewallResourceTypeServer,
		Server: &hcloud.FirewallResourceServer{ID: plain.ID}}
	w.done(must[[]*hcloud.Action](t)(w.Firewall.ApplyResources(ctx, wall, []hcloud.FirewallResource{single}))...)
	_, _, err := w.Firewall.ApplyResources(ctx, wall, []hcloud.FirewallResource{single})
	wants(t, "firewall_already_applied", err)
	managed := hcloud.FirewallResource{Type: hcloud.FirewallResourceTypeServer,
		Server: &hcloud.FirewallResourceServer{ID: late.ID}}
	_, _, err = w.Firewall.RemoveResources(ctx, wall, []hcloud.FirewallResource{managed})
	wants(t, "firewall_managed_by_label_selector", err)
	missing := hcloud.FirewallResource{Type: hcloud.FirewallResourceTypeServer,
		Server: &hcloud.FirewallResourceServer{ID: 7}}
	_, _, err = w.Firewall.ApplyResources(ctx, wall, []hcloud.FirewallResource{missing})
	wants(t, "firewall_resource_not_found", err)

	actions := must[[]*hcloud.Action](t)(w.Firewall.SetRules(ctx, wall, hcloud.FirewallSetRulesOpts{Rules: nil}))
	w.done(actions...)
	if len(actions) != 4 { // the rules, and each of three servers
		t.Errorf("setting rules takes %d actions", len(actions))
	}
	for name, wrong := range map[string]hcloud.FirewallRule{
		"no port": {Direction: rule.Direction, Protocol: rule.Protocol, SourceIPs: rule.SourceIPs},
		"icmp port": {Direction: rule.Direction, Protocol: hcloud.FirewallRuleProtocolICMP, Port: rule.Port,
			SourceIPs: rule.SourceIPs},
		"no peers":  {Direction: rule.Direction, Protocol: rule.Protocol, Port: rule.Port},
		"direction": {Direction: "up", Protocol: rule.Protocol, Port: rule.Port, SourceIPs: rule.SourceIPs},
		"protocol":  {Direction: rule.Direction, Protocol: "sctp", Port: rule.Port, SourceIPs: rule.SourceIPs},
	} {
		_, _, err := w.Firewall.SetRules(ctx, wall, hcloud.FirewallSetRulesOpts{Rules: []hcloud.FirewallRule{wrong}})
		if !hcloud.IsError(err, hcloud.ErrorCodeInvalidInput) {
			t.Errorf("a rule with a wrong %s: %v", name, err)
		}
	}
	_, err = w.Firewall.Delete(ctx, wall)
	wants(t, "resource_in_use", err)
	w.done(must[[]*hcloud.Action](t)(w.Firewall.RemoveResources(ctx, wall,
		[]hcloud.FirewallResource{selector, single}))...)
	if got := covered(); len(got) != 0 {
		t.Errorf("the removed firewall covers %v", got)
	}
	wall = must[*hcloud.Firewall](t)(w.Firewall.Update(ctx, wall,
		hcloud.FirewallUpdateOpts{Name: "renamed", Labels: map[string]string{"a": "b"}}))
	if wall.Name != "renamed" || wall.Labels["a"] != "b" {
		t.Errorf("the firewall is %+v", wall)
	}
	if _, err := w.Firewall.Delete(ctx, wall); err != nil {
		t.Error(err)
	}

	born := w.server("born-behind", func(o *hcloud.ServerCreateOpts) {
		another := must[hcloud.FirewallCreateResult](t)(w.Firewall.Create(ctx,
			hcloud.FirewallCreateOpts{Name: "another"})).Firewall
		o.Firewalls = []*hcloud.ServerCreateFirewall{{Firewall: *another}}
	})
	if len(born.PublicNet.Firewalls) != 1 {
		t.Error("a server made with a firewall does not have it")
	}
}

func TestSSHKeys(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	const public = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJ5dGVzLW9mLWEta2V5LXRoYXQtbm9ib2R5LWhhcy0x slipway"
	key := must[*hcloud.SSHKey](t)(w.SSHKey.Create(ctx, hcloud.SSHKeyCreateOpts{Name: "mine", PublicKey: public}))
	if len(strings.Split(key.Fingerprint, ":")) != 16 || key.PublicKey != public {
		t.Errorf("the key is %+v", key)
	}
	_, _, err := w.SSHKey.Create(ctx, hcloud.SSHKeyCreateOpts{Name: "again", PublicKey: public})
	wants(t, "uniqueness_error", err)
	_, _, err = w.SSHKey.Create(ctx, hcloud.SSHKeyCreateOpts{Name: "nonsense", PublicKey: "no key"})
	wants(t, "invalid_input", err)
	if found := must[*hcloud.SSHKey](t)(w.SSHKey.GetByFingerprint(ctx, key.Fingerprint)); found == nil ||
		found.ID != key.ID {
		t.Errorf("by its fingerprint the key is %+v", found)
	}
	status, reply := w.raw(http.MethodPost, "/servers",
		`{"name":"one","server_type":"cx23","image":"debian-12","ssh_keys":["mine"]}`)
	if status != http.StatusCreated || !strings.Contains(reply, `"root_password":null`) {
		t.Errorf("a server with a key named by name: %d %s", status, reply)
	}
	key = must[*hcloud.SSHKey](t)(w.SSHKey.Update(ctx, key, hcloud.SSHKeyUpdateOpts{Name: "ours"}))
	if key.Name != "ours" {
		t.Errorf("the key is called %s", key.Name)
	}
	if _, err := w.SSHKey.Delete(ctx, key); err != nil {
		t.Error(err)
	}
}

func TestPlacementGroupsAreListedByTypeAndRenamed(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	made := must[hcloud.PlacementGroupCreateResult](t)(w.PlacementGroup.Create(ctx,
		hcloud.PlacementGroupCreateOpts{Name: "a", Type: hcloud.PlacementGroupTypeSpread})).PlacementGroup
	_, _, err := w.PlacementGroup.Create(ctx, hcloud.PlacementGroupCreateOpts{Name: "b", Type: "heap"})
	wants(t, "invalid_input", err)
	made = must[*hcloud.PlacementGroup](t)(w.PlacementGroup.Update(ctx, made, hcloud.PlacementGroupUpdateOpts{Name: "c"}))
	list := must[[]*hcloud.PlacementGroup](t)(w.PlacementGroup.List(ctx,
		hcloud.PlacementGroupListOpts{Type: hcloud.PlacementGroupTypeSpread}))
	if len(list) != 1 || list[0].Name != "c" {
		t.Errorf("the groups are %+v", list)
	}
	if _, err := w.PlacementGroup.Delete(ctx, made); err != nil {
		t.Error(err)
	}
}

func TestPrimaryIPs(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	one := w.server("one", nil)
	made := must[*hcloud.PrimaryIPCreateResult](t)(w.PrimaryIP.Create(ctx,
		hcloud.PrimaryIPCreateOpts{Name: "spare", Type: hcloud.PrimaryIPTypeIPv4, Location: "nbg1", AssigneeType: "server"})).
		PrimaryIP
	assign := func() (*hcloud.Action, *hcloud.Response, error) {
		return w.PrimaryIP.Assign(ctx, hcloud.PrimaryIPAssignOpts{ID: made.ID, AssigneeID: one.ID, AssigneeType: "server"})
	}
	_, _, err := assign()
	wants(t, "server_has_ipv4", err)
	own := must[*hcloud.PrimaryIP](t)(w.PrimaryIP.GetByIP(ctx, one.PublicNet.IPv4.IP.String()))
	_, err = w.PrimaryIP.Delete(ctx, own)
	wants(t, "must_be_unassigned", err)
	_, _, err = w.PrimaryIP.Unassign(ctx, own.ID)
	wants(t, "server_not_stopped", err)
	w.done(must[*hcloud.Action](t)(w.Server.Poweroff(ctx, one)))
	w.done(must[*hcloud.Action](t)(w.PrimaryIP.Unassign(ctx, own.ID)))
	w.done(must[*hcloud.Action](t)(assign()))
	_, _, err = assign()
	wants(t, "primary_ip_already_assigned", err)
	one = must[*hcloud.Server](t)(w.Server.GetByID(ctx, one.ID))
	if one.PublicNet.IPv4.ID != made.ID {
		t.Errorf("the server has %+v", one.PublicNet.IPv4)
	}
	w.done(must[*hcloud.Action](t)(w.PrimaryIP.ChangeDNSPtr(ctx,
		hcloud.PrimaryIPChangeDNSPtrOpts{ID: made.ID, IP: made.IP.String(), DNSPtr: "x.example"})))
	for _, test := range []struct {
		id       int64
		location string
		code     string
	}{{7, "nbg1", "invalid_input"}, {made.ID, "nbg1", "primary_ip_assigned"},
		{own.ID, "fsn1", "primary_ip_datacenter_mismatch"}} {
		_, _, err := w.Server.Create(ctx, hcloud.ServerCreateOpts{
			Name: "two", ServerType: &hcloud.ServerType{Name: "cx33"}, Image: &hcloud.Image{Name: "debian-12"},
			Location:  &hcloud.Location{Name: test.location},
			PublicNet: &hcloud.ServerCreatePublicNet{EnableIPv4: true, IPv4: &hcloud.PrimaryIP{ID: test.id}},
		})
		wants(t, test.code, err)
	}
	w.done(must[*hcloud.Action](t)(w.PrimaryIP.ChangeProtection(ctx,
		hcloud.PrimaryIPChangeProtectionOpts{ID: own.ID, Delete: true})))
	_, err = w.PrimaryIP.Delete(ctx, own)
	wants(t, "protected", err)
	made = must[*hcloud.PrimaryIP](t)(w.PrimaryIP.Update(ctx, made,
		hcloud.PrimaryIPUpdateOpts{Name: "kept", AutoDelete: hcloud.Ptr(true)}))
	if made.Name != "kept" || !made.AutoDelete || made.DNSPtr[made.IP.String()] != "x.example" {
		t.Errorf("the primary IP is %+v", made)
	}
}

func TestVolumes(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	one := w.server("one", nil)
	_, _, err := w.Volume.Create(ctx, hcloud.VolumeCreateOpts{Name: "small", Size: 1, Location: one.Location})
	wants(t, "invalid_input", err)
	made := must[hcloud.VolumeCreateResult](t)(w.Volume.Create(ctx,
		hcloud.VolumeCreateOpts{Name: "data", Size: 10, Server: one, Format: hcloud.Ptr("ext4")}))
	w.done(append(made.NextActions, made.Action)...)
	one = must[*hcloud.Server](t)(w.Server.GetByID(ctx, one.ID))
	if len(one.Volumes) != 1 {
		t.Errorf("the server has volumes %v", one.Volumes)
	}
	disk := made.Volume
	_, err = w.Volume.Delete(ctx, disk)
	wants(t, "resource_in_use", err)
	_, _, err = w.Volume.Attach(ctx, disk, one)
	wants(t, "volume_already_attached", err)
	_, _, err = w.Volume.Resize(ctx, disk, 10)
	wants(t, "invalid_input", err)
	w.done(must[*hcloud.Action](t)(w.Volume.Resize(ctx, disk, 20)))
	w.done(must[*hcloud.Action](t)(w.Volume.Detach(ctx, disk)))
	w.done(must[*hcloud.Action](t)(w.Volume.Attach(ctx, disk, one)))
	w.done(must[*hcloud.Action](t)(w.Volume.Detach(ctx, disk)))
	w.done(must[*hcloud.Action](t)(w.Volume.ChangeProtection(ctx, disk,
		hcloud.VolumeChangeProtectionOpts{Delete: hcloud.Ptr(true)})))
	_, err = w.Volume.Delete(ctx, disk)
	wants(t, "protected", err)
	w.done(must[*hcloud.Action](t)(w.Volume.ChangeProtection(ctx, disk,
		hcloud.VolumeChangeProtectionOpts{Delete: hcloud.Ptr(false)})))
	disk = must[*hcloud.Volume](t)(w.Volume.Update(ctx, disk, hcloud.VolumeUpdateOpts{Name: "renamed"}))
	if disk.Size != 20 || disk.Name != "renamed" || disk.Server != nil {
		t.Errorf("the volume is %+v", disk)
	}
	if _, err := w.Volume.Delete(ctx, disk); err != nil {
		t.Error(err)
	}
}

func TestCatalog(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	locations, err := w.Location.All(ctx)
	if err != nil {
		t.Fatal(err)
	}
	zones := map[string]string{}
	for _, one := range locations {
		zones[one.Name] = string(one.NetworkZone)
	}
	want := map[string]string{"nbg1": "eu-central", "fsn1": "eu-central", "hel1": "eu-central", "ash": "us-east",
		"hil": "us-west", "sin": "ap-southeast"}
	if fmt.Sprint(zones) != fmt.Sprint(want) {
		t.Errorf("the locations are %v", zones)
	}
	types, err := w.ServerType.All(ctx)
	if err != nil || len(types) < 20 {
		t.Fatalf("there are %d server types, %v", len(types), err)
	}
	for _, one := range types {
		if len(one.Locations) == 0 || len(one.Locations) != len(one.Pricings) || one.Cores == 0 || one.Memory == 0 ||
			one.Disk == 0 {
			t.Errorf("server type %s is %+v", one.Name, one)
		}
	}
	kind := must[*hcloud.ServerType](t)(w.ServerType.GetByName(ctx, "cx33"))
	if kind.Cores != 4 || kind.Memory != 8 || kind.Disk != 80 || kind.Architecture != hcloud.ArchitectureX86 ||
		!kind.Locations[0].Available {
		t.Errorf("cx33 is %+v", kind)
	}
	old := must[*hcloud.ServerType](t)(w.ServerType.GetByName(ctx, "cx22"))
	if old.Locations[0].Available || !old.Locations[0].IsDeprecated() {
		t.Errorf("cx22 is %+v", old.Locations[0])
	}
	if lb := must[*hcloud.LoadBalancerType](t)(w.LoadBalancerType.GetByName(ctx, "lb11")); lb.MaxServices != 5 ||
		lb.MaxTargets != 25 {
		t.Errorf("lb11 is %+v", lb)
	}
	pricing := must[hcloud.Pricing](t)(w.Pricing.Get(ctx))
	if len(pricing.ServerTypes) != len(types) || pricing.Currency != "EUR" || len(pricing.PrimaryIPs) != 2 {
		t.Errorf("the prices are %+v", pricing)
	}
	for _, path := range []string{"/locations/1", "/server_types/115",
		"/load_balancer_types/1", "/pricing"} {
		if status, body := w.raw(http.MethodGet, path, ""); status != http.StatusOK || !json.Valid([]byte(body)) {
			t.Errorf("GET %s → %d", path, status)
		}
	}
	for _, path := range []string{"/datacenters", "/datacenters/2"} {
		if status, body := w.raw(http.MethodGet, path, ""); status != http.StatusGone ||
			!strings.Contains(body, "deprecated_api_endpoint") {
			t.Errorf("GET %s → %d %s", path, status, body)
		}
	}
}

func TestMetadata(t *testing.T) {
	w := newHarness(t)
	network := w.network()
	one := w.server("one", func(o *hcloud.ServerCreateOpts) {
		o.Networks = []*hcloud.Network{network}
		o.UserData = "user data"
	})
	server := httptest.NewServer(w.cloud.Metadata(one.ID))
	defer server.Close()
	client := metadata.NewClient(metadata.WithEndpoint(server.URL + "/hetzner/v1/metadata"))
	name, err := client.HostnameWithContext(t.Context())
	id, err2 := client.InstanceIDWithContext(t.Context())
	zone, err3 := client.AvailabilityZoneWithContext(t.Context())
	region, err4 := client.RegionWithContext(t.Context())
	ip, err5 := client.PublicIPv4WithContext(t.Context())
	nets, err6 := client.PrivateNetworksWithContext(t.Context())
	for _, err := range []error{err, err2, err3, err4, err5, err6} {
		if err != nil {
			t.Error(err)
		}
	}
	if name != "one" || id != one.ID || zone != "nbg1-dc3" || region != "eu-central" || !ip.Equal(one.PublicNet.IPv4.IP) ||
		!strings.Contains(nets, fmt.Sprintf("- ip: 127.40.64.1\n  alias_ips: []\n  interface_num: 1\n  mac_address: %s\n"+
			"  network_id: %d\n  network_name: %s\n  network: %s\n  subnet: ", one.PrivateNet[0].MACAddress, network.ID,
			network.Name, network.IPRange)) {
		t.Errorf("the metadata are %q %d %q %q %v %q", name, id, zone, region, ip, nets)
	}
	for path, want := range map[string]string{"userdata": "user data", "metadata/local-ipv4": "127.40.64.1"} {
		reply, err := http.Get(server.URL + "/hetzner/v1/" + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		if err != nil || string(body) != want {
			t.Errorf("%s is %q, %v", path, body, err)
		}
	}
	w.done(must[*hcloud.ServerDeleteResult](t)(w.Server.DeleteWithResult(t.Context(), one)).Action)
	if client.IsHcloudServerWithContext(t.Context()) {
		t.Error("a server that is gone still has metadata")
	}
}
