package capi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// Kinds of Cluster API and its providers, at the versions that the configured releases serve.
var (
	ClusterKind        = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta1", Kind: "Cluster"}
	MachineKind        = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta1", Kind: "Machine"}
	HetznerClusterKind = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1",
		Kind: "HetznerCluster"}
	HCloudMachineKind = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1",
		Kind: "HCloudMachine"}
	MachineTemplateKind = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1",
		Kind: "HCloudMachineTemplate"}
	TalosControlPlaneKind = schema.GroupVersionKind{Group: "controlplane.cluster.x-k8s.io", Version: "v1alpha3",
		Kind: "TalosControlPlane"}
	TalosConfigKind = schema.GroupVersionKind{Group: "bootstrap.cluster.x-k8s.io", Version: "v1alpha3",
		Kind: "TalosConfig"}
	TalosConfigTemplateKind = schema.GroupVersionKind{Group: "bootstrap.cluster.x-k8s.io", Version: "v1alpha3",
		Kind: "TalosConfigTemplate"}
	ProviderKind = schema.GroupVersionKind{Group: "clusterctl.cluster.x-k8s.io", Version: "v1alpha3",
		Kind: "Provider"}
)

// Types of a Machine's addresses.
const (
	AddressInternal = "InternalIP"
	AddressExternal = "ExternalIP"
)

// Labels of Cluster API.
const (
	ClusterNameLabel  = "cluster.x-k8s.io/cluster-name"
	ControlPlaneLabel = "cluster.x-k8s.io/control-plane"
	ProviderLabel     = "cluster.x-k8s.io/provider"        // on everything that a provider is made of
	MoveLabel         = "clusterctl.cluster.x-k8s.io/move" // goes along when the cluster is moved to another manager
	CoreLabel         = "clusterctl.cluster.x-k8s.io/core" // with certManagerCore: on everything of cert-manager
	CertManagerCore   = "cert-manager"
)

// Get reads one object of Cluster API in a namespace.
func Get(ctx context.Context, c *kube.Cluster, namespace string, kind schema.GroupVersionKind,
	name string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
		return nil, fmt.Errorf("get %s %s: %w", kind.Kind, name, err)
	}
	return o, nil
}

// List reads the cluster's objects of one kind in a namespace, by name.
func List(ctx context.Context, c *kube.Cluster, namespace string, kind schema.GroupVersionKind,
	cluster string) ([]unstructured.Unstructured, error) {
	l := ListOf(kind)
	if err := c.List(ctx, l, OfCluster(namespace, cluster)...); err != nil {
		return nil, fmt.Errorf("list %ss of cluster %s: %w", kind.Kind, cluster, err)
	}
	slices.SortFunc(l.Items, func(a, b unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return l.Items, nil
}

// OfCluster selects the objects of a cluster, by namespace and label.
func OfCluster(namespace, cluster string) []client.ListOption {
	return []client.ListOption{client.InNamespace(namespace), client.MatchingLabels{ClusterNameLabel: cluster}}
}

// ListOf is an empty list of a kind.
func ListOf(kind schema.GroupVersionKind) *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return l
}

// Text is a string field of an object; empty where it has none.
func Text(o *unstructured.Unstructured, fields ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, fields...)
	return s
}

// Number is an integer field of an object; 0 where it has none.
func Number(o *unstructured.Unstructured, fields ...string) int64 {
	n, _, _ := unstructured.NestedInt64(o.Object, fields...)
	return n
}

// Truth is a boolean field of an object; false where it has none.
func Truth(o *unstructured.Unstructured, fields ...string) bool {
	b, _, _ := unstructured.NestedBool(o.Object, fields...)
	return b
}

// Troubles is what an object's conditions complain about, for programs: "ServerCreateSucceeded: ImageNotFound (…)".
// For people why.Said has it.
func Troubles(o *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	var found []string
	for _, c := range conditions {
		m, _ := c.(map[string]any)
		if m["status"] != "False" || m["type"] == "Ready" && len(conditions) > 1 {
			continue // Ready only repeats the others
		}
		line := fmt.Sprintf("%v: %v", m["type"], m["reason"])
		if message, _ := m["message"].(string); message != "" {
			line += " (" + message + ")"
		}
		found = append(found, line)
	}
	return strings.Join(found, ", ")
}

// orderedOnce is the reason of CAPH, from v1.0.12 on, for a server that it has ordered once and orders again only when
// the machine changes or CAPH starts again.
const orderedOnce = "ServerCreateFailedIrrecoverableError"

// GivenUp tells whether CAPH does not order the server of an HCloudMachine again by itself.
func GivenUp(server *unstructured.Unstructured) bool {
	return strings.Contains(Troubles(server), "ServerCreateSucceeded: "+orderedOnce)
}

// Addresses lists a Machine's addresses of one type.
func Addresses(machine *unstructured.Unstructured, kind string) []string {
	entries, _, _ := unstructured.NestedSlice(machine.Object, "status", "addresses")
	var found []string
	for _, e := range entries {
		if m, _ := e.(map[string]any); m["type"] == kind {
			if a, _ := m["address"].(string); strings.Contains(a, ".") { // IPv4: the network has no other
				found = append(found, a)
			}
		}
	}
	return found
}

// ControlPlaneMachines keeps the Machines of the control plane.
func ControlPlaneMachines(machines []unstructured.Unstructured) []unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(machines), func(m unstructured.Unstructured) bool {
		_, ok := m.GetLabels()[ControlPlaneLabel]
		return !ok
	})
}
