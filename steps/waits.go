package steps

import (
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/providers"
	"github.com/slipway-k8s/slipway/internal/render"
	"github.com/slipway-k8s/slipway/internal/wait"
)

// What the steps wait for, as they declare it: the same in every plan that has the step.

var waitTaken = flow.Wait{For: "the API server to take a Secret", Within: takenWithin}

var waitDownload = flow.Wait{For: "a download that fails to succeed", Within: wait.RetryFor}

func waitControlPlane(c config.Config) flow.Wait {
	return flow.Wait{For: "the control plane (CONTROL_PLANE_TIMEOUT)", Within: c.ControlPlaneTimeout.D()}
}

func waitNodes(c config.Config) flow.Wait {
	return flow.Wait{For: "the nodes (NODES_TIMEOUT)", Within: c.NodesTimeout.D()}
}

var waitReserved = flow.Wait{For: "the reservation", Within: reservedWithin}

var waitManagement = flow.Wait{For: "the management cluster's API", Within: managementReady}

func waitWebhooks(c config.Config) flow.Wait {
	return flow.Wait{For: "the webhooks (LOAD_BALANCER_TIMEOUT)", Within: c.LoadBalancerTimeout.D()}
}

func waitLoadBalancer(c config.Config) flow.Wait {
	return flow.Wait{For: "the load balancer (LOAD_BALANCER_TIMEOUT)", Within: c.LoadBalancerTimeout.D()}
}

func waitRelease(c config.Config) []flow.Wait {
	return []flow.Wait{waitDownload,
		{For: "the kinds of the chart, or somebody else's helm (RELEASE_TIMEOUT)", Within: c.ReleaseTimeout.D()},
		{For: "Helm's own work, which may begin when that wait is about to end (RELEASE_TIMEOUT)", Within: c.ReleaseTimeout.D()},
		{For: "the workloads (RELEASE_TIMEOUT)", Within: c.ReleaseTimeout.D()}}
}

func releaseDeadline(c config.Config) time.Duration { return 3*c.ReleaseTimeout.D() + overhead }

// waitProviders are the waits of an installation of the providers. clusterctl bounds its own, for cert-manager, as its
// configuration has it.
func waitProviders(cfg config.Config, sources render.Sources) ([]flow.Wait, error) {
	entries, err := sources.Clusterctl.Values(sources.Vars)
	if err != nil {
		return nil, err
	}
	_, certManager, err := providers.CertManager(cfg, sources, entries)
	if err != nil {
		return nil, err
	}
	return []flow.Wait{
		waitDownload,
		{For: "cert-manager (PROVIDERS_TIMEOUT, or cert-manager.timeout of " + sources.Clusterctl.Name + ")", Within: certManager},
		{For: "the providers to serve (PROVIDERS_TIMEOUT)", Within: cfg.ProvidersTimeout.D()},
	}, nil
}

func waitPivot(c config.Config, providers []flow.Wait) []flow.Wait {
	waits := []flow.Wait{{For: "both clusters to tell what they hold, twice", Within: 2 * lookingWithin}, waitNodes(c)}
	return append(append(waits, providers...), flow.Wait{For: "the cluster's own controllers (NODES_TIMEOUT)", Within: c.NodesTimeout.D()})
}

// pivotDeadline leaves its overhead beside the longest time that the waits may add up to by default.
func pivotDeadline(c config.Config) time.Duration {
	return 2*c.ProvidersTimeout.D() + 2*c.NodesTimeout.D() + 2*lookingWithin + wait.RetryFor + overhead
}
