package capi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// API groups of Cluster API and its providers.
const (
	clusterGroup        = "cluster.x-k8s.io"
	addonsGroup         = "addons." + clusterGroup
	infrastructureGroup = "infrastructure." + clusterGroup
	controlPlaneGroup   = "controlplane." + clusterGroup
	bootstrapGroup      = "bootstrap." + clusterGroup
	clusterctlGroup     = "clusterctl." + clusterGroup
)

// Kinds of Cluster API and its providers, at the versions that the configured releases serve.
var (
	ClusterKind             = gvk(clusterGroup, "v1beta1", "Cluster")
	MachineKind             = gvk(clusterGroup, "v1beta1", "Machine")
	MachineDeploymentKind   = gvk(clusterGroup, "v1beta1", "MachineDeployment")
	MachineHealthCheckKind  = gvk(clusterGroup, "v1beta1", "MachineHealthCheck")
	HetznerClusterKind      = gvk(infrastructureGroup, "v1beta1", "HetznerCluster")
	HCloudMachineKind       = gvk(infrastructureGroup, "v1beta1", "HCloudMachine")
	MachineTemplateKind     = gvk(infrastructureGroup, "v1beta1", "HCloudMachineTemplate")
	TalosControlPlaneKind   = gvk(controlPlaneGroup, "v1alpha3", "TalosControlPlane")
	TalosConfigKind         = gvk(bootstrapGroup, "v1alpha3", "TalosConfig")
	TalosConfigTemplateKind = gvk(bootstrapGroup, "v1alpha3", "TalosConfigTemplate")
	ProviderKind            = gvk(clusterctlGroup, "v1alpha3", "Provider")
)

func gvk(group, version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
}

// Types of a Machine's addresses.
const (
	AddressInternal = "InternalIP"
	AddressExternal = "ExternalIP"
)

// HCloudProviderPrefix begins the provider ID of a server of the Hetzner Cloud. That of a dedicated server begins
// otherwise.
const HCloudProviderPrefix = "hcloud://"

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

// Text is a string field of an object, which may be nil; empty where it has none.
func Text(o *unstructured.Unstructured, fields ...string) string {
	s, _, _ := unstructured.NestedString(fieldsOf(o), fields...)
	return s
}

// Number is an integer field of an object, which may be nil; 0 where it has none.
func Number(o *unstructured.Unstructured, fields ...string) int64 {
	n, _, _ := unstructured.NestedInt64(fieldsOf(o), fields...)
	return n
}

// Truth is a boolean field of an object, which may be nil; false where it has none.
func Truth(o *unstructured.Unstructured, fields ...string) bool {
	b, _, _ := unstructured.NestedBool(fieldsOf(o), fields...)
	return b
}

func fieldsOf(o *unstructured.Unstructured) map[string]any {
	if o == nil {
		return nil
	}
	return o.Object
}

// Condition is a condition of an object, as its controller wrote it.
type Condition struct {
	Type, Status, Reason, Message string
	Since                         time.Time // its last transition; zero: it does not say
}

func conditions(o *unstructured.Unstructured) (all []Condition) {
	listed, _, _ := unstructured.NestedSlice(fieldsOf(o), "status", "conditions")
	for _, one := range listed {
		m, _ := one.(map[string]any)
		word := func(key string) string { w, _ := m[key].(string); return w }
		since, _ := time.Parse(time.RFC3339, word("lastTransitionTime"))
		all = append(all, Condition{word("type"), word("status"), word("reason"), word("message"), since})
	}
	return all
}

// ConditionTrue tells whether an object has a condition of this type that is True.
func ConditionTrue(o *unstructured.Unstructured, kind string) bool {
	return slices.ContainsFunc(conditions(o), func(c Condition) bool { return c.Type == kind && c.Status == "True" })
}

// FalseCondition is an object's condition of a type, where it is false; the zero Condition where it is not.
func FalseCondition(o *unstructured.Unstructured, kind string) Condition {
	for _, c := range conditions(o) {
		if c.Type == kind && c.Status == "False" {
			return c
		}
	}
	return Condition{}
}

// Troubles is what an object's conditions complain about, for programs: "ServerCreateSucceeded: ImageNotFound (…)".
// For people why.Said has it.
func Troubles(o *unstructured.Unstructured) string {
	all := conditions(o)
	var found []string
	for _, c := range all {
		if c.Status != "False" || c.Type == "Ready" && len(all) > 1 {
			continue // Ready only repeats the others
		}
		line := c.Type + ": " + c.Reason
		if c.Message != "" {
			line += " (" + c.Message + ")"
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

// ProvisioningFailed tells whether CAPH, from v1.1 on, has given an HCloudMachine up for good: its server is gone, or
// was not created or did not start within six minutes. Whatever changes, CAPH only deletes it.
func ProvisioningFailed(server *unstructured.Unstructured) bool {
	return server != nil && Text(server, "status", "bootState") == "ProvisioningFailed"
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

// HasHCloudServer tells whether the server of an HCloudMachine was made.
func HasHCloudServer(machine unstructured.Unstructured) bool {
	return strings.HasPrefix(Text(&machine, "spec", "providerID"), HCloudProviderPrefix)
}

// HasServer tells whether a server is a machine's: by its ID, or, where CAPH has made a vanished one anew, by the name.
func HasServer(s hetzner.Server, machines []unstructured.Unstructured) bool {
	return slices.ContainsFunc(machines, func(m unstructured.Unstructured) bool {
		return Text(&m, "spec", "providerID") == s.ProviderID() || m.GetName() == s.Name
	})
}

// ServerOf is the name of a Machine's HCloudMachine, which is its server's, its node's and its etcd member's.
func ServerOf(machine *unstructured.Unstructured) string {
	return Text(machine, "spec", "infrastructureRef", "name")
}

// ServersOf are those names of several Machines, sorted.
func ServersOf(machines []unstructured.Unstructured) []string {
	names := []string{}
	for i := range machines {
		names = append(names, ServerOf(&machines[i]))
	}
	slices.Sort(names)
	return names
}

// AtRest reports that the operator has paused what Cluster API does with a cluster. Objects that are not there are nil.
func AtRest(cluster, tcp *unstructured.Unstructured) bool {
	for _, o := range []*unstructured.Unstructured{cluster, tcp} {
		if o == nil {
			continue
		}
		if _, paused := o.GetAnnotations()[PausedAnnotation]; paused {
			return true
		}
	}
	return Truth(cluster, "spec", "paused")
}

// PlacementGroups are the names of the placement groups that a HetznerCluster lists. CAPH puts the cluster's name and a
// dash before each.
func PlacementGroups(o *unstructured.Unstructured) (names []string) {
	listed, _, _ := unstructured.NestedSlice(fieldsOf(o), "spec", "hcloudPlacementGroups")
	for _, one := range listed {
		group, _ := one.(map[string]any)
		name, _ := group["name"].(string)
		names = append(names, name)
	}
	return names
}
