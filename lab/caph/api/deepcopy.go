package api

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
)

// DeepCopyInto copies c.
func (c *HetznerCluster) DeepCopyInto(out *HetznerCluster) {
	*out = *c
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.ControlPlaneRegions = slices.Clone(c.Spec.ControlPlaneRegions)
	out.Spec.SSHKeys.HCloud = slices.Clone(c.Spec.SSHKeys.HCloud)
	out.Spec.SSHKeys.RobotRescueSecretRef = clonePointer(c.Spec.SSHKeys.RobotRescueSecretRef)
	out.Spec.ControlPlaneEndpoint = clonePointer(c.Spec.ControlPlaneEndpoint)
	out.Spec.ControlPlaneLoadBalancer.Name = clonePointer(c.Spec.ControlPlaneLoadBalancer.Name)
	out.Spec.ControlPlaneLoadBalancer.ExtraServices = slices.Clone(c.Spec.ControlPlaneLoadBalancer.ExtraServices)
	out.Spec.HCloudPlacementGroups = slices.Clone(c.Spec.HCloudPlacementGroups)

	if out.Status.Network = clonePointer(c.Status.Network); out.Status.Network != nil {
		out.Status.Network.AttachedServers = slices.Clone(c.Status.Network.AttachedServers)
	}
	out.Status.ControlPlaneLoadBalancer = clonePointer(c.Status.ControlPlaneLoadBalancer)
	if out.Status.ControlPlaneLoadBalancer != nil {
		out.Status.ControlPlaneLoadBalancer.Targets = slices.Clone(c.Status.ControlPlaneLoadBalancer.Targets)
	}
	out.Status.HCloudPlacementGroups = slices.Clone(c.Status.HCloudPlacementGroups)
	for i := range out.Status.HCloudPlacementGroups {
		out.Status.HCloudPlacementGroups[i].Servers = slices.Clone(c.Status.HCloudPlacementGroups[i].Servers)
	}
	out.Status.FailureDomains = maps.Clone(c.Status.FailureDomains)
	for name, domain := range c.Status.FailureDomains {
		out.Status.FailureDomains[name] = *domain.DeepCopy()
	}
	out.Status.Conditions = cloneConditions(c.Status.Conditions)
}

// DeepCopy returns a copy.
func (c *HetznerCluster) DeepCopy() *HetznerCluster {
	out := new(HetznerCluster)
	c.DeepCopyInto(out)
	return out
}

// DeepCopyObject implements runtime.Object.
func (c *HetznerCluster) DeepCopyObject() runtime.Object { return c.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *HetznerClusterList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = cloneItems(l.Items, (*HetznerCluster).DeepCopyInto)
	return &out
}

// DeepCopyInto copies s.
func (s *HCloudMachineSpec) DeepCopyInto(out *HCloudMachineSpec) {
	*out = *s
	out.ProviderID = clonePointer(s.ProviderID)
	out.SSHKeys = slices.Clone(s.SSHKeys)
	out.PlacementGroupName = clonePointer(s.PlacementGroupName)
	if out.PublicNetwork = clonePointer(s.PublicNetwork); out.PublicNetwork != nil {
		out.PublicNetwork.EnableIPv4 = clonePointer(s.PublicNetwork.EnableIPv4)
		out.PublicNetwork.EnableIPv6 = clonePointer(s.PublicNetwork.EnableIPv6)
	}
}

// DeepCopyInto copies m.
func (m *HCloudMachine) DeepCopyInto(out *HCloudMachine) {
	*out = *m
	m.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	m.Spec.DeepCopyInto(&out.Spec)
	out.Status.Addresses = slices.Clone(m.Status.Addresses)
	out.Status.SSHKeys = slices.Clone(m.Status.SSHKeys)
	out.Status.InstanceState = clonePointer(m.Status.InstanceState)
	out.Status.FailureReason = clonePointer(m.Status.FailureReason)
	out.Status.FailureMessage = clonePointer(m.Status.FailureMessage)
	out.Status.Conditions = cloneConditions(m.Status.Conditions)
}

// DeepCopy returns a copy.
func (m *HCloudMachine) DeepCopy() *HCloudMachine {
	out := new(HCloudMachine)
	m.DeepCopyInto(out)
	return out
}

// DeepCopyObject implements runtime.Object.
func (m *HCloudMachine) DeepCopyObject() runtime.Object { return m.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *HCloudMachineList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = cloneItems(l.Items, (*HCloudMachine).DeepCopyInto)
	return &out
}

// DeepCopyInto copies t.
func (t *HCloudMachineTemplate) DeepCopyInto(out *HCloudMachineTemplate) {
	*out = *t
	t.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	t.Spec.Template.ObjectMeta.DeepCopyInto(&out.Spec.Template.ObjectMeta)
	t.Spec.Template.Spec.DeepCopyInto(&out.Spec.Template.Spec)
	out.Status.Capacity = t.Status.Capacity.DeepCopy()
	out.Status.Conditions = cloneConditions(t.Status.Conditions)
}

// DeepCopy returns a copy.
func (t *HCloudMachineTemplate) DeepCopy() *HCloudMachineTemplate {
	out := new(HCloudMachineTemplate)
	t.DeepCopyInto(out)
	return out
}

// DeepCopyObject implements runtime.Object.
func (t *HCloudMachineTemplate) DeepCopyObject() runtime.Object { return t.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *HCloudMachineTemplateList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = cloneItems(l.Items, (*HCloudMachineTemplate).DeepCopyInto)
	return &out
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

func cloneItems[T any](in []T, copyInto func(*T, *T)) []T {
	if in == nil {
		return nil
	}
	out := make([]T, len(in))
	for i := range in {
		copyInto(&in[i], &out[i])
	}
	return out
}

func cloneConditions(in clusterv1.Conditions) clusterv1.Conditions {
	return cloneItems(in, (*clusterv1.Condition).DeepCopyInto)
}
