package changes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
	"github.com/slipway-k8s/slipway/platform"
)

// ConsequencesOf compares the objects of the manifests with the live ones: what applying them does. It makes no
// request; prices are not in it. perServer is about how long it takes to replace one server; 0: not known. Where the
// cluster does not exist yet everything is new, and there are no consequences.
func ConsequencesOf(live LiveObjects, rendered []*unstructured.Unstructured, perServer time.Duration) []Consequence {
	c := &comparison{live: live, rendered: rendered, perServer: perServer, location: live.location()}
	for _, o := range rendered {
		was := live.Find(o.GroupVersionKind().GroupKind(), o.GetName())
		if was == nil {
			c.create(o)
			continue
		}
		if frozen := immutable(was, o); len(frozen) > 0 {
			c.add(Consequence{Effect: EffectImmutable, Object: objectOf(o), Why: frozen})
			continue
		}
		switch {
		case !c.exists():
			// It is being created, in two parts.
		case orders.Template(o) != "":
			c.compareServers(was, o)
		case o.GroupVersionKind().GroupKind() == capi.MachineTemplateKind.GroupKind():
			// Its name is that of its content.
		default:
			if found := changed(was, o); len(found) > 0 {
				c.changes(was, o, found)
			}
		}
	}
	c.leftOut()
	for i := range c.found {
		c.found[i].Text = c.found[i].String()
	}
	return c.found
}

// comparison is one comparison with what it has found.
type comparison struct {
	live      LiveObjects
	rendered  []*unstructured.Unstructured
	perServer time.Duration
	location  string // of the live servers
	found     []Consequence
}

func (c *comparison) add(one Consequence) { c.found = append(c.found, one) }

func objectOf(o *unstructured.Unstructured) platform.Object {
	return platform.Object{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName()}
}

// exists reports whether there is a cluster that can be changed.
func (c *comparison) exists() bool {
	return slices.ContainsFunc(c.live.Wanted, func(o unstructured.Unstructured) bool {
		return o.GroupVersionKind().GroupKind() == capi.TalosControlPlaneKind.GroupKind()
	})
}

// create tells of an object that is added to a cluster that exists.
func (c *comparison) create(o *unstructured.Unstructured) {
	if !c.exists() || o.GroupVersionKind().GroupKind() == capi.MachineTemplateKind.GroupKind() {
		return
	}
	one := Consequence{Effect: EffectCreates, Object: objectOf(o)}
	if orders.Template(o) != "" {
		one.Count, one.NewServers = orders.Replicas(o), orders.ServerNames(o)
		one.Expected = c.perServer
	}
	c.add(one)
}

// wantedReplicas is how many servers an object asks for; instead where it leaves that to another, as for an
// autoscaler.
func wantedReplicas(o *unstructured.Unstructured, instead int64) int64 {
	if n, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); found {
		return n
	}
	return instead
}

// compareServers says what becomes of the servers of a control plane or a MachineDeployment.
func (c *comparison) compareServers(was, is *unstructured.Unstructured) {
	has := capi.Number(was, "spec", "replicas")
	wants := wantedReplicas(is, has)
	template := c.templates(orders.Template(was), orders.Template(is))
	var changes []string
	if is.GroupVersionKind().GroupKind() == capi.TalosControlPlaneKind.GroupKind() {
		changes = slices.Concat(template.why, versionChange(was, is, "spec", "version"), configChanges(was, is))
	} else {
		version := versionChange(was, is, "spec", "template", "spec", "version")
		changes = slices.Concat(template.why, version, c.workerConfigChanges(was, is), machineChanges(was, is))
	}
	names, location := c.live.serversOf(was), c.location
	if own := capi.Text(is, "spec", "template", "spec", "failureDomain"); own != "" {
		location = own
	}
	if wants < has {
		one := Consequence{Effect: EffectRemoves, Object: objectOf(is), Count: int(has - wants), Of: int(has)}
		one.Servers = names
		one.Why = []string{fmt.Sprintf("replicas %d → %d", has, wants)}
		one.before = template.before(int(has-wants), location)
		c.add(one)
	}
	if stay := int(min(has, wants)); len(changes) > 0 && stay > 0 {
		one := Consequence{Effect: EffectReplaces, Object: objectOf(is), Count: stay, Of: int(has), Why: changes}
		one.Servers, one.NewServers = names, orders.ServerNames(is)
		one.Expected = time.Duration(stay) * c.perServer
		one.Refused = refusedVersion(was, is)
		if capi.Text(is, "spec", "rolloutStrategy", "type") == "OnDelete" {
			one.Why = append(one.Why, "each when its Machine is deleted (rolloutStrategy OnDelete)")
			one.Expected = 0
		}
		before, after := template.before(stay, location), template.after(stay, location)
		if !sameTypes(before, after) {
			one.before, one.after = before, after
		}
		c.add(one)
	}
	if wants > has {
		one := Consequence{Effect: EffectAdds, Object: objectOf(is), Count: int(wants - has), Of: int(has)}
		one.Why, one.NewServers = []string{fmt.Sprintf("replicas %d → %d", has, wants)}, orders.ServerNames(is)
		one.Expected = c.perServer
		c.add(one)
	}
	found := autoscalerChanges(was, is)
	if len(changes) == 0 {
		found = append(found, withoutFields(changed(was, is), "spec.replicas")...)
	}
	if len(found) > 0 {
		c.add(Consequence{Effect: EffectChanges, Object: objectOf(is), Why: found})
	}
}

