package crash

import (
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
		"before moon create firewalls/k8s#1":      "no system moon",
		"torn hetzner create firewalls/k8s#1":     "",
		"applied gitea create user/repos/fleet#1": "",
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
