package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// TestVersionSetIsBelowSingleVersions: wherever the set and a version are named, the version stays.
func TestVersionSetIsBelowSingleVersions(t *testing.T) {
	current, _ := config.Shipped().Set("current")
	for name, given := range map[string][3]string{
		"arguments":           {"", "", "KUBERNETES_VERSION=v1.33.1 VERSIONS=current"},
		"file and argument":   {"kubernetesVersion: v1.33.1\n", "", "VERSIONS=current"},
		"file":                {"kubernetesVersion: v1.33.1\nversions: current\n", "", ""},
		"environment":         {"", "VERSIONS=current KUBERNETES_VERSION=v1.33.1", ""},
		"the argument's wins": {"versions: guide\nkubernetesVersion: v1.33.1\n", "", "VERSIONS=current"},
	} {
		c, err := load(t, given[0], given[1], given[2])
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if c.KubernetesVersion != "v1.33.1" || c.TalosVersion != current.Versions["TALOS_VERSION"] ||
			c.HCloudCCMVersion != current.Versions["HCLOUD_CCM_VERSION"] || c.Versions != current.Name {
			t.Errorf("%s: got %+v", name, c.Config)
		}
		if place := c.Place("talosVersion"); !strings.HasPrefix(place, "version set "+current.Name+" (") {
			t.Errorf("%s: Talos's version comes from %q", name, place)
		}
	}
}

func TestUnknownVersionSetIsBadUsage(t *testing.T) {
	var wrong *usage.Error
	_, err := load(t, "versions: curent\n", "", "")
	if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "bootstrap.yaml:1:11") ||
		!strings.Contains(err.Error(), "did you mean current?") {
		t.Errorf("got %v", err)
	}
	r := execute(t, t.Context(), t.TempDir(), "", "config", "show", "VERSIONS=curent")
	if r.code != ExitUsage || !strings.Contains(r.stderr, "did you mean current?") {
		t.Errorf("got %+v", r)
	}
}

// TestVersionSetAndABackup: the versions of a backup stay unless a set is asked for by its own name, also those of a
// backup of before there were sets.
func TestVersionSetAndABackup(t *testing.T) {
	for versions, set := range map[string]string{"": "guide", "versions: \"\"\n": "guide", "versions: current\n": "2026-09",
		"versions: \"2026-11\"\n": "2026-11"} {
		for _, table := range []*config.Table{nil, withDefault("2026-09")} {
			from := settings.Sources{Base: []byte(versions + "talosVersion: v1.11.1\nkubernetesVersion: v1.31.4\n"),
				WorkDir: t.TempDir(), Table: table}
			for _, named := range []string{"", "current"} {
				if from.Values = nil; named != "" {
					from.Values = []settings.Assignment{settings.Assign("VERSIONS", named)}
				}
				c, err := settings.Load(from)
				if err != nil || c.TalosVersion != "v1.11.1" || c.KubernetesVersion != "v1.31.4" || c.Versions != set {
					t.Errorf("%q with VERSIONS=%s: %v, %+v", versions, named, err, c.Config)
				}
			}
			from.Values = []settings.Assignment{settings.Assign("VERSIONS", "2026-09")}
			c, err := settings.Load(from)
			if asked, _ := config.Shipped().Set("2026-09"); err != nil || c.TalosVersion != asked.Versions["TALOS_VERSION"] {
				t.Errorf("%q, with a set: %v, %+v", versions, err, c.Config)
			}
		}
	}
}

// withDefault is the shipped table with another set for new clusters.
func withDefault(set string) *config.Table {
	table := *config.Shipped()
	table.Default = set
	return &table
}

func TestVersionListsTheSets(t *testing.T) {
	r := execute(t, t.Context(), t.TempDir(), "", "version")
	for _, s := range config.Shipped().Sets {
		if s.Name != config.Shipped().Default && !strings.Contains(r.stdout, "VERSIONS="+s.Name) ||
			!strings.Contains(r.stdout, s.Versions["TALOS_VERSION"]) {
			t.Errorf("%s is missing in %s", s.Name, r.stdout)
		}
	}
	if !strings.Contains(r.stdout, "the table of versions is of "+config.Shipped().AsOf.String()) {
		t.Errorf("the day of the table is missing in %s", r.stdout)
	}
}