// autoscalerChanges are the differences in the number of servers that the cluster autoscaler may choose.
func autoscalerChanges(was, is *unstructured.Unstructured) (found []string) {
	for _, limit := range []struct{ annotation, name string }{{capi.AutoscalerMin, "min"}, {capi.AutoscalerMax, "max"}} {
		before, after := was.GetAnnotations()[limit.annotation], is.GetAnnotations()[limit.annotation]
		if before != after {
			found = append(found, fmt.Sprintf("%s %s → %s", limit.name, OrNone(before), OrNone(after)))
		}
	}
	return found
}

// templatePair are the server templates of before and after.
type templatePair struct {
	was, is *unstructured.Unstructured // nil: not known
	why     []string
}

// templates compares two server templates. One of another name replaces the servers, even where its content is the
// same.
func (c *comparison) templates(was, is string) templatePair {
	kind := capi.MachineTemplateKind.GroupKind()
	p := templatePair{was: c.live.Find(kind, was)}
	for _, o := range c.rendered {
		if o.GroupVersionKind().GroupKind() == kind && o.GetName() == is {
			p.is = o
		}
	}
	if p.is == nil {
		p.is = c.live.Find(kind, is)
	}
	if was == is {
		return p
	}
	if p.was != nil && p.is != nil {
		server := func(o *unstructured.Unstructured) map[string]any {
			m, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec")
			return m
		}
		p.why = changedFields("server ", server(p.was), server(p.is))
	}
	if len(p.why) == 0 {
		p.why = []string{fmt.Sprintf("HCloudMachineTemplate %s → %s", was, is)}
	}
	return p
}

func (p templatePair) before(n int, location string) []hetzner.Order {
	return ordersOfTemplate(p.was, n, location)
}
func (p templatePair) after(n int, location string) []hetzner.Order {
	return ordersOfTemplate(p.is, n, location)
}

// sameTypes reports whether two lists of orders cost the same, whatever that is.
func sameTypes(a, b []hetzner.Order) bool {
	return slices.EqualFunc(a, b, func(a, b hetzner.Order) bool {
		return a.Kind == b.Kind && a.Type == b.Type && a.Count == b.Count
	})
}

func ordersOfTemplate(template *unstructured.Unstructured, n int, location string) []hetzner.Order {
	if template == nil {
		return nil
	}
	return orders.Servers([]*unstructured.Unstructured{template}, template.GetName(), n, location)
}

// location is where the live cluster's servers are.
func (l LiveObjects) location() string {
	if o := l.Find(capi.HetznerClusterKind.GroupKind(), l.Cluster); o != nil {
		if regions, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "controlPlaneRegions"); len(regions) > 0 {
			return regions[0]
		}
	}
	return ""
}

