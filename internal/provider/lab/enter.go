package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/platform"
)

// Configure is the configuration with what the lab decides: the lab's addresses
// always, its repositories and their versions unless others are configured. The
// notes name what was replaced.
func Configure(c settings.Configuration, info Info) (settings.Configuration, []string, error) {
	var notes []string
	places, decided := c.Places, Decides(c, info)
	c.Places = map[string]string{}
	maps.Copy(c.Places, places)
	set := func(name, value string) error {
		v := settings.Variable(name)
		was := v.Get(c.Config)
		if value == "" || value == was {
			return nil
		}
		if l, written := c.Literal(v.Field); written {
			return usage.Errorf("%s: %s is written there, and a rehearsal has a %s of its own (%s): write ${%s} in the file, "+
				"and the value into the configuration", l.Place, was, v.Name, value, v.Name)
		}
		if place, ok := places[v.Field]; ok || strings.HasSuffix(name, "_VERSION") && was != "" {
			switch {
			case !ok && c.FromBackup:
				place = "the backup"
			case !ok:
				place = "default"
			}
			notes = append(notes, fmt.Sprintf("%s is %s in the lab, in place of %s (%s)", name, value, was, place))
		}
		c.Places[v.Field] = settings.LabPlace
		if !strings.HasSuffix(name, "_VERSION") {
			return v.Set(&c.Config, value)
		}
		if err := c.Replace(name, value); err != nil {
			return err
		}
		for _, flaw := range c.Replaced(name) {
			notes = append(notes, fmt.Sprintf("known of the configured %s, which the lab does not run: %s", name, flaw))
		}
		return nil
	}
	for _, p := range decided {
		err := set(p.Variable, p.Value)
		if wrong := (*usage.Error)(nil); errors.As(err, &wrong) {
			return c, nil, err
		}
		if err != nil {
			return c, nil, fmt.Errorf("the lab says: %w", err)
		}
	}
	if note := runsAnother(c.KubernetesVersion, info); note != "" {
		notes = append(notes, note)
	}
	slices.Sort(notes)
	return c, notes, c.Check()
}

// runsAnother says that the lab's servers run another Kubernetes minor than the configured one, which the Nodes do not
// show: their kubelets report the configured version.
func runsAnother(configured string, info Info) string {
	runs, ok := runs(info.KubernetesSets, configured)
	if !ok && len(info.KubernetesSets) == 0 {
		runs, ok = info.Kubernetes, info.Kubernetes != ""
	}
	if !ok || minorOf(runs) == minorOf(configured) {
		return ""
	}
	return fmt.Sprintf("the lab runs Kubernetes %s for the configured %s: it has no source of that minor to build from",
		runs, configured)
}

// runs is the version of sets that runs for a configured one; not ok: there is none for its minor.
func runs(sets []ProgramSet, configured string) (version string, ok bool) {
	for _, set := range sets {
		if set.Runs == configured {
			return set.Runs, true
		}
		if minorOf(set.Runs) == minorOf(configured) ||
			!ok && minorOf(set.For) == minorOf(configured) {
			version, ok = set.Runs, true
		}
	}
	return version, ok
}

// Decision is a variable with the value that a lab gives it.
type Decision struct{ Variable, Value string }

