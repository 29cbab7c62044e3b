// Package recovery finds out which recovery a cluster needs, and holds what several recoveries share: claims, targets,
// the state of the control plane provider.
package recovery

import (
	"context"
	"fmt"
	"net"
	"strconv"

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
