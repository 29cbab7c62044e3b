package config

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFlaws: the version to take goes with the others of each set.
func TestFlaws(t *testing.T) {
	for _, set := range Shipped().Sets {
		for _, f := range Shipped().Flaws {
			c := configOf(t, set.Name)
			r := f.remark(c, variableOf(f.Component).Get(c))
			if r.Take == "" || f.Leaving != "" { // a version on the way
				continue
			}
			setVariable(t, &c, f.Component+"="+r.Take)
			if errs := c.Validate(); f.has(set.Versions[f.Component]) && len(errs) > 0 {
				t.Errorf("%s: %s=%s does not go with the others: %v", set.Name, f.Component, r.Take, errs)
			}
		}
	}
}

// TestFlawsOfVersions: which versions are said to have which flaw.
func TestFlawsOfVersions(t *testing.T) {
	for _, tt := range []struct {
		set, take string
		says      string // a part of it
		is        bool
	}{
		{"CACPPT_VERSION=v0.5.12", "v0.5.13", "blocks itself", true},
		{"CACPPT_VERSION=v0.5.11", "v0.5.13", "blocks itself", true},
		{"CACPPT_VERSION=v0.5.13", "", "blocks itself", false},
		{"CACPPT_VERSION=v0.5.12", "", "while the etcd of one of them is stopped", false},
		{"CACPPT_VERSION=v0.5.13", "", "while the etcd of one of them is stopped", true},
		{"CAPH_VERSION=v1.0.7", "", "out of the load balancer", true},
		{"CAPH_VERSION=v1.0.12", "", "out of the load balancer", true},
		{"CAPH_VERSION=v1.1.7", "", "out of the load balancer", false},
		{"CILIUM_VERSION=1.18.14", "", "ClusterIPs unreachable", false},
		{"CILIUM_VERSION=1.20.0", "", "ClusterIPs unreachable", false},
		{"CILIUM_VERSION=1.20.1", "", "ClusterIPs unreachable", true},
		{"HCLOUD_CCM_VERSION=1.30.0", "1.30.1", "zone and region", true},
		{"HCLOUD_CCM_VERSION=1.30.1", "", "zone and region", false},
		{"TALOS_VERSION=v1.12.4", "", "marked for use by a client", false}, // only an upgrade meets it
		{"TALOS_VERSION=v1.11.5", "", "etcd 3.6", false},
	} {
		c := configOf(t, "guide")
		setVariable(t, &c, tt.set)
		expectRemark(t, tt.set, c.Remarks(time.Time{}), tt.says, tt.take, tt.is)
	}
}

// expectRemark looks for a remark that says something, with the version to take.
func expectRemark(t *testing.T, of string, all []Remark, says, take string, is bool) {
	t.Helper()
	at := slices.IndexFunc(all, func(r Remark) bool { return strings.Contains(r.Text, says) })
	switch {
	case at >= 0 != is:
		t.Errorf("%s: %q is said: %t, want %t: %v", of, says, at >= 0, is, all)
	case is && all[at].Take != take:
		t.Errorf("%s: take %q, want %q", of, all[at].Take, take)
	}
}

// TestUpgradeRemarks: what only an upgrade meets depends on the version that it leaves, and on what was seen.
func TestUpgradeRemarks(t *testing.T) {
	for _, tt := range []struct {
		variable, from, to string
		seen               string
		says, take         string
		is                 bool
	}{
		{"TALOS_VERSION", "v1.10.8", "v1.11.5", "", "etcd 3.6", "v1.10.9", true},
		{"TALOS_VERSION", "v1.10.9", "v1.11.5", "", "etcd 3.6", "", false},
		{"TALOS_VERSION", "v1.10.7", "v1.10.9", "", "etcd 3.6", "", false},
		{"TALOS_VERSION", "v1.11.5", "v1.12.2", "", "etcd 3.6", "", false},
		{"TALOS_VERSION", "v1.12.2", "v1.12.4", SeenOldTalosconfig, "marked for use by a client", "", true},
		{"TALOS_VERSION", "v1.12.2", "v1.13.9", SeenOldTalosconfig, "marked for use by a client", "", true},
		{"TALOS_VERSION", "v1.12.2", "v1.13.9", "", "marked for use by a client", "", false},
		{"TALOS_VERSION", "v1.12.4", "v1.13.9", SeenOldTalosconfig, "marked for use by a client", "", false},
		{"TALOS_VERSION", "v1.12.2", "v1.12.3", SeenOldTalosconfig, "marked for use by a client", "", false},
		{"CILIUM_VERSION", "1.18.10", "1.19.4", "", "cut the host network", "", true},
		{"CILIUM_VERSION", "1.19.1", "1.19.4", "", "cut the host network", "", false},
		{"CILIUM_VERSION", "", "1.19.4", "", "cut the host network", "", false},
	} {
		c := Defaults()
		setVariable(t, &c, tt.variable+"="+tt.to)
		var seen []string
		if tt.seen != "" {
			seen = append(seen, tt.seen)
		}
		all := c.UpgradeRemarks(map[string]string{tt.variable: tt.from}, seen...)
		expectRemark(t, tt.from+" to "+tt.to, all, tt.says, tt.take, tt.is)
	}
}

