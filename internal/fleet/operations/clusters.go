package operations

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/fleet"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// cluster is a cluster with its configuration.
type cluster struct {
	fleet.Cluster
	cfg     settings.Configuration
	decided []settings.Assignment // over what the file says
}

// checked is the fleet of a request, with the clusters of these names; all, without names. Nothing was asked of
// anything.
func checked(ctx context.Context, q Request, names []string) (*opened, []cluster, error) {
	f, err := read(q)
	if err != nil {
		return nil, nil, err
	}
	selected, err := f.Select(names)
	if err != nil {
		return nil, nil, err
	}
	clusters, err := f.check(ctx, selected)
	return f, clusters, err
}

// check reads the configurations of all clusters, with the files that they are made from. It makes no request,
// and its error has what is wrong with each.
func (f *opened) check(ctx context.Context, clusters []fleet.Cluster) (all []cluster, err error) {
	var problems []error
	for _, c := range clusters {
		one := cluster{Cluster: c, decided: decided(f.Spec, c)}
		if one.cfg, err = f.Configuration(c, one.decided...); err == nil {
			one.cfg.Overrides = f.overrides
			one.cfg, err = session.WithLiterals(one.cfg)
		}
		if err == nil {
			err = checkFiles(ctx, one)
		}
		if notInLab := one.cfg.NotInLab(f.Path(), nil); err == nil && f.asked.Lab && notInLab != nil {
			err = fmt.Errorf("cluster %s: %w", c.Name, notInLab)
		}
		if passwords := one.cfg.Passwords(); err == nil && strings.Join(passwords, "") != "" {
			f.caller.Hide.Learn(passwords...)
			err = fmt.Errorf("cluster %s: an address in its configuration has a password, and the configurations of a fleet "+
				"are in ConfigMaps, which must not hold secrets: remove the password", c.Name)
		}
		if err != nil {
			problems = append(problems, err)
		}
		all = append(all, one)
	}
	if len(problems) == 0 {
		problems = refuseNamespaces(f.Fleet, all)
	}
	if len(problems) == 0 && !f.SkipDoctor && !f.asked.Lab {
		problems = overlaps(all)
	}
	if len(problems) > 0 {
		return nil, &usage.Error{Err: errors.Join(problems...)}
	}
	return all, nil
}

// decided are the variables of a cluster that its fleet decides.
func decided(of fleet.Spec, c fleet.Cluster) []settings.Assignment {
	all := []settings.Assignment{
		settings.Assign("MANAGEMENT", config.ManagementExisting),
		settings.Assign("STATE", stateOf(of.Namespace, c.Name)),
		settings.Assign("PIVOT", strconv.FormatBool(of.Pivot)),
	}
	if !c.Has("namespace") {
		// A namespace for each: clusters can have different tokens then, and each can be moved alone.
		all = append(all, settings.Assign("NAMESPACE", c.Name))
	}
	return all
}

// stateOf is the place of a cluster's state.
func stateOf(namespace, cluster string) string {
	return config.StateSecretsScheme + fleet.StateNamespace(namespace, cluster)
}

// overlaps finds clusters with one token whose networks overlap: the doctor of the second one's run would refuse it.
func overlaps(all []cluster) (problems []error) {
	for i, b := range all {
		for _, a := range all[:i] {
			was, errA := netip.ParsePrefix(a.cfg.NetworkCIDR)
			is, errB := netip.ParsePrefix(b.cfg.NetworkCIDR)
			if a.Token != b.Token || errA != nil || errB != nil || !was.Overlaps(is) {
				continue
			}
			problems = append(problems, fmt.Errorf("cluster %s: networkCidr %s overlaps that of cluster %s (%s) in the same "+
				"Hetzner project: give each cluster a range of its own, with controlPlaneCidr, podCidr and serviceCidr in it, or "+
				"write skipDoctor: true, if nothing will ever be in both", b.Name, is, a.Name, was))
			break
		}
	}
	return problems
}

func checkFiles(ctx context.Context, c cluster) error {
	b, err := planning.New(c.cfg.Config, session.OfflineTools(c.cfg))
	if err == nil {
		err = checks.Values(b.Cfg, b.Sources)
	}
	if err == nil {
		err = session.CheckFiles(ctx, b, b.Plan.All)
	}
	if err != nil {
		return fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	return nil
}

// accessOf is what the Jobs of clusters can reach.
func accessOf(namespace string, all []cluster) (access []fleet.Access) {
	for _, c := range all {
		access = append(access, fleet.Access{Namespace: namespace, Cluster: c.Name, ClusterNamespace: c.cfg.Namespace})
	}
	return access
}

// tellShared names clusters that share a namespace: RBAC does not keep them from each other.
func tellShared(caller *session.Caller, all []cluster) {
	first := map[string]string{}
	for _, c := range all {
		if other := first[c.cfg.Namespace]; other != "" {
			caller.Note("the clusters %s and %s have their Cluster API objects in one namespace, %s: the Job of each can "+
				"reach the other's, with its kubeconfig; to keep them apart, leave namespace away", other, c.Name, c.cfg.Namespace)
			continue
		}
		first[c.cfg.Namespace] = c.Name
	}
}

// refuseNamespaces refuses to give the Job of a cluster a namespace in which Secrets of others are.
func refuseNamespaces(f *fleet.Fleet, all []cluster) (problems []error) {
	taken := map[string]string{f.Namespace: "the fleet's own, with the keys and tokens of all clusters"}
	for _, c := range f.Clusters {
		taken[fleet.StateNamespace(f.Namespace, c.Name)] = "that of the state of cluster " + c.Name
	}
	for _, c := range all {
		whose := taken[c.cfg.Namespace]
		if strings.HasPrefix(c.cfg.Namespace, "kube-") {
			whose = "one of Kubernetes itself"
		}
		if whose != "" {
			problems = append(problems, fmt.Errorf("cluster %s: namespace %s is %s: the cluster's Job reads all Secrets in its "+
				"namespace; name another one, or leave namespace away", c.Name, c.cfg.Namespace, whose))
		}
	}
	return problems
}
