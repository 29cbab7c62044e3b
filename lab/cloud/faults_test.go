package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

func (w *harness) fault(fault Fault) int64 {
	w.t.Helper()
	id, err := w.cloud.InjectFault(fault)
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func TestFaultsOfRequests(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	list := func() error { _, _, err := w.Location.List(ctx, hcloud.LocationListOpts{}); return err }

	w.fault(Fault{Kind: FaultError, Path: "/locations", Skip: 1, Times: 1})
	if err := list(); err != nil {
		t.Errorf("the request that was to pass: %v", err)
	}
	wants(t, "server_error", list())
	if err := list(); err != nil {
		t.Errorf("a fault of one hit hits again: %v", err)
	}

	// hcloud-go tries these again, and the second time it goes well.
	for _, fault := range []Fault{
		{Kind: FaultRateLimit, Times: 1},
		{Kind: FaultError, Status: http.StatusBadGateway, Times: 1},
		{Kind: FaultError, Status: http.StatusConflict, Code: "conflict", Times: 1},
		{Kind: FaultTimeout, Delay: Duration(time.Millisecond), Times: 1},
	} {
		w.fault(fault)
		if err := list(); err != nil {
			t.Errorf("after one %s: %v", fault.Kind, err)
		}
		if left := w.cloud.Faults(); len(left) != 0 {
			t.Errorf("the fault %+v did not hit", left)
		}
	}

	id := w.fault(Fault{Kind: FaultError, Method: http.MethodPost, Path: "/servers/*", Code: "maintenance",
		Message: "be back soon"})
	if err := list(); err != nil {
		t.Errorf("a fault for another request hits: %v", err)
	}
	if !w.cloud.RemoveFault(id) || w.cloud.RemoveFault(id) {
		t.Error("a fault is not removed just once")
	}
}

func TestLostReplyTakesEffect(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	create := func() error {
		_, _, err := w.PlacementGroup.Create(ctx,
			hcloud.PlacementGroupCreateOpts{Name: "one", Type: hcloud.PlacementGroupTypeSpread})
		return err
	}
	w.fault(Fault{Kind: FaultLostReply, Method: http.MethodPost, Times: 1})
	if err := create(); !errors.Is(err, io.EOF) {
		t.Errorf("a lost reply reads %v", err)
	}
	wants(t, "uniqueness_error", create())
	log, err := os.ReadFile(w.config.RequestLog)
	if err != nil || !strings.Contains(string(log), `"status":201,"actor":"cloud-test/1`) ||
		!strings.Contains(string(log), `"fault":"lost-reply"`) {
		t.Errorf("the log of a lost reply is %s, %v", log, err)
	}
}

func TestResetHasNoEffect(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	w.fault(Fault{Kind: FaultReset, Method: http.MethodPost, Times: 1})
	_, _, err := w.PlacementGroup.Create(ctx,
		hcloud.PlacementGroupCreateOpts{Name: "one", Type: hcloud.PlacementGroupTypeSpread})
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("a reset reads %v", err)
	}
	if found := must[*hcloud.PlacementGroup](t)(w.PlacementGroup.GetByName(ctx, "one")); found != nil {
		t.Error("a reset request took effect")
	}
}

