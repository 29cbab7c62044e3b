package changes

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// undeletable are the kinds of which nothing is deleted because it is no longer in the manifests: what the cluster
// itself is, and what may hold its only keys.
var undeletable = []schema.GroupKind{
	capi.ClusterKind.GroupKind(), capi.HetznerClusterKind.GroupKind(), capi.TalosControlPlaneKind.GroupKind(),
	secretKind.GroupKind(),
}

// leftOut finds the objects that were applied as part of the manifests and are no longer in them.
func (c *comparison) leftOut() {
	if !c.exists() {
		return
	}
	for i := range c.live.Others {
		o := &c.live.Others[i]
		if _, ofPool := o.GetLabels()[capi.WorkerPoolLabel]; ofPool != c.live.Pools {
			continue // the steps apply and workers each delete their own
		}
		if o.GetDeletionTimestamp() != nil || !owned(o, c.live.Cluster, c.byManager(o)) ||
			c.inManifests(o) || c.superseded(o) {
			continue
		}
		one := Consequence{Effect: EffectDeletes, Object: objectOf(o), uid: o.GetUID()}
		one.Why = []string{"it is no longer in the manifests"}
		if pool := o.GetLabels()[capi.WorkerPoolLabel]; pool != "" {
			one.Why = []string{"worker pool " + pool + " no longer needs it"}
		}
		switch user := c.userOf(o); {
		case user != "" && isTemplate(o.GetKind()):
			continue // it goes once nothing was made from it any more
		case slices.Contains(undeletable, o.GroupVersionKind().GroupKind()):
			one.Effect = EffectKeeps
			one.Why = append(one.Why, "Slipway deletes no "+o.GetKind()+": do so with kubectl if nothing needs it")
		case user != "":
			one.Effect = EffectKeeps
			one.Why = append(one.Why, "used by "+user)
		default:
			one.Servers = c.live.serversFrom(o)
			one.Count, one.Of = len(one.Servers), len(one.Servers)
			one.before = ordersOfTemplate(c.template(orders.Template(o)), one.Count,
				cmp.Or(capi.Text(o, "spec", "template", "spec", "failureDomain"), c.location))
		}
		c.add(one)
	}
}

// byManager reports whether the field manager is evidence of who applied an object. A restore and a readoption write
// objects of a backup, whatever created them, and a Secret is never taken for the manifests' by that alone.
func (c *comparison) byManager(o *unstructured.Unstructured) bool {
	cluster := c.live.Find(capi.ClusterKind.GroupKind(), c.live.Cluster)
	if cluster == nil || o.GroupVersionKind().GroupKind() == secretKind.GroupKind() {
		return false
	}
	annotations := cluster.GetAnnotations()
	return annotations[capi.RestoredAnnotation] == "" && annotations[capi.ReadoptedAnnotation] == ""
}

func (c *comparison) inManifests(o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(c.rendered, func(r *unstructured.Unstructured) bool {
		return r.GroupVersionKind().GroupKind() == o.GroupVersionKind().GroupKind() && r.GetName() == o.GetName()
	})
}

// superseded tells of an earlier version of a server template of the manifests: the name differs in the hash of the
// content only. Such templates stay: they cost nothing, and Machines name the one that they were made from.
func (c *comparison) superseded(o *unstructured.Unstructured) bool {
	kind := o.GroupVersionKind().GroupKind()
	if kind != capi.MachineTemplateKind.GroupKind() && kind != capi.TalosConfigTemplateKind.GroupKind() {
		return false
	}
	return slices.ContainsFunc(c.rendered, func(r *unstructured.Unstructured) bool {
		return r.GroupVersionKind().GroupKind() == kind && r.GetName() != o.GetName() &&
			WithoutHash(r.GetName()) == WithoutHash(o.GetName())
	})
}

// templateHash is what a template's name ends with where Slipway has named it.
var templateHash = regexp.MustCompile(fmt.Sprintf("-[0-9a-f]{%d}$", render.TemplateHashLength))

// WithoutHash is the name of a server template as the manifests write it.
func WithoutHash(name string) string { return templateHash.ReplaceAllString(name, "") }

func (c *comparison) template(name string) *unstructured.Unstructured {
	if o := c.live.Find(capi.MachineTemplateKind.GroupKind(), name); o != nil {
		return o
	}
	return findObject(c.live.Others, capi.MachineTemplateKind.GroupKind(), name)
}