// TestSeenFlaw: what a cluster meets at any time is said of one that it was seen of, and of no other.
func TestSeenFlaw(t *testing.T) {
	c := Defaults()
	const says = "without the route that prevents it"
	expectRemark(t, "a cluster with it", c.UpgradeRemarks(nil, SeenNoMetadataRoute), says, "", true)
	expectRemark(t, "a cluster without it", c.UpgradeRemarks(nil), says, "", false)
	expectRemark(t, "an upgrade", c.UpgradeRemarks(map[string]string{"TALOS_VERSION": "v1.12.1"}, SeenNoMetadataRoute),
		says, "", true)
	expectRemark(t, "the configuration", c.Remarks(time.Now()), says, "", false)
	if all := c.UpgradeRemarks(nil, SeenNoMetadataRoute, SeenOldTalosconfig); len(all) != 1 {
		t.Errorf("without an upgrade it says %v", all)
	}
}

// TestRolloutFlaw: it is of the version that is installed, not of the configured one.
func TestRolloutFlaw(t *testing.T) {
	c := Defaults()
	for version, is := range map[string]bool{"v0.5.12": true, "v0.5.13": false, "v0.5.14": false, "": false, "latest": false} {
		if f := c.RolloutFlaw(version); (f != nil) != is || is && (!f.Rollout || f.Take != "v0.5.13") {
			t.Errorf("%q: %+v", version, f)
		}
	}
}

// TestFlawsOfReplacedVersions: a lab that runs another version than the configured one does not hide a flaw of that, and
// one that both have is said once.
func TestFlawsOfReplacedVersions(t *testing.T) {
	c := configOf(t, "guide")
	for variable, version := range map[string]string{"CACPPT_VERSION": "v0.5.13", "CAPH_VERSION": "v1.0.12",
		"HCLOUD_CCM_VERSION": "1.29.2"} {
		if err := c.Replace(variable, version); err != nil {
			t.Fatal(err)
		}
	}
	if c.CACPPTVersion != "v0.5.13" {
		t.Errorf("it is %s", c.CACPPTVersion)
	}
	all := c.Remarks(time.Time{})
	expectRemark(t, "in place of v0.5.12", all, "Talos v0.5.12 blocks itself", "v0.5.13", true)
	expectRemark(t, "in place of v0.5.12", all, "the lab runs v0.5.13 in its place", "v0.5.13", true)
	expectRemark(t, "in place of v1.0.7", all, "Hetzner v1.0.12 can leave", "", true)
	expectRemark(t, "in place of v1.0.7", all, "Hetzner v1.0.7", "", false)
	if r := c.Replaced("CACPPT_VERSION"); len(r) != 1 || !r[0].Rollout {
		t.Errorf("of CACPPT: %v", r)
	}
	if r := c.Replaced("CAPH_VERSION"); len(r) != 0 {
		t.Errorf("of CAPH: %v", r)
	}
	// Replaced once more, it is still the configured one that counts.
	if err := c.Replace("CACPPT_VERSION", "v0.5.14"); err != nil {
		t.Fatal(err)
	}
	expectRemark(t, "replaced twice", c.Remarks(time.Time{}), "Talos v0.5.12 blocks itself", "v0.5.13", true)
	was := configOf(t, "guide")
	if err := was.Replace("CACPPT_VERSION", "v0.5.13"); err != nil || len(configOf(t, "guide").Replaced("CACPPT_VERSION")) != 0 {
		t.Errorf("another configuration was changed: %v", err)
	}
}
