// Package pools renders the worker pools for a cluster as it is: what a pool has and the configuration still allows, it
// keeps.
package pools

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capacity"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// Choice is what was chosen for one pool.
type Choice struct {
	Pool         string `json:"pool"`
	ServerType   string `json:"serverType"`
	Location     string `json:"location"`
	Architecture string `json:"architecture"`
	// PassedOver tells why what the configuration prefers was not chosen.
	PassedOver []string `json:"passedOver,omitempty"`
}

// Describe is "server type cx33 in nbg1", with why that was chosen.
func (c Choice) Describe() string {
	return capacity.Choice{ServerType: c.ServerType, Locations: []string{c.Location}, Passed: c.PassedOver}.Explain()
}

// Again tells what Hetzner says now of the same choices. Stock does not matter.
func Again(ctx context.Context, tools platform.Tools, was []Choice) ([]Choice, error) {
	var all []Choice
	for _, c := range was {
		kind, err := hetzner.FindServerType(ctx, tools.Hetzner, c.ServerType)
		if err != nil {
			return nil, fmt.Errorf("worker pool %s: %w", c.Pool, err)
		}
		c.Architecture = kind.Architecture
		all = append(all, c)
	}
	return all, nil
}

// Choose chooses server type and location of every pool by stock. zone is the network zone of the cluster.
func Choose(ctx context.Context, cfg config.Config, tools platform.Tools, zone string) ([]Choice, error) {
	var all []Choice
	for _, p := range cfg.Workers {
		c, err := capacity.ChoosePool(ctx, tools.Hetzner, cfg, p, zone)
		if err != nil {
			return nil, err
		}
		all = append(all, Choice{Pool: p.Name, ServerType: c.ServerType, Location: c.Locations[0],
			Architecture: c.Architecture, PassedOver: c.Passed})
	}
	return all, nil
}

// Image names the image of a schematic for an architecture; empty: there is none.
type Image func(schematic, architecture string) string

// ConfiguredImages are the images that a run makes: for the control plane's architecture and the configured ones, and
// for each pool with a schematic of its own that of its servers.
func ConfiguredImages(cfg config.Config, controlPlane string) Image {
	return func(schematic, architecture string) string {
		if schematic == "" && !slices.Contains(cfg.Architectures(controlPlane), architecture) {
			return ""
		}
		return cfg.SchematicImage(schematic, architecture)
	}
}

// Places are the placements that the pools are rendered with. manager is the cluster that manages this one; nil:
// there is none yet. A pool keeps the server type and the location that it has where the configuration allows them.
func Places(ctx context.Context, cfg config.Config, tools platform.Tools, manager *kube.Cluster, choices []Choice,
	image Image) (map[string]render.PoolPlacement, error) {
	places := map[string]render.PoolPlacement{}
	for _, p := range cfg.Workers {
		p = cfg.Pool(p)
		at := slices.IndexFunc(choices, func(c Choice) bool { return c.Pool == p.Name })
		if at < 0 {
			return nil, fmt.Errorf("worker pool %s has no server type chosen: run preflight again", p.Name)
		}
		choice, route := choices[at], ""
		if manager != nil {
			kept, err := keep(ctx, cfg, tools, manager, p, choice)
			if err != nil {
				return nil, err
			}
			choice = kept
			if route, err = metadataRoute(ctx, cfg, manager, p); err != nil {
				return nil, err
			}
		}
		place := render.PoolPlacement{ServerType: choice.ServerType, Location: choice.Location, Image: p.Image,
			MetadataRoute: route}
		if place.Image == "" {
			place.Image = image(p.Schematic, choice.Architecture)
		}
		if place.Image == "" {
			return nil, fmt.Errorf("worker pool %s: its servers of type %s are %s, and the run makes no image for those: set "+
				"IMAGE_ARCHITECTURES=%s, or the pool's image", p.Name, choice.ServerType, choice.Architecture, choice.Architecture)
		}
		places[p.Name] = place
	}
	return places, nil
}

