package render

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// Variables of manifests/worker-pool.yaml besides those of the cluster.
const (
	workerPoolVariable         = "WORKER_POOL"
	workerGroupVariable        = "WORKER_GROUP"
	workerReplicasVariable     = "WORKER_REPLICAS"
	WorkerServerTypeVariable   = "WORKER_SERVER_TYPE" // the configuration's may be a list, the manifest's is the chosen one
	WorkerLocationVariable     = "WORKER_LOCATION"
	WorkerImageVariable        = "WORKER_IMAGE_NAME"
	workerMaxUnhealthyVariable = "WORKER_MAX_UNHEALTHY"

	// poolGroupsVariable has the placement groups of the pools of a cluster that exists.
	poolGroupsVariable = "WORKER_PLACEMENT_GROUPS"
	// schedulableVariable tells whether the control plane's nodes take Pods of everyone.
	schedulableVariable = "CONTROL_PLANE_SCHEDULABLE"
)

// healthyShare is which part of a pool's servers a health check may replace at once, in percent; always one server.
const healthyShare = 40

// MaxUnhealthy is how many of a pool's servers in one placement group a health check may replace at once.
func MaxUnhealthy(servers int) int { return max(1, servers*healthyShare/100) }

// PoolPlacement is what the servers of a worker pool are, and where. What it leaves empty is the preferred of the
// configuration.
type PoolPlacement struct {
	ServerType, Location, Image string
	MetadataRoute               string // as that of a Placement
}

// Workers makes the objects of all worker pools, in the order of the configuration. places has what was chosen for each
// pool, by its name.
func Workers(cfg config.Config, sources Sources, v Variables, places map[string]PoolPlacement) (
	[]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, p := range cfg.Workers {
		p = cfg.Pool(p)
		for _, g := range p.Groups() {
			objects, err := poolGroup(cfg, sources, v.OfPool(p, g, places[p.Name]), p, g)
			if err != nil {
				return nil, fmt.Errorf("worker pool %s: %w", p.Name, err)
			}
			all = append(all, objects...)
		}
	}
	return all, nil
}

// OfPool are the variables with those of a part of a worker pool.
func (v Variables) OfPool(p config.WorkerPool, g config.PoolGroup, place PoolPlacement) Variables {
	v = maps.Clone(v)
	set := func(name string, values ...string) {
		for _, value := range values {
			if value != "" {
				v[name] = value
				return
			}
		}
	}
	servers := g.Replicas
	if p.Autoscaled() {
		servers = g.Min
	}
	set(workerPoolVariable, p.Name)
	set(metadataRouteVariable, place.MetadataRoute)
	set(workerGroupVariable, g.Name)
	set(workerReplicasVariable, strconv.Itoa(g.Replicas))
	set(WorkerServerTypeVariable, append([]string{place.ServerType}, p.ServerTypes()...)...)
	set(WorkerLocationVariable, append([]string{place.Location}, p.Locations()...)...)
	set(WorkerImageVariable, p.Image, place.Image, v[ImageNameVariable])
	set(workerMaxUnhealthyVariable, strconv.Itoa(MaxUnhealthy(servers)))
	return v
}

// poolGroup makes the objects of a part of a worker pool.
func poolGroup(cfg config.Config, sources Sources, v Variables, p config.WorkerPool, g config.PoolGroup) (
	[]*unstructured.Unstructured, error) {
	s := sources.WorkerPool
	docs, err := s.Documents()
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	var deployment *unstructured.Unstructured
	for _, doc := range docs {
		o, err := s.Object(doc, v)
		if err != nil {
			return nil, err
		}
		if err := takeNamespace(cfg.Namespace, s, o); err != nil {
			return nil, err
		}
		objects = append(objects, o)
		switch o.GroupVersionKind().GroupKind() {
		case capi.MachineDeploymentKind.GroupKind():
			if deployment != nil {
				return nil, fmt.Errorf("%s: it has a second MachineDeployment, and a pool is one", s.Name)
			}
			deployment = o
			err = fillDeployment(o, p, g)
		case capi.TalosConfigTemplateKind.GroupKind():
			err = errors.Join(keepMetadataRoute(s, o, v), addPoolPatches(o, p))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", s.Name, kube.Describe(o), err)
		}
		addLabel(o, capi.WorkerPoolLabel, p.Name)
	}
	if want := cfg.ClusterName + "-" + g.Name; deployment == nil || deployment.GetName() != want {
		return nil, fmt.Errorf("%s: it has no MachineDeployment ${CLUSTER_NAME}-${WORKER_GROUP} (%s), which a pool is", s.Name,
			want)
	}
	// The machines' template last: a reference to the other is part of no template.
	for _, kind := range []string{capi.TalosConfigTemplateKind.Kind, capi.MachineTemplateKind.Kind} {
		for _, o := range objects {
			if o.GetKind() == kind {
				if err := nameByContent(o, objects, nil); err != nil {
					return nil, err
				}
			}
		}
	}
	return objects, nil
}

