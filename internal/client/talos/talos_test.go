package talos_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	xcrypto "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/slipway-k8s/slipway/internal/client/talos"
)

// authority is a certificate authority with one certificate for everybody, on 127.0.0.1.
type authority struct{ ca, crt, key []byte }

func newAuthority(t testing.TB) authority {
	t.Helper()
	newKey := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	sign := func(template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	caKey, key := newKey(), newKey()
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	return authority{
		ca:  encode("CERTIFICATE", sign(ca, ca, caKey, caKey)),
		crt: encode("CERTIFICATE", sign(leaf, ca, key, caKey)),
		key: encode("PRIVATE KEY", keyDER),
	}
}

func (a authority) talosconfig(t testing.TB) []byte {
	t.Helper()
	c := config.NewConfig("k8s", []string{"127.0.0.5"}, a.ca, &xcrypto.PEMEncodedCertificateAndKey{Crt: a.crt, Key: a.key})
	data, err := c.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestCredentials(t *testing.T) {
	a := newAuthority(t)
	c, err := talos.Parse(a.talosconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	c.Point([]string{"127.0.0.9"}, []string{"10.10.64.2", "10.10.64.3"})
	data, err := c.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	back, err := talos.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	endpoints, nodes := back.Targets()
	if !slices.Equal(endpoints, []string{"127.0.0.9"}) || !slices.Equal(nodes, []string{"10.10.64.2", "10.10.64.3"}) {
		t.Errorf("points at %v, %v", endpoints, nodes)
	}
	before, err := c.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	if after, err := back.Fingerprint(); err != nil || after != before {
		t.Errorf("the fingerprint changed with the addresses: %v", err)
	}
	other, err := talos.Parse(newAuthority(t).talosconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	if f, err := other.Fingerprint(); err != nil || f == before {
		t.Errorf("two clusters have one fingerprint: %v", err)
	}
	if end, err := back.Expires(); err != nil || time.Until(end) > time.Hour || time.Until(end) < 50*time.Minute {
		t.Errorf("ends at %v, %v", end, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, data := range map[string]string{"nothing": "", "another context": "context: a\ncontexts: {b: {}}",
		"no YAML":                   "{",
		"an authority that is none": "context: a\ncontexts: {a: {ca: bm90IHBlbQ==}}"} {
		if _, err := talos.Parse([]byte(data)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// node is a Talos node that answers two questions.
type node struct {
	machine.UnimplementedMachineServiceServer
	etcd *machine.ServiceInfo
}

func (node) Version(context.Context, *emptypb.Empty) (*machine.VersionResponse, error) {
	return &machine.VersionResponse{Messages: []*machine.Version{{Version: &machine.VersionInfo{Tag: "v1.12.2"}}}}, nil
}

func (n node) ServiceList(context.Context, *emptypb.Empty) (*machine.ServiceListResponse, error) {
	list := &machine.ServiceList{Services: []*machine.ServiceInfo{{Id: "apid", State: "Running"}}}
	if n.etcd != nil {
		list.Services = append(list.Services, n.etcd)
	}
	return &machine.ServiceListResponse{Messages: []*machine.ServiceList{list}}, nil
}

func serve(t *testing.T, a authority, n machine.MachineServiceServer) string {
	t.Helper()
	pair, err := tls.X509KeyPair(a.crt, a.key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.ca)
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		MinVersion: tls.VersionTLS13,
	})))
	machine.RegisterMachineServiceServer(s, n)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

func TestAsk(t *testing.T) {
	a := newAuthority(t)
	c, err := talos.Parse(a.talosconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		etcd *machine.ServiceInfo
		want talos.Node
	}{
		"before etcd": {nil, talos.Node{Version: "v1.12.2"}},
		"etcd on its way": {&machine.ServiceInfo{Id: "etcd", State: "Preparing"}, talos.Node{Version: "v1.12.2",
			Etcd: "Preparing"}},
		"etcd sick": {&machine.ServiceInfo{Id: "etcd", State: "Running", Health: &machine.ServiceHealth{}},
			talos.Node{Version: "v1.12.2", Etcd: "Running"}},
		"etcd in health": {&machine.ServiceInfo{Id: "etcd", State: "Running",
			Health: &machine.ServiceHealth{Healthy: true}}, talos.Node{Version: "v1.12.2", Etcd: "Running", Healthy: true}},
		"healthy but gone": {&machine.ServiceInfo{Id: "etcd", State: "Finished",
			Health: &machine.ServiceHealth{Healthy: true}}, talos.Node{Version: "v1.12.2", Etcd: "Finished"}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if got, err := c.Ask(ctx, talos.Route{Endpoint: serve(t, a, node{etcd: tt.etcd})}); err != nil || got != tt.want {
				t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func TestAskSaysWhyNot(t *testing.T) {
	a := newAuthority(t)
	c, err := talos.Parse(newAuthority(t).talosconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	address := serve(t, a, node{})
	_, err = c.Ask(ctx, talos.Route{Endpoint: address})
	if err == nil || !strings.Contains(err.Error(), address) || strings.Contains(err.Error(), "rpc error") {
		t.Errorf("another cluster's credentials: %v", err)
	}
}
