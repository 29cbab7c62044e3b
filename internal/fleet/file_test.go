package fleet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/slipway-k8s/slipway/internal/base/usage"

	"github.com/slipway-k8s/slipway/internal/state/settings"
)

const example = `name: europe
image: example.org/slipway:v1
pivot: false
canary: [alpha]
maxParallel: 3
deadline: 90m
tokens:
  default: {env: HCLOUD_TOKEN}
  customer: {secret: customer-token}
defaults:
  serverType: cx33
  controlPlaneReplicas: 1
  workers:
    - {name: general, replicas: 2}
    - {name: large, replicas: 1, serverType: cx53}
  addons: [metrics-server]
clusters:
  - name: alpha
  - name: beta
    token: customer
    location: fsn1
    controlPlaneReplicas: 3
    workers:
      - {name: large, replicas: 4}
      - {name: extra, replicas: 1}
    addons: null
`

func TestEntriesOverDefaults(t *testing.T) {
	f, err := parse("fleet.yaml", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	if f.Name != "europe" || f.Pivot || f.MaxParallel != 3 || f.Deadline.Minutes() != 90 || f.Retries != DefaultRetries ||
		f.Namespace != DefaultNamespace || f.Tokens["customer"].Secret != "customer-token" {
		t.Errorf("read %+v", f.Spec)
	}
	alpha, err := f.Configuration(*f.Find("alpha"))
	if err != nil {
		t.Fatal(err)
	}
	beta, err := f.Configuration(*f.Find("beta"))
	if err != nil {
		t.Fatal(err)
	}
	if alpha.ClusterName != "alpha" || alpha.ControlPlaneReplicas != 1 || alpha.ServerType != "cx33" ||
		len(alpha.Workers) != 2 || len(alpha.Addons) != 1 {
		t.Errorf("alpha is %+v", alpha.Config)
	}
	if beta.Location != "fsn1" || beta.ControlPlaneReplicas != 3 || beta.ServerType != "cx33" || len(beta.Addons) != 0 {
		t.Errorf("beta is %+v", beta.Config)
	}
	var pools []string
	for _, p := range beta.Workers {
		pools = append(pools, p.Name+" "+p.ServerType)
	}
	if got := strings.Join(pools, ", "); got != "general , large cx53, extra " || beta.Workers[1].Replicas != 4 {
		t.Errorf("beta's pools are %q, %+v", got, beta.Workers)
	}
	if f.Find("beta").Token != "customer" || alpha.Places["serverType"] != "fleet.yaml:11:15" ||
		beta.Places["location"] != "fleet.yaml:21:15" {
		t.Errorf("token %s, places %v, %v", f.Find("beta").Token, alpha.Places, beta.Places)
	}
}

// A fleet's file is refused as a whole, with every place.
func TestWhatIsRefused(t *testing.T) {
	base := "name: a\nimage: i\nclusters:\n  - name: one\n"
	for name, tt := range map[string]struct {
		file string
		want []string
	}{
		"nothing":           {"", []string{"EOF"}},
		"no clusters":       {"name: a\n", []string{"clusters is a list"}},
		"unknown key":       {base + "maxParalel: 2\n", []string{"maxParalel"}},
		"two documents":     {base + "---\nname: b\n", []string{"second document"}},
		"names":             {"name: A_b\nclusters: [{name: Über}, {nam: x}]\n", []string{"fleet.yaml:2:12", "2:26", `"A_b"`}},
		"the same twice":    {base + "  - name: one\n", []string{"fleet.yaml:5:5", "first in line 4"}},
		"numbers":           {base + "maxParallel: 0\nmaxFailures: -1\ndeadline: 5s\n", []string{"maxParallel", "maxFailures", "deadline"}},
		"unknown canary":    {base + "canary: [on]\n", []string{`"on"`, "one"}},
		"decided keys":      {"name: a\ndefaults: {management: kind}\nclusters: [{name: x, state: 's3://a'}]\n", []string{"fleet.yaml:2:12: management", "fleet.yaml:3:22: state"}},
		"token as a value":  {base + "tokens: {default: geheim}\n", []string{"fleet.yaml:5:19", "not written"}},
		"two sources":       {base + "tokens: {default: {env: A, file: B}}\n", []string{"takes one of"}},
		"an unknown token":  {base + "    token: b\n", []string{"fleet.yaml:5:12", "default"}},
		"a token in token":  {base + "    token: " + strings.Repeat("x", 64) + "\n", []string{"fleet.yaml:5:12", "name of one of"}},
		"a list as default": {base + "defaults: [1]\n", []string{"defaults is a mapping"}},
		"no queue":          {base + "queue: A B\n", []string{"LocalQueue"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse("fleet.yaml", []byte(tt.file))
			if _, is := err.(*usage.Error); !is {
				t.Fatalf("%v is no usage.Error", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "geheim") || strings.Contains(err.Error(), "xxxx") {
				t.Errorf("a token is in %q", err)
			}
		})
	}
}

// What is wrong with a cluster's configuration is said with its place in the fleet's file, also where it is merged.
func TestPlacesOfWrongValues(t *testing.T) {
	f, err := parse("fleet.yaml", []byte("name: a\ndefaults:\n  controlPlaneReplicas: 2\nclusters:\n  - name: one\n    podCidr: x\n    serverTyp: y\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Configuration(f.Clusters[0])
	if err == nil || !strings.Contains(err.Error(), `cluster one: fleet.yaml:7:5`) || !strings.Contains(err.Error(), "serverType") {
		t.Errorf("%v", err)
	}
	f.Clusters[0].Config = without(f.Clusters[0].Config, "serverTyp")
	_, err = f.Configuration(f.Clusters[0])
	for _, want := range []string{"cluster one", "fleet.yaml:3:", "fleet.yaml:6:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
}

func without(n *yaml.Node, key string) *yaml.Node {
	take(n, key)
	return n
}

// Merging changes neither side: the defaults are merged with each entry.
func TestMergeChangesNeitherSide(t *testing.T) {
	read := func(text string) *yaml.Node {
		var n yaml.Node
		if err := yaml.Unmarshal([]byte(text), &n); err != nil {
			t.Fatal(err)
		}
		expanded, err := settings.Expand(n.Content[0])
		if err != nil {
			t.Fatal(err)
		}
		return expanded
	}
	write := func(n *yaml.Node) string {
		data, err := yaml.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	base := read("a: {b: 1, c: [1, 2]}\nl: [{name: x, v: 1}, {name: y, v: 2}]\ns: 1\nanchor: &n {k: v}\n")
	over := read("a: {b: null, c: [3], d: {e: null, f: 1}}\nl: [{name: y, v: null, w: 3}, {name: z}]\ns: null\nt: &t {q: 1}\nanchor: *t\n")
	was, wasOver := write(base), write(over)
	merged := merge(base, over)
	want := "a:\n    c:\n        - 3\n    d:\n        f: 1\nl:\n    - name: x\n      v: 1\n    - name: y\n      w: 3\n    - name: z\nanchor:\n    k: v\n    q: 1\nt:\n    q: 1\n"
	var plain any
	if err := merged.Decode(&plain); err != nil {
		t.Fatal(err)
	}
	wantNode := read(want)
	var wanted any
	if err := wantNode.Decode(&wanted); err != nil {
		t.Fatal(err)
	}
	got, _ := yaml.Marshal(plain)
	expected, _ := yaml.Marshal(wanted)
	if string(got) != string(expected) {
		t.Errorf("merged:\n%s\nwant:\n%s", got, expected)
	}
	if write(base) != was || write(over) != wasOver {
		t.Error("a side was changed")
	}
}

func TestReadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(path, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := Read(path); err != nil || f.Path() != path {
		t.Errorf("%v, %v", f, err)
	}
}