// versionChange is a change of Kubernetes.
func versionChange(was, is *unstructured.Unstructured, field ...string) []string {
	before, after := capi.Text(was, field...), capi.Text(is, field...)
	if before == after {
		return nil
	}
	change := fmt.Sprintf("Kubernetes %s → %s", before, after)
	if older(after, before) {
		change += ", a downgrade, which Kubernetes does not support"
	}
	return []string{change}
}

// refusedVersion says why the control plane cannot go from one Kubernetes to another: an API server reads only what
// those of the minor before it have written (https://kubernetes.io/releases/version-skew-policy).
func refusedVersion(was, is *unstructured.Unstructured) string {
	if is.GroupVersionKind().GroupKind() != capi.TalosControlPlaneKind.GroupKind() {
		return ""
	}
	before, errBefore := version.ParseSemantic(capi.Text(was, "spec", "version"))
	after, errAfter := version.ParseSemantic(capi.Text(is, "spec", "version"))
	switch {
	case errBefore != nil || errAfter != nil || before.Major() != after.Major():
		return ""
	case after.Minor() < before.Minor():
		return fmt.Sprintf("Kubernetes has no way back from v%s to v%s", before, after)
	case after.Minor() > before.Minor()+1:
		return fmt.Sprintf("from Kubernetes v%s to v%s a control plane goes through every minor version between them", before,
			after)
	}
	return ""
}

// configChanges are the differences between what Talos's configuration is made from: the provider replaces the servers
// for each.
func configChanges(was, is *unstructured.Unstructured) []string {
	path := []string{"spec", "controlPlaneConfig", "controlplane"}
	before, _, _ := unstructured.NestedMap(was.Object, path...)
	after, _, _ := unstructured.NestedMap(is.Object, path...)
	return changesOf("", plain(before), plain(after), false)
}

// workerConfigChanges are the differences between what the Talos configurations of a MachineDeployment's servers are
// made from.
func (c *comparison) workerConfigChanges(was, is *unstructured.Unstructured) []string {
	name := []string{"spec", "template", "spec", "bootstrap", "configRef", "name"}
	before, after := capi.Text(was, name...), capi.Text(is, name...)
	if before == after {
		return nil
	}
	kind := capi.TalosConfigTemplateKind.GroupKind()
	old := findObject(c.live.Others, kind, before)
	i := slices.IndexFunc(c.rendered, func(o *unstructured.Unstructured) bool {
		return o.GroupVersionKind().GroupKind() == kind && o.GetName() == after
	})
	if old != nil && i >= 0 {
		spec := func(o *unstructured.Unstructured) any {
			m, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec")
			return plain(m)
		}
		if found := changesOf("", spec(old), spec(c.rendered[i]), false); len(found) > 0 {
			return found
		}
	}
	return []string{fmt.Sprintf("bootstrap.configRef.name %s → %s", OrNone(before), OrNone(after))}
}

// machineChanges are the differences for which Cluster API replaces the Machines of a MachineDeployment, besides the
// version and the server template.
func machineChanges(was, is *unstructured.Unstructured) []string {
	var found []string
	for _, field := range []string{"failureDomain", "bootstrap.dataSecretName"} {
		path := append([]string{"spec", "template", "spec"}, strings.Split(field, ".")...)
		if before, after := capi.Text(was, path...), capi.Text(is, path...); before != after {
			found = append(found, fmt.Sprintf("%s %s → %s", field, OrNone(before), OrNone(after)))
		}
	}
	return found
}

// OrNone is a value, or "(none)" where it is empty.
func OrNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// changes tells of an object that is changed in place, and what that costs.
func (c *comparison) changes(was, is *unstructured.Unstructured, found []string) {
	one := Consequence{Effect: EffectChanges, Object: objectOf(is), Why: found}
	if is.GroupVersionKind().GroupKind() == capi.HetznerClusterKind.GroupKind() {
		balancer := func(o *unstructured.Unstructured) []hetzner.Order {
			return []hetzner.Order{{
				Kind: hetzner.KindLoadBalancer, Count: 1, Type: capi.Text(o, "spec", "controlPlaneLoadBalancer", "type"),
				Location: capi.Text(o, "spec", "controlPlaneLoadBalancer", "region"),
			}}
		}
		if before, after := balancer(was), balancer(is); before[0].Type != after[0].Type {
			one.before, one.after = before, after
		}
	}
	c.add(one)
}
