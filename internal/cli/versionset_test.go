package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// TestVersionSetIsBelowSingleVersions: wherever the set and a version are named, the version stays.
func TestVersionSetIsBelowSingleVersions(t *testing.T) {
	current, _ := config.VersionSetOf("current")
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
			c.HCloudCCMVersion != current.Versions["HCLOUD_CCM_VERSION"] || c.Versions != "current" {
			t.Errorf("%s: got %+v", name, c.Config)
		}
		if place := c.Place("talosVersion"); !strings.HasPrefix(place, "version set current (") {
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

// TestVersionSetAndABackup: the versions of a backup stay unless a set is asked for, also those of a backup of before
// there were sets.
func TestVersionSetAndABackup(t *testing.T) {
	for _, versions := range []string{"", "versions: \"\"\n", "versions: current\n"} {
		base := []byte(versions + "talosVersion: v1.11.1\nkubernetesVersion: v1.31.4\n")
		c, err := settings.Load(settings.Sources{Base: base, WorkDir: t.TempDir()})
		if err != nil || c.TalosVersion != "v1.11.1" || c.KubernetesVersion != "v1.31.4" {
			t.Errorf("%q: %v, %+v", versions, err, c.Config)
		}
		c, err = settings.Load(settings.Sources{Base: base, WorkDir: t.TempDir(),
			Values: []settings.Assignment{settings.Assign("VERSIONS", "current")}})
		if current, _ := config.VersionSetOf("current"); err != nil || c.TalosVersion != current.Versions["TALOS_VERSION"] {
			t.Errorf("%q, with a set: %v, %+v", versions, err, c.Config)
		}
	}
}

func TestVersionListsTheSets(t *testing.T) {
	r := execute(t, t.Context(), t.TempDir(), "", "version")
	for _, s := range config.VersionSets() {
		if s.Name != config.DefaultVersionSet && !strings.Contains(r.stdout, "VERSIONS="+s.Name) ||
			!strings.Contains(r.stdout, s.Versions["TALOS_VERSION"]) {
			t.Errorf("%s is missing in %s", s.Name, r.stdout)
		}
	}
}

func TestPlanNamesTheVersionToTake(t *testing.T) {
	r := execute(t, t.Context(), t.TempDir(), "", "plan")
	text := strings.Join(strings.Fields(r.stdout), " ")
	if r.code != ExitDone || !strings.Contains(text, "(HCLOUD_CCM_VERSION=1.30.1)") {
		t.Errorf("got %+v", r)
	}
	r = execute(t, t.Context(), t.TempDir(), "", "plan", "VERSIONS=current")
	if r.code != ExitDone || strings.Contains(r.stdout, "HCLOUD_CCM_VERSION") {
		t.Errorf("got %+v", r)
	}
}