// Decides lists the variables that a lab decides, in place of this
// configuration.
func Decides(c settings.Configuration, info Info) []Decision {
	own := func(name string) bool { return configured(c, name) }
	ranges, admitted := info.Clusters[c.ClusterName]
	if !admitted {
		ranges = ClusterRanges{info.NetworkCIDR, info.ControlPlaneCIDR, info.PodCIDR, info.ServiceCIDR}
	}
	all := []Decision{
		{"NETWORK_CIDR", ranges.NetworkCIDR}, {"CONTROL_PLANE_CIDR", ranges.ControlPlaneCIDR},
		{"POD_CIDR", ranges.PodCIDR}, {"SERVICE_CIDR", ranges.ServiceCIDR},
	}
	if !own("PROVIDER_REPOSITORY") {
		all = append(all, Decision{"PROVIDER_REPOSITORY", info.ProviderRepository})
		for _, name := range []string{"CAPI", "CAPH", "CABPT", "CACPPT"} {
			all = append(all, Decision{name + "_VERSION", info.offered(name, c)})
		}
	}
	if !own("CERT_MANAGER_URL") {
		all = append(all, Decision{"CERT_MANAGER_URL", info.CertManagerURL},
			Decision{"CERT_MANAGER_VERSION", info.CertManagerVersion})
	}
	for name, chart := range map[string]string{
		"CILIUM": "cilium", "HCLOUD_CCM": "hcloud-cloud-controller-manager", "TALOS_CCM": "talos-cloud-controller-manager",
	} {
		if !own(name + "_REPOSITORY") {
			all = append(all, Decision{name + "_REPOSITORY", info.ChartRepositories[chart]},
				Decision{name + "_VERSION", info.offered(name, c)})
		}
	}
	if !own("ADDONS_REPOSITORY") {
		all = append(all, Decision{"ADDONS_REPOSITORY", info.ChartRepositories[config.AddonCSI]})
	}
	if !own("FLUX_REPOSITORY") && info.Flux.Version != "" {
		all = append(all, Decision{"FLUX_REPOSITORY", info.Flux.Repository}, Decision{"FLUX_VERSION", info.Flux.Version})
	}
	if !own("GIT_URL") && c.GitOps != "" && !c.HasGitea() {
		all = append(all, Decision{"GIT_URL", info.Git.URL}, Decision{"GIT_BRANCH", info.Git.Branch})
	}
	return all
}

// configured says whether a variable has another value than its default, or was set to that. What a backup says of
// where its cluster was installed from is not configured: it may be another lab, or a folder of another machine.
func configured(c settings.Configuration, name string) bool {
	v := settings.Variable(name)
	_, placed := c.Places[v.Field] // a program that uses Slipway as a library records no places
	return placed || !c.FromBackup && v.Get(c.Config) != v.Get(config.Defaults())
}

// Replaces lists the configured repositories of manifests and charts, which are used in place of a lab's.
func Replaces(c settings.Configuration) []Decision {
	var own []Decision
	for _, name := range []string{"PROVIDER_REPOSITORY", "CERT_MANAGER_URL", "CILIUM_REPOSITORY", "HCLOUD_CCM_REPOSITORY",
		"TALOS_CCM_REPOSITORY", "ADDONS_REPOSITORY", "FLUX_REPOSITORY"} {
		if configured(c, name) {
			own = append(own, Decision{name, settings.Variable(name).Get(c.Config)})
		}
	}
	return own
}

// offered is the version of a component that the lab runs for a configuration: the configured one where its
// repositories have it, else the newest of its minor, or what the lab has for that minor.
func (i Info) offered(name string, c settings.Configuration) string {
	configured := settings.Variable(name + "_VERSION").Get(c.Config)
	core, has := runs(i.CoreSets, configured)
	switch {
	case slices.Contains(i.Offers[name], configured):
		return configured
	case name == "CAPI" && has:
		return core
	case name == "CAPI" && len(i.CoreSets) > 0, configured != "" && slices.Contains(i.AnyVersion, name):
		return configured // a run gives it to the lab, and what only looks must not take another for it
	}
	for _, version := range slices.Backward(i.Offers[name]) { // the newest last
		if minorOf(version) == minorOf(configured) {
			return version
		}
	}
	return i.Versions[name]
}

// PrepareImages puts the configured image into the lab's project, under the name that it has for each architecture. It
// replaces the step image in a lab that can build none.
func (c *Client) PrepareImages(ctx context.Context, cfg config.Config, say flow.Say) error {
	var names []string
	for _, schematic := range append([]string{""}, cfg.Schematics()...) {
		for _, architecture := range config.ImageArchitectures() {
			if name := cfg.SchematicImage(schematic, architecture); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		if err := c.EnsureImage(ctx, name); err != nil {
			return err
		}
	}
	say("image %s is in the simulated project", strings.Join(names, ", "))
	return nil
}

// Equip gives tools the management cluster of the lab, which is created of a version of Kubernetes, and this machine's
// address in it.
func (c *Client) Equip(tools platform.Tools, kubernetes string) platform.Tools {
	tools.Management = Management{Client: c, Kubernetes: kubernetes}
	// Everything in the lab sees this machine by its loopback.
	tools.LookupHost = lookupHostsFile
	tools.OwnAddress = func(context.Context) (netip.Addr, error) { return netip.MustParseAddr("127.0.0.1"), nil }
	return tools
}
