package crash

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, says := range map[string]string{
		"":                                      "",
		"after x":                               "no point",
		"before":                                "names no call",
		"before hetzner create firewalls/k8s":   "names no call",
		"before hetzner create firewalls/k8s#0": "names no call",
		"before hetzner create firewalls/k8s#1 x": "names no call",
		"before moon create firewalls/k8s#1":      "no world moon",
		"torn hetzner create firewalls/k8s#1":     "",
		"saved journal save wait-cp/done#1":       "",

		"before hetzner create firewalls/k8s#1\nsaved journal save wait-cp/done#1": "",
		"before hetzner create firewalls/k8s#1\nnever":                             "no point",
	} {
		all, err := Parse(text)
		var read []string
		for _, c := range all {
			read = append(read, c.String())
		}
		switch {
		case says == "" && (err != nil || strings.Join(read, "\n") != text):
			t.Errorf("%q: %+v, %v", text, all, err)
		case says != "" && (err == nil || !strings.Contains(err.Error(), says)):
			t.Errorf("%q: %v does not say %q", text, err, says)
		}
	}
}

// The command contains this package only where it is built with -tags crash.
func TestReleasedCommandHasNoFaultInjection(t *testing.T) {
	for tags, want := range map[string]bool{"": false, "crash": true} {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", tags, "./cmd/bootstrap")
		list.Dir = "../.."
		out, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		deps := strings.Fields(string(out))
		const here = "github.com/slipway-k8s/slipway/internal/"
		if !slices.Contains(deps, here+"effect") {
			t.Errorf("with tags %q the command does not record its effects", tags)
		}
		if slices.Contains(deps, here+"crash") != want {
			t.Errorf("with tags %q the command imports internal/crash: %v, want %v", tags, !want, want)
		}
	}
}
