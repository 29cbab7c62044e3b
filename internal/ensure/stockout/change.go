package stockout

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capacity"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// change has the control plane's next servers created as chosen, and never makes the control plane provider replace
// those that exist: it replaces every Machine whose server's annotation cloned-from-name is another than the name of
// the control plane's template, and none without that annotation. So the annotation is removed from all of them, then
// the control plane gets its other template, and finish gives the annotation back with the other name. Killed in
// between, the annotations that are missing tell the next run what is left to do.
func (w *Watch) change(ctx context.Context, mgmt *kube.Cluster, c *controlPlane, has render.Placement,
	choice capacity.Choice) error {
	if !slices.Equal(choice.Locations, has.Locations) {
		patch := map[string]any{"spec": map[string]any{"controlPlaneRegions": choice.Locations}}
		if err := merge(ctx, mgmt, c.infrastructure, patch); err != nil {
			return err
		}
	}
	if choice.ServerType == has.ServerType {
		return nil // Machines of other locations are deleted when the Cluster has the new failure domains
	}
	template, err := w.otherTemplate(c, choice)
	if err != nil {
		return err
	}
	if err := mgmt.Create(ctx, template); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create %s: %w", kube.Describe(template), err)
	}
	for _, m := range c.members {
		if m.server.GetAnnotations()[capi.ClonedFromAnnotation] != c.template.GetName() {
			continue // to be replaced for another reason
		}
		if err := setClonedFrom(ctx, mgmt, m.server, nil); err != nil {
			return err
		}
	}
	patch := map[string]any{"spec": map[string]any{"infrastructureTemplate": map[string]any{"name": template.GetName()}}}
	return merge(ctx, mgmt, c.tcp, patch)
}

// otherTemplate is the control plane's template with what was chosen. Where the live one is as the manifests have it,
// so is the other: then applying the manifests later changes nothing.
func (w *Watch) otherTemplate(c *controlPlane, choice capacity.Choice) (*unstructured.Unstructured, error) {
	image := w.image(c, choice.Architecture)
	rendered := func(image string, placement render.Placement) (*unstructured.Unstructured, error) {
		v := render.ManifestVariables(w.Sources, image, choice.NetworkZone, render.EndpointOf(c.infrastructure))
		r, err := render.Manifests(w.Cfg, w.Sources, v.Placed(placement))
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(r.Now, func(o *unstructured.Unstructured) bool {
			return o.GroupVersionKind() == capi.MachineTemplateKind && o.GetName() == r.Template
		})
		if at < 0 {
			return nil, nil
		}
		return r.Now[at], nil
	}
	was, err := rendered(capi.Text(c.template, "spec", "template", "spec", "imageName"),
		render.PlacementOf(c.infrastructure, c.tcp, c.template))
	if err != nil {
		return nil, err
	}
	if was != nil && was.GetName() == c.template.GetName() {
		return rendered(image, choice.Placement())
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": c.template.DeepCopy().Object["spec"]}}
	o.SetGroupVersionKind(capi.MachineTemplateKind)
	o.SetNamespace(w.Cfg.Namespace)
	for field, value := range map[string]string{"type": choice.ServerType, "imageName": image} {
		if err := unstructured.SetNestedField(o.Object, value, "spec", "template", "spec", field); err != nil {
			return nil, err
		}
	}
	name, err := render.NameByContent(w.Cfg.ControlPlaneName(), o)
	o.SetName(name)
	return o, err
}

// finish completes a change: servers that exist are given the name of the control plane's template, and Machines that
// have none are deleted. Where the control plane has its first template still, it is left to change: that template's
// name would be wrong if a patch that was under way when the last run was killed is still to arrive.
func (w *Watch) finish(ctx context.Context, mgmt *kube.Cluster, c *controlPlane) (did bool, err error) {
	var with, without []member
	for _, m := range c.members {
		annotations := m.server.GetAnnotations()
		switch {
		case annotations[capi.ClonedFromAnnotation] != "" || annotations[capi.ClonedFromKindAnnotation] == "":
		case m.hasServer():
			with = append(with, m)
		case capi.Text(m.server, "spec", "type") == capi.Text(c.template, "spec", "template", "spec", "type"):
			return false, nil
		default:
			without = append(without, m)
		}
	}
	for _, m := range with {
		if err := setClonedFrom(ctx, mgmt, m.server, templateOf(c.tcp)); err != nil {
			return did, err
		}
		did = true
	}
	deleted, err := w.delete(ctx, mgmt, without)
	return did || deleted, err
}

// deleteSuperseded deletes the Machines that wait for a server type, or in a location, that the control plane does not
// create servers with any more.
func (w *Watch) deleteSuperseded(ctx context.Context, mgmt *kube.Cluster, c *controlPlane, stuck []member) (bool, error) {
	domains, _, _ := unstructured.NestedMap(c.cluster.Object, "status", "failureDomains")
	has := render.PlacementOf(c.infrastructure, c.tcp, c.template)
	if len(domains) != len(has.Locations) || slices.ContainsFunc(has.Locations, func(l string) bool {
		_, known := domains[l]
		return !known
	}) {
		return false, nil // Cluster API does not know the locations yet
	}
	return w.delete(ctx, mgmt, slices.DeleteFunc(slices.Clone(stuck), func(m member) bool {
		return capi.Text(m.server, "spec", "type") == has.ServerType && slices.Contains(has.Locations, m.location(has))
	}))
}

// delete deletes Machines that have no server, which loses nothing.
func (w *Watch) delete(ctx context.Context, mgmt *kube.Cluster, members []member) (did bool, err error) {
	if len(members) == 0 {
		return false, nil
	}
	servers, err := hetzner.Servers(ctx, w.Tools.Hetzner, w.Cfg.ClusterName)
	if err != nil {
		return false, err
	}
	for _, m := range members {
		name := m.server.GetName()
		if slices.ContainsFunc(servers, func(s hetzner.Server) bool { return s.Name == name || s.Machine == name }) {
			continue // it was in stock after all; CAPH has not said so yet
		}
		w.Say("deleting %s, which has no server (%s): the control plane provider creates another one",
			kube.Describe(m.machine), capi.Text(m.server, "spec", "type"))
		if err := capi.DeleteMachine(ctx, mgmt, m.machine); err != nil {
			return did, err
		}
		did = true
	}
	return did, nil
}

// setClonedFrom sets the annotation that names the template of a server; nil removes it.
func setClonedFrom(ctx context.Context, mgmt *kube.Cluster, server *unstructured.Unstructured, template any) error {
	return merge(ctx, mgmt, server, map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{capi.ClonedFromAnnotation: template}}})
}

// merge patches an object that is still the one that was read.
func merge(ctx context.Context, mgmt *kube.Cluster, o *unstructured.Unstructured, change map[string]any) error {
	metadata, _ := change["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		change["metadata"] = metadata
	}
	metadata["uid"] = string(o.GetUID())
	patch, err := json.Marshal(change)
	if err != nil {
		return err
	}
	if err := mgmt.Patch(ctx, o.DeepCopy(), client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(kube.FieldManager)); err != nil {
		return fmt.Errorf("change %s: %w", kube.Describe(o), err)
	}
	return nil
}
