package talos_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/client/config"

	"github.com/slipway-k8s/slipway/internal/client/talos"
)

// Ways to authenticate, or to another cluster, that are no embedded client certificate are refused by name, in every
// context.
func TestForbiddenFieldsOfTalosconfig(t *testing.T) {
	good := string(newAuthority(t).talosconfig(t))
	if _, err := talos.Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	other := func(more string) string { return good + "    other:\n        endpoints: []\n        " + more + "\n" }
	for field, data := range map[string]string{
		"auth.basic":     other("auth: {basic: {username: a, password: b}}"),
		"auth.siderov1":  other("auth: {siderov1: {identity: a}}"),
		"cluster":        other("cluster: a"),
		"target":         other("target: 127.0.0.9"),
		"":               other("plugin: a"),
		"a certificate":  strings.Replace(good, "crt: ", "crt: YQ==\n        unused: ", 1),
		"no credentials": "context: a\ncontexts: {a: {endpoints: [127.0.0.5]}}",
		"a path":         "context: a\ncontexts: {a: {endpoints: [], ca: /a, crt: /b, key: /c}}",
		"nothing":        "", "garbage": "\x00{{", "an empty context": "context: a\ncontexts: {a: }",
		"more than is ever there": good + strings.Repeat("# more\n", talos.MaxConfigBytes/7),
	} {
		_, err := talos.Parse([]byte(data))
		refused := (*talos.ConfigError)(nil)
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v", field, err)
		} else if refused.Field != "" && (refused.Field != field || !strings.Contains(err.Error(), field)) {
			t.Errorf("%s: refused as %s: %v", field, refused.Field, err)
		} else if refused.Field == "" && (strings.Contains(field, "auth") || field == "cluster" || field == "target") {
			t.Errorf("%s: not by name: %v", field, err)
		}
	}
}

// Credentials of another authority than the talosconfig's own are refused: they could never authenticate.
func TestCertificateOfAnotherAuthority(t *testing.T) {
	a, b := newAuthority(t), newAuthority(t)
	a.ca = b.ca
	if _, err := talos.Parse(a.talosconfig(t)); !talos.Refused(err) {
		t.Error(err)
	}
}

// What is accepted has embedded credentials and nothing else, as Talos's client reads it.
func FuzzTalosconfig(f *testing.F) {
	f.Add(newAuthority(f).talosconfig(f))
	f.Add([]byte("context: a\ncontexts: {a: {auth: {siderov1: {identity: a}}}}"))
	f.Add([]byte("context: a\ncontexts: &a {a: *a}\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		credentials, err := talos.Parse(data)
		if err != nil {
			if !talos.Refused(err) {
				t.Fatalf("refused by another error: %v", err)
			}
			return
		}
		written, err := credentials.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		is, err := config.FromBytes(written)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range is.Contexts {
			if c.Auth.Basic != nil || c.Auth.SideroV1 != nil || c.Cluster != "" || c.CA == "" || c.Crt == "" || c.Key == "" {
				t.Fatal("what Talos's client makes of it is not what was accepted")
			}
		}
	})
}
