package upgrade

import (
	"slices"
	"strings"
	"testing"

	machinery "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"

	"github.com/slipway-k8s/slipway/internal/cluster/machineconfig"
)

const (
	plainConfig = "version: v1alpha1\nmachine:\n  type: controlplane\n  token: a.b\n"
	mirror      = "---\napiVersion: v1alpha1\nkind: RegistryMirrorConfig\nname: ghcr.io\n" +
		"endpoints:\n  - url: https://ADDRESS\n"
)

func configOf(t *testing.T, text string) machinery.Provider {
	t.Helper()
	c, err := configloader.NewFromBytes([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func withMirror(address string) string {
	return plainConfig + strings.ReplaceAll(mirror, "ADDRESS", address)
}

// inPlaceFrom is a server that may run with what either of the configurations makes, and is to get another one.
func inPlaceFrom(t *testing.T, wanted string, may ...string) (s serverInPlace) {
	t.Helper()
	for _, one := range may {
		fields, err := machineconfig.Differences(configOf(t, one), configOf(t, wanted))
		if err != nil {
			t.Fatal(err)
		}
		s.from, s.fields = append(s.from, fields), append(s.fields, fields...)
	}
	return s
}

// A server gets what differs from the configuration that it runs with, and keeps everything else that it has.
func TestFieldsInPlace(t *testing.T) {
	const sysctl = "  sysctls:\n    a: \"1\"\n    b: \"010\"\n"
	for name, tc := range map[string]struct {
		may          []string
		wanted, live string
		is           string // the configuration that the server gets; empty: it has it
		others       string // fields that were changed by other means
	}{
		"a field": {may: []string{plainConfig}, wanted: plainConfig + sysctl, live: plainConfig + "  certSANs: [x]\n",
			is: plainConfig + "  certSANs: [x]\n" + sysctl},
		"it has it": {may: []string{plainConfig}, wanted: plainConfig + sysctl, live: plainConfig + sysctl},
		"the last of a map": {may: []string{plainConfig + sysctl}, wanted: plainConfig, live: plainConfig + sysctl,
			is: plainConfig},
		"another value": {may: []string{plainConfig}, wanted: plainConfig + sysctl,
			live: plainConfig + "  sysctls:\n    a: \"2\"\n", others: "machine.sysctls.a"},
		"a list is one field": {may: []string{plainConfig + "  certSANs: [x]\n"},
			wanted: plainConfig + "  certSANs: [x, y]\n", live: plainConfig + "  certSANs: [x, z]\n",
			others: "machine.certSANs"},
		"a new document": {may: []string{plainConfig}, wanted: withMirror("a"), live: plainConfig, is: withMirror("a")},
		"another document": {may: []string{plainConfig}, wanted: withMirror("a"), live: withMirror("b"),
			others: "document RegistryMirrorConfig ghcr.io"},
		"a document goes": {may: []string{withMirror("a")}, wanted: plainConfig, live: withMirror("a"),
			is: plainConfig},
		"a document is not": {may: []string{withMirror("a")}, wanted: withMirror("b"), live: plainConfig,
			others: "RegistryMirrorConfig ghcr.io: endpoints"},
		"a third configuration, of the second": {may: []string{plainConfig, withMirror("a")}, wanted: withMirror("b"),
			live: withMirror("a"), is: withMirror("b")},
		"a third configuration, of the first": {may: []string{withMirror("a"), plainConfig}, wanted: withMirror("b"),
			live: plainConfig, is: withMirror("b")},
		"undone": {may: []string{plainConfig, withMirror("a")}, wanted: plainConfig, live: withMirror("a"),
			is: plainConfig},
	} {
		t.Run(name, func(t *testing.T) {
			text, others, err := inPlaceFrom(t, tc.wanted, tc.may...).changed(configOf(t, tc.live))
			if err != nil || (tc.others == "") != (len(others) == 0) ||
				!slices.Contains(append(others, ""), tc.others) {
				t.Fatalf("others %q, want %q; %v", others, tc.others, err)
			}
			switch {
			case tc.is == "" && text != nil:
				t.Errorf("it gets %s", text)
			case tc.is != "":
				rest, err := machineconfig.Differences(configOf(t, string(text)), configOf(t, tc.is))
				if err != nil || len(rest) > 0 {
					t.Errorf("it gets\n%s\nwhich differs in %v; %v", text, rest, err)
				}
			}
		})
	}
}
