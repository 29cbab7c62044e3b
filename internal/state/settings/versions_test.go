package settings

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
)

// withDefault is the shipped table with another set for new clusters.
func withDefault(set string) *config.Table {
	table := *config.Shipped()
	table.Default = set
	return &table
}

// TestSetOfACluster: only a new cluster takes the default set, or the newest; one that exists keeps its own, whatever
// those are now.
func TestSetOfACluster(t *testing.T) {
	made := func(set string) Kept { return Kept{Cluster: true, Set: set} }
	for _, tt := range []struct {
		name, byDefault, versions string
		kept                      Kept
		want, newer               string
	}{
		{"a new cluster", "guide", "", Kept{}, "guide", ""},
		{"a new cluster, by another default", "2026-11", "", Kept{}, "2026-11", ""},
		{"a new cluster with the newest", "guide", "current", Kept{}, "2026-11", ""},
		{"of a release that recorded none", "2026-11", "", made(""), "guide", ""},
		{"of such a release, with current", "2026-11", "current", made(""), "2026-09", "2026-11"},
		{"of such a release, with a set", "2026-11", "2026-11", made(""), "2026-11", ""},
		{"recorded", "2026-11", "", made("guide"), "guide", ""},
		{"recorded, by the old default", "guide", "", made("2026-11"), "2026-11", ""},
		{"recorded, with current", "guide", "current", made("2026-09"), "2026-09", "2026-11"},
		{"recorded, with another set", "guide", "guide", made("2026-11"), "guide", ""},
	} {
		from := Sources{WorkDir: t.TempDir(), Table: withDefault(tt.byDefault),
			Values: []Assignment{Assign("HCLOUD_CCM_VERSION", "1.33.0")}}
		if tt.versions != "" {
			from.Values = append(from.Values, Assign("VERSIONS", tt.versions))
		}
		later, err := Load(from) // the state comes from a store, after the configuration
		if err == nil {
			later, err = later.Keep(tt.kept)
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		from.Kept = func(config.Config) Kept { return tt.kept }
		now, err := Load(from)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		want, _ := config.Shipped().Set(tt.want)
		for _, c := range []Configuration{now, later} {
			if c.Versions != tt.want || c.KubernetesVersion != want.Versions["KUBERNETES_VERSION"] ||
				c.CAPIVersion != want.Versions["CAPI_VERSION"] || c.HCloudCCMVersion != "1.33.0" {
				t.Errorf("%s: got the set %s with Kubernetes %s, Cluster API %s and CCM %s, want %s", tt.name, c.Versions,
					c.KubernetesVersion, c.CAPIVersion, c.HCloudCCMVersion, tt.want)
			}
			if c.NewerSet() != tt.newer {
				t.Errorf("%s: the newer set is %q, want %q", tt.name, c.NewerSet(), tt.newer)
			}
			if place := c.Place("kubernetesVersion"); place != "default" && !strings.HasPrefix(place, "version set "+tt.want) {
				t.Errorf("%s: Kubernetes is %s by %q", tt.name, c.KubernetesVersion, place)
			}
		}
	}
}

// TestSetOfAProgram: versions that a program has changed are its own, and the others follow the cluster.
func TestSetOfAProgram(t *testing.T) {
	cfg := config.DefaultsOf(withDefault("2026-11"))
	cfg.CiliumVersion = "1.18.14"
	c, err := OfProgram(cfg).Keep(Kept{Cluster: true})
	if err != nil || c.Versions != "guide" || c.KubernetesVersion != "v1.32.2" || c.CiliumVersion != "1.18.14" {
		t.Errorf("%v: %s, %s, %s", err, c.Versions, c.KubernetesVersion, c.CiliumVersion)
	}
	own := config.Defaults()
	set, _ := config.Shipped().Set("2026-09")
	if err := set.Apply(&own, func(config.Variable) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if c, err = OfProgram(own).Keep(Kept{Cluster: true, Set: "guide"}); err != nil || c.KubernetesVersion != "v1.33.13" {
		t.Errorf("%v: a set that the program chose became Kubernetes %s", err, c.KubernetesVersion)
	}
}