func TestTimeoutIsSilent(t *testing.T) {
	w := newHarness(t)
	w.fault(Fault{Kind: FaultTimeout, Times: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := w.Location.List(ctx, hcloud.LocationListOpts{})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent request reads %v", err)
	}
}

func TestOutOfStock(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	id := w.fault(Fault{Kind: FaultOutOfStock, ServerType: "cx33", Location: "nbg1"})
	opts := hcloud.ServerCreateOpts{Name: "one", ServerType: &hcloud.ServerType{Name: "cx33"},
		Image: &hcloud.Image{Name: "debian-12"}, Location: &hcloud.Location{Name: "nbg1"}}
	_, _, err := w.Server.Create(ctx, opts)
	wants(t, "resource_unavailable", err)
	kind := must[*hcloud.ServerType](t)(w.ServerType.GetByName(ctx, "cx33"))
	for _, at := range kind.Locations {
		if at.Available == (at.Location.Name == "nbg1") {
			t.Errorf("in %s it is shown as available: %v", at.Location.Name, at.Available)
		}
	}
	opts.Location = &hcloud.Location{Name: "fsn1"}
	must[hcloud.ServerCreateResult](t)(w.Server.Create(ctx, opts))
	w.cloud.RemoveFault(id)
	opts.Name, opts.Location = "two", &hcloud.Location{Name: "nbg1"}
	must[hcloud.ServerCreateResult](t)(w.Server.Create(ctx, opts))
}

func TestActionThatEndsInError(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	w.fault(Fault{Kind: FaultActionError, Command: "create_server", Code: "some_code", Message: "some message", Times: 1})
	opts := hcloud.ServerCreateOpts{Name: "one", ServerType: &hcloud.ServerType{Name: "cx33"},
		Image: &hcloud.Image{Name: "debian-12"}}
	made := must[hcloud.ServerCreateResult](t)(w.Server.Create(ctx, opts))
	err := w.Action.WaitFor(ctx, made.Action)
	var failed hcloud.ActionError
	if !errors.As(err, &failed) || failed.Code != "some_code" || failed.Message != "some message" {
		t.Errorf("the action ends with %v", err)
	}
	if err := w.Action.WaitFor(ctx, made.NextActions...); err == nil {
		t.Error("a server that was not made is started")
	}
	if found := must[*hcloud.Server](t)(w.Server.GetByName(ctx, "one")); found != nil {
		t.Errorf("a server that could not be made is %+v", found)
	}
	must[hcloud.ServerCreateResult](t)(w.Server.Create(ctx, opts))
}

func TestAttachingThatFails(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	network := w.network()
	one := w.server("one", nil)
	w.fault(Fault{Kind: FaultActionError, Command: "attach_to_network", Times: 1})
	attach := func() *hcloud.Action {
		return must[*hcloud.Action](t)(w.Server.AttachToNetwork(ctx, one, hcloud.ServerAttachToNetworkOpts{Network: network}))
	}
	if err := w.Action.WaitFor(ctx, attach()); err == nil {
		t.Error("the action does not fail")
	}
	if place := must[*hcloud.Server](t)(w.Server.GetByID(ctx, one.ID)).PrivateNet; len(place) != 0 {
		t.Errorf("after the failed attaching the server is at %+v", place)
	}
	w.done(attach())
}

func TestSlowBoot(t *testing.T) {
	w := newHarness(t)
	w.fault(Fault{Kind: FaultSlowBoot, Server: "slow-*", Delay: Duration(50 * time.Millisecond)})
	begun := time.Now()
	w.server("slow-1", nil) // the cloud says that it runs
	w.server("quick", nil)
	if got := w.machines.history(); !strings.HasPrefix(got, "start quick") && time.Since(begun) < 50*time.Millisecond {
		t.Errorf("the slow server boots at once: %s", got)
	}
	eventually(t, "the slow server boots", func() bool { return strings.Contains(w.machines.history(), "start slow-1") })
	if passed := time.Since(begun); passed < 50*time.Millisecond {
		t.Errorf("it booted after %v", passed)
	}
}

func TestServerVanishes(t *testing.T) {
	w := newHarness(t)
	one := w.server("one", nil)
	if err := w.cloud.VanishServer(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if found := must[*hcloud.Server](t)(w.Server.GetByID(t.Context(), one.ID)); found != nil ||
		w.machines.history() != "start one, delete one" {
		t.Errorf("the vanished server is %+v, its machine went through %s", found, w.machines.history())
	}
	if err := w.cloud.VanishServer(t.Context(), "one"); err == nil {
		t.Error("a server vanishes twice")
	}
}

func TestFaultsAreChecked(t *testing.T) {
	w := newHarness(t)
	for _, wrong := range []Fault{
		{}, {Kind: "gremlins"}, {Kind: FaultError, Path: "["}, {Kind: FaultError, Status: 200},
		{Kind: FaultError, Probability: 2},
		{Kind: FaultError, Times: -1}, {Kind: FaultSlowBoot}, {Kind: FaultStaleLists},
	} {
		if _, err := w.cloud.InjectFault(wrong); err == nil {
			t.Errorf("the fault %+v is taken", wrong)
		}
	}
	var read Fault
	if err := json.Unmarshal([]byte(`{"kind":"slow-boot","server":"cp-*","delay":"1.5s","times":2}`), &read); err != nil {
		t.Fatal(err)
	}
	want := Fault{Kind: FaultSlowBoot, Server: "cp-*", Delay: Duration(1500 * time.Millisecond), Times: 2}
	if read != want {
		t.Errorf("the fault reads %+v", read)
	}
	written, err := json.Marshal(read)
	if err != nil || string(written) != `{"kind":"slow-boot","server":"cp-*","delay":"1.5s","times":2}` {
		t.Errorf("the fault is written %s, %v", written, err)
	}
	if err := json.Unmarshal([]byte(`{"delay":7}`), &read); err == nil {
		t.Error("a delay without a unit is taken")
	}
}

func TestProbabilityIsSeeded(t *testing.T) {
	hits := func(seed uint64) (pattern string) {
		w := newHarness(t, func(c *Config) { c.Seed = seed })
		w.fault(Fault{Kind: FaultError, Probability: 0.5})
		for range 20 {
			if _, _, err := w.Location.List(t.Context(), hcloud.LocationListOpts{}); err != nil {
				pattern += "x"
			} else {
				pattern += "."
			}
		}
		return pattern
	}
	first := hits(7)
	if again := hits(7); again != first {
		t.Errorf("the same seed gives %s and %s", first, again)
	}
	if !strings.Contains(first, "x") || !strings.Contains(first, ".") {
		t.Errorf("half of the requests fail as %s", first)
	}
	if other := hits(8); other == first {
		t.Errorf("another seed gives the same %s", first)
	}
}

// Faults returns the faults in force by number.
func (c *Cloud) Faults() map[int64]Fault {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	found := make(map[int64]Fault, len(c.faults.armed))
	for id, armed := range c.faults.armed {
		found[id] = armed.Fault
	}
	return found
}
