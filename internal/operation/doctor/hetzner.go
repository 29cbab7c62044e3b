package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/capacity"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

const (
	askAgain = "try again; use --skip-doctor if it is known to be correct"
	// budgetNeeded is what Slipway and the controllers ask together in a bootstrap: in the lab 174, CAPH 94 of them.
	budgetNeeded = 300
	// budgetWithin is how long a bootstrap may take where BOOTSTRAP_TIMEOUT does not say.
	budgetWithin = time.Hour
	// groupHolds is how many servers a spread placement group of Hetzner holds.
	groupHolds = 10
)

// unheard is the finding of a check whose question got no answer.
func unheard(err error) Finding {
	if errors.Is(err, hetzner.ErrToken) {
		return unknown("see the check token", "Hetzner does not accept the token")
	}
	return unknown(askAgain, "could not ask: %v", err)
}

func (d *Doctor) token(ctx context.Context) Finding {
	err := hetzner.CheckWrite(ctx, d.tools.Hetzner)
	switch {
	case errors.Is(err, hetzner.ErrToken):
		return failed(hetzner.AnotherToken, "Hetzner does not accept the token")
	case errors.Is(err, hetzner.ErrReadOnly):
		return failed(hetzner.AnotherToken, "%v", err)
	case err != nil:
		return unheard(err)
	}
	return ok("Hetzner takes the token, for reading and writing")
}

func (d *Doctor) serverType(ctx context.Context) Finding {
	c := d.cfg
	choice, err := capacity.Choose(ctx, d.tools.Hetzner, c)
	var wrong *hetzner.Unknown
	var none *capacity.OutOfStockError
	switch {
	case errors.As(err, &wrong):
		return failed("choose another LOCATION, SERVER_TYPE or LOAD_BALANCER_TYPE", "%v", err)
	case errors.As(err, &none):
		return failed("add another SERVER_TYPE or LOCATION, or wait", "%s", strings.Join(none.Passed, "; "))
	case err != nil:
		return unheard(err)
	}
	balancing, err := hetzner.FindLoadBalancerType(ctx, d.tools.Hetzner, c.LoadBalancerType)
	if err != nil {
		return unheard(err)
	}
	kind, err := hetzner.FindServerType(ctx, d.tools.Hetzner, choice.ServerType)
	if err != nil {
		return unheard(err)
	}
	if !balancing.Withdrawn.IsZero() {
		return failed("choose another LOAD_BALANCER_TYPE", "load balancer type %s is withdrawn on %s", c.LoadBalancerType,
			balancing.Withdrawn.Format(time.DateOnly))
	}
	told, problem := onSale(kind, choice.Locations)
	if problem != "" {
		return failed("choose another SERVER_TYPE or LOCATION, or wait: a server that is lost could not be created again", "%s",
			problem)
	}
	where := strings.Join(choice.Locations, ", ")
	if !told {
		return unknown("the servers are ordered and waited for", "location, server type and load balancer type exist; "+
			"Hetzner does not report whether %s is in stock in %s", kind.Name, where)
	}
	passed := ""
	if len(choice.Passed) > 0 {
		passed = " (" + strings.Join(choice.Passed, "; ") + ")"
	}
	return ok("%s is sold and in stock in %s%s; load balancer type %s exists", kind.Name, where, passed, c.LoadBalancerType)
}

// onSale says why a server type cannot be had in one of some locations; told: Hetzner says of each whether it is in
// stock.
func onSale(kind hetzner.ServerType, locations []string) (told bool, problem string) {
	told = true
	for _, l := range locations {
		sale := kind.At(l)
		told = told && sale.Told
		switch {
		case !sale.Withdrawn.IsZero():
			return told, fmt.Sprintf("server type %s is withdrawn in %s on %s", kind.Name, l, sale.Withdrawn.Format(time.DateOnly))
		case sale.Told && !sale.InStock:
			return told, fmt.Sprintf("server type %s is out of stock in %s", kind.Name, l)
		}
	}
	return told, ""
}

