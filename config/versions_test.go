package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
)

// TestVersionSets: each set goes together, and is tested together.
func TestVersionSets(t *testing.T) {
	for _, s := range Shipped().Sets {
		c := configOf(t, s.Name)
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
}

// configOf is the configuration of a set.
func configOf(t *testing.T, set string) Config {
	t.Helper()
	c := Defaults()
	s, known := Shipped().Set(set)
	if err := s.Apply(&c, func(Variable) bool { return false }); err != nil || !known {
		t.Fatal(set, known, err)
	}
	return c
}

// TestPairs: what is known to break is refused, with what to choose; what is not tested is a remark; the rest is
// neither.
func TestPairs(t *testing.T) {
	for _, tt := range []struct {
		set, values    string
		field, refusal string // empty: it is not refused
		remark         string // part of the untested remarks; empty: there is none
	}{
		{set: "guide", values: "KUBERNETES_VERSION=v1.35.4", remark: "Cluster API v1.10 is tested with Kubernetes v1.27 to v1.33, " +
			"not with v1.35.4 (v1.35.4 went through all targets in the lab); see sigs.k8s.io/cluster-api"},
		{set: "guide", values: "KUBERNETES_VERSION=v1.36.1", field: "kubernetesVersion",
			refusal: "it is too new: Talos v1.12 is for Kubernetes v1.30 to v1.35 (Talos refuses it)"},
		{set: "guide", values: "KUBERNETES_VERSION=v1.29.9", field: "kubernetesVersion", refusal: "it is too old"},
		{set: "2026-09", values: "KUBERNETES_VERSION=v1.36.1", remark: "not with v1.36.1"},
		{set: "2026-11", values: "KUBERNETES_VERSION=v1.36.1", remark: "Cilium 1.19 is tested with Kubernetes v1.32 to v1.35"},
		{set: "2026-11", values: "KUBERNETES_VERSION=v1.37.1", field: "kubernetesVersion", refusal: "Talos v1.13 is for"},
		{set: "2026-11", values: "KUBERNETES_VERSION=v1.37.1 TALOS_VERSION=v1.14.6",
			remark: "Talos v1.14 was not tried with this command, which was with v1.8 to v1.13"},
		{set: "guide", values: "TALOS_VERSION=v1.6.7", field: "talosVersion", refusal: "is too old for this command"},
		{set: "2026-11", values: "TALOS_VERSION=v1.15.0", remark: "of Talos v1.15 no tests with Kubernetes are known"},
		{set: "guide", values: "CAPI_VERSION=v1.9.5", field: "capiVersion", refusal: "is too old for this command"},
		{set: "2026-11", values: "CAPI_VERSION=v1.14.3", remark: "Cluster API v1.14 was not tried"},
		{set: "2026-11", values: "CAPI_VERSION=v1.11.2", remark: "CABPT v0.6 is tested with Cluster API v1.10, v1.13, not with"},
		{set: "2026-11", values: "CAPI_VERSION=v1.16.0", field: "cabptVersion", refusal: "ends with v1.16"},
		{set: "guide", values: "CAPI_VERSION=v1.13.6", remark: "CAPH v1.0 is tested with Cluster API v1.8 to v1.10, not with v1.13.6"},
		{set: "guide", values: "CAPH_VERSION=v1.1.8", field: "caphVersion", refusal: "does not go with capiVersion v1.10.10: " +
			"CAPH v1.1 is for Cluster API v1.11 and newer (it reads Cluster API's objects as v1beta2, which older cores do not " +
			"serve): choose CAPH v1.0, or Cluster API v1.11 and newer"},
		{set: "2026-11", values: "CAPH_VERSION=v2.0.0", remark: "of CAPH v2.0 no tests with Cluster API, or Kubernetes, are known"},
		{set: "guide", values: "CABPT_VERSION=v0.7.0", field: "cabptVersion", refusal: "choose CABPT v0.6, or Cluster API v1.11"},
		{set: "2026-11", values: "CABPT_VERSION=v0.7.0", remark: "nothing says that CABPT v0.7 goes with Cluster API v1.13.6"},
		{set: "guide", values: "CACPPT_VERSION=v0.6.0", field: "cacpptVersion", refusal: "choose CACPPT v0.5"},
		{set: "guide", values: "CILIUM_VERSION=1.20.4", remark: "of Cilium 1.20 no tests with Kubernetes are known"},
		{set: "guide", values: "KIND_NODE_IMAGE=kindest/node:v1.35.0", remark: "Cluster API v1.10 is tested with management " +
			"clusters of Kubernetes v1.29 to v1.33, not with 1.35.0"},
		{set: "guide", values: "KIND_NODE_IMAGE=kindest/node:v1.19.1", field: "kindNodeImage", refusal: "it is too old"},
		{set: "guide", values: "MANAGEMENT=local KUBERNETES_VERSION=v1.34.9", remark: "with management clusters of"},
		{set: "2026-11", values: ""},
	} {
		c := configOf(t, tt.set)
		for _, kv := range strings.Fields(tt.values) {
			setVariable(t, &c, kv)
		}
		name, errs := tt.set+" "+tt.values, c.Validate()
		switch {
		case tt.refusal == "" && len(errs) > 0:
			t.Errorf("%s: %v", name, errs)
		case tt.refusal != "" && (len(errs) == 0 || errs[0].Field != tt.field || !strings.Contains(errs[0].Error(), tt.refusal)):
			t.Errorf("%s: %v does not say %q of %s", name, errs, tt.refusal, tt.field)
		}
		var said []string
		for _, r := range c.Remarks(time.Time{}) {
			if r.Untested {
				said = append(said, r.Text)
			}
		}
		if text := strings.Join(said, "\n"); tt.refusal == "" && (tt.remark == "" && text != "" || !strings.Contains(text, tt.remark)) {
			t.Errorf("%s: %q does not say %q", name, text, tt.remark)
		}
	}
}

// TestTalosRunsIsTalossOwnTable holds the table against the machinery inside this command, where that knows a minor.
func TestTalosRunsIsTalossOwnTable(t *testing.T) {
	compared := 0
	for minor := uint64(7); minor <= 14; minor++ {
		compared += compareWithMachinery(t, minor)
	}
	if compared < 100 {
		t.Errorf("only %d pairs were compared", compared)
	}
}

// compareWithMachinery compares a minor of Talos, and says with how many of Kubernetes.
func compareWithMachinery(t *testing.T, talos uint64) (compared int) {
	t.Helper()
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
		ours := Shipped().TalosRuns(fmt.Sprintf("v1.%d.0", talos), kubernetes.String())
		if (ours == nil) != (theirs == nil) {
			t.Errorf("Talos 1.%d with Kubernetes 1.%d: %v, Talos says %v", talos, minor, ours, theirs)
		}
	}
	return compared
}

