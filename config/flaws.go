package config

import (
	"fmt"
	"maps"

	"github.com/blang/semver/v4"
)

// flaw is a problem that is known of versions of one component.
type flaw struct {
	variable string
	from     string // the first version that has it; empty: all before the fixed one
	before   string // the first version without it; empty: none is known
	// leaving is for what only an upgrade meets: from a version before this one to one that has the flaw.
	leaving string
	// seen is what of a cluster meets it, without leaving at any time; empty: any cluster.
	seen    string
	what    string                    // what goes wrong
	source  string                    // where it is reported
	take    func(Config) (one string) // a version without it that goes with the others; nil: none does
	rollout bool                      // a rollout of the control plane meets it: see Remark.Rollout
}

// SeenNoMetadataRoute is a control plane that was made without the route to Hetzner's metadata.
const SeenNoMetadataRoute = "a control plane without a route to the metadata"

// SeenOldTalosconfig is a talosconfig whose certificate is not marked for use by a client.
const SeenOldTalosconfig = "a talosconfig without client key usage"

// flaws lists them. They are remarks and not errors: a cluster can be created with them.
func flaws() []flaw {
	is := func(version string) func(Config) string { return func(Config) string { return version } }
	return []flaw{
		// It reads server.datacenter. Changelog of v1.30.1, which computes the labels from the location; v1.29.2 links
		// hcloud-go v2.32.0, whose conversion leaves them empty.
		{variable: "HCLOUD_CCM_VERSION", before: "1.30.1", what: "expects the field datacenter, which Hetzner's API " +
			"dropped on 2026-07-01: nodes get no zone and region labels, and its project says that versions up to 1.30.0 panic",
			take: func(c Config) string {
				// Its docs/reference/version-policy.md: the last for Kubernetes 1.32 is 1.30.1.
				if k, err := semver.ParseTolerant(c.KubernetesVersion); err == nil && k.Minor <= 32 {
					return "1.30.1"
				}
				current, _ := VersionSetOf("current")
				return current.Versions["HCLOUD_CCM_VERSION"]
			}},
		// Reported (#225, too) of v0.5.12 with the versions of the set guide. Fixed by #250, in v0.5.13: a Machine is
		// annotated before its member leaves, and not counted from then on.
		{variable: "CACPPT_VERSION", before: "0.5.13", rollout: true, take: is("v0.5.13"),
			source: "siderolabs/cluster-api-control-plane-provider-talos#237",
			what: "blocks itself when it replaces or removes a control plane server: its health check wants as many members " +
				"of etcd as there are Machines, also after the member of the old server has left, so that this server is never " +
				"deleted"},
		{variable: "CACPPT_VERSION", from: "0.5.13", source: "siderolabs/cluster-api-control-plane-provider-talos#262",
			what: "neither scales nor replaces control plane servers while the etcd of one of them is stopped, and does not " +
				"replace that server by itself: the target replace-machine does"},
		// The list of targets in the status of the HetznerCluster is outdated when CAPH looks at it.
		// internal/cluster/rollout compares.
		{variable: "CAPH_VERSION", before: "1.1.7", source: "syself/cluster-api-provider-hetzner#2107",
			what: "can leave a new control plane server out of the load balancer: a run that waits for the control plane adds " +
				"it"},
		// With bpf and kube-proxy replacement as in bootstrap/, where sockets of Pods are not balanced and KubePrism is on.
		{variable: "CILIUM_VERSION", from: "1.20.1", source: "cilium/cilium#48420",
			what: "can leave ClusterIPs unreachable from the host network with socket load balancing in the host namespace " +
				"alone and KubePrism, which are the settings of this project"},
		{variable: "CILIUM_VERSION", from: "1.19.0", leaving: "1.19.0", source: "cilium/cilium#46010",
			what: "can cut the host network of Talos when it replaces 1.18 (reported of 1.18.10 and 1.19.4)"},
		// Talos 1.10 runs etcd 3.5, from v1.10.9 on 3.5.26; Talos 1.11 runs etcd 3.6.
		{variable: "TALOS_VERSION", from: "1.11.0", leaving: "1.10.9", take: is("v1.10.9"),
			source: "siderolabs/talos#12467, https://etcd.io/blog/2025/zombie_members_upgrade",
			what: "runs etcd 3.6, in which members can reappear that etcd 3.5 before 3.5.26 has removed: upgrade to Talos " +
				"v1.10.9 first"},
		{variable: "TALOS_VERSION", from: "1.12.4", leaving: "1.12.4", seen: SeenOldTalosconfig, source: "siderolabs/talos#12870",
			what: "refuses a talosconfig whose certificate is not marked for use by a client, as that in the state folder: " +
				"it is written anew before the servers are replaced, and copies of it have to be replaced"},
		// Of Hetzner's DHCP, in August 2026. The built-in manifests have the route; a cluster that was made before keeps
		// its own.
		{variable: "TALOS_VERSION", seen: SeenNoMetadataRoute,
			source: "hcloud-k8s/terraform-hcloud-kubernetes#490",
			what: "takes a route to Hetzner's metadata (169.254.169.254) by the private network where Hetzner's DHCP offers " +
				"it, and then does not reach them; the servers of this cluster were made without the route that prevents it, and " +
				"keep their configuration: manifests/cluster.yaml and manifests/worker-pool.yaml as config files --out writes " +
				"them have it, and applying these replaces all servers"},
	}
}