// planned is what the manifests ask Hetzner for.
type planned struct {
	servers, surge, balancers, services int
	groupSurge                          int // of the control plane
	group                               int // the control plane's in one placement group, a rolling update counted
	pool                                int // the most workers in one placement group, a rolling update counted
	poolName                            string
}

func (d *Doctor) planned() (planned, error) {
	v := render.MadeUpVariables(d.cfg, d.sources)
	r, err := render.Manifests(d.cfg, d.sources, v)
	if err != nil {
		return planned{}, err
	}
	workers, err := render.Workers(d.cfg, d.sources, v, nil)
	if err != nil {
		return planned{}, err
	}
	var p planned
	for _, o := range orders.Of(append(r.Now, workers...), d.cfg.PreferredLocation()) {
		switch o.Kind {
		case hetzner.KindServer:
			p.servers += o.Count
		case hetzner.KindLoadBalancer:
			p.balancers += o.Count
		}
	}
	for _, o := range r.Now {
		switch o.GroupVersionKind() {
		case capi.TalosControlPlaneKind:
			surge := 1 // the provider's default
			if is, found, _ := unstructured.NestedInt64(o.Object, "spec", "rolloutStrategy", "rollingUpdate",
				"maxSurge"); found {
				surge = int(is)
			}
			p.surge += surge
			p.groupSurge = surge
			p.group = max(p.group, int(capi.Number(o, "spec", "replicas"))+surge)
		case capi.HetznerClusterKind:
			extra, _, _ := unstructured.NestedSlice(o.Object, "spec", "controlPlaneLoadBalancer", "extraServices")
			p.services = max(p.services, len(extra)+1) // and the API server's
		}
	}
	for _, o := range workers {
		if o.GroupVersionKind().GroupKind() != capi.MachineDeploymentKind.GroupKind() {
			continue
		}
		surge := 1 // Cluster API's default
		if is, found, _ := unstructured.NestedInt64(o.Object, "spec", "strategy", "rollingUpdate", "maxSurge"); found {
			surge = int(is)
		}
		p.surge += surge
		if n := orders.Most(o) + surge; n > p.pool {
			p.pool, p.poolName = n, o.GetName()
		}
	}
	for _, pool := range d.cfg.Workers {
		p.servers += max(0, pool.Max-pool.Min) // the cluster autoscaler may add them
	}
	return p, nil
}

// capacity holds what is planned against what one placement group and one load balancer hold.
func (d *Doctor) capacity(ctx context.Context) Finding {
	p, err := d.planned()
	if err != nil {
		return failed("see the check manifests", "%v", err)
	}
	if p.group > groupHolds {
		return failed("choose fewer CONTROL_PLANE_REPLICAS", "%d servers and %d more in a rolling update do not fit into a "+
			"placement group, which holds %d", p.group-p.groupSurge, p.groupSurge, groupHolds)
	}
	if p.pool > groupHolds {
		return failed("choose a smaller maxSurge in manifests/worker-pool.yaml", "%d servers of MachineDeployment %s, a "+
			"rolling update's counted, do not fit into a placement group, which holds %d", p.pool, p.poolName, groupHolds)
	}
	name := d.cfg.LoadBalancerType
	b, err := hetzner.FindLoadBalancerType(ctx, d.tools.Hetzner, name)
	switch {
	case errors.As(err, new(*hetzner.Unknown)):
		return unknown("see the check server-type", "load balancer type %s does not exist", name)
	case err != nil:
		return unheard(err)
	case p.group > b.Targets:
		return failed("choose a larger LOAD_BALANCER_TYPE", "%d servers, a rolling update's counted, do not fit behind a "+
			"load balancer %s, which has %d targets", p.group, name, b.Targets)
	case p.services > b.Services:
		return failed("choose a larger LOAD_BALANCER_TYPE, or fewer extraServices", "%d services do not fit onto a load "+
			"balancer %s, which has %d", p.services, name, b.Services)
	}
	return ok("%d servers with the one more of a rolling update, of %d that a placement group holds and %d that %s has "+
		"targets for; %d of its %d services",
		p.group, groupHolds, b.Targets, name, p.services, b.Services)
}

