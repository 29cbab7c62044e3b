package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
)

func TestWorkerPoolsAreRead(t *testing.T) {
	want := config.WorkerPools{{Name: "general", Replicas: 3}, {Name: "db", ServerType: "cx43,cpx41", Location: "fsn1",
		Min: 1, Max: 4, Labels: map[string]string{"team": "data"}, Image: "talos-db",
		Taints:  []config.Taint{{Key: "dedicated", Value: "db", Effect: "NoSchedule"}},
		Patches: []string{"machine:\n  sysctls: {}\n"}}}
	const file = `workers:
  - name: general
    replicas: 3
  - name: db
    serverType: cx43,cpx41
    location: fsn1
    min: 1
    max: 4
    labels: {team: data}
    taints: [{key: dedicated, value: db, effect: NoSchedule}]
    image: talos-db
    patches:
      - |
        machine:
          sysctls: {}
`
	if c, err := load(t, file, "", ""); err != nil || !reflect.DeepEqual(c.Workers, want) {
		t.Errorf("%+v, %v", c.Workers, err)
	}
	for _, from := range [][3]string{{"workers: 3\n", "", ""}, {"", "WORKERS=3", ""}, {"workers: 5\n", "", "WORKERS=3"}} {
		c, err := load(t, from[0], from[1], from[2])
		if err != nil || !reflect.DeepEqual(c.Workers, config.WorkerPools{{Name: "general", Replicas: 3}}) {
			t.Errorf("%v: %+v, %v", from, c.Workers, err)
		}
	}
}

func TestWrongWorkerPoolsNameTheirPlace(t *testing.T) {
	for says, from := range map[string][2]string{
		"bootstrap.yaml:3:5: workers[0].replica: there is no such key; did you mean replicas?": {
			"workers:\n  - name: a\n    replica: 3\n"},
		"bootstrap.yaml:3:15: workers[0].replicas: \"-1\" is negative": {"workers:\n  - name: a\n    replicas: -1\n"},
		"bootstrap.yaml:2:5: workers[0] is a mapping with the keys":    {"workers:\n  - general\n"},
		"workers[0].labels is a mapping":                               {"workers:\n  - name: a\n    labels: [b]\n"},
		"bootstrap.yaml:3:31: workers[0].taints[0].effect":             {"workers:\n  - name: a\n    taints: [{key: a, effect: Never}]\n"},
		"workers[0].name is given a second time":                       {"workers:\n  - name: a\n    name: b\n"},
		"bootstrap.yaml:2:3 has a list of worker pools: change the pool's replicas there": {
			"workers:\n  - name: db\n    replicas: 3\n", "WORKERS=2"},
		`bootstrap.yaml:1:10: WORKERS: "many" is not a whole number`: {"workers: many\n"},
	} {
		_, err := load(t, from[0], "", from[1])
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %s", from, err, says)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bootstrap.yaml"), []byte("workers: [{name: A}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := execute(t, t.Context(), dir, "", "config", "show"); r.code != ExitUsage {
		t.Errorf("exit %d, %s", r.code, r.stderr)
	}
}
