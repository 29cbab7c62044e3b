package cloud

import (
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

const builderKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7xZ7G4gYQ2s6rP0bq4Xr1Yc9mTn0l3nP8h5uVwXyZa"

// TestRescueIsForOneBoot does what an image upload does to its server.
func TestRescueIsForOneBoot(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	key := must[*hcloud.SSHKey](t)(w.SSHKey.Create(ctx, hcloud.SSHKeyCreateOpts{Name: "builder", PublicKey: builderKey}))
	made := must[hcloud.ServerCreateResult](t)(w.Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: "builder", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "ubuntu-24.04"},
		Location: &hcloud.Location{Name: "nbg1"}, StartAfterCreate: hcloud.Ptr(false),
	}))
	w.done(made.Action)
	one := made.Server
	rescue := must[hcloud.ServerEnableRescueResult](t)(w.Server.EnableRescue(ctx, one, hcloud.ServerEnableRescueOpts{
		Type: hcloud.ServerRescueTypeLinux64, SSHKeys: []*hcloud.SSHKey{key},
	}))
	w.done(rescue.Action)
	w.done(must[*hcloud.Action](t)(w.Server.Poweron(ctx, one)))
	if seen := w.machines.running[one.ID]; !seen.Rescue || len(seen.RescueKeys) != 1 || seen.RescueKeys[0] != builderKey {
		t.Errorf("the machine booted with %v, keys %q", seen.Rescue, seen.RescueKeys)
	}

	w.cloud.PoweredOff(one.ID) // as the rescue system does on "shutdown now"
	one = must[*hcloud.Server](t)(w.Server.GetByID(ctx, one.ID))
	if one.Status != hcloud.ServerStatusOff {
		t.Errorf("a server that shut itself down is %s", one.Status)
	}
	w.done(must[*hcloud.Action](t)(w.Server.Poweron(ctx, one)))
	if seen := w.machines.running[one.ID]; seen.Rescue || len(seen.RescueKeys) > 0 {
		t.Error("the next boot is a rescue again")
	}
}
