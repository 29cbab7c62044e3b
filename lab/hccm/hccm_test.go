package hccm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/lab/cloud"
	"github.com/slipway-k8s/slipway/lab/pki"
	"github.com/slipway-k8s/slipway/lab/plane/planetest"
	"github.com/slipway-k8s/slipway/lab/standin/standintest"
)

const testToken = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestMain(m *testing.M) { standintest.Main(m, Run) }

func must(t *testing.T, err error) {
	t.Helper()
	standintest.Must(t, err)
}

// hetzner is a simulated Hetzner Cloud with a network and servers in it.
type hetzner struct {
	*hcloud.Client
	cloud   *cloud.Cloud
	network *hcloud.Network
	proxy   string // URL
	ca      []byte
}

func newHetzner(t *testing.T) *hetzner {
	t.Helper()
	third := rand.IntN(250)
	c, err := cloud.New(cloud.Config{
		Log: slog.New(slog.DiscardHandler), Dir: t.TempDir(), Token: testToken, Machine: noMachine{},
		Listen: func(_ context.Context, address string) (net.Listener, error) {
			return net.Listen("tcp", address)
		},
		PublicServers:       netip.MustParsePrefix(fmt.Sprintf("127.251.%d.0/24", third)),
		PublicLoadBalancers: netip.MustParsePrefix(fmt.Sprintf("127.250.%d.0/24", third)),
		Latency:             cloud.InstantLatency(),
	})
	must(t, err)
	must(t, c.Resume(t.Context()))
	t.Cleanup(func() { _ = c.Close() })
	ca, err := pki.NewCA("test")
	must(t, err)
	proxy, err := c.Proxy(ca)
	must(t, err)
	api, https := httptest.NewServer(c.Handler()), httptest.NewServer(proxy)
	t.Cleanup(api.Close)
	t.Cleanup(https.Close)

	h := &hetzner{
		Client: hcloud.NewClient(hcloud.WithToken(testToken), hcloud.WithEndpoint(api.URL+"/v1")),
		cloud:  c, proxy: https.URL, ca: ca.Cert(),
	}
	_, private, err := net.ParseCIDR(fmt.Sprintf("127.252.%d.0/24", third))
	must(t, err)
	h.network, _, err = h.Network.Create(t.Context(), hcloud.NetworkCreateOpts{
		Name: "net", IPRange: private,
		Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, IPRange: private,
			NetworkZone: hcloud.NetworkZoneEUCentral}},
	})
	must(t, err)
	must(t, c.EnsureSnapshot("image", "x86"))
	return h
}

// server makes a running server in the network.
func (h *hetzner) server(t *testing.T, name string) *hcloud.Server {
	t.Helper()
	images, err := h.Image.AllWithOpts(t.Context(),
		hcloud.ImageListOpts{Type: []hcloud.ImageType{hcloud.ImageTypeSnapshot}})
	must(t, err)
	result, _, err := h.Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cx33"}, Image: images[0], Location: &hcloud.Location{Name: "nbg1"},
		Networks: []*hcloud.Network{h.network},
	})
	must(t, err)
	must(t, h.Action.WaitFor(t.Context(), append(result.NextActions, result.Action)...))
	server, _, err := h.Server.GetByID(t.Context(), result.Server.ID)
	must(t, err)
	return server
}

