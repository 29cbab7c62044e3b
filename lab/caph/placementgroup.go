package caph

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/slipway-k8s/slipway/lab/caph/api"
)

// ensurePlacementGroups creates the groups of the spec and deletes others with the cluster's label.
func (s *clusterScope) ensurePlacementGroups(ctx context.Context) error {
	groups, err := s.syncPlacementGroups(ctx)
	if err != nil {
		conditions.MarkFalse(s.infra, api.PlacementGroupsSynced, api.PlacementGroupsSyncFailed,
			clusterv1.ConditionSeverityWarning, "%s", err)
		return fmt.Errorf("placement groups of HetznerCluster %s/%s: %w", s.infra.Namespace, s.infra.Name, err)
	}
	s.infra.Status.HCloudPlacementGroups = nil
	for _, group := range groups {
		s.infra.Status.HCloudPlacementGroups = append(s.infra.Status.HCloudPlacementGroups, api.HCloudPlacementGroupStatus{
			ID:      group.ID,
			Servers: group.Servers,
			Name:    strings.TrimPrefix(group.Name, s.infra.Name+"-"),
			Type:    string(group.Type),
		})
	}
	conditions.MarkTrue(s.infra, api.PlacementGroupsSynced)
	return nil
}

func (s *clusterScope) syncPlacementGroups(ctx context.Context) ([]*hcloud.PlacementGroup, error) {
	groups, err := s.cloud.PlacementGroup.AllWithOpts(ctx, hcloud.PlacementGroupListOpts{ListOpts: s.selector()})
	if err != nil {
		return nil, fmt.Errorf("listing: %w", noteError(s.infra, "ListPlacementGroups", err))
	}
	wanted := map[string]bool{}
	for _, spec := range s.infra.Spec.HCloudPlacementGroups {
		name := s.infra.Name + "-" + spec.Name
		wanted[name] = true
		if slices.ContainsFunc(groups, func(g *hcloud.PlacementGroup) bool { return g.Name == name }) {
			continue
		}
		result, _, err := s.cloud.PlacementGroup.Create(ctx, hcloud.PlacementGroupCreateOpts{
			Name: name, Type: hcloud.PlacementGroupType(spec.Type), Labels: s.infra.Tags(),
		})
		if err != nil {
			return nil, fmt.Errorf("creating %q: %w", name, noteError(s.infra, "CreatePlacementGroup", err))
		}
		groups = append(groups, result.PlacementGroup)
	}
	kept := groups[:0]
	for _, group := range groups {
		if wanted[group.Name] {
			kept = append(kept, group)
			continue
		}
		if err := s.deletePlacementGroup(ctx, group.ID); err != nil {
			return nil, err
		}
	}
	return kept, nil
}

func (s *clusterScope) deletePlacementGroups(ctx context.Context) error {
	for len(s.infra.Status.HCloudPlacementGroups) > 0 {
		if err := s.deletePlacementGroup(ctx, s.infra.Status.HCloudPlacementGroups[0].ID); err != nil {
			return err
		}
		s.infra.Status.HCloudPlacementGroups = s.infra.Status.HCloudPlacementGroups[1:]
	}
	return nil
}

func (s *clusterScope) deletePlacementGroup(ctx context.Context, id int64) error {
	_, err := s.cloud.PlacementGroup.Delete(ctx, &hcloud.PlacementGroup{ID: id})
	if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
		return fmt.Errorf("deleting placement group %d: %w", id, noteError(s.infra, "DeletePlacementGroup", err))
	}
	return nil
}
