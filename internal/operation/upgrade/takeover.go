package upgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// takeOver has new servers made from the image of the new Talos, and the servers that there are stand for servers of
// that image. The control plane provider replaces a server whose HCloudMachine was made from another template than the
// TalosControlPlane names, and leaves one alone that does not say from which (CACPPT v0.5.13, controllers/
// controlplane.go, MatchesTemplateClonedFrom): so the annotation goes first, and comes back with the name of the new
// template once the provider has seen the TalosControlPlane name that one. The talosVersion stays, as the
// TalosConfigs of the servers are immutable.
func (c *controlPlane) takeOver(ctx context.Context, say flow.Say, values map[string]string) error {
	return wait.Wait{What: "the API server and its webhooks to take the new template of " + c.cfg.ControlPlaneName(),
		Within: c.cfg.LoadBalancerTimeout.D()}.Until(ctx, say, func(ctx context.Context) (string, error) {
		missing, err := c.tryTakeOver(ctx, say, values)
		if err != nil && !kube.Unwell(err) && !apierrors.IsConflict(err) {
			return "", wait.Final(err)
		}
		return missing, err
	})
}

func (c *controlPlane) tryTakeOver(ctx context.Context, say flow.Say, values map[string]string) (missing string,
	err error) {
	tcp, template, err := c.templateOf(ctx, say, values)
	if err != nil {
		return "", err
	}
	servers, err := c.madeFromTemplates(ctx)
	if err != nil {
		return "", err
	}
	if capi.Text(tcp, "spec", "infrastructureTemplate", "name") != template {
		for _, s := range servers {
			if s.GetAnnotations()[capi.ClonedFromAnnotation] == template {
				continue
			}
			if err := c.clonedFrom(ctx, s, nil); err != nil {
				return "", err
			}
		}
		changed := tcp.DeepCopy()
		if err := unstructured.SetNestedField(changed.Object, template, "spec", "infrastructureTemplate", "name"); err != nil {
			return "", err
		}
		say("%s: new servers are made with %s", kube.Describe(tcp), sentence(values))
		patch := client.MergeFromWithOptions(tcp, client.MergeFromWithOptimisticLock{})
		if err := c.manager.Patch(ctx, changed, patch); err != nil {
			return "", fmt.Errorf("change the template of %s: %w", kube.Describe(tcp), err)
		}
		tcp = changed // as the API server has it now
	}
	if capi.Lagging(tcp) {
		return "the control plane provider has not seen it yet", nil
	}
	for _, s := range servers {
		if err := c.clonedFrom(ctx, s, template); err != nil {
			return "", err
		}
	}
	return "", nil
}

// templateOf is the TalosControlPlane, and the name of the template of servers with the image of the new Talos, which
// is created where it does not exist.
func (c *controlPlane) templateOf(ctx context.Context, say flow.Say, values map[string]string) (
	*unstructured.Unstructured, string, error) {
	tcp, err := c.talosControlPlane(ctx)
	if err != nil {
		return nil, "", err
	}
	live, err := capi.Get(ctx, c.manager, c.cfg.Namespace, capi.MachineTemplateKind,
		capi.Text(tcp, "spec", "infrastructureTemplate", "name"))
	if err != nil {
		return nil, "", err
	}
	observed, err := changes.Observe(ctx, c.cfg, c.sources, c.manager)
	if err != nil {
		return nil, "", err
	}
	image, err := c.image(ctx, live)
	if err != nil {
		return nil, "", err
	}
	is, err := c.rendered(observed)
	if err != nil {
		return nil, "", err
	}
	becomes, err := c.rendered(observed.With(values, image))
	if err != nil {
		return nil, "", err
	}
	template, err := c.newTemplate(ctx, say, live, is.template, becomes.template)
	if err != nil {
		return nil, "", err
	}
	return tcp, template.GetName(), nil
}

// madeFromTemplates are the HCloudMachines of the control plane.
func (c *controlPlane) madeFromTemplates(ctx context.Context) (all []*unstructured.Unstructured, err error) {
	machines, err := capi.List(ctx, c.manager, c.cfg.Namespace, capi.MachineKind, c.cfg.ClusterName)
	if err != nil {
		return nil, err
	}
	for _, m := range capi.ControlPlaneMachines(machines) {
		one, err := capi.Get(ctx, c.manager, c.cfg.Namespace, capi.HCloudMachineKind, serverOf(&m))
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// withoutTemplate tells whether an HCloudMachine of the control plane does not say which template it was made from: an
// upgrade in place that was ended in the middle leaves it so, and the provider would not replace its server for another
// template.
func (c *controlPlane) withoutTemplate(ctx context.Context) (bool, error) {
	servers, err := c.madeFromTemplates(ctx)
	return slices.ContainsFunc(servers, func(s *unstructured.Unstructured) bool {
		return s.GetAnnotations()[capi.ClonedFromAnnotation] == ""
	}), err
}

// clonedFrom sets the template that an HCloudMachine says to be made from, or with nil removes it.
func (c *controlPlane) clonedFrom(ctx context.Context, machine *unstructured.Unstructured, template any) error {
	is, has := machine.GetAnnotations()[capi.ClonedFromAnnotation]
	if template == nil && !has || template == is && has {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		capi.ClonedFromAnnotation: template}}})
	if err != nil {
		return err
	}
	err = c.manager.Patch(ctx, machine.DeepCopy(), client.RawPatch("application/merge-patch+json", patch))
	if err != nil {
		return fmt.Errorf("change the annotation %s of %s: %w", capi.ClonedFromAnnotation, kube.Describe(machine), err)
	}
	return nil
}
