package talos

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/base64"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// issuer is an authority, as machine configurations have it.
type issuer = x509.PEMEncodedCertificateAndKey

// rotation is the authority before and after.
type rotation struct{ old, next *issuer }

// The steps of a rotation: what a server issues with and what it accepts besides.
func (r rotation) accept(worker bool) (ca *issuer, accepted []*x509.PEMEncodedCertificate) {
	return part(r.old, worker), []*x509.PEMEncodedCertificate{{Crt: r.next.Crt}}
}

func (r rotation) swap(worker bool) (ca *issuer, accepted []*x509.PEMEncodedCertificate) {
	return part(r.next, worker), []*x509.PEMEncodedCertificate{{Crt: r.old.Crt}}
}

func (r rotation) drop(worker bool) (ca *issuer, accepted []*x509.PEMEncodedCertificate) {
	return part(r.next, worker), nil
}

// part is what a server's configuration has of an authority: a worker's has no key.
func part(ca *issuer, worker bool) *issuer {
	if worker {
		return &issuer{Crt: ca.Crt}
	}
	return ca
}

func newMachineRotation(t testing.TB, f *fixture) rotation {
	t.Helper()
	ca, err := secrets.NewTalosCA(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return rotation{f.bundle.Certs.OS, &issuer{Crt: ca.CrtPEM, Key: ca.KeyPEM}}
}

// clientOfCA is a client with a certificate of one authority, which trusts the servers of those given.
func clientOfCA(t testing.TB, signer *issuer, trusted []*issuer, endpoints ...string) *client.Client {
	t.Helper()
	pair, err := secrets.NewAdminCertificateAndKey(time.Now(), signer, role.MakeSet(role.Admin), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var pem []byte
	for _, ca := range trusted {
		pem = append(pem, ca.Crt...)
	}
	c, err := client.New(t.Context(), client.WithConfig(clientconfig.NewConfig(clusterName, endpoints, pem, pair)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// refusedTLS is nil if a new connection with a certificate of the authority is refused in the handshake.
func refusedTLS(t testing.TB, signer *issuer, trusted []*issuer, endpoint string) error {
	t.Helper()
	pair, err := secrets.NewAdminCertificateAndKey(time.Now(), signer, role.MakeSet(role.Admin), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Crt, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	pool := stdx509.NewCertPool()
	for _, ca := range trusted {
		pool.AppendCertsFromPEM(ca.Crt)
	}
	for range 10 { // what says so can be lost where the server closes the connection before it has read everything
		conn, err := tls.Dial("tcp", endpoint+":50000", &tls.Config{RootCAs: pool, NextProtos: []string{"h2"},
			Certificates: []tls.Certificate{cert}})
		if err != nil {
			return err
		}
		_, err = conn.Read(make([]byte, 1)) // a server that accepts the client speaks first
		conn.Close()
		switch {
		case err == nil:
			return errors.New("it is served")
		case strings.Contains(err.Error(), "tls: unknown certificate authority"),
			strings.Contains(err.Error(), "tls: bad certificate"):
			return nil
		}
	}
	return errors.New("no connection ended with an alert")
}

// served is nil if a new connection with a certificate of the authority is served.
func served(t testing.TB, signer *issuer, trusted []*issuer, endpoint string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := clientOfCA(t, signer, trusted, endpoint).Version(ctx)
	return err
}

// shownBy is nil if a server shows a certificate that the authority has signed.
func shownBy(t testing.TB, signer *issuer, address string) error {
	t.Helper()
	pool := stdx509.NewCertPool()
	pool.AppendCertsFromPEM(signer.Crt)
	// The handshake of a client ends before the server has asked for the client's certificate.
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, NextProtos: []string{"h2"}})
	if err != nil {
		return err
	}
	return conn.Close()
}

// activeConfig reads a server's machine configuration.
func activeConfig(ctx context.Context, c *client.Client) (*configres.MachineConfig, error) {
	return safe.StateGetByID[*configres.MachineConfig](ctx, c.COSI, configres.ActiveID)
}

// edited returns a server's machine configuration with a change.
func edited(t testing.TB, ctx context.Context, c *client.Client, edit func(*v1alpha1.Config)) []byte {
	t.Helper()
	config, err := activeConfig(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	provider, err := config.Provider().PatchV1Alpha1(func(c *v1alpha1.Config) error {
		edit(c)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := provider.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func applyTo(t testing.TB, ctx context.Context, c *client.Client, edit func(*v1alpha1.Config)) {
	t.Helper()
	r, err := c.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
		Data: edited(t, ctx, c, edit), Mode: machineapi.ApplyConfigurationRequest_AUTO})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Messages) != 1 || r.Messages[0].Mode != machineapi.ApplyConfigurationRequest_NO_REBOOT {
		t.Errorf("answer %v", r)
	}
}

// TestApplyMachineCA rotates the machine API's authority on two control plane servers and a worker.
func TestApplyMachineCA(t *testing.T) {
	f := newFixture(t)
	x := newTalos(t, t.TempDir(), "")
	servers := f.controlPlanes(2)
	worker := f.hardware(7, f.userData(machine.TypeWorker))
	start(t, x, append(servers, worker)...)
	r := newMachineRotation(t, f)
	both := []*issuer{r.old, r.next}
	ctx := t.Context()
	endpoints := []string{f.private(1), f.private(2), f.private(7)}
	for _, e := range endpoints {
		booted(t, f.admin(t, e))
	}
	// step applies one to a server, asked by way of the first one, as Slipway does.
	step := func(signer *issuer, endpoint string, of func(bool) (*issuer, []*x509.PEMEncodedCertificate)) {
		t.Helper()
		c := clientOfCA(t, signer, both, f.private(1))
		applyTo(t, client.WithNode(ctx, endpoint), c, func(config *v1alpha1.Config) {
			config.MachineConfig.MachineCA, config.MachineConfig.MachineAcceptedCAs = of(endpoint == f.private(7))
		})
	}
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("the new one's client before it is accepted", refusedTLS(t, r.next, both, f.private(1)))

	for _, e := range endpoints {
		step(r.old, e, r.accept)
		check(e+": the new one's client", served(t, r.next, both, e))
		check(e+": the old one's client", served(t, r.old, both, e))
		check(e+": the certificate while both are accepted", shownBy(t, r.old, e+":50000"))
	}
	step(r.next, f.private(1), r.swap)
	check("the first server's certificate after it has issued a new one", shownBy(t, r.next, f.private(1)+":50000"))
	check("the second server's certificate", shownBy(t, r.old, f.private(2)+":50000"))
	await(t, 5*time.Second, "the worker's, which the first server signs", func() error { // once it has announced that
		return shownBy(t, r.next, f.private(7)+":50000")
	})
	for from, to := range map[string]string{f.private(1): f.private(2), f.private(2): f.private(1)} {
		_, err := clientOfCA(t, r.old, both, from).Version(client.WithNodes(ctx, to))
		check("from "+from+" to "+to+" half way", err)
	}
	step(r.next, f.private(2), r.swap)
	step(r.next, f.private(7), r.swap)
	for _, e := range endpoints {
		check(e+": the certificate", shownBy(t, r.next, e+":50000"))
		if shownBy(t, r.old, e+":50000") == nil {
			t.Errorf("%s still shows a certificate of the old authority", e)
		}
		check(e+": the old one's client", served(t, r.old, both, e))
	}
	for _, e := range endpoints {
		step(r.next, e, r.drop)
		check(e+": the old one's client at the end", refusedTLS(t, r.old, both, e))
		check(e+": the new one's client", served(t, r.next, both, e))
	}
	_, err := clientOfCA(t, r.next, both, f.private(1)).Version(client.WithNodes(ctx, endpoints...))
	check("from the first to all", err)

	t.Run("reboot", func(t *testing.T) {
		before := x.server(1).running()
		reset := &machineapi.ResetRequest{Reboot: true,
			SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: "EPHEMERAL"}}}
		if _, err := clientOfCA(t, r.next, both, f.private(1)).MachineClient.Reset(ctx, reset); err != nil {
			t.Fatal(err)
		}
		await(t, 10*time.Second, "the server to be back", func() error {
			if now := x.server(1).running(); now == nil || now == before {
				return errors.New("not yet")
			}
			return served(t, r.next, both, f.private(1))
		})
		check("the old one's client after the reboot", refusedTLS(t, r.old, both, f.private(1)))
		info, err := os.Stat(x.server(1).path("state", "config.yaml"))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("what is stored: %v, %v", info, err)
		}
	})
	t.Run("rebuild", func(t *testing.T) {
		if err := x.Delete(ctx, 1); err != nil {
			t.Fatal(err)
		}
		start(t, x, servers[0])
		await(t, 10*time.Second, "the server with its user data", func() error {
			return served(t, r.old, both, f.private(1))
		})
		check("the new one's client", refusedTLS(t, r.next, both, f.private(1)))
	})
}

func TestApplyConfiguration(t *testing.T) {
	f := newFixture(t)
	x := newTalos(t, t.TempDir(), "")
	start(t, x, f.controlPlanes(2)...)
	one := f.admin(t, f.private(1))
	booted(t, one)
	booted(t, f.admin(t, f.private(2)))
	ctx := t.Context()
	const noReboot = machineapi.ApplyConfigurationRequest_NO_REBOOT
	r := newMachineRotation(t, f)
	accept := func(c *v1alpha1.Config) {
		c.MachineConfig.MachineCA, c.MachineConfig.MachineAcceptedCAs = r.accept(false)
	}
	apply := func(c *client.Client, request *machineapi.ApplyConfigurationRequest) error {
		_, err := c.ApplyConfiguration(ctx, request)
		return err
	}
	// unchanged fails the test if the server has another configuration, or was notified of one.
	y := x.server(1).running()
	before, changed := y.authorities.get()
	events := func() int { return y.events.tail(&machineapi.EventsRequest{}) }
	stored, happened := f.userData(machine.TypeControlPlane), events()
	version := "1"
	unchanged := func(t *testing.T) {
		t.Helper()
		select {
		case <-changed:
			t.Error("the authorities count as changed")
		default:
		}
		config, err := activeConfig(ctx, one)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := config.Provider().Bytes(); err != nil || string(b) != stored {
			t.Errorf("the configuration is another one: %v", err)
		}
		if v := config.Metadata().Version().String(); v != version {
			t.Errorf("version %s of the resource, want %s", v, version)
		}
		if events() != happened {
			t.Error("a service has been restarted")
		}
		if now, _ := y.authorities.get(); !now.equal(before) {
			t.Error("other authorities")
		}
	}
	t.Run("equal", func(t *testing.T) {
		if err := apply(one, &machineapi.ApplyConfigurationRequest{
			Data: edited(t, ctx, one, func(*v1alpha1.Config) {}), Mode: noReboot}); err != nil {
			t.Fatal(err)
		}
		unchanged(t)
	})
	t.Run("dry run", func(t *testing.T) {
		answer, err := one.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Data: edited(t, ctx, one, accept), Mode: noReboot, DryRun: true})
		if err != nil || !strings.Contains(answer.Messages[0].ModeDetails, "machine.acceptedCAs differs") {
			t.Errorf("%v, %v", answer, err)
		}
		unchanged(t)
	})
	for name, c := range map[string]struct {
		data []byte
		mode machineapi.ApplyConfigurationRequest_Mode
		code codes.Code
		says string
	}{
		"label": {data: edited(t, ctx, one, func(c *v1alpha1.Config) {
			accept(c)
			c.MachineConfig.MachineNodeLabels = map[string]string{"example.com/new": "yes"}
		}), code: codes.Unimplemented, says: "machine.nodeLabels"},
		"document": {data: append(edited(t, ctx, one, accept),
			[]byte("---\napiVersion: v1alpha1\nkind: WatchdogTimerConfig\ndevice: /dev/watchdog0\n")...),
			code: codes.Unimplemented, says: "document WatchdogTimerConfig differs"},
		"mode": {data: edited(t, ctx, one, accept), mode: machineapi.ApplyConfigurationRequest_STAGED,
			code: codes.Unimplemented, says: "STAGED"},
		"no YAML": {data: []byte("machine: ["), code: codes.InvalidArgument, says: "parse"},
		"key of another": {data: edited(t, ctx, one, func(c *v1alpha1.Config) {
			c.MachineConfig.MachineCA = &issuer{Crt: r.next.Crt, Key: r.old.Key}
		}), code: codes.InvalidArgument, says: "machine.ca"},
		"no authority": {data: edited(t, ctx, one, func(c *v1alpha1.Config) {
			c.ClusterConfig.ClusterAcceptedCAs = []*x509.PEMEncodedCertificate{{Crt: []byte("nothing")}}
		}), code: codes.InvalidArgument, says: "cluster.ca"},
	} {
		t.Run(name, func(t *testing.T) {
			err := apply(one, &machineapi.ApplyConfigurationRequest{Data: c.data, Mode: cmp.Or(c.mode, noReboot)})
			if client.StatusCode(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %s with %q", err, c.code, c.says)
			}
			if key := base64.StdEncoding.EncodeToString(r.old.Key); err != nil && strings.Contains(err.Error(), key) {
				t.Error("the error has a secret")
			}
			unchanged(t)
		})
	}
	t.Run("roles", func(t *testing.T) {
		reader := f.client(t, []role.Role{role.Reader, role.Operator}, f.private(1))
		data := edited(t, ctx, one, accept)
		for name, ctx := range map[string]context.Context{"direct": ctx,
			"by another": client.WithNode(ctx, f.private(2))} {
			_, err := reader.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{Data: data, Mode: noReboot})
			if status.Code(err) != codes.PermissionDenied {
				t.Errorf("%s: a reader applies: %v", name, err)
			}
			if _, err := activeConfig(ctx, reader); status.Code(err) != codes.PermissionDenied {
				t.Errorf("%s: a reader reads the configuration: %v", name, err)
			}
		}
		unchanged(t)
	})
	t.Run("resources are read-only", func(t *testing.T) {
		config, err := activeConfig(client.WithNode(ctx, f.private(2)), one)
		if err != nil {
			t.Fatal(err)
		}
		// The client's errors have no code.
		for name, err := range map[string]error{
			"create":  one.COSI.Create(ctx, configres.NewMachineConfigWithID(config.Provider(), "other")),
			"update":  one.COSI.Update(ctx, config),
			"destroy": one.COSI.Destroy(ctx, config.Metadata()),
		} {
			if err == nil || !strings.Contains(err.Error(), codes.PermissionDenied.String()) {
				t.Errorf("%s: %v", name, err)
			}
		}
		unchanged(t)
	})
	t.Run("what has no effect is stored", func(t *testing.T) {
		data := edited(t, ctx, one, func(c *v1alpha1.Config) {
			c.MachineConfig.MachineSysctls = map[string]string{"vm.max_map_count": "262144"}
		})
		data = append(data,
			[]byte("---\napiVersion: v1alpha1\nkind: KmsgLogConfig\nname: far\nurl: tcp://127.0.0.1:5140\n")...)
		if err := apply(one, &machineapi.ApplyConfigurationRequest{Data: data, Mode: noReboot}); err != nil {
			t.Fatal(err)
		}
		config, err := activeConfig(ctx, one)
		if err != nil {
			t.Fatal(err)
		}
		b, err := config.Provider().Bytes()
		if err != nil || !strings.Contains(string(b), "vm.max_map_count") ||
			!strings.Contains(string(b), "KmsgLogConfig") {
			t.Errorf("the configuration lacks what was applied: %v", err)
		}
		now, err := x.server(1).running().bootConfig()
		if err != nil || now.Machine().Sysctls()["vm.max_map_count"] != "262144" {
			t.Errorf("the next boot would not have it: %v", err)
		}
		stored, version = string(b), config.Metadata().Version().String()
		unchanged(t)
	})
	t.Run("a change", func(t *testing.T) {
		applyTo(t, ctx, one, accept)
		config, err := activeConfig(ctx, one)
		if err != nil {
			t.Fatal(err)
		}
		if got := config.Config().Machine().Security().AcceptedCAs(); len(got) != 1 ||
			!bytes.Equal(got[0].Crt, r.next.Crt) {
			t.Errorf("accepted: %v", got)
		}
		select {
		case <-changed:
		default:
			t.Error("no watcher of the authorities sees a change")
		}
		other, err := activeConfig(client.WithNode(ctx, f.private(2)), one)
		if err != nil || len(other.Config().Machine().Security().AcceptedCAs()) != 0 {
			t.Errorf("the other server's configuration: %v", err)
		}
	})
}