func TestStandIn(t *testing.T) {
	h := newHetzner(t)
	control, config := planetest.Start(t, nil)
	k, err := client.New(config, client.Options{})
	must(t, err)
	standintest.Allow(t, k, "hccm", Rules())
	identity, err := control.Kubeconfig("hccm")
	must(t, err)
	port := standintest.FreePort(t)
	standintest.Start(t, standintest.Program{
		Args: []string{
			// The chart's.
			"--allow-untagged-cloud", "--cloud-provider=hcloud", "--route-reconciliation-period=30s", "--webhook-secure-port=0",
			"--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=false",
			"--allocate-node-cidrs=true", "--cluster-cidr=127.128.128.0/17", "--leader-elect=false",
			// The test's.
			"--kubeconfig=" + standintest.WriteFile(t, "kubeconfig", identity), "--secure-port=" + port,
			"--node-monitor-period=200ms",
		},
		Env: []string{
			"HCLOUD_TOKEN=" + testToken, "HCLOUD_NETWORK=net", "HCLOUD_NETWORK_ROUTES_ENABLED=false",
			"HTTPS_PROXY=" + h.proxy, "SSL_CERT_FILE=" + standintest.WriteFile(t, "ca.crt", h.ca),
		},
		Secrets: []string{testToken},
	})
	// it signs its own certificate
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	standintest.Healthy(t, insecure, "https://127.0.0.1:"+port+"/healthz")

	server := h.server(t, "cp-1")
	must(t, k.Create(t.Context(), newNode("cp-1")))
	node := wait(t, k, "cp-1", "the node to be initialised", func(node *corev1.Node) error {
		for _, taint := range node.Spec.Taints {
			if taint.Key == cloudproviderapi.TaintExternalCloudProvider {
				return fmt.Errorf("tainted: %v", node.Spec.Taints)
			}
		}
		if len(node.Status.Addresses) == 0 { // they come after the taint has gone
			return errors.New("no addresses")
		}
		return nil
	})
	if want := "hcloud://" + strconv.FormatInt(server.ID, 10); node.Spec.ProviderID != want {
		t.Errorf("provider ID %q, want %q", node.Spec.ProviderID, want)
	}
	for label, want := range map[string]string{
		corev1.LabelInstanceTypeStable: "cx33", corev1.LabelTopologyRegion: "nbg1", corev1.LabelTopologyZone: "nbg1-dc3",
		providedByLabel: "cloud",
	} {
		if node.Labels[label] != want {
			t.Errorf("label %s is %q, want %q", label, node.Labels[label], want)
		}
	}
	got := map[corev1.NodeAddressType]string{}
	for _, address := range node.Status.Addresses {
		got[address.Type] = address.Address
	}
	want := map[corev1.NodeAddressType]string{
		corev1.NodeHostName: "cp-1", corev1.NodeExternalIP: server.PublicNet.IPv4.IP.String(),
		corev1.NodeInternalIP: server.PrivateNet[0].IP.String(),
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || len(node.Status.Addresses) != len(want) {
		t.Errorf("addresses %v, want %v", node.Status.Addresses, want)
	}

	// Off: tainted. Gone: deleted. (No kubelet says that the Node is ready.)
	action, _, err := h.Server.Poweroff(t.Context(), server)
	must(t, err)
	must(t, h.Action.WaitFor(t.Context(), action))
	wait(t, k, "cp-1", "the taint of a node whose server is off", func(node *corev1.Node) error {
		for _, taint := range node.Spec.Taints {
			if taint.Key == cloudproviderapi.TaintNodeShutdown {
				return nil
			}
		}
		return fmt.Errorf("taints are %v", node.Spec.Taints)
	})
	_, _, err = h.Server.DeleteWithResult(t.Context(), server)
	must(t, err)
	standintest.Eventually(t, "the deletion of a node whose server is gone", func(ctx context.Context) error {
		if err := k.Get(ctx, client.ObjectKeyFromObject(node), node); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there (%v)", err)
		}
		return nil
	})
}

// newNode is a Node as a kubelet with an external cloud provider registers it.
func newNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule},
		}},
	}
}

func wait(t *testing.T, k client.Client, name, what string, check func(*corev1.Node) error) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	standintest.Eventually(t, what, func(ctx context.Context) error {
		*node = corev1.Node{}
		if err := k.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		return check(node)
	})
	return node
}

// TestRefusals starts the program with what it must not start with.
func TestRefusals(t *testing.T) {
	h := newHetzner(t)
	reach := []string{"HTTPS_PROXY=" + h.proxy, "SSL_CERT_FILE=" + standintest.WriteFile(t, "ca.crt", h.ca)}
	wrong := strings.Repeat("x", tokenLength)
	for name, c := range map[string]struct {
		env  []string
		want string
	}{
		"no token":    {nil, "HCLOUD_TOKEN"},
		"wrong token": {append(reach, "HCLOUD_TOKEN="+wrong), "unauthorized"},
		"no network":  {append(reach, "HCLOUD_TOKEN="+testToken, "HCLOUD_NETWORK=none"), `network "none"`},
		"unknown family": {append(reach, "HCLOUD_TOKEN="+testToken, "HCLOUD_INSTANCES_ADDRESS_FAMILY=ipx"),
			"HCLOUD_INSTANCES_ADDRESS_FAMILY"},
	} {
		t.Run(name, func(t *testing.T) {
			output, err := standintest.Run(t, standintest.Program{Env: c.env})
			if err == nil || !strings.Contains(output, c.want) {
				t.Errorf("ended with %v, saying %q; want it to fail over %s", err, output, c.want)
			}
			if strings.Contains(output, wrong) || strings.Contains(output, testToken) {
				t.Error("it printed the token")
			}
		})
	}
}

// noMachine runs nothing: the servers of these tests need only be there.
type noMachine struct{}

func (noMachine) Start(context.Context, cloud.Server) error            { return nil }
func (noMachine) Stop(context.Context, int64, bool) error              { return nil }
func (noMachine) Delete(context.Context, int64) error                  { return nil }
func (noMachine) AddressesChanged(context.Context, cloud.Server) error { return nil }
