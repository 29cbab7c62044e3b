package capiinit

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// watch reports changes of the providers' Deployments until the returned function is called.
func watch(ctx context.Context, mgmt *kube.Cluster) (<-chan struct{}, func()) {
	ctx, stop := context.WithCancel(ctx)
	return mgmt.Changes(ctx,
			kube.Selection{List: &appsv1.DeploymentList{}, Options: []client.ListOption{client.HasLabels{capi.ProviderLabel}}}),
		stop
}

// notInstalled lists the providers that are not installed. One that is installed at another version is an error:
// replacing it is an upgrade, which has rules of its own.
func notInstalled(cfg config.Config, installed map[string]string) (missing []string, err error) {
	for _, p := range capi.ConfiguredProviders(cfg) {
		switch has := installed[p.Label]; has {
		case "":
			missing = append(missing, p.Label+" "+p.Version)
		case p.Version:
		default:
			return nil, fmt.Errorf("%s is installed at %s, not %s: configure the installed version, or let the target upgrade "+
				"bring the other", p.Label, has, p.Version)
		}
	}
	return missing, nil
}

// Unready says what of the providers, and of cert-manager, does not serve yet, by reading only.
func Unready(ctx context.Context, mgmt *kube.Cluster) (string, error) {
	var missing []string
	for _, selector := range []client.ListOption{client.HasLabels{capi.ProviderLabel},
		client.MatchingLabels{capi.CoreLabel: capi.CertManagerCore}} {
		deployments := &appsv1.DeploymentList{}
		if err := mgmt.List(ctx, deployments, selector); err != nil {
			return "", fmt.Errorf("list the providers' Deployments: %w", err)
		}
		var workloads []kube.Workload
		for _, d := range deployments.Items {
			workloads = append(workloads, kube.Workload{Kind: "Deployment", Namespace: d.Namespace, Name: d.Name})
		}
		unready, err := mgmt.Unready(ctx, workloads...)
		if err != nil {
			return "", err
		}
		if unready != "" {
			missing = append(missing, unready)
		}
	}
	untrusted, err := mgmt.UntrustedWebhooks(ctx, capi.ProviderLabel)
	if err != nil {
		return "", err
	}
	if untrusted != "" {
		missing = append(missing, untrusted)
	}
	return strings.Join(missing, "; "), nil
}
