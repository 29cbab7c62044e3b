package rotation

import (
	"bytes"
	"encoding/base64"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"crypto/tls"
	"crypto/x509"
	"net"

	xcrypto "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/client/config"
	machineconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/slipway-k8s/slipway/internal/client/talos"
)

// newAuthority makes an authority, and the old one that it replaces.
func newAuthority(t *testing.T) authority {
	t.Helper()
	generate := func() pair {
		ca, err := secrets.NewKubernetesCA(time.Now(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair{Crt: ca.CrtPEM, Key: ca.KeyPEM}
	}
	client := func(ca pair) pair {
		p, err := kubernetesClient(ca)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	old := generate()
	a := authority{new: generate(), old: old.Crt, oldClient: client(old)}
	a.newClient = client(a.new)
	return a
}

// newInput is what CABPT makes machine configurations of, with the authorities of a bundle.
func newInput(t *testing.T) (*secrets.Bundle, *generate.Input) {
	t.Helper()
	bundle, err := secrets.NewBundle(secrets.NewClock(), machineconfig.TalosVersionCurrent)
	if err != nil {
		t.Fatal(err)
	}
	input, err := generate.NewInput("k8s", "https://127.0.0.9:6443", "1.34.0", generate.WithSecretsBundle(bundle))
	if err != nil {
		t.Fatal(err)
	}
	return bundle, input
}

func TestPasses(t *testing.T) {
	bundle, input := newInput(t)
	a := authorities{talos: newAuthority(t), kubernetes: newAuthority(t)}
	a.talos.old, a.kubernetes.old = bundle.Certs.OS.Crt, bundle.Certs.K8s.Crt
	for _, kind := range []machine.Type{machine.TypeControlPlane, machine.TypeWorker} {
		is, err := input.Config(kind)
		if err != nil {
			t.Fatal(err)
		}
		plane := kind == machine.TypeControlPlane
		for _, step := range []struct {
			name             string
			change           pass
			issuing          [2][]byte // of Talos, of Kubernetes
			accepted, before [2][][]byte
		}{
			{name: "accept", change: pass{change: acceptNew}, issuing: [2][]byte{a.talos.old, a.kubernetes.old},
				accepted: [2][][]byte{{a.talos.new.Crt}, {a.kubernetes.new.Crt}}},
			{name: "issue", change: pass{change: issueWithNew},
				issuing:  [2][]byte{a.talos.new.Crt, a.kubernetes.new.Crt},
				accepted: [2][][]byte{{a.talos.old}, {a.kubernetes.old}}},
			{name: "drop", change: pass{change: replaceOld}, issuing: [2][]byte{a.talos.new.Crt, a.kubernetes.new.Crt}},
		} {
			wanted, err := step.change.changed(a, is, plane)
			if err != nil || wanted == nil {
				t.Fatalf("%s of a %s: %v, changed: %t", step.name, kind, err, wanted != nil)
			}
			next, err := configloader.NewFromBytes(wanted)
			if err != nil {
				t.Fatal(err)
			}
			c := next.RawV1Alpha1()
			check := func(what string, issuing *pair, accepted []*xcrypto.PEMEncodedCertificate, i int) {
				if !same(issuing.Crt, step.issuing[i]) {
					t.Errorf("%s of a %s: another authority issues for %s", step.name, kind, what)
				}
				if step.name != "accept" && (len(issuing.Key) > 0) != plane {
					t.Errorf("%s of a %s: it has the key for %s: %t", step.name, kind, what, len(issuing.Key) > 0)
				}
				if !slices.EqualFunc(accepted, step.accepted[i],
					func(c *xcrypto.PEMEncodedCertificate, want []byte) bool { return same(c.Crt, want) }) {
					t.Errorf("%s of a %s: it accepts %d others for %s", step.name, kind, len(accepted), what)
				}
			}
			check("Talos", c.MachineConfig.MachineCA, c.MachineConfig.MachineAcceptedCAs, 0)
			check("Kubernetes", c.ClusterConfig.ClusterCA, c.ClusterConfig.ClusterAcceptedCAs, 1)
			if again, err := step.change.changed(a, next, plane); err != nil || again != nil {
				t.Errorf("%s of a %s changes it again (%v)", step.name, kind, err)
			}
			is = next
		}
		for _, p := range []pass{{change: acceptNew}, {change: issueWithNew}} {
			if again, err := p.changed(a, is, plane); err != nil || again != nil {
				t.Errorf("a %s that has dropped the old authorities is changed by an earlier pass (%v)", kind, err)
			}
		}
	}
}

// A server that Cluster API makes in the middle of a rotation has the old authorities, and gets what the others have.
func TestAServerThatCameLater(t *testing.T) {
	bundle, input := newInput(t)
	is, err := input.Config(machine.TypeControlPlane)
	if err != nil {
		t.Fatal(err)
	}
	a := authorities{talos: newAuthority(t), kubernetes: newAuthority(t)}
	a.talos.old, a.kubernetes.old = bundle.Certs.OS.Crt, bundle.Certs.K8s.Crt
	wanted, err := pass{change: replaceOld}.changed(a, is, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, old := range []*pair{bundle.Certs.OS, bundle.Certs.K8s} {
		for _, secret := range [][]byte{old.Crt, old.Key} {
			if bytes.Contains(wanted, []byte(base64.StdEncoding.EncodeToString(secret))) {
				t.Error("it keeps a part of an old authority")
			}
		}
	}
}

func TestBundle(t *testing.T) {
	made, err := secrets.NewBundle(secrets.NewClock(), machineconfig.TalosVersionCurrent)
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	b := bundle{secret: &corev1.Secret{}, fields: map[string]any{}}
	if err := yaml.Unmarshal(text, &b.fields); err != nil {
		t.Fatal(err)
	}
	os, kubernetes, err := b.authorities()
	if err != nil || !same(os.Key, made.Certs.OS.Key) || !same(kubernetes.Crt, made.Certs.K8s.Crt) {
		t.Fatalf("what it has is not what was made: %v", err)
	}
	a := authorities{talos: newAuthority(t), kubernetes: newAuthority(t)}
	changed, err := b.with(a.talos.new, a.kubernetes.new)
	if err != nil {
		t.Fatal(err)
	}
	is := &secrets.Bundle{}
	if err := yaml.Unmarshal(changed, is); err != nil {
		t.Fatal(err)
	}
	if !same(is.Certs.OS.Crt, a.talos.new.Crt) || !same(is.Certs.OS.Key, a.talos.new.Key) ||
		!same(is.Certs.K8s.Crt, a.kubernetes.new.Crt) || !same(is.Certs.K8s.Key, a.kubernetes.new.Key) {
		t.Error("it does not have the new authorities")
	}
	is.Certs.OS, is.Certs.K8s = made.Certs.OS, made.Certs.K8s
	if back, err := yaml.Marshal(is); err != nil || !bytes.Equal(back, text) {
		t.Errorf("something else has changed, too (%v)", err)
	}
	delete(b.fields, "certs")
	if _, _, err := b.authorities(); err == nil || !strings.Contains(err.Error(), "certs.") {
		t.Errorf("without authorities: %v", err)
	}
}

func TestFilesOfTheStateFolder(t *testing.T) {
	a := newAuthority(t)
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{CurrentContext: "a",
		Contexts: map[string]*clientcmdapi.Context{"a": {Cluster: "c", AuthInfo: "u"}},
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: "https://127.0.0.9",
			CertificateAuthorityData: a.old}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: a.oldClient.Crt,
			ClientKeyData: a.oldClient.Key}}})
	if err != nil {
		t.Fatal(err)
	}
	is, err := kubeconfigWith(kubeconfig, a.both(), a.newClient)
	if err != nil {
		t.Fatal(err)
	}
	read, err := clientcmd.Load(is)
	if err != nil {
		t.Fatal(err)
	}
	if user := read.AuthInfos["u"]; !bytes.Equal(user.ClientCertificateData, a.newClient.Crt) ||
		!bytes.Equal(trustOf(is), a.both()) || read.Clusters["c"].Server != "https://127.0.0.9" {
		t.Errorf("kubeconfig: %s", is)
	}
	if _, err := kubeconfigWith([]byte("a: {"), a.both(), a.newClient); err == nil {
		t.Error("a damaged kubeconfig is taken")
	}
	admin := func(ca, of pair) []byte {
		c := config.NewConfig("k8s", []string{"127.0.0.5"}, ca.Crt, &of)
		c.Contexts["k8s"].Nodes = []string{"127.0.0.6"}
		text, err := c.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	text, err := talosconfigWith(admin(pair{Crt: a.old}, a.oldClient), a.both(), a.newClient)
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := talos.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	endpoints, nodes := credentials.Targets()
	if f, err := credentials.Fingerprint(); err != nil || f != fingerprint(a.new.Crt) ||
		!slices.Equal(endpoints, []string{"127.0.0.5"}) || !slices.Equal(nodes, []string{"127.0.0.6"}) {
		t.Errorf("talosconfig: %s of %v, %v (%v)", f, endpoints, nodes, err)
	}
}

// apiServer is a kube-apiserver as far as a probe sees it: a serving certificate of an authority, and clients of some.
func apiServer(t *testing.T, issuer pair, accepted []byte) *httptest.Server {
	t.Helper()
	ca, err := xcrypto.NewCertificateAuthorityFromCertificateAndKey(&issuer)
	if err != nil {
		t.Fatal(err)
	}
	serving, err := xcrypto.NewKeyPair(ca, xcrypto.IPAddresses([]net.IP{net.IPv4(127, 0, 0, 1)}),
		xcrypto.NotAfter(time.Now().Add(time.Hour)),
		xcrypto.ExtKeyUsage([]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}))
	if err != nil {
		t.Fatal(err)
	}
	roots, err := pool(accepted)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := r.TLS.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if err != nil {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{*serving.Certificate}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func TestProbe(t *testing.T) {
	a := newAuthority(t)
	oldCA := newAuthority(t)
	a.old, a.oldClient = oldCA.new.Crt, oldCA.newClient
	before := apiServer(t, oldCA.new, a.old)
	both := apiServer(t, oldCA.new, a.both())
	issued := apiServer(t, a.new, a.both())
	dropped := apiServer(t, a.new, a.new.Crt)
	accepts := probe{roots: a.both(), client: a.newClient, accepted: true}
	issues := accepts
	issues.issuer = a.new.Crt
	refuses := probe{roots: a.both(), client: a.oldClient}
	for name, one := range map[string]struct {
		server *httptest.Server
		want   [3]bool // accepts, issues, refuses
	}{
		"before": {before, [3]bool{false, false, false}}, "accepts both": {both, [3]bool{true, false, false}},
		"issues with the new": {issued, [3]bool{true, true, false}},
		"has dropped the old": {dropped, [3]bool{true, true, true}},
	} {
		for i, p := range []probe{accepts, issues, refuses} {
			found, err := endpoint{}.look(t.Context(), one.server.URL, p, 2)
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Collect(maps.Values(found)); len(got) != 1 || got[0] != one.want[i] {
				t.Errorf("%s, probe %d: %v", name, i, got)
			}
		}
	}
	dropped.Close()
	if _, err := (endpoint{}).look(t.Context(), dropped.URL, accepts, 1); err == nil {
		t.Error("silence is an answer")
	}
}

func TestWithoutCertificate(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	all := slices.Concat(a.old, other.new.Crt, a.new.Crt)
	if kept := withoutCertificate(all, a.old); !bytes.Equal(kept, slices.Concat(other.new.Crt, a.new.Crt)) {
		t.Errorf("kept:\n%s", kept)
	}
	if kept := withoutCertificate(all, other.old); !bytes.Equal(kept, all) {
		t.Errorf("of one that is not there, kept:\n%s", kept)
	}
}
