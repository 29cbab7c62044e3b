package talos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/slipway-k8s/slipway/lab/cloud"
)

// booted waits until the machine API of a server answers.
func booted(t testing.TB, c *client.Client) {
	t.Helper()
	await(t, 20*time.Second, "the machine API", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Version(ctx)
		return err
	})
}

func start(t testing.TB, x *Talos, servers ...cloud.Server) {
	t.Helper()
	for _, s := range servers {
		if err := x.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

func (f *fixture) controlPlanes(n int) []cloud.Server {
	var servers []cloud.Server
	userData := f.userData(machine.TypeControlPlane)
	for i := range n {
		servers = append(servers, f.hardware(i+1, userData))
	}
	return servers
}

func TestMachineAPI(t *testing.T) {
	f := newFixture(t)
	x := newTalos(t, t.TempDir(), "")
	off := make(chan int64, 1)
	x.config.PoweredOff = func(id int64) { off <- id }
	servers := f.controlPlanes(2)
	private := servers[1].Private
	servers[1].Private = nil // it comes later
	start(t, x, servers...)
	one, two := f.admin(t, f.private(1)), f.admin(t, f.public(2))
	booted(t, one)
	booted(t, two)
	ctx := t.Context()

	t.Run("local", func(t *testing.T) {
		version, err := one.Version(ctx)
		if err != nil {
			t.Fatal(err)
		}
		v := version.Messages[0]
		if v.Version.Tag != "v1.12.2" || v.Platform.Name != "hcloud" || !v.Features.Rbac || v.Metadata != nil {
			t.Errorf("version %v", v)
		}
		name, err := one.MachineClient.Hostname(ctx, &emptypb.Empty{})
		if err != nil || name.Messages[0].Hostname != servers[0].Name {
			t.Errorf("hostname %v, %v", name, err)
		}
		// What Cluster API's control plane provider needs; without it it panics.
		list, err := one.ServiceList(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list.Messages[0].Services {
			if s.Health == nil || s.Health.LastChange == nil || len(s.Events.GetEvents()) == 0 {
				t.Errorf("service %v", s)
			}
		}
		etcd, err := one.ServiceInfo(ctx, "etcd")
		if err != nil || len(etcd) != 1 || etcd[0].Service.State != "Preparing" || !etcd[0].Service.Health.Unknown {
			t.Errorf("etcd before the bootstrap: %v, %v", etcd, err)
		}
	})
	t.Run("fan-out", func(t *testing.T) {
		nobody := f.address("64.99")
		targets := []string{f.private(1), f.public(2), servers[1].Name, nobody}
		list, err := one.ServiceList(client.WithNodes(ctx, targets...))
		if err != nil && len(list.GetMessages()) == 0 {
			t.Fatal(err)
		}
		var answered []string
		for _, m := range list.Messages {
			answered = append(answered, m.Metadata.GetHostname())
		}
		if want := targets[:3]; !slices.Equal(answered, want) { // the client makes an error of the fourth
			t.Errorf("answered: %v, want %v", answered, want)
		}
		if err == nil || !strings.Contains(err.Error(), nobody) || client.StatusCode(err) != codes.Unavailable {
			t.Errorf("a node that is not there: %v", err)
		}
		name, err := one.MachineClient.Hostname(client.WithNode(ctx, f.public(2)), &emptypb.Empty{})
		if err != nil || name.Messages[0].Hostname != servers[1].Name || name.Messages[0].Metadata != nil {
			t.Errorf("one node: %v, %v", name, err)
		}
	})
	t.Run("list", func(t *testing.T) {
		found := listAll(t, one, client.WithNodes(ctx, f.private(1), f.public(2)), "/var/lib/etcd/member")
		if len(found) != 2 {
			t.Fatalf("%v", found)
		}
		for _, m := range found {
			if m.Metadata.GetHostname() == "" || !strings.Contains(m.Metadata.Error, "no such file or directory") ||
				m.Metadata.Status == nil {
				t.Errorf("a folder that is not there: %v", m)
			}
		}
		stream, err := one.LS(ctx, &machineapi.ListRequest{Root: "/var/lib/etcd/member"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err == nil || status.Code(err) != codes.Unknown {
			t.Errorf("asked directly: %v", err)
		}
	})
	t.Run("roles", func(t *testing.T) {
		reader := f.client(t, []role.Role{role.Reader}, f.private(1))
		if _, err := reader.ServiceList(ctx); err != nil {
			t.Errorf("a reader may read: %v", err)
		}
		// Also by way of another node, whose certificate may do more.
		for name, ctx := range map[string]context.Context{"direct": ctx, "by another": client.WithNode(ctx, f.public(2))} {
			if err := reader.Bootstrap(ctx, &machineapi.BootstrapRequest{}); status.Code(err) != codes.PermissionDenied {
				t.Errorf("%s: a reader's Bootstrap: %v", name, err)
			}
		}
		if state, _ := x.server(2).running().services.get(serviceEtcd); state == stateRunning {
			t.Error("etcd was bootstrapped all the same")
		}
		other := newFixture(t)
		other.second = f.second
		stranger := other.admin(t, f.private(1))
		if _, err := stranger.Version(ctx); err == nil {
			t.Error("a certificate of another cluster is accepted")
		}
	})
	t.Run("events", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		results := make(chan client.EventResult)
		if err := one.EventsWatchV2(ctx, results, client.WithTailEvents(-1)); err != nil {
			t.Fatal(err)
		}
		for {
			r := <-results
			if r.Error != nil {
				t.Fatal(r.Error)
			}
			if s, ok := r.Event.Payload.(*machineapi.SequenceEvent); ok {
				if s.Sequence != "boot" || s.Action != machineapi.SequenceEvent_START {
					t.Errorf("sequence %v", s)
				}
				break
			}
		}
		// Nothing else ends the stream than the client.
		none := make(chan client.EventResult, 1)
		ctx, stop := context.WithCancel(ctx)
		if err := one.EventsWatchV2(ctx, none); err != nil {
			t.Fatal(err)
		}
		select {
		case r := <-none:
			t.Errorf("an event before anything happens: %+v", r)
		case <-time.After(300 * time.Millisecond):
		}
		stop()
	})
	t.Run("private address comes later", func(t *testing.T) {
		st := statusOf(t, x, 2)
		if !strings.Contains(st.Etcd, "Waiting") || !strings.Contains(st.Etcd, "advertisedSubnets") ||
			!strings.Contains(st.Kubelet, "validSubnets") {
			t.Errorf("etcd %q and kubelet %q: want them to wait and say why", st.Etcd, st.Kubelet)
		}
		servers[1].Private = private
		if err := x.AddressesChanged(ctx, servers[1]); err != nil {
			t.Fatal(err)
		}
		booted(t, f.admin(t, f.private(2))) // with a certificate that is good for it
		await(t, 5*time.Second, "etcd's address", func() error {
			if st := statusOf(t, x, 2); !strings.HasPrefix(st.Etcd, "Preparing") {
				return errors.New(st.Etcd)
			}
			return nil
		})
	})
	t.Run("reboot", func(t *testing.T) {
		before := x.server(1).running()
		if err := one.Reboot(ctx); err != nil {
			t.Fatal(err)
		}
		await(t, 10*time.Second, "a new boot", func() error {
			if now := x.server(1).running(); now == nil || now == before {
				return errors.New("not yet")
			}
			return nil
		})
		booted(t, one)
	})
	t.Run("shutdown", func(t *testing.T) {
		if err := two.Shutdown(ctx); err != nil {
			t.Fatal(err)
		}
		select {
		case id := <-off:
			if st := statusOf(t, x, id); id != 2 || st.Phase != phaseOff {
				t.Errorf("server %d is off, in phase %q", id, st.Phase)
			}
		case <-time.After(10 * time.Second):
			t.Error("PoweredOff was not called")
		}
	})
	t.Run("power", func(t *testing.T) {
		if err := x.Stop(ctx, 1, true); err != nil {
			t.Fatal(err)
		}
		if st := statusOf(t, x, 1); st.Phase != phaseOff {
			t.Errorf("phase %q", st.Phase)
		}
		if conn, err := dial(ctx, f.private(1)+":50000"); err == nil {
			conn.Close()
			t.Error("a server that is off listens")
		}
		for range 2 { // again is no error
			if err := x.Delete(ctx, 2); err != nil {
				t.Error(err)
			}
		}
		if dir, err := x.disk(2); dir != "" || err != nil {
			t.Errorf("the disk of a deleted server: %q, %v", dir, err)
		}
	})
}

func listAll(t testing.TB, c *client.Client, ctx context.Context, root string) []*machineapi.FileInfo {
	t.Helper()
	stream, err := c.LS(ctx, &machineapi.ListRequest{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	var all []*machineapi.FileInfo
	for {
		info, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info)
	}
}

func statusOf(t testing.TB, x *Talos, id int64) Status {
	t.Helper()
	all := x.Status()
	i := slices.IndexFunc(all, func(s Status) bool { return s.ID == id })
	if i < 0 {
		t.Fatalf("no server %d in %+v", id, all)
	}
	return all[i]
}

func TestMaintenance(t *testing.T) {
	f := newFixture(t)
	x := newTalos(t, t.TempDir(), "")
	start(t, x, f.hardware(1, "machine: {}\n"))
	await(t, 5*time.Second, "maintenance mode", func() error {
		if st := statusOf(t, x, 1); st.Phase != phaseMaintenance || st.Reason == "" {
			return fmt.Errorf("%s: %s", st.Phase, st.Reason)
		}
		return nil
	})
	c, err := client.New(t.Context(), client.WithEndpoints(f.private(1)),
		client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	await(t, 5*time.Second, "a refusal", func() error {
		if _, err = c.Version(t.Context()); status.Code(err) == codes.Unavailable {
			return err
		}
		return nil
	})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "maintenance mode") {
		t.Errorf("%v", err)
	}
}

func TestForeignImage(t *testing.T) {
	f := newFixture(t)
	x := newTalos(t, t.TempDir(), "")
	hardware := f.hardware(1, f.userData(machine.TypeControlPlane))
	hardware.Image = cloud.Image{Name: "ubuntu-24.04", OSFlavor: "ubuntu"}
	start(t, x, hardware)
	await(t, 5*time.Second, "the phase", func() error {
		if st := statusOf(t, x, 1); st.Phase != phaseForeign {
			return errors.New(st.Phase)
		}
		return nil
	})
	if err := x.Stop(t.Context(), 1, false); err != nil {
		t.Error(err)
	}
}

func TestWorkerAPI(t *testing.T) {
	f := newFixture(t)
	x := newTalos(t, t.TempDir(), "")
	worker := f.hardware(7, f.userData(machine.TypeWorker))
	start(t, x, worker)
	await(t, 5*time.Second, "its wait for a control plane server", func() error {
		if st := statusOf(t, x, 7); !strings.Contains(st.Reason, "control plane server") {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	start(t, x, f.controlPlanes(1)...)
	c := f.admin(t, f.private(7))
	booted(t, c)
	if err := c.Bootstrap(t.Context(), &machineapi.BootstrapRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("Bootstrap of a worker: %v", err)
	}
	if _, err := c.Version(client.WithNodes(t.Context(), f.private(1))); client.StatusCode(err) != codes.PermissionDenied {
		t.Errorf("a worker passes a call on: %v", err)
	}
	if _, err := c.Version(client.WithNode(t.Context(), f.private(7))); err != nil {
		t.Errorf("a worker asked for itself: %v", err)
	}
	one := f.admin(t, f.private(1))
	booted(t, one)
	if v, err := one.Version(client.WithNodes(t.Context(), f.private(7))); err != nil ||
		v.Messages[0].Metadata.Hostname != f.private(7) {
		t.Errorf("a worker by way of a control plane server: %v, %v", v, err)
	}
}