// limits says what the project's limits have to allow. They are in no answer of the API.
func (d *Doctor) limits(ctx context.Context) Finding {
	p, err := d.planned()
	if err != nil {
		return unknown("see the check manifests", "%v", err)
	}
	servers, balancers, err := d.existing(ctx)
	const console = "compare with the project's Limits in Hetzner's console"
	counted := func(servers, balancers int) string {
		return text.Plural(servers, "server", "servers") + " with a primary IP each and " +
			text.Plural(balancers, "load balancer", "load balancers")
	}
	what := ""
	switch more, others := p.servers-servers, p.balancers-balancers; {
	case err != nil:
		return unknown(console, "%s are planned (%d servers in a rolling update), and what exists of them is not known: "+
			"%v; "+
			"the API does not return the project's limits", counted(p.servers, p.balancers), p.servers+p.surge, err)
	case servers+balancers == 0:
		return unknown(console, "%d servers (%d in a rolling update) with a primary IP each and %s are to be created; "+
			"the API "+
			"does not return the project's limits", p.servers, p.servers+p.surge,
			text.Plural(p.balancers, "load balancer", "load balancers"))
	case more > 0 || others > 0:
		what = "; " + counted(max(0, more), max(0, others)) + " are to be created"
	}
	return unknown(console, "%s exist%s; a rolling update has up to %d servers more for its time; the API does not "+
		"return the "+
		"project's limits", counted(servers, balancers), what, p.surge)
}

// existing counts the cluster's servers and load balancers at Hetzner; none where that cannot be asked for want of a
// token.
func (d *Doctor) existing(ctx context.Context) (servers, balancers int, err error) {
	if d.tools.Hetzner == nil {
		return 0, 0, nil
	}
	all, err := hetzner.Servers(ctx, d.tools.Hetzner, d.cfg.ClusterName)
	if err != nil {
		return 0, 0, err
	}
	lbs, err := hetzner.LoadBalancers(ctx, d.tools.Hetzner, d.cfg.ClusterName)
	return len(all), len(lbs), err
}

func (d *Doctor) image(ctx context.Context) Finding {
	c := d.cfg
	choice, err := capacity.Choose(ctx, d.tools.Hetzner, c)
	if err != nil {
		return unknown("see the check server-type", "which architecture the servers have is not known: %v", err)
	}
	var told []string
	for _, architecture := range c.Architectures(choice.Architecture) {
		name := c.Image(architecture)
		found, err := hetzner.FindImages(ctx, d.tools.Hetzner, name, architecture)
		switch {
		case err != nil:
			return unheard(err)
		case len(found) > 1:
			return failed("run "+d.tools.Command("image", "--prune"), "%v",
				&hetzner.ImageError{Name: name, Architecture: architecture, Found: found,
					Prune: d.tools.Command("image", "--prune")})
		case len(found) == 0:
			why, err := hetzner.AskUpload(ctx, d.tools.Hetzner, choice.Location, architecture, choice.ServerType)
			if err != nil {
				return unheard(err)
			}
			if why != "" {
				return failed("choose another LOCATION, wait, or create it elsewhere ("+d.tools.Command("image", "--packer")+")",
					"image %s for %s cannot be created: %s", name, architecture, why)
			}
			told = append(told, fmt.Sprintf("image %s for %s is to be created", name, architecture))
		case !found[0].Available() && !found[0].Creating():
			return failed("delete it, or remove its label", "image %s for %s is %s", name, architecture, found[0].Status)
		default:
			told = append(told, fmt.Sprintf("image %s for %s is %s", name, architecture, found[0]))
		}
	}
	return ok("%s", strings.Join(told, "; "))
}

