package wait

import (
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
)

const (
	// ManagementReady is how long a management cluster that its provider calls made may take to answer.
	ManagementReady = 2 * time.Minute
)

// Overhead is what a step's deadline leaves for everything in it that is not its one long wait, which then ends first
// and says what it saw.
const Overhead = 3 * time.Minute

// ReservedWithin is how long a reservation that another run made first may take to be found: lists lag a little.
const ReservedWithin = 30 * time.Second

// TakenWithin is how long an API server may be silent or unwell before a write fails: while control plane machines
// join, etcd elects leaders, and an API server behind the load balancer starts.
const TakenWithin = time.Minute

const (
	// ControlPlaneEvery is short because neither Talos nor the load balancer announces when it begins to answer.
	ControlPlaneEvery = time.Second
)

// Taken is the wait for an API server to accept a write.
var Taken = flow.Wait{For: "the API server to accept an object", Within: TakenWithin}

// Answer is the wait for the answer with which a step begins: which cluster has the Cluster API objects.
var Answer = flow.Wait{For: "the cluster's API to answer whether the cluster manages itself", Within: TakenWithin}

// Namespace is the wait for the namespace of the cluster's objects.
var Namespace = flow.Wait{For: "the namespace of the cluster's objects", Within: TakenWithin}

// Download is the wait for a download that is tried again.
var Download = flow.Wait{For: "a download that fails to succeed", Within: RetryFor}

// ControlPlane is the wait for the control plane.
func ControlPlane(c config.Config) flow.Wait {
	return flow.Wait{For: "the control plane (CONTROL_PLANE_TIMEOUT)", Within: c.ControlPlaneTimeout.D()}
}

// Nodes is the wait for the nodes.
func Nodes(c config.Config) flow.Wait {
	return flow.Wait{For: "the nodes (NODES_TIMEOUT)", Within: c.NodesTimeout.D()}
}

// Rollout is the wait for the control plane's servers to get another version, before the workers get it.
func Rollout(c config.Config) flow.Wait {
	return flow.Wait{For: "the control plane's version (NODES_TIMEOUT)", Within: c.NodesTimeout.D()}
}

// Reserved is the wait for a reservation.
var Reserved = flow.Wait{For: "the reservation", Within: ReservedWithin}

// Management is the wait for the management cluster's API.
var Management = flow.Wait{For: "the management cluster's API", Within: ManagementReady}

// Webhooks is the wait for the providers' webhooks.
func Webhooks(c config.Config) flow.Wait {
	return flow.Wait{For: "the webhooks (LOAD_BALANCER_TIMEOUT)", Within: c.LoadBalancerTimeout.D()}
}

// NameEvery is the time between two lookups of a host name, whose change nothing announces.
const NameEvery = 5 * time.Second

// Endpoint is the wait for Hetzner to create the control plane endpoint.
func Endpoint(c config.Config) flow.Wait {
	return flow.Wait{For: "the control plane endpoint (LOAD_BALANCER_TIMEOUT)", Within: c.LoadBalancerTimeout.D()}
}

// EndpointName is the wait for the host name of the control plane endpoint.
func EndpointName(c config.Config) flow.Wait {
	return flow.Wait{For: "the DNS record of " + c.EndpointHostName() + " (LOAD_BALANCER_TIMEOUT)",
		Within: c.LoadBalancerTimeout.D()}
}

// LoadBalancer is the wait for the load balancer.
func LoadBalancer(c config.Config) flow.Wait {
	return flow.Wait{For: "the load balancer (LOAD_BALANCER_TIMEOUT)", Within: c.LoadBalancerTimeout.D()}
}