// userOf names a live object that refers to another, or was made from it, so that it cannot be deleted yet; empty:
// there is none. An object that is deleted in the same run is no user, but its Machines are until they are gone.
func (c *comparison) userOf(o *unstructured.Unstructured) string {
	for i := range c.live.Others {
		user := &c.live.Others[i]
		if user.GetUID() == o.GetUID() {
			continue
		}
		madeFrom := user.GetAnnotations()[capi.ClonedFromAnnotation] == o.GetName() &&
			user.GetAnnotations()[capi.ClonedFromKindAnnotation] == o.GroupVersionKind().GroupKind().String()
		if madeFrom || refers(user.Object["spec"], o.GetKind(), o.GetName()) {
			return user.GetKind() + " " + user.GetName()
		}
	}
	return ""
}

// isTemplate reports whether other objects are created from it: its deletion deletes nothing else once no object refers
// to it.
func isTemplate(kind string) bool { return strings.HasSuffix(kind, "Template") }

// refers reports whether a reference {kind, name} lies anywhere below v.
func refers(v any, kind, name string) bool {
	switch v := v.(type) {
	case map[string]any:
		if v["kind"] == kind && v["name"] == name {
			return true
		}
		for _, child := range v {
			if refers(child, kind, name) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(child any) bool { return refers(child, kind, name) })
	}
	return false
}

// serversFrom are the live names of the servers that are deleted with an object.
func (l LiveObjects) serversFrom(o *unstructured.Unstructured) []string {
	switch o.GroupVersionKind().GroupKind() {
	case capi.MachineDeploymentKind.GroupKind():
		return l.serversOf(o)
	case capi.MachineKind.GroupKind():
		if name := capi.Text(o, "spec", "infrastructureRef", "name"); name != "" {
			return []string{name}
		}
	}
	return nil
}

// DeleteLeftOut deletes the objects of a namespace that are no longer in the manifests, after everything else is
// applied: no object refers to them then. Cluster API drains and deletes the servers of a MachineDeployment; that is
// not waited for.
func DeleteLeftOut(ctx context.Context, say flow.Say, mgmt *kube.Cluster, namespace string,
	todo []Consequence) error {
	for _, c := range todo {
		if c.Effect != EffectDeletes {
			continue
		}
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(schema.FromAPIVersionAndKind(c.Object.APIVersion, c.Object.Kind))
		o.SetName(c.Object.Name)
		o.SetNamespace(namespace)
		say("deleting %s %s", c.Object.Kind, c.Object.Name)
		background := client.PropagationPolicy(metav1.DeletePropagationBackground)
		err := mgmt.Delete(ctx, o, client.Preconditions{UID: &c.uid}, background)
		if err != nil && !kube.Absent(err) {
			return fmt.Errorf("delete %s, which is no longer in the manifests: %w", kube.Describe(o), err)
		}
	}
	return nil
}

// MissingObjects is why the objects of the manifests cannot be the cluster's, as far as the files alone tell; nil:
// they can.
func MissingObjects(objects []*unstructured.Unstructured, cluster, controlPlane, file string) error {
	for _, want := range []struct {
		kind schema.GroupVersionKind
		name string
	}{{capi.ClusterKind, cluster}, {capi.HetznerClusterKind, cluster}, {capi.TalosControlPlaneKind, controlPlane}} {
		var names []string
		for _, o := range objects {
			if o.GroupVersionKind().GroupKind() == want.kind.GroupKind() {
				names = append(names, o.GetName())
			}
		}
		switch {
		case slices.Contains(names, want.name):
		case len(names) > 0:
			return fmt.Errorf("%s: the %s is called %s, and that of cluster %s has to be called %s: write this name there and in what "+
				"refers to it; a cluster that exists is not deleted by leaving it out, but by the target destroy", file, want.kind.Kind, strings.Join(names, ", "), cluster, want.name)
		default:
			return fmt.Errorf("%s has no %s %s, and the cluster consists of it: put it into the file, as the built-in one has it; a "+
				"cluster that exists is not deleted by leaving it out, but by the target destroy", file, want.kind.Kind, want.name)
		}
	}
	return nil
}