// keep is a choice with what the pool has in its place.
func keep(ctx context.Context, cfg config.Config, tools platform.Tools, manager *kube.Cluster, p config.WorkerPool,
	choice Choice) (Choice, error) {
	deployment, err := capi.Get(ctx, manager, cfg.Namespace, capi.MachineDeploymentKind, cfg.ClusterName+"-"+p.Name)
	if kube.Absent(err) {
		return choice, nil
	}
	if err != nil {
		return choice, err
	}
	if l := capi.Text(deployment, "spec", "template", "spec", "failureDomain"); slices.Contains(p.Locations(), l) {
		choice.Location = l
	}
	template, err := capi.Get(ctx, manager, cfg.Namespace, capi.MachineTemplateKind,
		capi.Text(deployment, "spec", "template", "spec", "infrastructureRef", "name"))
	if kube.Absent(err) {
		return choice, nil
	}
	if err != nil {
		return choice, err
	}
	has := capi.Text(template, "spec", "template", "spec", "type")
	if has == choice.ServerType || !slices.Contains(p.ServerTypes(), has) {
		return choice, nil
	}
	kind, err := hetzner.FindServerType(ctx, tools.Hetzner, has)
	if err != nil {
		return choice, err
	}
	choice.ServerType, choice.Architecture = kind.Name, kind.Architecture
	return choice, nil
}

// ignoreAbsent is nil where what was asked for is not there.
func ignoreAbsent(err error) error {
	if kube.Absent(err) {
		return nil
	}
	return err
}

// metadataRoute tells of the servers of a pool that were made without the route to Hetzner's metadata.
func metadataRoute(ctx context.Context, cfg config.Config, manager *kube.Cluster, p config.WorkerPool) (string, error) {
	deployment, err := capi.Get(ctx, manager, cfg.Namespace, capi.MachineDeploymentKind, cfg.ClusterName+"-"+p.Name)
	if err != nil {
		return "", ignoreAbsent(err)
	}
	name := capi.Text(deployment, "spec", "template", "spec", "bootstrap", "configRef", "name")
	if name == "" { // its machine configuration is in a Secret: it is not rendered from a template
		return "", nil
	}
	template, err := capi.Get(ctx, manager, cfg.Namespace, capi.TalosConfigTemplateKind, name)
	if err != nil {
		return "", ignoreAbsent(err)
	}
	return render.MetadataRouteOf(template), nil
}

// Render makes the objects of all pools with the placements that a run gives them, for a plan: the choice is made anew.
func Render(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources, manager *kube.Cluster) (
	[]*unstructured.Unstructured, error) {
	if len(cfg.Workers) == 0 {
		return nil, nil
	}
	controlPlane, err := capacity.Choose(ctx, tools.Hetzner, cfg)
	if err != nil {
		return nil, err
	}
	choices, err := Choose(ctx, cfg, tools, controlPlane.NetworkZone)
	if err != nil {
		return nil, err
	}
	places, err := Places(ctx, cfg, tools, manager, choices, ConfiguredImages(cfg, controlPlane.Architecture))
	if err != nil {
		return nil, err
	}
	return render.Workers(cfg, sources, sources.Vars, places)
}

// Live are the objects of worker pools in the cluster that manages this one.
func Live(ctx context.Context, manager *kube.Cluster, namespace, cluster string) (deployments,
	templates []unstructured.Unstructured, err error) {
	ofPools := func(all []unstructured.Unstructured) []unstructured.Unstructured {
		return slices.DeleteFunc(all, func(o unstructured.Unstructured) bool { return o.GetLabels()[capi.WorkerPoolLabel] == "" })
	}
	if deployments, err = capi.List(ctx, manager, namespace, capi.MachineDeploymentKind, cluster); err != nil {
		return nil, nil, err
	}
	l := capi.ListOf(capi.MachineTemplateKind)
	if err := manager.List(ctx, l, client.InNamespace(namespace)); err != nil {
		return nil, nil, fmt.Errorf("list HCloudMachineTemplates: %w", err)
	}
	return ofPools(deployments), ofPools(l.Items), nil
}
