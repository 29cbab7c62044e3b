package checks

import (
	"cmp"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// Literal is a value that a manifest has in the place of a variable of the configuration: it is what the cluster gets,
// whatever is configured.
type Literal struct {
	Name  string // of the variable
	Value string
	// OfPools tells that it is the value of every worker pool.
	OfPools bool
	// Beside tells that it is beside the field that decides the variable: it is no value of the configuration.
	Beside bool
	At     FileError // where it is written
}

// Place is "manifests/cluster.yaml:83".
func (l Literal) Place() string { return fmt.Sprintf("%s:%d", l.At.File, l.At.Line) }

// Note says of a literal that differs from the configuration what counts. configured is the variable's value.
func (l Literal) Note(configured string) string {
	if configured == "" {
		configured = "which is empty"
	}
	return fmt.Sprintf("%s: %s is %s, and counts in place of %s (%s); write ${%s} there to configure it", l.Place(), l.At.Object,
		l.Value, l.Name, configured, l.Name)
}

// decides is a field of a manifest that decides what a variable of the configuration is about.
type decides struct {
	kind     schema.GroupKind
	path     string
	variable string
	absent   string // what counts where a manifest leaves the field away: the default of the provider or of Talos
	beside   bool
}

func decisions() []decides {
	cluster, infrastructure := capi.ClusterKind.GroupKind(), capi.HetznerClusterKind.GroupKind()
	plane, template := capi.TalosControlPlaneKind.GroupKind(), capi.MachineTemplateKind.GroupKind()
	return []decides{
		{cluster, "metadata.name", "CLUSTER_NAME", "", false},
		{cluster, "metadata.namespace", "NAMESPACE", "", false},
		{cluster, "spec.clusterNetwork.pods.cidrBlocks[0]", "POD_CIDR", "10.244.0.0/16", false},
		{cluster, "spec.clusterNetwork.services.cidrBlocks[0]", "SERVICE_CIDR", "10.96.0.0/12", false},
		{infrastructure, "spec.controlPlaneLoadBalancer.region", "LOCATION", "", false},
		{infrastructure, "spec.controlPlaneRegions[0]", "LOCATION", "", true},
		{infrastructure, "spec.controlPlaneLoadBalancer.type", "LOAD_BALANCER_TYPE", "", false},
		{infrastructure, "spec.hcloudNetwork.cidrBlock", "NETWORK_CIDR", "10.0.0.0/16", false},
		{infrastructure, "spec.hcloudNetwork.subnetCidrBlock", "CONTROL_PLANE_CIDR", "10.0.0.0/24", false},
		{template, "spec.template.spec.type", "SERVER_TYPE", "", false},
		{template, "spec.template.spec.imageName", render.ImageNameVariable, "", false},
		{plane, "spec.replicas", "CONTROL_PLANE_REPLICAS", "", false},
		{plane, "spec.version", "KUBERNETES_VERSION", "", false},
	}
}

// poolDecisions are decides of manifests/worker-pool.yaml, of every worker pool.
func poolDecisions() []decides {
	template, deployment := capi.MachineTemplateKind.GroupKind(), capi.MachineDeploymentKind.GroupKind()
	return []decides{
		{template, "spec.template.spec.type", render.WorkerServerTypeVariable, "", false},
		{template, "spec.template.spec.imageName", render.WorkerImageVariable, "", false},
		{deployment, "spec.template.spec.failureDomain", render.WorkerLocationVariable, "", false},
		{deployment, "spec.template.spec.version", "KUBERNETES_VERSION", "", true},
	}
}

// Literals finds the fields of the operator's manifests/cluster.yaml and manifests/worker-pool.yaml in which a value is
// written where the built-in file has a variable. Of several objects of a kind the first counts. Its error is one of
// reading the files.
func Literals(cfg config.Config, sources render.Sources) (found []Literal, err error) {
	v := render.MadeUpVariables(cfg, sources)
	if sources.Cluster.Own {
		if found, err = literalsIn(sources, sources.Cluster, v, decisions()); err != nil {
			return nil, err
		}
	}
	if sources.WorkerPool.Own && len(cfg.Workers) > 0 {
		pool := cfg.Pool(cfg.Workers[0])
		ofPools, err := literalsIn(sources, sources.WorkerPool, v.OfPool(pool, pool.Groups()[0], render.PoolPlacement{}),
			poolDecisions())
		if err != nil {
			return nil, err
		}
		for _, l := range ofPools {
			l.OfPools = !l.Beside
			found = append(found, l)
		}
	}
	return found, nil
}

func literalsIn(sources render.Sources, s render.Source, filled render.Variables, all []decides) (found []Literal, err error) {
	marked := maps.Clone(filled)
	for _, d := range all {
		marked[d.variable] = "marked" // any value that no file has
	}
	if _, numbered := marked["CONTROL_PLANE_REPLICAS"]; numbered {
		marked["CONTROL_PLANE_REPLICAS"] = "97001"
	}
	docs, err := s.Documents()
	if err != nil {
		return nil, err
	}
	seen := map[schema.GroupKind]bool{}
	for _, doc := range docs {
		is, err := s.Object(doc, filled)
		if err != nil {
			return nil, err
		}
		other, err := s.Object(doc, marked)
		if err != nil {
			return nil, err
		}
		kind := is.GroupVersionKind().GroupKind()
		if seen[kind] {
			continue
		}
		seen[kind] = true
		for _, d := range all {
			value := cmp.Or(textAt(is, d.path), d.absent)
			if d.kind != kind || value == "" || value != cmp.Or(textAt(other, d.path), d.absent) {
				continue
			}
			at := FileError{File: s.Name, Line: lineIn(s, filled, is, d.path),
				Object: is.GetKind() + " " + is.GetName() + ": " + d.path}
			found = append(found, Literal{Name: d.variable, Value: value, Beside: d.beside, At: at})
		}
	}
	return found, nil
}

// textAt is a value of an object as a text; empty: it has none.
func textAt(o *unstructured.Unstructured, path string) string {
	var value any = o.Object
	for _, step := range fieldPath(path) {
		switch step := step.(type) {
		case string:
			fields, _ := value.(map[string]any)
			value = fields[step]
		case int:
			list, _ := value.([]any)
			if step >= len(list) {
				return ""
			}
			value = list[step]
		}
	}
	switch value := value.(type) {
	case nil, map[string]any, []any:
		return ""
	default:
		return fmt.Sprint(value)
	}
}
