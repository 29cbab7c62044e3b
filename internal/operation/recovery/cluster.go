// Package recovery finds out which recovery a cluster needs, and holds what several recoveries share: claims, targets,
// the state of the control plane provider.
package recovery

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// Management connects to the temporary management cluster; nil where its provider says that there is none, or a
// partially created one.
func Management(ctx context.Context, cfg config.Config, tools platform.Tools) (*kube.Cluster, error) {
	p, name := tools.Management, cfg.ManagementName()
	exists, err := p.Exists(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("find out whether management cluster %s (%s) exists: %w", name, p.Name(), err)
	}
	if !exists {
		return nil, nil
	}
	kubeconfig, err := tools.Existing(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("management cluster %s (%s): %w", name, p.Name(), err)
	}
	if kubeconfig == nil {
		return nil, nil
	}
	return connect.Management(tools, kubeconfig)
}

// SetBootstrapped tells the control plane provider, in the status of its object, that etcd is bootstrapped.
func SetBootstrapped(ctx context.Context, say flow.Say, mgmt *kube.Cluster, tcp *unstructured.Unstructured,
	status string) (*unstructured.Unstructured, error) {
	say("telling the control plane provider that etcd is bootstrapped already")
	if err := mgmt.Status().Patch(ctx, tcp.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(status))); err != nil {
		return nil, fmt.Errorf("set status.bootstrapped of %s: %w", kube.Describe(tcp), err)
	}
	live, err := capi.Get(ctx, mgmt, tcp.GetNamespace(), capi.TalosControlPlaneKind, tcp.GetName())
	if err != nil {
		return nil, err
	}
	if !capi.Truth(live, "status", "bootstrapped") {
		return nil, fmt.Errorf("status.bootstrapped of %s did not stay true", kube.Describe(live))
	}
	return live, nil
}

// DescribeCluster reads the cluster's objects and gives what the steps after apply need of them.
func DescribeCluster(ctx context.Context, cfg config.Config, mgmt *kube.Cluster, objects []*unstructured.Unstructured,
	ip string) (steps.Cluster, error) {
	cluster, err := capi.Get(ctx, mgmt, cfg.Namespace, capi.ClusterKind, cfg.ClusterName)
	if err != nil {
		return steps.Cluster{}, err
	}
	tcp, err := capi.Get(ctx, mgmt, cfg.Namespace, capi.TalosControlPlaneKind, cfg.ControlPlaneName())
	if err != nil {
		return steps.Cluster{}, err
	}
	infrastructure, err := capi.Get(ctx, mgmt, cfg.Namespace, capi.HetznerClusterKind, cfg.ClusterName)
	if err != nil {
		return steps.Cluster{}, err
	}
	host, port := capi.Text(infrastructure, "spec", "controlPlaneEndpoint", "host"), capi.Number(infrastructure, "spec",
		"controlPlaneEndpoint", "port")
	out := steps.Cluster{
		Name: cfg.ClusterName, UID: string(cluster.GetUID()), LoadBalancerIP: ip,
		Endpoint:     net.JoinHostPort(host, strconv.FormatInt(port, 10)),
		ControlPlane: tcp.GetName(), Template: capi.Text(tcp, "spec", "infrastructureTemplate", "name"),
		Replicas: int(capi.Number(tcp, "spec", "replicas")), Version: capi.Text(tcp, "spec", "version"),
	}
	for _, o := range objects {
		out.Objects = append(out.Objects, platform.Object{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(),
			Name: o.GetName()})
	}
	return out, nil
}

// BootstrappedCondition is the condition by which CACPPT says that it has seen data of etcd on a server itself.
const BootstrappedCondition = "MachinesBootstrapped"

// Quiet is what was stopped.
type Quiet struct {
	Deployments []string `json:"deployments,omitempty"`
}

// Sweep is what of the lost servers was taken out of the cluster.
type Sweep struct {
	Nodes   []string `json:"nodes,omitempty"`
	Objects int      `json:"objects,omitempty"`
	Paused  []string `json:"paused,omitempty"` // other clusters, as namespace/name
}

// RemoveProviders removes the providers from a cluster, and their inventory, so that they are installed again whole.
func RemoveProviders(ctx context.Context, say flow.Say, workload *kube.Cluster) error {
	all := &appsv1.DeploymentList{}
	if err := workload.List(ctx, all, client.HasLabels{capi.ProviderLabel}); err != nil {
		return fmt.Errorf("list the providers' Deployments: %w", err)
	}
	for i := range all.Items {
		d := &all.Items[i]
		if err := client.IgnoreNotFound(workload.Delete(ctx, d, client.PropagationPolicy("Background"))); err != nil {
			return fmt.Errorf("delete Deployment %s/%s: %w", d.Namespace, d.Name, err)
		}
	}
	installed := capi.ListOf(capi.ProviderKind)
	if err := workload.List(ctx, installed); err != nil {
		if kube.Absent(err) {
			return nil
		}
		return fmt.Errorf("list the installed providers: %w", err)
	}
	for i := range installed.Items {
		say("forgetting that %s is installed: it is installed again", installed.Items[i].GetName())
		if err := client.IgnoreNotFound(workload.Delete(ctx, &installed.Items[i])); err != nil {
			return fmt.Errorf("delete Provider %s: %w", installed.Items[i].GetName(), err)
		}
	}
	return nil
}

// FalseFirst compares two booleans for a sort: false comes before true.
func FalseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// QuietWithin is how long the API server of a restored cluster, on one member of etcd, may take for some ten writes.
const QuietWithin = 5 * time.Minute

// Steps of the targets that repair a cluster, as far as they take time.
var (
	RestoreSteps = []string{"kind-create", "capi-init", "apply", "servers", "etcd-recover", "etcd-bootstrap", "sweep",
		"etcd-members", "release", "wait-nodes"}
	PivotSteps  = []string{"pivot", "access", "clean"}
	QuorumSteps = []string{"survey", "snapshot", "clear", "etcd-recover", "etcd-bootstrap", "etcd-members", "survivor",
		"let-go"}
	ReadoptSteps = []string{"kind-create", "capi-init", "put-back", "reconcile", "wait-nodes"}
)
