package backup

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// ClusterMachine is a Machine of a backup, with its server.
type ClusterMachine struct {
	Name, Server string // names; the server's is the HCloudMachine's, the node's and the etcd member's
	ServerID     int64  // of the server, as the backup has it; 0: there was none yet
	ControlPlane bool
	Version      string // of Kubernetes
	Deleting     bool
	Outdated     string // why the control plane provider would replace it; empty: it would not

	Now *hetzner.Server // today's; nil: there is none
}

// Machines are the backup's, by name.
func (s Cluster) Machines() (all []ClusterMachine) {
	tcp, namespace := s.ControlPlane(), s.Namespace()
	for i := range s.Contents.Objects {
		o := &s.Contents.Objects[i]
		if o.GroupVersionKind().GroupKind() != capi.MachineKind.GroupKind() || o.GetNamespace() != namespace {
			continue
		}
		m := ClusterMachine{Name: o.GetName(), Server: capi.Text(o, "spec", "infrastructureRef", "name"),
			Version: capi.Text(o, "spec", "version"), Deleting: o.GetDeletionTimestamp() != nil}
		_, m.ControlPlane = o.GetLabels()[capi.ControlPlaneLabel]
		infrastructure := s.Object(capi.HCloudMachineKind.Kind, m.Server)
		provider := capi.Text(o, "spec", "providerID")
		if infrastructure != nil {
			provider = cmp.Or(capi.Text(infrastructure, "spec", "providerID"), provider)
		}
		m.ServerID, _ = strconv.ParseInt(strings.TrimPrefix(provider, "hcloud://"), 10, 64)
		if m.ControlPlane {
			m.Outdated = outdated(tcp, o, infrastructure)
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b ClusterMachine) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// outdated says, as far as it can be seen from outside, why a control plane Machine would be replaced.
func outdated(tcp, machine, infrastructure *unstructured.Unstructured) string {
	if is, want := capi.Text(machine, "spec", "version"), capi.Text(tcp, "spec", "version"); is != want {
		return fmt.Sprintf("it is of Kubernetes %s, and %s is wanted", is, want)
	}
	want := capi.Text(tcp, "spec", "infrastructureTemplate", "name")
	if infrastructure == nil {
		return ""
	}
	if is := infrastructure.GetAnnotations()[capi.ClonedFromAnnotation]; is != "" && is != want {
		return fmt.Sprintf("it was made from template %s, and %s is wanted", is, want)
	}
	return ""
}

// ControlPlane is the TalosControlPlane. A backup without one is refused before.
func (s Cluster) ControlPlane() *unstructured.Unstructured {
	cluster := s.Object(capi.ClusterKind.Kind, s.Contents.Header.Cluster)
	name := capi.Text(cluster, "spec", "controlPlaneRef", "name")
	for i := range s.Contents.Objects {
		if o := &s.Contents.Objects[i]; o.GetKind() == capi.TalosControlPlaneKind.Kind &&
			(name == "" || o.GetName() == name) {
			return o
		}
	}
	return &unstructured.Unstructured{Object: map[string]any{}}
}

// Replicas is how many control plane Machines the backup's cluster wants.
func (s Cluster) Replicas() int64 { return capi.Number(s.ControlPlane(), "spec", "replicas") }

// PlacementGroups are the names that CAPH gives to those that the HetznerCluster wants.
func (s Cluster) PlacementGroups() (names []string) {
	name := s.Contents.Header.Cluster
	for _, group := range capi.PlacementGroups(s.Object(capi.HetznerClusterKind.Kind, name)) {
		names = append(names, name+"-"+group)
	}
	return names
}

// All are the backup's objects and Secrets, of the cluster's namespace.
func (s Cluster) All() (all []*unstructured.Unstructured) {
	namespace := s.Namespace()
	for _, objects := range [][]unstructured.Unstructured{s.Contents.Objects, s.Contents.Secrets} {
		for i := range objects {
			if o := &objects[i]; o.GetNamespace() == namespace {
				all = append(all, o)
			}
		}
	}
	return all
}

// OwnedBy are an object and everything that it owns, through any number of others.
func (s Cluster) OwnedBy(root *unstructured.Unstructured) []*unstructured.Unstructured {
	all, mine := s.All(), map[types.UID]bool{root.GetUID(): true}
	found := []*unstructured.Unstructured{root}
	for grown := true; grown; {
		grown = false
		for _, o := range all {
			if mine[o.GetUID()] {
				continue
			}
			for _, owner := range o.GetOwnerReferences() {
				if mine[owner.UID] {
					mine[o.GetUID()], grown = true, true
					found = append(found, o)
					break
				}
			}
		}
	}
	return found
}