func (d *Doctor) names(ctx context.Context) Finding {
	cluster := d.cfg.ClusterName
	r, err := render.Manifests(d.cfg, d.sources, render.MadeUpVariables(d.cfg, d.sources))
	if err != nil {
		return failed("see the check manifests", "%v", err)
	}
	var groups []string
	for _, o := range r.Now {
		if o.GroupVersionKind() != capi.HetznerClusterKind {
			continue
		}
		for _, name := range capi.PlacementGroups(o) {
			groups = append(groups, cluster+"-"+name)
		}
	}
	names := hetzner.Names{
		Networks: []string{cluster}, PlacementGroups: groups, Firewalls: []string{cluster},
		// As CACPPT and CAPH make them up: <template>-<hash>-<random>, <cluster>-kube-apiserver-<random>.
		Servers: regexp.MustCompile(fmt.Sprintf(`^%s-[0-9a-z]{%d}-[0-9a-z]{5}$`,
			regexp.QuoteMeta(d.cfg.ControlPlaneName()), render.TemplateHashLength)),
		LoadBalancers: regexp.MustCompile(fmt.Sprintf(`^%s-kube-apiserver-[0-9a-z]{5}$`, regexp.QuoteMeta(cluster))),
	}
	taken, err := hetzner.Taken(ctx, d.tools.Hetzner, cluster, names)
	switch {
	case err != nil:
		return unheard(err)
	case len(taken) > 0:
		return failed("choose another CLUSTER_NAME, or rename what has it", "these are not the cluster's and have names "+
			"that it needs: %s", strings.Join(taken, ", "))
	}
	return ok("the names of network, placement groups, firewall, servers and load balancer are free, or the cluster's own")
}

func (d *Doctor) networks(ctx context.Context) Finding {
	own, err := netip.ParsePrefix(d.cfg.NetworkCIDR)
	if err != nil {
		return failed("see the check address-ranges", "%v", err)
	}
	ranges, err := hetzner.Ranges(ctx, d.tools.Hetzner, d.cfg.ClusterName)
	if err != nil {
		return unheard(err)
	}
	var overlaps []string
	for _, r := range ranges {
		if !r.Ours && r.Prefix.Overlaps(own) {
			overlaps = append(overlaps, fmt.Sprintf("%s (%s)", r.Name, r.Prefix))
		}
	}
	if len(overlaps) > 0 {
		return failed("choose another NETWORK_CIDR; or --skip-doctor, if nothing will ever be in both",
			"%s overlaps networks of the project: %s", own, strings.Join(overlaps, ", "))
	}
	return ok("%s overlaps none of the project's other networks", own)
}

// hetznerBudget fails where a bootstrap cannot get the requests that it needs; where it gets them slowly, it says so.
func (d *Doctor) hetznerBudget(ctx context.Context) Finding {
	budget, err := hetzner.AskBudget(ctx, d.tools.Hetzner)
	switch {
	case err != nil:
		return unheard(err)
	case budget.Limit == 0:
		return unknown(askAgain, "Hetzner's answer does not say how many requests are left")
	}
	within := cmp.Or(d.cfg.BootstrapTimeout.D(), budgetWithin)
	if until := budget.Until(budgetNeeded); until > within {
		return failed("wait, or end what else uses the project's requests", "%s; a bootstrap may need %d within %s",
			budget, budgetNeeded, text.Elapsed(within))
	}
	if budget.Low() {
		return ok("%s: a bootstrap is slower now, its requests wait until %d are left, in %s at the earliest", budget,
			budget.Enough(), text.Elapsed(budget.Until(budget.Enough())))
	}
	return ok("%d of %d requests an hour are left", budget.Remaining, budget.Limit)
}