// has tells whether a version has the flaw. What is no version has none: Validate says so.
func (f flaw) has(version string) bool {
	v, err := semver.ParseTolerant(version)
	return err == nil && (f.from == "" || v.GE(semver.MustParse(f.from))) &&
		(f.before == "" || v.LT(semver.MustParse(f.before)))
}

// leaves tells whether an upgrade from a version meets the flaw.
func (f flaw) leaves(version string) bool {
	v, err := semver.ParseTolerant(version)
	return f.leaving != "" && err == nil && v.LT(semver.MustParse(f.leaving))
}

// remark is what is said of the flaw of a version.
func (f flaw) remark(c Config, version string) Remark {
	r := Remark{Variable: f.variable, Text: fmt.Sprintf("%s %s %s", titleOf(f.variable), version, f.what),
		Rollout: f.rollout}
	if f.source != "" {
		r.Text += "; see " + f.source
	}
	if f.take != nil {
		r.Take = f.take(c)
	}
	return r
}

// hidden is the configured version that has the flaw, where the one that runs in its place does not; empty: there is
// none.
func (f flaw) hidden(c Config) string {
	if was := c.replaced[f.variable]; f.has(was) && !f.has(variableOf(f.variable).Get(c)) {
		return was
	}
	return ""
}

// flawRemarks are the known problems of the configured versions. One of a version that a lab does not run is among
// them: no rehearsal would show it.
func (c Config) flawRemarks() (all []Remark) {
	for _, f := range flaws() {
		version := variableOf(f.variable).Get(c)
		switch was := f.hidden(c); {
		case f.leaving != "", f.seen != "":
		case f.has(version):
			all = append(all, f.remark(c, version))
		case was != "":
			r := f.remark(c, was)
			r.Text += fmt.Sprintf("; the lab runs %s in its place, so that no rehearsal shows it", version)
			all = append(all, r)
		}
	}
	return all
}

// UpgradeRemarks are the known problems that an upgrade from other versions, by variable, to the configured ones meets
// besides those of Remarks; without versions, those that the cluster meets at any time. seen is what was seen of
// the cluster, such as SeenOldTalosconfig.
func (c Config) UpgradeRemarks(from map[string]string, seen ...string) (all []Remark) {
	has := map[string]bool{"": true}
	for _, s := range seen {
		has[s] = true
	}
	for _, f := range flaws() {
		version := variableOf(f.variable).Get(c)
		if was := f.hidden(c); was != "" {
			version = was
		}
		met := f.leaves(from[f.variable]) || f.leaving == "" && f.seen != ""
		if f.has(version) && met && has[f.seen] {
			all = append(all, f.remark(c, version))
		}
	}
	return all
}

// RolloutFlaw is why a rollout of the control plane may never end with a version of its provider, CACPPT; nil: no such
// reason is known.
func (c Config) RolloutFlaw(cacppt string) *Remark {
	for _, f := range flaws() {
		if f.variable == "CACPPT_VERSION" && f.rollout && f.has(cacppt) {
			r := f.remark(c, cacppt)
			return &r
		}
	}
	return nil
}

// Replace writes a value in the place of a configured version, which Remarks then still know: a lab runs the versions
// that it has.
func (c *Config) Replace(variable, version string) error {
	v := variableOf(variable)
	replaced := maps.Clone(c.replaced)
	if replaced == nil {
		replaced = map[string]string{}
	}
	if _, again := replaced[variable]; !again {
		replaced[variable] = v.Get(*c)
	}
	c.replaced = replaced
	return v.Set(c, version)
}

// Replaced are the known problems of a version that Replace wrote another in place of, and that this one does not have.
func (c Config) Replaced(variable string) (all []Remark) {
	for _, f := range flaws() {
		if was := f.hidden(c); f.variable == variable && f.leaving == "" && was != "" {
			all = append(all, f.remark(c, was))
		}
	}
	return all
}
