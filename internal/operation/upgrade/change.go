package upgrade

import (
	"context"
	"encoding/json"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
)

// change brings the TalosControlPlane to other versions of Talos or Kubernetes. Everything else in it stays as the
// cluster has it: the manifests are rendered with the cluster's values, and again with the new versions, and the
// difference between the two is applied to the live objects. A template, which is immutable, is created under another
// name.
func (c *controlPlane) change(ctx context.Context, say flow.Say, values map[string]string) error {
	return apply.Change(ctx, c.cfg, say, "the new versions of "+c.cfg.ControlPlaneName(),
		func(ctx context.Context) (string, error) { return "", c.tryChange(ctx, say, values) })
}

func (c *controlPlane) tryChange(ctx context.Context, say flow.Say, values map[string]string) error {
	observed, err := changes.Observe(ctx, c.cfg, c.sources, c.manager)
	if err != nil {
		return err
	}
	if reached(observed.Values, values) {
		return nil
	}
	live, err := c.live(ctx)
	if err != nil {
		return err
	}
	tcp, template := live.tcp, live.template
	image := ""
	if values[talos] != "" {
		if image, err = c.image(ctx, template); err != nil {
			return err
		}
	}
	is, err := c.rendered(observed)
	if err != nil {
		return err
	}
	becomes, err := c.rendered(observed.With(values, image))
	if err != nil {
		return err
	}
	template, err = c.newTemplate(ctx, say, template, is.template, becomes.template)
	if err != nil {
		return err
	}
	changed := tcp.DeepCopy()
	changed.Object["spec"], err = merged(tcp.Object["spec"], is.tcp.Object["spec"], becomes.tcp.Object["spec"])
	if err != nil {
		return fmt.Errorf("change %s: %w", kube.Describe(tcp), err)
	}
	if err := unstructured.SetNestedField(changed.Object, template.GetName(), "spec", "infrastructureTemplate",
		"name"); err != nil {
		return err
	}
	if jsonEqual(changed.Object["spec"], tcp.Object["spec"]) {
		return fmt.Errorf("%s does not change with %v: let %s use these variables", kube.Describe(tcp), values,
			c.sources.Cluster.Name)
	}
	say("%s: %s", kube.Describe(tcp), sentence(values))
	patch := client.MergeFromWithOptions(tcp, client.MergeFromWithOptimisticLock{})
	if err := c.manager.Patch(ctx, changed, patch); err != nil {
		return fmt.Errorf("change the versions of %s: %w", kube.Describe(tcp), err)
	}
	return nil
}

// reached tells whether the cluster has these versions or newer ones: a stage is repeated after the next one has begun.
func reached(has, values map[string]string) bool {
	for variable, version := range values {
		if has[variable] == "" || compare(has[variable], version) < 0 {
			return false
		}
	}
	return true
}

// sentence is "Talos Linux v1.13.9".
func sentence(values map[string]string) (text string) {
	for _, variable := range []string{talos, kubernetes} {
		if version := values[variable]; version != "" {
			text += fmt.Sprintf("%s %s ", title(variable), version)
		}
	}
	return text[:max(0, len(text)-1)]
}

// image is the name of the image of the new Talos for the servers that there are. There must be exactly one such image,
// as Cluster API will look for it.
func (c *controlPlane) image(ctx context.Context, template *unstructured.Unstructured) (string, error) {
	kind, err := hetzner.FindServerType(ctx, c.tools.Hetzner, capi.Text(template, "spec", "template", "spec", "type"))
	if err != nil {
		return "", err
	}
	name := c.cfg.Image(kind.Architecture)
	prune := c.tools.Command("image", "--prune")
	if _, err := hetzner.FindImage(ctx, c.tools.Hetzner, name, kind.Architecture, prune); err != nil {
		return "", fmt.Errorf("the control plane's servers are of type %s (%s): %w; IMAGE_ARCHITECTURES=%s creates it",
			kind.Name, kind.Architecture, err, kind.Architecture)
	}
	return name, nil
}

// controlPlaneObjects are the control plane's objects, in a cluster or of the manifests.
type controlPlaneObjects struct{ tcp, template *unstructured.Unstructured }

func (c *controlPlane) rendered(o changes.Observed) (found controlPlaneObjects, err error) {
	r, err := changes.RenderObserved(c.cfg, c.sources, o)
	if err != nil {
		return found, err
	}
	return c.controlPlaneIn(r)
}

// controlPlaneIn finds them among the rendered objects.
func (c *controlPlane) controlPlaneIn(r *render.Rendered) (found controlPlaneObjects, err error) {
	for _, object := range r.Now {
		switch {
		case object.GroupVersionKind() == capi.TalosControlPlaneKind && object.GetName() == c.cfg.ControlPlaneName():
			found.tcp = object
		case object.GroupVersionKind() == capi.MachineTemplateKind && object.GetName() == r.Template:
			found.template = object
		}
	}
	if found.tcp == nil || found.template == nil {
		return found, fmt.Errorf("%s has no TalosControlPlane %s with an HCloudMachineTemplate", c.sources.Cluster.Name,
			c.cfg.ControlPlaneName())
	}
	return found, nil
}

// newTemplate creates changedTemplate where it is another one.
func (c *controlPlane) newTemplate(ctx context.Context, say flow.Say, live, is, becomes *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	template, err := c.changedTemplate(live, is, becomes)
	if err != nil || template == live {
		return template, err
	}
	return template, c.create(ctx, say, template)
}

// changedTemplate is the template of the new servers: the live one, with what changes between two rendered ones. Where
// nothing does, it is the live one.
func (c *controlPlane) changedTemplate(live, is, becomes *unstructured.Unstructured) (*unstructured.Unstructured,
	error) {
	spec, err := merged(live.Object["spec"], is.Object["spec"], becomes.Object["spec"])
	if err != nil {
		return nil, fmt.Errorf("change %s: %w", kube.Describe(live), err)
	}
	if jsonEqual(spec, live.Object["spec"]) {
		return live, nil
	}
	template := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	template.SetGroupVersionKind(capi.MachineTemplateKind)
	template.SetNamespace(c.cfg.Namespace)
	name, err := render.NameByContent(c.cfg.ControlPlaneName(), template)
	template.SetName(name)
	return template, err
}

// create applies objects that are to be there before others refer to them.
func (c *controlPlane) create(ctx context.Context, say flow.Say, objects ...*unstructured.Unstructured) error {
	patience := c.cfg.LoadBalancerTimeout.D()
	return apply.Objects(ctx, c.cfg, say, c.manager, objects, &patience)
}

// merged is a live value with what differs between two others.
func merged(live, is, becomes any) (map[string]any, error) {
	var texts [3][]byte
	for i, v := range []any{live, is, becomes} {
		var err error
		if texts[i], err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	patch, err := jsonpatch.CreateMergePatch(texts[1], texts[2])
	if err != nil {
		return nil, err
	}
	text, err := jsonpatch.MergePatch(texts[0], patch)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(`{"apiVersion":"v1","kind":"Spec","spec":` + string(text) + `}`)); err != nil {
		return nil, err
	}
	out, _, err = unstructured.NestedMap(u.Object, "spec")
	return out, err
}

func jsonEqual(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && jsonpatch.Equal(x, y)
}