func TestRemarks(t *testing.T) {
	november := time.Date(2026, time.November, 23, 0, 0, 0, 0, time.UTC)
	const patches = "newer patch releases are known: "
	for _, tt := range []struct {
		name, set string
		now       time.Time
		want      []string // parts, one of each remark, in order
	}{
		{"the guide", "", november, []string{"no zone and region labels, and its project says that versions up to 1.30.0 panic; " +
			"see hetznercloud/hcloud-cloud-controller-manager CHANGELOG.md, v1.30.1 (HCLOUD_CCM_VERSION=1.30.1)",
			"(CACPPT_VERSION=v0.5.13)", "Hetzner v1.0.7 can leave", "Kubernetes 1.32 gets no fixes since 2026-02-28",
			"Cluster API 1.10 gets no fixes since 2026-04-21", "CAPH 1.0 gets no fixes", "Talos 1.12 gets no fixes",
			patches + "Kubernetes v1.32.13, Talos v1.12.11, CAPH v1.0.12, CABPT v0.6.13"}},
		{"a newer Kubernetes takes a newer CCM", "KUBERNETES_VERSION=v1.33.13", november,
			[]string{"(HCLOUD_CCM_VERSION=1.39.0)", "Talos", "Hetzner", "Kubernetes 1.33 gets no fixes since 2026-06-28",
				"Cluster API", "CAPH", "Talos", patches + "Talos v1.12.11"}},
		{"on the day of the end of support", "HCLOUD_CCM_VERSION=1.30.1", time.Date(2026, time.February, 28, 0, 0, 0, 0, time.UTC),
			[]string{"Talos", "Hetzner", "Kubernetes 1.32 gets fixes until 2026-02-28 only", "Cluster API", "CAPH", patches}},
		{"CAPH with an older Kubernetes", "CAPH_VERSION=v1.0.12 KUBERNETES_VERSION=v1.30.1 HCLOUD_CCM_VERSION=1.39.0",
			time.Time{}, []string{"CAPH v1.0 is tested with Kubernetes v1.31 to v1.34, not with v1.30.1",
				"the Hetzner CCM 1.39 is tested with Kubernetes v1.33 to v1.36", "Talos", "Hetzner v1.0.12 can leave", patches + "Kubernetes v1.30.14"}},
		{"CAPH that is not known", "CAPH_VERSION=v0.9.0 HCLOUD_CCM_VERSION=1.30.1", time.Time{}, []string{"CAPH v0.9",
			"Talos", "Hetzner v0.9.0 can", patches}},
		{"Cilium with a newer Kubernetes", "KUBERNETES_VERSION=v1.34.2 HCLOUD_CCM_VERSION=1.39.0", time.Time{},
			[]string{"Cluster API v1.10 is tested with Kubernetes v1.27 to v1.33", "Cilium 1.18 is tested with Kubernetes v1.30 to " +
				"v1.33, not with v1.34.2; see cilium/cilium Documentation", "Talos", "Hetzner", patches}},
		{"Cilium that is not known", "CILIUM_VERSION=1.21.3 HCLOUD_CCM_VERSION=1.30.1", time.Time{}, []string{
			"of Cilium 1.21 no tests with Kubernetes are known", "Talos", "Hetzner", "ClusterIPs unreachable", patches}},
	} {
		c := configOf(t, "guide")
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

// TestEndOfSupport: it is named from 90 days before on.
func TestEndOfSupport(t *testing.T) {
	c := configOf(t, "2026-11") // Kubernetes 1.35, until 2027-02-28
	for day, says := range map[string]string{"2026-11-29": "", "2026-11-30": "Kubernetes 1.35 gets fixes until 2027-02-28 only",
		"2027-02-28": "Kubernetes 1.35 gets fixes until 2027-02-28 only", "2027-03-01": "gets no fixes since 2027-02-28"} {
		now, err := time.Parse(time.DateOnly, day)
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		for _, r := range c.Remarks(now.Add(12 * time.Hour)) {
			if r.Variable == "KUBERNETES_VERSION" {
				said = r.Text
			}
		}
		if says == "" && said != "" || !strings.Contains(said, says) {
			t.Errorf("on %s it says %q, want %q", day, said, says)
		}
	}
}
