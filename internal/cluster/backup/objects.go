package backup

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// madeByControllers are kinds whose objects Cluster API makes for the others, one for each server: the restored cluster
// gets new servers, and so new ones of these.
var madeByControllers = []string{
	"Machine", "MachineSet", "MachinePool", "TalosConfig", "HCloudMachine", "HetznerBareMetalMachine", "HCloudRemediation",
	"HetznerBareMetalRemediation", "ClusterResourceSetBinding", "ConfigMap",
}

// Wanted are the objects of the backup that are applied again, those that others refer to first and the Cluster last:
// when Cluster API looks at it, what it names is there.
func (s Cluster) Wanted() []*unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	namespace := s.Namespace()
	for i := range s.Contents.Objects {
		o := &s.Contents.Objects[i]
		if o.GetNamespace() == namespace && !slices.Contains(madeByControllers, o.GetKind()) {
			objects = append(objects, Bare(o))
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

// KeptSecrets are the Secrets and ConfigMaps of the backup that no controller creates again: the manifests that a
// ClusterResourceSet names, say, and what a person has marked to go along with the cluster. The bundle of keys and
// today's token are restored by their own steps, the rest comes of these.
func (s Cluster) KeptSecrets() []*unstructured.Unstructured {
	name := s.Contents.Header.Cluster
	remade := []string{config.TokenSecretName, name + TalosSecretSuffix, name + "-ca", name + "-kubeconfig", name +
		"-talosconfig"}
	makers := append([]string{capi.ClusterKind.Kind, capi.TalosControlPlaneKind.Kind}, madeByControllers...)
	var objects []*unstructured.Unstructured
	for _, was := range s.All() {
		secret := was.GetKind() == "Secret"
		made := slices.ContainsFunc(was.GetOwnerReferences(),
			func(owner metav1.OwnerReference) bool { return slices.Contains(makers, owner.Kind) })
		if made || secret && slices.Contains(remade, was.GetName()) || !secret && was.GetKind() != "ConfigMap" {
			continue
		}
		o := Bare(was)
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

// Bare is an object as its author wrote it: without what an API server or a controller added.
func Bare(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	annotations := o.GetAnnotations()
	for _, name := range []string{capi.PausedAnnotation, capi.UpgradeHeldAnnotation,
		"kubectl.kubernetes.io/last-applied-configuration"} {
		delete(annotations, name)
	}
	labels, namespace, name := o.GetLabels(), o.GetNamespace(), o.GetName()
	delete(o.Object, "status")
	delete(o.Object, "metadata")
	o.SetNamespace(namespace)
	o.SetName(name)
	if len(labels) > 0 {
		o.SetLabels(labels)
	}
	if len(annotations) > 0 {
		o.SetAnnotations(annotations)
	}
	return o
}

// Annotate puts an annotation on an object.
func Annotate(o *unstructured.Unstructured, name, value string) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[name] = value
	o.SetAnnotations(annotations)
}

// Mentions tells whether an address occurs anywhere in a tree of values.
func Mentions(v any, address string) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, child := range v {
			if Mentions(child, address) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(child any) bool { return Mentions(child, address) })
	case string:
		return address != "" && ReplaceAddress(v, address, "") != v
	}
	return false
}

// ReplaceText replaces an address wherever it occurs in a tree of values.
func ReplaceText(v any, old, new string) any {
	switch v := v.(type) {
	case map[string]any:
		for k, child := range v {
			v[k] = ReplaceText(child, old, new)
		}
	case []any:
		for i, child := range v {
			v[i] = ReplaceText(child, old, new)
		}
	case string:
		return ReplaceAddress(v, old, new)
	}
	return v
}

// ReplaceAddress replaces an IPv4 address in a text, and not the same digits within a longer one.
func ReplaceAddress(text, old, new string) string {
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

// SecretDataOf decodes all keys of a Secret that is an unstructured object.
func SecretDataOf(o *unstructured.Unstructured) (map[string][]byte, error) {
	encoded, _, err := unstructured.NestedStringMap(o.Object, "data")
	if err != nil {
		return nil, fmt.Errorf("read Secret %s of the backup: its data are no texts", o.GetName())
	}
	data := map[string][]byte{}
	for key, value := range encoded {
		if data[key], err = base64.StdEncoding.DecodeString(strings.TrimSpace(value)); err != nil {
			return nil, fmt.Errorf("read Secret %s of the backup: its key %s is not in base64", o.GetName(), key)
		}
	}
	return data, nil
}

// SecretData decodes one key.
func SecretData(o *unstructured.Unstructured, key string) ([]byte, error) {
	data, err := SecretDataOf(o)
	if err != nil {
		return nil, err
	}
	if len(data[key]) == 0 {
		return nil, fmt.Errorf("Secret %s of the backup has no key %s", o.GetName(), key)
	}
	return data[key], nil
}
