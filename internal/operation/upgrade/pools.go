package upgrade

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/pools"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// newVersions are a MachineDeployment with new versions and the templates that it takes them from. Everything else in
// them is as the cluster has it.
type newVersions struct {
	was, is   *unstructured.Unstructured
	templates []*unstructured.Unstructured // of is; also those that stay
	image     string
	server    hetzner.ServerType // of its servers, which the image is for
}

// changes tells whether the versions change anything.
func (n newVersions) changes() bool { return !jsonEqual(n.was.Object["spec"], n.is.Object["spec"]) }

// newVersionsOf are the worker pools that there are with the new versions. kept names those that keep the versions that
// they have, and why.
func (e *environment) newVersionsOf(ctx context.Context, manager *kube.Cluster) (all []newVersions, kept []string,
	err error) {
	deployments, _, err := pools.Live(ctx, manager, e.cfg.Namespace, e.cfg.ClusterName)
	if err != nil {
		return nil, nil, err
	}
	for i := range deployments {
		d := &deployments[i]
		name := d.GetLabels()[capi.WorkerPoolLabel]
		at := slices.IndexFunc(e.cfg.Workers, func(p config.WorkerPool) bool { return p.Name == name })
		if at < 0 {
			kept = append(kept, fmt.Sprintf("worker pool %s is not configured: %s keeps its versions", name, kube.Describe(d)))
			continue
		}
		one, err := e.newVersionsFor(ctx, manager, d, e.cfg.Workers[at])
		if err != nil {
			return nil, nil, fmt.Errorf("worker pool %s: %w", name, err)
		}
		all = append(all, one)
	}
	return all, kept, nil
}