// fillDeployment writes what the pool's configuration adds to its MachineDeployment.
func fillDeployment(o *unstructured.Unstructured, p config.WorkerPool, g config.PoolGroup) error {
	if p.Autoscaled() {
		unstructured.RemoveNestedField(o.Object, "spec", "replicas")
		annotations := maps.Clone(o.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[capi.AutoscalerMin], annotations[capi.AutoscalerMax] = strconv.Itoa(g.Min), strconv.Itoa(g.Max)
		o.SetAnnotations(annotations)
	}
	path := []string{"spec", "template", "metadata", "labels"}
	labels, _, err := unstructured.NestedStringMap(o.Object, path...)
	if err != nil {
		return err
	}
	if labels == nil {
		labels = map[string]string{}
	}
	labels[capi.WorkerPoolLabel] = p.Name
	for key, value := range p.Labels {
		if config.FromMachine(key) {
			labels[key] = value
		}
	}
	return unstructured.SetNestedStringMap(o.Object, labels, path...)
}

// addPoolPatches adds the pool's labels, taints and patches to the configuration of Talos. A worker's kubelet may not
// change the taints of its node later, so it registers with them.
func addPoolPatches(o *unstructured.Unstructured, p config.WorkerPool) error {
	machine := map[string]any{}
	labels := map[string]any{}
	for key, value := range p.Labels {
		if !config.FromMachine(key) {
			labels[key] = value
		}
	}
	if len(labels) > 0 {
		machine["nodeLabels"] = labels
	}
	if len(p.Taints) > 0 {
		var taints []any
		for _, t := range p.Taints {
			taint := map[string]any{"key": t.Key, "effect": t.Effect}
			if t.Value != "" {
				taint["value"] = t.Value
			}
			taints = append(taints, taint)
		}
		machine["kubelet"] = map[string]any{"extraConfig": map[string]any{"registerWithTaints": taints}}
	}
	added := slices.Clone(p.Patches)
	if len(machine) > 0 {
		text, err := yaml.Marshal(map[string]any{"machine": machine})
		if err != nil {
			return err
		}
		added = append([]string{string(text)}, added...)
	}
	if len(added) == 0 {
		return nil
	}
	return addPatches(o, added...)
}

func addLabel(o *unstructured.Unstructured, key, value string) {
	labels := maps.Clone(o.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	o.SetLabels(labels)
}

// PlacementGroups are the names of the placement groups of all worker pools, as a HetznerCluster has them.
func PlacementGroups(cfg config.Config) []string {
	var names []string
	for _, p := range cfg.Workers {
		for _, g := range p.Groups() {
			names = append(names, g.Name)
		}
	}
	return names
}

// setPlacementGroups adds the placement groups of the worker pools to a HetznerCluster, of those that are configured
// and of those that the cluster has: CAPH deletes one that is not listed there. The step workers takes out what is not
// needed any more.
func setPlacementGroups(o *unstructured.Unstructured, cfg config.Config, v Variables) error {
	names := append(config.Listed(v[poolGroupsVariable]), PlacementGroups(cfg)...)
	if len(names) == 0 {
		return nil
	}
	path := []string{"spec", "hcloudPlacementGroups"}
	listed, _, err := unstructured.NestedSlice(o.Object, path...)
	if err != nil {
		return err
	}
	return unstructured.SetNestedSlice(o.Object, WithPlacementGroups(listed, names, nil), path...)
}

// WithPlacementGroups is a list of a HetznerCluster with placement groups that it is to have and without others.
func WithPlacementGroups(listed []any, names, without []string) []any {
	var all []any
	var have []string
	for _, one := range listed {
		m, _ := one.(map[string]any)
		name, _ := m["name"].(string)
		if slices.Contains(without, name) && !slices.Contains(names, name) {
			continue
		}
		all, have = append(all, one), append(have, name)
	}
	for _, name := range names {
		if !slices.Contains(have, name) {
			have = append(have, name)
			all = append(all, map[string]any{"name": name, "type": "spread"})
		}
	}
	return all
}

// SchedulableOf tells whether the nodes of a live control plane take Pods of everyone: "true" or "false"; empty: its
// patches do not say.
func SchedulableOf(tcp *unstructured.Unstructured) (is string) {
	if tcp == nil {
		return ""
	}
	patches, _, _ := unstructured.NestedStringSlice(tcp.Object, patchesPath(tcp)...)
	for _, patch := range patches {
		var content struct {
			Cluster struct {
				Schedulable *bool `json:"allowSchedulingOnControlPlanes"`
			} `json:"cluster"`
		}
		if yaml.Unmarshal([]byte(patch), &content) == nil && content.Cluster.Schedulable != nil {
			is = strconv.FormatBool(*content.Cluster.Schedulable)
		}
	}
	return is
}
