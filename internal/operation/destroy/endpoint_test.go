package destroy

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
)

// The control plane's address is the last that goes of what costs money, and is unprotected only then.
func TestDestroyDeletesTheAddressLast(t *testing.T) {
	s := hetznertest.NewEmpty()
	defer s.Close()
	plantCluster(s)
	plantEndpoint(s)
	s.Lock(10, 4) // the network takes longer than everything else
	if err := listAndDestroy(t.Context(), demolisher(t, s, nil), Options{Images: true, Volumes: true},
		quietly); err != nil {
		t.Fatal(err)
	}
	unprotect, remove := "POST /primary_ips/80/actions/change_protection", "DELETE /primary_ips/80"
	writes := s.Writes()
	at := slices.Index(writes, unprotect)
	if at < 0 || slices.Index(writes, remove) != at+1 || slices.Contains(writes[at+1:], unprotect) {
		t.Fatalf("it is unprotected and deleted at once and once: %v", writes)
	}
	for _, later := range writes[at+2:] {
		if !strings.HasPrefix(later, "DELETE /placement_groups/") {
			t.Errorf("after the address: %s", later)
		}
	}
	if slices.Contains(s.Left(), "primary_ips/80") || slices.Contains(s.Left(), "load_balancers/81") {
		t.Errorf("left: %v", s.Left())
	}
}

// An address that its load balancer still has is not unprotected.
func TestAssignedAddressIsNotTouched(t *testing.T) {
	s := hetznertest.NewEmpty()
	defer s.Close()
	plantEndpoint(s)
	inventory, err := hetzner.ListResources(t.Context(), s.Client(nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range inventory.Resources {
		if !r.IsEndpointAddress() {
			continue
		}
		pending, err := hetzner.NewRemoval(s.Client(nil)).Remove(t.Context(), r)
		if err != nil || !strings.Contains(pending, "is assigned to its load balancer") || len(s.Writes()) > 0 {
			t.Errorf("%q, %v; it wrote %v", pending, err, s.Writes())
		}
		return
	}
	t.Fatal("the inventory does not have the address")
}

// With --keep-address it stays as it is, protected; a later destroy takes it.
func TestDestroyKeepsTheAddress(t *testing.T) {
	s := hetznertest.NewEmpty()
	defer s.Close()
	plantCluster(s)
	plantEndpoint(s)
	o := demolisher(t, s, nil)
	keep := Options{Images: true, Volumes: true, KeepAddress: true}
	plan, err := o.Plan(t.Context(), keep)
	if err != nil || !slices.ContainsFunc(plan.Keep, func(k Kept) bool { return k.IsEndpointAddress() }) {
		t.Errorf("the list does not say that it stays: %+v, %v", plan.Keep, err)
	}
	if err := listAndDestroy(t.Context(), o, keep, quietly); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(s.Left(), "primary_ips/80") || slices.Contains(s.Left(), "load_balancers/81") ||
		!strings.Contains(s.Snapshot("primary_ips", 80), `"protection":{"delete":true}`) {
		t.Errorf("left: %v; the address is %s", s.Left(), s.Snapshot("primary_ips", 80))
	}
	if err := listAndDestroy(t.Context(), o, Options{}, quietly); err != nil ||
		slices.Contains(s.Left(), "primary_ips/80") {
		t.Errorf("without --keep-address: %v, left %v", err, s.Left())
	}
}

// A destroy that dies at any request leaves no address unprotected that something still has, and its next run ends it.
func TestDestroyOfTheAddressKilledAtEveryRequest(t *testing.T) {
	for n := 1; ; n++ {
		s := hetznertest.NewEmpty()
		plantEndpoint(s)
		ctx, cancel := context.WithCancel(t.Context())
		err := listAndDestroy(ctx, demolisher(t, s, &dying{n: n, arrives: n%2 == 0, kill: cancel}), Options{}, quietly)
		cancel()
		if slices.Contains(s.Left(), "load_balancers/81") &&
			!strings.Contains(s.Snapshot("primary_ips", 80), `"protection":{"delete":true}`) {
			t.Errorf("after a death at request %d the address is unprotected while the load balancer has it", n)
		}
		if again := listAndDestroy(t.Context(), demolisher(t, s, nil), Options{}, quietly); again != nil ||
			slices.Contains(s.Left(), "primary_ips/80") {
			t.Errorf("after a death at request %d: %v, left %v", n, again, s.Left())
		}
		s.Close()
		if err == nil {
			t.Logf("killed at each of %d requests", n-1)
			return
		}
	}
}
