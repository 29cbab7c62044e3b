package readopt

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
)

// returning are the objects of the backup as they are put back: the Cluster paused, without what was accepted to be
// left out, with what was accepted to be adopted, and owners before what they own.
func (r inputs) returning(d Comparison) ([]*unstructured.Unstructured, error) {
	out := map[capi.ObjectKey]bool{}
	for _, name := range d.LeftOut {
		if machine := r.source.Object(capi.MachineKind.Kind, name); machine != nil {
			for _, o := range r.source.OwnedBy(machine) {
				out[capi.ObjectKeyOf(o)] = true
			}
		}
	}
	var objects []*unstructured.Unstructured
	for _, was := range r.source.All() {
		if !out[capi.ObjectKeyOf(was)] {
			objects = append(objects, r.returned(was.DeepCopy(), d))
		}
	}
	for _, a := range d.Adopted {
		made, err := r.machineFor(a, d)
		if err != nil {
			return nil, err
		}
		objects = append(objects, made...)
	}
	// The Cluster before everything: its pause is what keeps the controllers still.
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		return recovery.FalseFirst(b.GetKind() == capi.ClusterKind.Kind, a.GetKind() == capi.ClusterKind.Kind)
	})
	return ownersFirst(objects), nil
}

// returned changes an object to what was accepted.
func (r inputs) returned(o *unstructured.Unstructured, d Comparison) *unstructured.Unstructured {
	// its controllers write it again, and then it tells that they have looked
	unstructured.RemoveNestedField(o.Object, "status")
	set := func(value any, fields ...string) { _ = unstructured.SetNestedField(o.Object, value, fields...) }
	server := o.GetName()
	switch o.GroupVersionKind().GroupKind() {
	case capi.ClusterKind.GroupKind():
		set(true, "spec", "paused")
		backup.Annotate(o, capi.ReadoptedAnnotation, r.source.Identity().Snapshot)
	case capi.HetznerClusterKind.GroupKind():
		if d.Balancer != "" {
			set(d.Balancer, "spec", "controlPlaneLoadBalancer", "name")
		}
	case capi.TalosControlPlaneKind.GroupKind():
		if d.Replicas != 0 {
			set(d.Replicas, "spec", "replicas")
		}
		if d.Version != "" {
			set(d.Version, "spec", "version")
		}
	case capi.MachineKind.GroupKind():
		if _, controlPlane := o.GetLabels()[capi.ControlPlaneLabel]; controlPlane && d.Version != "" {
			set(d.Version, "spec", "version")
		}
		server = capi.ServerOf(o)
		fallthrough
	case capi.HCloudMachineKind.GroupKind():
		if id := d.Replaced[server]; id != 0 {
			set(Adopted{ID: id}.providerID(), "spec", "providerID")
		}
	}
	return o
}

// machineFor makes the objects of a server that the backup does not know, out of those of another control plane
// Machine: they differ in nothing but their names, the server and its place.
func (r inputs) machineFor(a Adopted, d Comparison) (made []*unstructured.Unstructured, err error) {
	machines := slices.DeleteFunc(r.source.Machines(), func(m backup.ClusterMachine) bool { return !m.ControlPlane })
	if len(machines) == 0 {
		return nil, fmt.Errorf("make a Machine for server %s: the backup has none of the control plane that it could be like",
			a.Server)
	}
	// One that is not outdated, or it would be replaced.
	slices.SortStableFunc(machines, func(a, b backup.ClusterMachine) int {
		return recovery.FalseFirst(a.Outdated != "", b.Outdated != "")
	})
	like := machines[0]
	machine := r.source.Object(capi.MachineKind.Kind, like.Name)
	names := map[string]string{
		capi.MachineKind.Kind: a.Machine, capi.HCloudMachineKind.Kind: a.Server, "Secret": a.Machine + "-bootstrap-data",
		capi.Text(machine, "spec", "bootstrap", "configRef", "kind"): a.Machine,
	}
	for _, was := range r.source.OwnedBy(machine) {
		name, known := names[was.GetKind()]
		if !known {
			continue
		}
		o := r.returned(was.DeepCopy(), Comparison{Version: d.Version})
		o.SetName(name)
		readdress(o, a, names)
		made = append(made, o)
	}
	return made, nil
}

// readdress makes a copy of a Machine's object one of another server's. names are the new names, by kind.
func readdress(o *unstructured.Unstructured, a Adopted, names map[string]string) {
	owners := o.GetOwnerReferences()
	for i := range owners {
		if to, ok := names[owners[i].Kind]; ok {
			owners[i].Name = to
		}
	}
	o.SetOwnerReferences(owners)
	set := func(value string, fields ...string) { _ = unstructured.SetNestedField(o.Object, value, fields...) }
	switch o.GetKind() {
	case capi.MachineKind.Kind:
		set(a.Server, "spec", "infrastructureRef", "name")
		set(a.Machine, "spec", "bootstrap", "configRef", "name")
		set(names["Secret"], "spec", "bootstrap", "dataSecretName")
		set(a.Location, "spec", "failureDomain")
		set(a.providerID(), "spec", "providerID")
	case capi.HCloudMachineKind.Kind:
		set(a.providerID(), "spec", "providerID")
	}
}

func (a Adopted) providerID() string { return hetzner.Server{ID: a.ID}.ProviderID() }

// ownersFirst sorts objects so that those come first that own others: an owner is named by the UID that it gets when it
// is made.
func ownersFirst(objects []*unstructured.Unstructured) (sorted []*unstructured.Unstructured) {
	name := func(kind, name string) string { return kind + "/" + name }
	waiting := map[string]bool{}
	for _, o := range objects {
		waiting[name(o.GetKind(), o.GetName())] = true
	}
	for len(objects) > 0 {
		left := objects[:0:0]
		for _, o := range objects {
			blocked := slices.ContainsFunc(o.GetOwnerReferences(),
				func(owner metav1.OwnerReference) bool { return waiting[name(owner.Kind, owner.Name)] })
			if blocked {
				left = append(left, o)
			} else {
				sorted = append(sorted, o)
			}
		}
		if len(left) == len(objects) { // they own each other in a circle, which no controller creates
			return append(sorted, left...)
		}
		for _, o := range sorted {
			delete(waiting, name(o.GetKind(), o.GetName()))
		}
		objects = left
	}
	return sorted
}
