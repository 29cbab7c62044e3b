package steps

import (
	"net"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/situation"
)

// madeByControllers are kinds whose objects Cluster API makes for the others, one for each server: the restored cluster gets
// new servers, and so new ones of these.
var madeByControllers = []string{
	"Machine", "MachineSet", "MachinePool", "TalosConfig", "HCloudMachine", "HetznerBareMetalMachine", "HCloudRemediation",
	"HetznerBareMetalRemediation", "ClusterResourceSetBinding", "ConfigMap",
}

// wanted are the objects of the backup that are applied again, those that others refer to first and the Cluster last: when
// Cluster API looks at it, what it names is there.
func (s Backup) wanted() []*unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	for i := range s.Contents.Objects {
		o := &s.Contents.Objects[i]
		if o.GetNamespace() == config.Namespace && !slices.Contains(madeByControllers, o.GetKind()) {
			objects = append(objects, bare(o))
		}
	}
	order := func(o *unstructured.Unstructured) int {
		switch {
		case strings.HasSuffix(o.GetKind(), "Template"):
			return 0
		case o.GetKind() == capi.ClusterKind.Kind:
			return 2
		}
		return 1
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return order(a) - order(b) })
	return objects
}

// kept are the Secrets and ConfigMaps of the backup that nobody makes again: the manifests that a ClusterResourceSet names, say, and what
// a person has marked to go along with the cluster. The bundle of keys and today's token have their own ways in, the rest comes of these.
func (s Backup) kept() []*unstructured.Unstructured {
	name := s.Contents.Header.Cluster
	remade := []string{config.TokenSecretName, name + talosBundleSuffix, name + "-ca", name + "-kubeconfig", name + "-talosconfig"}
	makers := append([]string{capi.ClusterKind.Kind, capi.TalosControlPlaneKind.Kind}, madeByControllers...)
	var objects []*unstructured.Unstructured
	for _, was := range s.all() {
		secret := was.GetKind() == "Secret"
		made := slices.ContainsFunc(was.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return slices.Contains(makers, owner.Kind) })
		if made || secret && slices.Contains(remade, was.GetName()) || !secret && was.GetKind() != "ConfigMap" {
			continue
		}
		o := bare(was)
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[capi.MoveLabel] = ""
		o.SetLabels(labels)
		objects = append(objects, o)
	}
	return objects
}

// bare is an object as its author wrote it: without what an API server or a controller added.
func bare(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	annotations := o.GetAnnotations()
	for _, name := range []string{situation.PausedAnnotation, "kubectl.kubernetes.io/last-applied-configuration"} {
		delete(annotations, name)
	}
	labels, name := o.GetLabels(), o.GetName()
	delete(o.Object, "status")
	delete(o.Object, "metadata")
	o.SetNamespace(config.Namespace)
	o.SetName(name)
	if len(labels) > 0 {
		o.SetLabels(labels)
	}
	if len(annotations) > 0 {
		o.SetAnnotations(annotations)
	}
	return o
}

// mark puts an annotation on an object.
func mark(o *unstructured.Unstructured, name, value string) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[name] = value
	o.SetAnnotations(annotations)
}

// restored are the objects for a load balancer at ip; without an address (ip is empty) those that can do without: the
// Cluster then does not name its control plane yet.
func (r *restorer) restored(lost Lost, ip string) []*unstructured.Unstructured {
	was, host := r.source.endpoint()
	var objects []*unstructured.Unstructured
	for _, o := range r.source.wanted() {
		switch o.GetKind() {
		case capi.ClusterKind.Kind:
			unstructured.RemoveNestedField(o.Object, "spec", "paused")
			unstructured.RemoveNestedField(o.Object, "spec", "controlPlaneEndpoint") // Cluster API copies it from the HetznerCluster
			if ip == "" {
				unstructured.RemoveNestedField(o.Object, "spec", "controlPlaneRef")
			}
			mark(o, capi.RestoredAnnotation, r.source.identity().Snapshot)
		case capi.HetznerClusterKind.Kind:
			if net.ParseIP(host) != nil || host == "" { // a name stays a name
				_ = unstructured.SetNestedField(o.Object, ip, "spec", "controlPlaneEndpoint", "host")
			}
			switch {
			case lost.Balancer != "":
				_ = unstructured.SetNestedField(o.Object, lost.Balancer, "spec", "controlPlaneLoadBalancer", "name")
			case lost.IP == "": // CAPH makes none where it is told a name: it waits for one of that name
				unstructured.RemoveNestedField(o.Object, "spec", "controlPlaneLoadBalancer", "name")
			}
		case capi.TalosControlPlaneKind.Kind:
			if ip == "" {
				continue
			}
			mark(o, situation.PausedAnnotation, "true")
		}
		if ip == "" && mentions(o.Object, was) {
			continue
		}
		if ip != "" && was != "" && was != ip {
			o.Object = replaceText(o.Object, was, ip).(map[string]any)
		}
		objects = append(objects, o)
	}
	return objects
}

// mentions tells whether an address stands anywhere in a tree of values.
func mentions(v any, address string) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, child := range v {
			if mentions(child, address) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(child any) bool { return mentions(child, address) })
	case string:
		return address != "" && replaceAddress(v, address, "") != v
	}
	return false
}

// replaceText replaces an address wherever it stands in a tree of values.
func replaceText(v any, old, new string) any {
	switch v := v.(type) {
	case map[string]any:
		for k, child := range v {
			v[k] = replaceText(child, old, new)
		}
	case []any:
		for i, child := range v {
			v[i] = replaceText(child, old, new)
		}
	case string:
		return replaceAddress(v, old, new)
	}
	return v
}

// replaceAddress replaces an IPv4 address in a text, and not the same digits within a longer one.
func replaceAddress(text, old, new string) string {
	part := func(c byte) bool { return c == '.' || c >= '0' && c <= '9' }
	var b strings.Builder
	for {
		i := strings.Index(text, old)
		if i < 0 {
			break
		}
		end := i + len(old)
		whole := (i == 0 || !part(text[i-1])) && (end == len(text) || !part(text[end]))
		b.WriteString(text[:i])
		if whole {
			b.WriteString(new)
		} else {
			b.WriteString(old)
		}
		text = text[end:]
	}
	return b.String() + text
}
