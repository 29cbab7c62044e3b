package upgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/platform"
)

// hold has the control plane provider replace no further server, or lets it go on. Its error says what was tried; the
// text is what a wait says of a hold. A pause that was not made by an upgrade is left alone.
func (c *controlPlane) hold(ctx context.Context, tcp *unstructured.Unstructured, hold bool) (string, error) {
	annotations := tcp.GetAnnotations()
	_, paused := annotations[capi.PausedAnnotation]
	_, held := annotations[capi.UpgradeHeldAnnotation]
	switch {
	case hold && !paused:
		if err := c.annotate(ctx, tcp, "true"); err != nil {
			return "", err
		}
	case !hold && held:
		return "", c.annotate(ctx, tcp, nil)
	case !hold && paused:
		return fmt.Sprintf("%s is paused by the annotation %s, which no upgrade has set: remove it", kube.Describe(tcp),
			capi.PausedAnnotation), nil
	case !hold:
		return "", nil
	}
	return "the control plane provider is held until then (annotation " + capi.PausedAnnotation + ")", nil
}

// Held says that an upgrade which has failed keeps the control plane provider from replacing further servers; empty: it
// does not.
func Held(ctx context.Context, cfg config.Config, tools platform.Tools) (string, error) {
	e, err := newEnvironment(cfg, tools)
	if err != nil {
		return "", err
	}
	c, err := e.open(ctx, silent)
	if err != nil {
		return "", err
	}
	tcp, err := newControlPlane(e, c).talosControlPlane(ctx)
	if err != nil {
		return "", err
	}
	if _, held := tcp.GetAnnotations()[capi.UpgradeHeldAnnotation]; !held {
		return "", nil
	}
	return fmt.Sprintf("no further server is replaced: %s has the annotation %s, which upgrade removes when the new server "+
		"is a Ready node", kube.Describe(tcp), capi.PausedAnnotation), nil
}

// annotate sets the two annotations of a hold, or with nil removes them.
func (c *controlPlane) annotate(ctx context.Context, tcp *unstructured.Unstructured, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		capi.PausedAnnotation: value, capi.UpgradeHeldAnnotation: value}}})
	if err != nil {
		return err
	}
	if err := c.manager.Patch(ctx, tcp.DeepCopy(), client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return fmt.Errorf("hold the control plane provider, or let it go on (%s): %w",
			strings.Join([]string{capi.PausedAnnotation, capi.UpgradeHeldAnnotation}, ", "), err)
	}
	return nil
}
