package talos

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/slipway-k8s/slipway/lab/cloud"
	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/plane/planetest"
	"github.com/slipway-k8s/slipway/lab/proc"
	"github.com/slipway-k8s/slipway/lab/programs"
)

const (
	kubernetesVersion = "1.35.4"
	clusterName       = "rehearsal"
)

// fixture is what makes a cluster: its secrets, its endpoint, and the range of its addresses, 127.second.0.0/16.
type fixture struct {
	t        testing.TB
	second   int
	endpoint string
	bundle   *secrets.Bundle
	input    *generate.Input
}

// newFixture generates a cluster's secrets. No process listens on its addresses.
func newFixture(t testing.TB) *fixture {
	t.Helper()
	free, err := netip.ParseAddr(planetest.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, second: int(free.As4()[1])}
	contract, err := config.ParseContractFromVersion("v1.13")
	if err != nil {
		t.Fatal(err)
	}
	if f.bundle, err = secrets.NewBundle(secrets.NewFixedClock(time.Now()), contract); err != nil {
		t.Fatal(err)
	}
	f.endpoint = f.address("2.%d", 1+os.Getpid()%200)
	f.input, err = generate.NewInput(clusterName, "https://"+f.endpoint+":6443", kubernetesVersion,
		generate.WithVersionContract(contract), generate.WithSecretsBundle(f.bundle))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) address(format string, args ...any) string {
	return fmt.Sprintf("127.%d.", f.second) + fmt.Sprintf(format, args...)
}

// patches are the guide's, for this cluster's addresses: one for every server, and one for control plane servers.
func (f *fixture) patches(kind machine.Type) []string {
	all := []string{fmt.Sprintf(`machine:
  certSANs: [%[2]s]
  kubelet:
    extraArgs: {cloud-provider: external, rotate-server-certificates: "true"}
    nodeIP: {validSubnets: [127.%[1]d.64.0/18]}
  features:
    hostDNS: {enabled: true, resolveMemberNames: true}
cluster:
  network:
    podSubnets: [127.%[1]d.128.0/17]
    serviceSubnets: [127.%[1]d.96.0/20]
    cni: {name: none}
`, f.second, f.endpoint)}
	if kind == machine.TypeWorker {
		return all
	}
	return append(all, fmt.Sprintf(`machine:
  nodeLabels:
    node.kubernetes.io/exclude-from-external-load-balancers:
      $patch: delete
  features:
    kubernetesTalosAPIAccess: {enabled: true, allowedRoles: ["os:reader"], allowedKubernetesNamespaces: [kube-system]}
cluster:
  allowSchedulingOnControlPlanes: true
  proxy: {disabled: true}
  etcd: {advertisedSubnets: [127.%[1]d.64.0/25]}
  externalCloudProvider: {enabled: true}
  apiServer:
    extraArgs: {oidc-issuer-url: "https://auth.example.com", oidc-client-id: kubernetes}
`, f.second))
}

// userData renders a server's machine configuration with the guide's patches and more.
func (f *fixture) userData(kind machine.Type, more ...string) string {
	f.t.Helper()
	provider, err := f.input.Config(kind)
	if err != nil {
		f.t.Fatal(err)
	}
	patches, err := configpatcher.LoadPatches(append(f.patches(kind), more...))
	if err != nil {
		f.t.Fatal(err)
	}
	out, err := configpatcher.Apply(configpatcher.WithConfig(provider), patches)
	if err != nil {
		f.t.Fatal(err)
	}
	b, err := out.Bytes()
	if err != nil {
		f.t.Fatal(err)
	}
	return string(b)
}

// config reads user data as a server does.
func (f *fixture) config(kind machine.Type, more ...string) machineConfig {
	f.t.Helper()
	c, err := parseConfig(f.userData(kind, more...))
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// hardware is server number n, made of a Talos image.
func (f *fixture) hardware(n int, userData string) cloud.Server {
	return cloud.Server{
		ID: int64(n), Name: fmt.Sprintf("%s-cp-%d", clusterName, n), Status: "running", UserData: userData,
		Image:      cloud.Image{Labels: map[string]string{"os": "talos", "caph-image-name": "talos-amd64-v1.12.2"}},
		PublicIPv4: netip.MustParseAddr(f.address("4.%d", n)),
		Private:    []cloud.PrivateAddress{{Network: 1, IP: netip.MustParseAddr(f.private(n))}},
	}
}

func (f *fixture) private(n int) string { return f.address("64.%d", n+1) }
func (f *fixture) public(n int) string  { return f.address("4.%d", n) }

// client is a client of the machine API with a certificate for the given roles.
func (f *fixture) client(t testing.TB, roles []role.Role, endpoints ...string) *client.Client {
	t.Helper()
	pair, err := f.bundle.GenerateTalosAPIClientCertificate(role.MakeSet(roles...))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(t.Context(),
		client.WithConfig(clientconfig.NewConfig(clusterName, endpoints, f.bundle.Certs.OS.Crt, pair)),
		// A server that boots is asked again soon.
		client.WithGRPCDialOptions(grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{
			BaseDelay: 50 * time.Millisecond, Multiplier: 1, MaxDelay: 100 * time.Millisecond},
			MinConnectTimeout: time.Second})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (f *fixture) admin(t testing.TB, endpoints ...string) *client.Client {
	t.Helper()
	return f.client(t, []role.Role{role.Admin}, endpoints...)
}

// newTalos returns a Talos on the folder dir whose servers end with the test. bin
// may be empty where none needs a program.
func newTalos(t testing.TB, dir, bin string) *Talos {
	t.Helper()
	if bin == "" {
		bin = dir
	}
	sockets, err := os.MkdirTemp("", "talos-") // short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("SLIPWAY_LAB_LOG") != "" {
		log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	super := proc.New()
	kubernetes := programs.NewSets(programs.Kubernetes())
	if bin != dir {
		if err := kubernetes.AddOwn(bin); err != nil {
			t.Fatal(err)
		}
	}
	x, err := New(Config{
		Dir: filepath.Join(dir, "servers"), ClustersDir: filepath.Join(dir, "clusters"), SocketDir: sockets, Bin: bin,
		Kubernetes: kubernetes,
		Processes:  super, Registry: kubelet.NewRegistry(), Log: log,
		Listen: func(ctx context.Context, addr string) (net.Listener, error) {
			return (&net.ListenConfig{}).Listen(ctx, "tcp4", addr)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := x.Close(ctx); err != nil {
			t.Error(err)
		}
		if left := super.List(); len(left) > 0 {
			t.Errorf("processes that outlive their servers: %+v", left)
		}
		if err := super.StopAll(ctx, 0); err != nil {
			t.Error(err)
		}
	})
	return x
}

// await polls until ok returns nil, and fails the test with its last error after the time.
func await(t testing.TB, within time.Duration, what string, ok func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, within, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