func TestPlanNamesTheVersionToTake(t *testing.T) {
	r := execute(t, t.Context(), t.TempDir(), "", "plan", "VERSIONS=guide")
	text := strings.Join(strings.Fields(r.stdout), " ")
	if r.code != ExitDone || !strings.Contains(text, "(HCLOUD_CCM_VERSION=1.30.1)") {
		t.Errorf("got %+v", r)
	}
	r = execute(t, t.Context(), t.TempDir(), "", "plan")
	if r.code != ExitDone || strings.Contains(r.stdout, "HCLOUD_CCM_VERSION") {
		t.Errorf("got %+v", r)
	}
}

// otherDefault is a table of versions in which new clusters get another set than in the one inside the command.
func otherDefault(t *testing.T) string {
	t.Helper()
	table := strings.Replace(readFileText(t, "../../config/versions.yaml"), "\ndefault: \"2026-11\"\n", "\ndefault: \"2026-09\"\n", 1)
	path := filepath.Join(t.TempDir(), "versions.yaml")
	if err := os.WriteFile(path, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestDefaultSetIsForNewClusters: another default changes no cluster that exists, whether its state is in the folder or
// in a store, and who made it.
func TestDefaultSetIsForNewClusters(t *testing.T) {
	s, other := newStateCommandTest(t), otherDefault(t)
	const ofGuide, ofNewer = "Kubernetes 1.32 gets no fixes", "Cilium 1.18"
	plan := func(folder string, more ...string) string {
		t.Helper()
		r := s.run(folder, append([]string{"plan", "--versions-file", other}, more...)...)
		if r.code != ExitDone {
			t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		return strings.Join(strings.Fields(r.stdout+r.stderr), " ")
	}
	if said := plan("new"); strings.Contains(said, ofGuide) || !strings.Contains(said, "Kubernetes 1.33 gets no fixes") {
		t.Errorf("a new cluster: %s", said)
	}
	older := statedir.Dir(filepath.Join(s.dir, "older"))
	recordStep(t, older, "apply") // by a release that recorded no set
	if said := plan("older"); !strings.Contains(said, ofGuide) {
		t.Errorf("a cluster of an older release: %s", said)
	}
	if said := plan("older", "VERSIONS=current"); !strings.Contains(said, "VERSIONS=current is the version set 2026-11 now; this "+
		"cluster keeps 2026-09") || !strings.Contains(said, ofNewer) {
		t.Errorf("such a cluster with VERSIONS=current: %s", said)
	}
	s.says(ExitDone, "as serial 1", "older", "state", "push")
	if said := plan("elsewhere"); !strings.Contains(said, ofGuide) {
		t.Errorf("its state on another machine: %s", said)
	}
	if said := plan("elsewhere", "VERSIONS=2026-11"); strings.Contains(said, ofGuide) {
		t.Errorf("its state on another machine, with a set: %s", said)
	}
}

func TestVersionsFile(t *testing.T) {
	other := otherDefault(t)
	r := execute(t, t.Context(), t.TempDir(), "", "version", "--versions-file", other)
	if r.code != ExitDone || !strings.Contains(r.stdout, "With VERSIONS=2026-11") || strings.Contains(r.stdout, "VERSIONS=2026-09") {
		t.Errorf("got %+v", r)
	}
	broken := filepath.Join(t.TempDir(), "versions.yaml")
	if err := os.WriteFile(broken, []byte("format: 1\nset: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, says := range map[string]string{broken: `unknown field "set"`, broken + "x": "no such file"} {
		for _, command := range []string{"version", "plan", "doctor", "upgrade"} {
			r := execute(t, t.Context(), t.TempDir(), "", command, "--versions-file", file)
			if r.code != ExitUsage || !strings.Contains(r.stderr, says) || !strings.Contains(r.stderr, "--versions-file") {
				t.Errorf("%s: got %+v", command, r)
			}
		}
	}
}
