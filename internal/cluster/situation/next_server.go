package situation

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/platform"
)

// NextServerPossible is nil if Hetzner has the server type and exactly one image of the control plane's current
// template: CAPH creates no server where no image matches, or several do.
func NextServerPossible(ctx context.Context, cfg config.Config, tools platform.Tools, manager *kube.Cluster) error {
	tcp, err := capi.Get(ctx, manager, cfg.Namespace, capi.TalosControlPlaneKind, cfg.ControlPlaneName())
	if err != nil {
		return err
	}
	template, err := capi.Get(ctx, manager, cfg.Namespace, capi.MachineTemplateKind,
		capi.Text(tcp, "spec", "infrastructureTemplate",
			"name"))
	if err != nil {
		return err
	}
	return ServerPossible(ctx, tools, template)
}

// ServerPossible is nil if Hetzner has the server type and the image of an HCloudMachineTemplate; otherwise the error
// says what another server would wait for.
func ServerPossible(ctx context.Context, tools platform.Tools, template *unstructured.Unstructured) error {
	server := func(field string) string { return capi.Text(template, "spec", "template", "spec", field) }
	kind, err := hetzner.FindServerType(ctx, tools.Hetzner, server("type"))
	if err == nil {
		_, err = hetzner.FindImage(ctx, tools.Hetzner, server("imageName"), kind.Architecture,
			tools.Command("image", "--prune"))
	}
	if err != nil {
		return fmt.Errorf("another server could not be made: %w", err)
	}
	return nil
}
