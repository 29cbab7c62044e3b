package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
)

// TestVersionSets: each set has every version, and they go together.
func TestVersionSets(t *testing.T) {
	var wanted []string
	for _, v := range Variables() {
		// Flux is optional, and one release of it goes with both sets.
		if strings.HasSuffix(v.Name, "_VERSION") && v.Default != "" && v.Name != "FLUX_VERSION" {
			wanted = append(wanted, v.Name)
		}
	}
	slices.Sort(wanted)
	for _, s := range VersionSets() {
		if got := slices.Sorted(maps.Keys(s.Versions)); !slices.Equal(got, wanted) {
			t.Errorf("%s has %v, want %v", s.Name, got, wanted)
		}
		c := Defaults()
		if err := s.Apply(&c, func(Variable) bool { return false }); err != nil {
			t.Fatal(err)
		}
		if c.Versions != s.Name {
			t.Errorf("applying %s leaves the name %q", s.Name, c.Versions)
		}
		for _, e := range c.Validate() {
			t.Errorf("%s is refused: %v", s.Name, e)
		}
		for _, r := range c.Remarks(time.Now()) {
			if r.Untested {
				t.Errorf("%s: %v", s.Name, r)
			}
		}
	}
	if Defaults().Versions != DefaultVersionSet || VersionSets()[0].Name != DefaultVersionSet {
		t.Error("the default set is not the first")
	}
}

// TestCAPHGoesWithTheCore: a CAPH that reads an API which the core does not serve is refused, with the line to take.
func TestCAPHGoesWithTheCore(t *testing.T) {
	for version, refused := range map[string]bool{
		"v1.0.7": false, "v1.0.12": false, "v1.1.0": true, "v1.1.8": true, "v2.0.0": true,
	} {
		c := Defaults()
		setVariable(t, &c, "CAPH_VERSION="+version)
		errs := c.Validate()
		if !refused {
			if len(errs) > 0 {
				t.Errorf("%s: %v", version, errs)
			}
			continue
		}
		if len(errs) != 1 || errs[0].Field != "caphVersion" || !strings.Contains(errs[0].Error(),
			"which v1.10 does not serve") || !strings.Contains(errs[0].Error(), "choose v1.0.x") {
			t.Errorf("%s: %v", version, errs)
		}
	}
}

// TestTalosRunsIsTalossOwnTable holds the table against the machinery inside this command, where that knows a minor.
func TestTalosRunsIsTalossOwnTable(t *testing.T) {
	compared := 0
	for talos := range talosRuns() {
		is, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: fmt.Sprintf("v1.%d.0", talos)})
		if err != nil {
			t.Fatal(err)
		}
		for minor := uint64(20); minor < 40; minor++ {
			kubernetes := semver.Version{Major: 1, Minor: minor}
			k, err := compatibility.ParseKubernetesVersion(kubernetes.String())
			if err != nil {
				t.Fatal(err)
			}
			theirs := k.SupportedWith(is)
			if theirs != nil && strings.Contains(theirs.Error(), "not supported") {
				continue // a Talos newer than the machinery
			}
			compared++
			if ours := TalosRuns(fmt.Sprintf("v1.%d.0", talos), kubernetes.String()); (ours == nil) != (theirs == nil) {
				t.Errorf("Talos 1.%d with Kubernetes 1.%d: %v, Talos says %v", talos, minor, ours, theirs)
			}
		}
	}
	if compared < 100 {
		t.Errorf("only %d pairs were compared", compared)
	}
}

func TestRemarks(t *testing.T) {
	november := time.Date(2026, time.November, 23, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name, set string
		now       time.Time
		want      []string // parts, one of each remark, in order
	}{
		{"the guide", "", november, []string{"no zone and region labels, and its project says that versions up to 1.30.0 " +
			"panic (HCLOUD_CCM_VERSION=1.30.1)", "(CACPPT_VERSION=v0.5.13)", "Hetzner v1.0.7 can leave", "Kubernetes 1.32 gets no fixes since 2026-02-28"}},
		{"a newer Kubernetes takes a newer CCM", "KUBERNETES_VERSION=v1.33.13", november,
			[]string{"(HCLOUD_CCM_VERSION=1.39.0)", "Talos", "Hetzner", "and Cluster API v1.10 manages no newer one"}},
		{"before the end of support", "HCLOUD_CCM_VERSION=1.30.1", time.Date(2026, time.February, 28, 0, 0, 0, 0, time.UTC),
			[]string{"Talos", "Hetzner"}},
		{"CAPH with an older Kubernetes", "CAPH_VERSION=v1.0.12 KUBERNETES_VERSION=v1.30.1 HCLOUD_CCM_VERSION=1.39.0",
			time.Time{}, []string{"CAPH v1.0 is tested with Kubernetes v1.31 to v1.34, not with v1.30.1",
				"Talos", "Hetzner v1.0.12 can leave"}},
		{"CAPH that is not known", "CAPH_VERSION=v0.9.0 HCLOUD_CCM_VERSION=1.39.0", time.Time{}, []string{"CAPH v0.9",
			"Talos", "Hetzner v0.9.0 can"}},
		{"Cilium with an older Kubernetes", "KUBERNETES_VERSION=v1.29.0 HCLOUD_CCM_VERSION=1.39.0", time.Time{},
			[]string{"CAPH v1.0", "Cilium 1.18 is tested with Kubernetes v1.30 to v1.33, not with v1.29.0", "Talos",
				"Hetzner"}},
		{"Cilium that is not known", "CILIUM_VERSION=1.19.3 HCLOUD_CCM_VERSION=1.39.0", time.Time{}, []string{"Cilium 1.19", "Talos",
			"Hetzner"}},
	} {
		c := Defaults()
		for _, kv := range strings.Fields(tt.set) {
			setVariable(t, &c, kv)
		}
		got := c.Remarks(tt.now)
		if len(got) != len(tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
			continue
		}
		for i, r := range got {
			if !strings.Contains(r.String(), tt.want[i]) || variableOf(r.Variable).Name != r.Variable {
				t.Errorf("%s: %q does not say %q", tt.name, r, tt.want[i])
			}
		}
	}
}
