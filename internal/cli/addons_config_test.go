package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/config"
)

const shopInFile = "  - {name: shop, chart: shop, repository: \"https://charts.example.com\", version: 1.0.0, namespace: shop"

func TestAddonsAreRead(t *testing.T) {
	no := false
	want := config.Addons{{Name: "hcloud-csi"}, {Name: "shop", Chart: "shop", Repository: "https://charts.example.com",
		Version: "1.0.0", Namespace: "shop", PodSecurity: "privileged", Values: "shop.yaml", Wait: &no,
		Timeout: config.Duration(20 * time.Minute), After: []string{"hcloud-csi"}}}
	const file = `addons:
  - hcloud-csi
  - name: shop
    chart: shop
    repository: https://charts.example.com
    version: 1.0.0
    namespace: shop
    podSecurity: privileged
    values: shop.yaml
    wait: false
    timeout: 20m
    after: [hcloud-csi]
`
	if c, err := load(t, file, "", ""); err != nil || !reflect.DeepEqual(c.Addons, want) {
		t.Errorf("%+v, %v", c.Addons, err)
	}
	names := config.Addons{{Name: "hcloud-csi"}, {Name: "metrics-server"}}
	const variable = "ADDONS=hcloud-csi,metrics-server"
	for _, from := range [][3]string{{"", variable, ""}, {"", "", variable}, {"addons: hcloud-csi, metrics-server\n"},
		{"addons: [hcloud-csi, metrics-server]\n"}, {"addons: [cluster-autoscaler]\n", "", variable}} {
		if c, err := load(t, from[0], from[1], from[2]); err != nil || !reflect.DeepEqual(c.Addons, names) {
			t.Errorf("%v: %+v, %v", from, c.Addons, err)
		}
	}
	if c, err := load(t, "addons: [hcloud-csi]\n", "", "ADDONS="); err != nil || len(c.Addons) > 0 {
		t.Errorf("%+v, %v", c.Addons, err)
	}
}

func TestWrongAddonsNameTheirPlace(t *testing.T) {
	for says, from := range map[string][2]string{
		"bootstrap.yaml:3:5: addons[0].chrat: there is no such key; did you mean chart?": {
			"addons:\n  - name: a\n    chrat: b\n"},
		`bootstrap.yaml:2:5: addons[0].name: "hcloud-cis" is not a shipped add-on, and has no chart: did you mean ` +
			`hcloud-csi?`: {"addons:\n  - hcloud-cis\n"},
		`ADDONS=nginx: addons[0].name: "nginx" is not a shipped add-on (hcloud-csi, cluster-autoscaler, metrics-server, gitea)`: {
			"", "ADDONS=nginx"},
		`addons[1].name: "hcloud-csi" is a second add-on of this name`: {"", "ADDONS=hcloud-csi,hcloud-csi"},
		`addons[0].name: "cilium" is a name of Slipway's own`:          {"", "ADDONS=cilium"},
		`addons[0].name: "Shop" cannot be the name of a Helm release`:  {"", "ADDONS=Shop"},
		`addons[0].repository: "" is missing for shop`:                 {"addons:\n  - {name: shop, chart: shop}\n"},
		`addons[0].version: "" is missing for shop`:                    {"addons:\n  - {name: shop, chart: shop}\n"},
		`addons[0].namespace: "" is missing for shop`:                  {"addons:\n  - {name: shop, chart: shop}\n"},
		`addons[0].version: "^1.0" is not an exact version`:            {"addons:\n  - {name: hcloud-csi, version: ^1.0}\n"},
		`addons[0].repository: "/srv/charts" is not a chart repository's address`: {
			"addons:\n  - {name: hcloud-csi, repository: /srv/charts}\n"},
		`addonsRepository: "charts" is not a chart repository's address`: {"", "ADDONS_REPOSITORY=charts"},
		`addons[0].values: "../x.yaml" is not the name of a YAML file`:   {"addons:\n" + shopInFile + ", values: ../x.yaml}\n"},
		`addons[0].values: "x.yaml" is given for a shipped add-on`:       {"addons:\n  - {name: hcloud-csi, values: x.yaml}\n"},
		`addons[0].podSecurity: "strict" is no level of Pod Security`:    {"addons:\n" + shopInFile + ", podSecurity: strict}\n"},
		`addons[0].podSecurity: "baseline" is given for the namespace kube-system`: {
			"addons:\n  - {name: hcloud-csi, podSecurity: baseline}\n"},
		`addons[0].after[0]: "hcloud-cis" is no add-on of the list: did you mean hcloud-csi?`: {"addons:\n" + shopInFile +
			", after: [hcloud-cis]}\n  - hcloud-csi\n"},
		`addons[0].after[0]: "shop" is the add-on itself`: {"addons:\n" + shopInFile + ", after: [shop]}\n"},
		`addons[0].after: "shop after hcloud-csi after shop" is a cycle`: {"addons:\n" + shopInFile +
			", after: [hcloud-csi]}\n  - {name: hcloud-csi, after: [shop]}\n"},
		`"soon" is not a duration`: {"addons:\n  - {name: hcloud-csi, timeout: soon}\n"},
		"bootstrap.yaml:2:3 has a list with more than names: add to that list": {"addons:\n" + shopInFile + "}\n",
			"ADDONS=hcloud-csi"},
	} {
		_, err := load(t, from[0], "", from[1])
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %s", from, err, says)
		}
	}
}

// A password in an add-on's repository is hidden like the others.
func TestPasswordsOfAddonRepositories(t *testing.T) {
	c, err := load(t, "addons: [{name: hcloud-csi, repository: \"https://user:s3cret@charts.example.com\"}]\n", "", "")
	if err != nil || !strings.Contains(strings.Join(c.Passwords(), " "), "s3cret") {
		t.Errorf("%v, %v", c.Passwords(), err)
	}
}

// A mistake in the list, or in its files, ends the command before anything is made, with exit code 2.
func TestWrongAddonsChangeNothing(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(says string, args ...string) {
		t.Helper()
		r := execute(t, t.Context(), dir, "", append(args, "--state-dir", filepath.Join(dir, "state"))...)
		if r.code != ExitUsage || !strings.Contains(r.stderr, says) {
			t.Errorf("%v: exit %d, %s\nwant %q", args, r.code, r.stderr, says)
		}
		if _, err := os.Stat(filepath.Join(dir, "state")); err == nil {
			t.Errorf("%v made a state folder", args)
		}
	}
	run("did you mean metrics-server?", "bootstrap", "--lab", "ADDONS=metric-server")
	put("bootstrap.yaml", "addons:\n"+shopInFile+", values: shop.yaml}\n")
	run("there is no file bootstrap/addons/shop.yaml", "bootstrap", "--lab")
	put("bootstrap/addons/shop.yaml", "a: 1\n")
	put("bootstrap/addons/hcloud-csi-values.yaml", "controller: {hcloudToken: {existingSecret: {name: mine}}}\n")
	put("bootstrap.yaml", "addons:\n  - hcloud-csi\n"+shopInFile+", values: shop.yaml}\n")
	run("controller.hcloudToken.existingSecret.name is mine, not hcloud: the step hcloud-ccm creates that Secret",
		"bootstrap", "--lab")
	put("bootstrap/addons/hcloud-csi-values.yaml", "controller: {replicaCount: 2}\n")
	run(`there is no target "addon-ship"`, "bootstrap", "addon-ship", "--lab")
}
