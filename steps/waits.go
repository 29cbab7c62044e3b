package steps

import "github.com/slipway-k8s/slipway/flow"

// What the steps wait for, as they declare it: the same in every plan that has the step.

var waitTaken = flow.Wait{For: "the API server to take a Secret", Within: takenWithin}

var waitDownload = flow.Wait{For: "a download that fails to succeed", Within: retryFor}

func (c Config) waitControlPlane() flow.Wait {
	return flow.Wait{For: "the control plane (CONTROL_PLANE_TIMEOUT)", Within: c.ControlPlaneTimeout.D()}
}

func (c Config) waitNodes() flow.Wait {
	return flow.Wait{For: "the nodes (NODES_TIMEOUT)", Within: c.NodesTimeout.D()}
}

func (c Config) waitProviders() flow.Wait {
	return flow.Wait{For: "the providers to serve (PROVIDERS_TIMEOUT)", Within: c.ProvidersTimeout.D()}
}

func (c Config) waitPivot() []flow.Wait {
	return []flow.Wait{
		{For: "both clusters to tell what they hold, twice", Within: 2 * lookingWithin}, waitDownload, c.waitNodes(), c.waitProviders(),
		{For: "the cluster's own controllers (NODES_TIMEOUT)", Within: c.NodesTimeout.D()},
	}
}
