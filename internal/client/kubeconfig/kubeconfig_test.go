package kubeconfig_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/internal/client/kubeconfig"
)

// newAuthority is a certificate, as a kubeconfig writes it.
func newAuthority(t testing.TB) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// with is a kubeconfig of two contexts; more is added to the cluster and to the user that its current context does
// not use.
func with(ca, cluster, user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
preferences: {}
current-context: k8s-admin@k8s
contexts:
- {name: k8s-admin@k8s, context: {cluster: k8s, user: k8s-admin, namespace: default}}
- {name: other, context: {cluster: other, user: other}}
clusters:
- {name: k8s, cluster: {server: "https://203.0.113.7:6443", certificate-authority-data: %[1]s}}
- {name: other, cluster: {server: "https://203.0.113.8", certificate-authority-data: %[1]s%[2]s}}
users:
- {name: k8s-admin, user: {client-certificate-data: YQ==, client-key-data: YQ==}}
- {name: other, user: {token: t%[3]s}}
`, ca, cluster, user)
}

// Each field by which a kubeconfig could do something else than open a cluster is refused by its name, also where the
// current context does not use it.
func TestForbiddenFields(t *testing.T) {
	ca := newAuthority(t)
	if got, err := kubeconfig.Accept([]byte(with(ca, "", ""))); err != nil || got.Server != "203.0.113.7:6443" {
		t.Fatal(got.Server, err)
	}
	for field, more := range map[string][2]string{
		"exec":                     {"", `, exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}`},
		"auth-provider":            {"", `, auth-provider: {name: oidc}`},
		"tokenFile":                {"", `, tokenFile: /etc/hostname`},
		"client-certificate":       {"", `, client-certificate: /a`},
		"client-key":               {"", `, client-key: /a`},
		"as":                       {"", `, as: root`},
		"as-uid":                   {"", `, as-uid: "1"`},
		"as-groups":                {"", `, as-groups: ["system:masters"]`},
		"as-user-extra":            {"", `, as-user-extra: {a: [b]}`},
		"username":                 {"", `, username: a`},
		"password":                 {"", `, password: a`},
		"certificate-authority":    {`, certificate-authority: /a`, ""},
		"insecure-skip-tls-verify": {`, insecure-skip-tls-verify: true`, ""},
		"proxy-url":                {`, proxy-url: "http://203.0.113.9"`, ""},
		"tls-server-name":          {`, tls-server-name: kubelet`, ""},
		"extensions":               {`, extensions: [{name: a, extension: {}}]`, ""},
	} {
		_, err := kubeconfig.Accept([]byte(with(ca, more[0], more[1])))
		refused := (*kubeconfig.Error)(nil)
		if !errors.As(err, &refused) || refused.Field != field || !strings.Contains(err.Error(), field) ||
			!strings.Contains(err.Error(), `"other"`) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// What is damaged, incomplete or read by programs in different ways is refused.
func TestDamaged(t *testing.T) {
	ca := newAuthority(t)
	good := with(ca, "", "")
	change := func(from, to string) string { return strings.Replace(good, from, to, 1) }
	for what, data := range map[string]string{
		"nothing":                 "",
		"garbage":                 "\x00\x01{{{",
		"another kind":            change("kind: Config", "kind: Secret"),
		"an unknown field":        change("preferences: {}", "preferences: {}\nplugin: a"),
		"a field in other case":   change("user: {client-c", "user: {Exec: {command: sh}, client-c"),
		"a field twice":           change("current-context", "current-context: other\ncurrent-context"),
		"two documents":           good + "---\n" + good,
		"no current context":      change("current-context: k8s-admin@k8s\n", ""),
		"an unknown context":      change("current-context: k8s-admin@k8s", "current-context: x"),
		"two users of one name":   change("name: other, user: {token", "name: k8s-admin, user: {token"),
		"no authority":            change("6443\", certificate-authority-data: "+ca, "6443\""),
		"another authority":       change("certificate-authority-data: "+ca, "certificate-authority-data: YQ=="),
		"no credentials":          change("client-certificate-data: YQ==, client-key-data: YQ==", ""),
		"a certificate alone":     change(", client-key-data: YQ==", ""),
		"plain HTTP":              change("https://203.0.113.7", "http://203.0.113.7"),
		"a path":                  change("7:6443", "7:6443/clusters/a"),
		"a user in the address":   change("https://203", "https://a:b@203"),
		"more than is ever there": good + strings.Repeat("# more\n", kubeconfig.MaxBytes/7),
	} {
		if _, err := kubeconfig.Accept([]byte(data)); !kubeconfig.Refused(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Two kubeconfigs with the same certificates in another order have the same authority.
func TestSameAuthority(t *testing.T) {
	one, two := newAuthority(t), newAuthority(t)
	of := func(all ...string) kubeconfig.Config {
		var joined []byte
		for _, a := range all {
			der, err := base64.StdEncoding.DecodeString(a)
			if err != nil {
				t.Fatal(err)
			}
			joined = append(joined, der...)
		}
		c, err := kubeconfig.Accept([]byte(with(base64.StdEncoding.EncodeToString(joined), "", "")))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if !of(one, two).SameAuthority(of(two, one, one)) || of(one).SameAuthority(of(two)) ||
		of(one).SameAuthority(of(one, two)) {
		t.Error("authorities are compared in another way than by their certificates")
	}
}

// What is accepted opens a cluster with what it holds and does nothing else, as client-go reads it.
func FuzzKubeconfig(f *testing.F) {
	ca := newAuthority(f)
	for _, more := range [][2]string{{}, {`, proxy-url: "http://a"`, ""}, {"", ", exec: {command: sh}"},
		{"", ", tokenFile: /a"}, {`, insecure-skip-tls-verify: true`, ""}, {"", `, as: a`}} {
		f.Add([]byte(with(ca, more[0], more[1])))
	}
	f.Add([]byte(`{"kind":"Config","users":[{"name":"a","user":{"exec":{"command":"sh"}}}]}`))
	f.Add([]byte("a: &a [*a]\n---\n<<: *a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := kubeconfig.Accept(data); err != nil {
			if !kubeconfig.Refused(err) {
				t.Fatalf("refused by another error: %v", err)
			}
			return
		}
		raw, err := clientcmd.Load(data)
		if err != nil {
			t.Fatalf("client-go does not read what was accepted: %v", err)
		}
		for _, u := range raw.AuthInfos {
			if u.Exec != nil || u.AuthProvider != nil || u.TokenFile != "" || u.ClientCertificate != "" || u.ClientKey != "" ||
				u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups)+len(u.ImpersonateUserExtra) > 0 ||
				u.Username != "" || u.Password != "" {
				t.Fatal("a forbidden field of a user was accepted")
			}
		}
		for _, c := range raw.Clusters {
			if c.CertificateAuthority != "" || c.InsecureSkipTLSVerify || c.ProxyURL != "" || c.TLSServerName != "" {
				t.Fatal("a forbidden field of a cluster was accepted")
			}
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(data)
		if err != nil {
			return // client-go refuses more
		}
		if config.ExecProvider != nil || config.AuthProvider != nil || config.BearerTokenFile != "" || config.CAFile != "" ||
			config.CertFile != "" || config.KeyFile != "" || config.Insecure || config.Proxy != nil ||
			len(config.CAData) == 0 || !strings.HasPrefix(config.Host, "https://") {
			t.Fatal("what client-go makes of it is not what was accepted")
		}
	})
}