// newVersionsFor renders the pool's objects with the cluster's versions and with the new ones, and adds the difference
// to the live objects.
func (e *environment) newVersionsFor(ctx context.Context, manager *kube.Cluster, d *unstructured.Unstructured,
	p config.WorkerPool) (n newVersions, err error) {
	template, err := capi.Get(ctx, manager, e.cfg.Namespace, capi.MachineTemplateKind, capi.Text(d, templateName...))
	if err != nil {
		return n, err
	}
	var talosConfig *unstructured.Unstructured
	if name := capi.Text(d, configName...); name != "" { // else the machine configuration is in a Secret
		talosConfig, err = capi.Get(ctx, manager, e.cfg.Namespace, capi.TalosConfigTemplateKind, name)
	}
	if err != nil {
		return n, err
	}
	n.server, err = hetzner.FindServerType(ctx, e.tools.Hetzner, capi.Text(template, "spec", "template", "spec", "type"))
	if err != nil {
		return n, err
	}
	if n.image = p.Image; n.image == "" {
		n.image = e.cfg.SchematicImage(p.Schematic, n.server.Architecture)
	}
	place := render.PoolPlacement{ServerType: n.server.Name, Location: capi.Text(d, "spec", "template", "spec",
		"failureDomain")}
	versions := map[string]string{kubernetes: capi.Text(d, "spec", "template", "spec", "version")}
	if talosConfig != nil {
		place.MetadataRoute = render.MetadataRouteOf(talosConfig)
		versions[talos] = capi.Text(talosConfig, "spec", "template", "spec", "talosVersion")
	}
	is, err := e.renderedPool(p, place, capi.Text(template, "spec", "template", "spec", "imageName"), versions)
	if err != nil {
		return n, err
	}
	becomes, err := e.renderedPool(p, place, n.image, nil)
	if err != nil {
		return n, err
	}
	n.was, n.is = d, d.DeepCopy()
	for _, t := range []struct {
		live *unstructured.Unstructured
		path []string
	}{{template, templateName}, {talosConfig, configName}} {
		if t.live == nil {
			continue
		}
		made, err := e.templateWith(t.live, is.template(d, t.path), becomes.template(d, t.path), d.GetName(), p.Name)
		if err != nil {
			return n, err
		}
		n.templates = append(n.templates, made)
	}
	// The templates' names are set last.
	n.is.Object["spec"], err = merged(d.Object["spec"], is.deployment(d), becomes.deployment(d))
	if err != nil {
		return n, fmt.Errorf("change %s: %w", kube.Describe(d), err)
	}
	for _, t := range n.templates {
		path := templateName
		if t.GetKind() == capi.TalosConfigTemplateKind.Kind {
			path = configName
		}
		if err := unstructured.SetNestedField(n.is.Object, t.GetName(), path...); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Where a MachineDeployment names its templates.
var (
	templateName = []string{"spec", "template", "spec", "infrastructureRef", "name"}
	configName   = []string{"spec", "template", "spec", "bootstrap", "configRef", "name"}
)

// poolObjects are the rendered objects of a pool.
type poolObjects []*unstructured.Unstructured

func (o poolObjects) find(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	for _, one := range o {
		if one.GroupVersionKind() == kind && one.GetName() == name {
			return one
		}
	}
	return nil
}

// template is the one that the rendered deployment of this name has at a path; nil: none.
func (o poolObjects) template(d *unstructured.Unstructured, path []string) *unstructured.Unstructured {
	kind := capi.MachineTemplateKind
	if slices.Equal(path, configName) {
		kind = capi.TalosConfigTemplateKind
	}
	if rendered := o.find(capi.MachineDeploymentKind, d.GetName()); rendered != nil {
		return o.find(kind, capi.Text(rendered, path...))
	}
	return nil
}

// deployment is the spec of the rendered deployment of this name, without what names its templates; empty: there is
// none.
func (o poolObjects) deployment(d *unstructured.Unstructured) any {
	rendered := o.find(capi.MachineDeploymentKind, d.GetName())
	if rendered == nil {
		return map[string]any{}
	}
	rendered = rendered.DeepCopy()
	unstructured.RemoveNestedField(rendered.Object, templateName...)
	unstructured.RemoveNestedField(rendered.Object, configName...)
	return rendered.Object["spec"]
}

// renderedPool renders one pool with an image, and with versions in place of the new ones.
func (e *environment) renderedPool(p config.WorkerPool, place render.PoolPlacement, image string,
	versions map[string]string) (poolObjects, error) {
	p.Image = image
	cfg, v := e.cfg, render.Variables(maps.Clone(e.sources.Vars))
	cfg.Workers = config.WorkerPools{p}
	for name, version := range versions {
		if version != "" {
			v[name] = version
		}
	}
	return render.Workers(cfg, e.sources, v, map[string]render.PoolPlacement{p.Name: place})
}

// templateWith is a live template with what differs between two rendered ones. One that is what the files make of the
// cluster's versions becomes what they make of the new ones, under the name that every later run gives it.
func (e *environment) templateWith(live, is, becomes *unstructured.Unstructured, name, pool string) (
	*unstructured.Unstructured, error) {
	if is == nil || becomes == nil {
		return live, nil
	}
	if is.GetName() == live.GetName() {
		return becomes, nil
	}
	spec, err := merged(live.Object["spec"], is.Object["spec"], becomes.Object["spec"])
	if err != nil {
		return nil, fmt.Errorf("change %s: %w", kube.Describe(live), err)
	}
	if jsonEqual(spec, live.Object["spec"]) {
		return live, nil
	}
	made := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	made.SetGroupVersionKind(live.GroupVersionKind())
	made.SetNamespace(e.cfg.Namespace)
	made.SetLabels(map[string]string{capi.WorkerPoolLabel: pool})
	if name, err = render.NameByContent(name, made); err != nil {
		return nil, err
	}
	made.SetName(name)
	return made, nil
}

// consequencesOf says what the new versions do to the pools.
func (e *environment) consequencesOf(ctx context.Context, manager *kube.Cluster, all []newVersions) (
	[]changes.Consequence, error) {
	var objects []*unstructured.Unstructured
	for _, n := range all {
		if n.changes() {
			objects = append(append(objects, n.is), n.templates...)
		}
	}
	if len(objects) == 0 {
		return nil, nil
	}
	found, err := changes.ConsequencesOfPools(ctx, e.cfg, e.tools, manager, objects)
	// Nothing is taken out of the manifests: these are not all objects of theirs.
	return slices.DeleteFunc(found, func(c changes.Consequence) bool {
		return c.Effect == changes.EffectDeletes || c.Effect == changes.EffectKeeps
	}), err
}

// otherChanges says what the step workers would change in the pools after the upgrade.
func (e *environment) otherChanges(ctx context.Context, manager *kube.Cluster, all []newVersions) (left []string,
	err error) {
	if len(all) == 0 {
		return nil, nil
	}
	wanted, err := pools.Render(ctx, e.cfg, e.tools, e.sources, manager)
	if err != nil {
		return nil, err
	}
	live, err := changes.ReadLiveObjects(ctx, manager, e.cfg.Namespace, e.cfg.ClusterName, wanted)
	if err != nil {
		return nil, err
	}
	tcp, err := capi.Get(ctx, manager, e.cfg.Namespace, capi.TalosControlPlaneKind, e.cfg.ControlPlaneName())
	if err != nil {
		return nil, err
	}
	live.Pools = true
	after := []unstructured.Unstructured{*tcp} // the cluster exists
	for _, n := range all {
		after = append(after, *n.is)
		for _, t := range n.templates {
			after = append(after, *t)
		}
	}
	live.Wanted = append(after, live.Wanted...) // of two of a name the first is found
	live.Others = append(slices.Clone(after), live.Others...)
	for _, c := range changes.ConsequencesOf(live, wanted, 0) {
		if c.Effect != changes.EffectDeletes && c.Effect != changes.EffectKeeps {
			left = append(left, c.Summary())
		}
	}
	return left, nil
}

// poolsStep gives the worker pools that there are the new versions, and changes nothing else of them.
type poolsStep struct{ *environment }

func (p poolsStep) add(g *flow.Graph) *flow.Step[steps.Workers] {
	return flow.Add(g, flow.Task[steps.Workers]{
		Name:     StageWorkers,
		Doc:      "the worker pools that there are have the new versions; Cluster API replaces their servers",
		Run:      flow.Do(p.run),
		Spec:     map[string]string{kubernetes: p.cfg.KubernetesVersion, talos: p.cfg.TalosVersion},
		Verify:   p.verify,
		Deadline: p.cfg.LoadBalancerTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.Webhooks(p.cfg)},
	})
}

func (p poolsStep) run(ctx context.Context, say flow.Say) (out steps.Workers, err error) {
	c, err := p.open(ctx, say)
	if err != nil {
		return out, err
	}
	err = apply.Change(ctx, p.cfg, say, "the new versions of the worker pools", func(ctx context.Context) (string, error) {
		out, err = p.change(ctx, say, c.manager)
		return "", err
	})
	return out, err
}

func (p poolsStep) change(ctx context.Context, say flow.Say, manager *kube.Cluster) (out steps.Workers, err error) {
	all, kept, err := p.newVersionsOf(ctx, manager)
	if err != nil {
		return out, err
	}
	for _, text := range kept {
		say("%s", text)
	}
	for _, n := range all {
		for _, o := range append([]*unstructured.Unstructured{n.is}, n.templates...) {
			out.Objects = append(out.Objects,
				platform.Object{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName()})
		}
		if !n.changes() {
			continue
		}
		if _, err := hetzner.FindImage(ctx, p.tools.Hetzner, n.image, n.server.Architecture,
			p.tools.Command("image", "--prune")); err != nil {
			return out, fmt.Errorf("the servers of %s are of type %s (%s): %w; IMAGE_ARCHITECTURES=%s creates it",
				kube.Describe(n.is), n.server.Name, n.server.Architecture, err, n.server.Architecture)
		}
		patience := p.cfg.LoadBalancerTimeout.D()
		made := slices.DeleteFunc(slices.Clone(n.templates), func(t *unstructured.Unstructured) bool {
			return t.GetUID() != "" // it is there
		})
		if err := apply.Objects(ctx, p.cfg, say, manager, made, &patience); err != nil {
			return out, err
		}
		say("%s: %s", kube.Describe(n.is), sentence(map[string]string{kubernetes: p.cfg.KubernetesVersion,
			talos: p.cfg.TalosVersion}))
		patch := client.MergeFromWithOptions(n.was, client.MergeFromWithOptimisticLock{})
		if err := manager.Patch(ctx, n.is, patch); err != nil {
			return out, fmt.Errorf("change the versions of %s: %w", kube.Describe(n.is), err)
		}
	}
	return out, nil
}

func (p poolsStep) verify(ctx context.Context, _ steps.Workers) flow.Verdict {
	c, err := p.open(ctx, silent)
	if err != nil {
		return flow.Unknown(err)
	}
	all, _, err := p.newVersionsOf(ctx, c.manager)
	if err != nil {
		return kube.Verdict(err)
	}
	for _, n := range all {
		if n.changes() {
			return flow.Gone("%s has other versions than the upgrade brings", kube.Describe(n.was))
		}
	}
	return flow.Holds()
}
