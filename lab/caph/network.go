package caph

import (
	"context"
	"fmt"
	"net"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/slipway-k8s/slipway/lab/caph/api"
)

// selector is the label selector for the cluster's resources, in the original's spelling.
func (s *clusterScope) selector() hcloud.ListOpts {
	return hcloud.ListOpts{LabelSelector: s.infra.TagKey() + "==" + api.TagOwned}
}

// ensureNetwork finds the cluster's network by its label, else creates it.
func (s *clusterScope) ensureNetwork(ctx context.Context) error {
	if !s.infra.Spec.HCloudNetwork.Enabled {
		return nil
	}
	network, err := s.findOrCreateNetwork(ctx)
	if err != nil {
		conditions.MarkFalse(s.infra, api.NetworkReady, api.NetworkReconcileFailed, clusterv1.ConditionSeverityWarning,
			"%s", err)
		return fmt.Errorf("network of HetznerCluster %s/%s: %w", s.infra.Namespace, s.infra.Name, err)
	}
	status := &api.NetworkStatus{ID: network.ID}
	for _, server := range network.Servers {
		status.AttachedServers = append(status.AttachedServers, server.ID)
	}
	s.infra.Status.Network = status
	conditions.MarkTrue(s.infra, api.NetworkReady)
	return nil
}

func (s *clusterScope) findOrCreateNetwork(ctx context.Context) (*hcloud.Network, error) {
	networks, err := s.cloud.Network.AllWithOpts(ctx, hcloud.NetworkListOpts{ListOpts: s.selector()})
	if err != nil {
		return nil, fmt.Errorf("listing networks: %w", noteError(s.infra, "ListNetworks", err))
	}
	switch {
	case len(networks) > 1:
		return nil, fmt.Errorf("%d networks carry the label %s: delete all but one", len(networks), s.infra.TagKey())
	case len(networks) == 1 && len(networks[0].Subnets) > 1:
		return nil, fmt.Errorf("network %q has %d subnets: want one", networks[0].Name, len(networks[0].Subnets))
	case len(networks) == 1:
		return networks[0], nil
	}

	spec := s.infra.Spec.HCloudNetwork
	_, whole, err := net.ParseCIDR(spec.CIDRBlock)
	if err != nil {
		return nil, fmt.Errorf("spec.hcloudNetwork.cidrBlock: %w", err)
	}
	_, subnet, err := net.ParseCIDR(spec.SubnetCIDRBlock)
	if err != nil {
		return nil, fmt.Errorf("spec.hcloudNetwork.subnetCidrBlock: %w", err)
	}
	network, _, err := s.cloud.Network.Create(ctx, hcloud.NetworkCreateOpts{
		Name:    s.infra.Name,
		IPRange: whole,
		Labels:  s.infra.Tags(),
		Subnets: []hcloud.NetworkSubnet{{
			Type: hcloud.NetworkSubnetTypeCloud, IPRange: subnet, NetworkZone: hcloud.NetworkZone(spec.NetworkZone),
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("creating network %q: %w", s.infra.Name, noteError(s.infra, "CreateNetwork", err))
	}
	s.events.Eventf(s.infra, "Normal", "CreateNetwork", "Created network with ID %d", network.ID)
	return network, nil
}

func (s *clusterScope) deleteNetwork(ctx context.Context) error {
	if s.infra.Status.Network == nil {
		return nil
	}
	id := s.infra.Status.Network.ID
	_, err := s.cloud.Network.Delete(ctx, &hcloud.Network{ID: id})
	if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
		return fmt.Errorf("deleting network %d: %w", id, noteError(s.infra, "DeleteNetwork", err))
	}
	s.infra.Status.Network = nil
	return nil
}
