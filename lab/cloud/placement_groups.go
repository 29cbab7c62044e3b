package cloud

import "github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

const kindPlacementGroup = "placement_group"

// spreadMax is how many servers a spread group holds (docs.hetzner.com/cloud/placement-groups).
const spreadMax = 10

// placementGroup keeps its servers on different hosts. Which servers it has is written on them.
type placementGroup struct{ meta }

func (c *Cloud) placementGroups() resource[*placementGroup] {
	return resource[*placementGroup]{
		kind: kindPlacementGroup, path: "placement_groups", all: c.state.PlacementGroups,
		view:    func(one *placementGroup) any { return c.viewPlacementGroup(one) },
		filters: map[string]func(*placementGroup) string{"type": func(*placementGroup) string { return "spread" }},
		update:  noUpdate[*placementGroup],
		remove: func(q *call, one *placementGroup) (any, error) {
			if members := q.members(one.ID); len(members) > 0 {
				return nil, refuse("resource_in_use", "placement group is in use by %d servers", len(members))
			}
			delete(q.state.PlacementGroups, one.ID)
			return nil, nil
		},
	}
}

// members are the servers of a placement group.
func (c *Cloud) members(group int64) []int64 {
	found := []int64{}
	for _, one := range ordered(c.state.Servers) {
		if one.PlacementGroup == group {
			found = append(found, one.ID)
		}
	}
	return found
}

func (c *Cloud) viewPlacementGroup(one *placementGroup) schema.PlacementGroup {
	return schema.PlacementGroup{
		ID: one.ID, Name: one.Name, Labels: one.labels(), Created: one.Created,
		Servers: c.members(one.ID), Type: "spread",
	}
}

func (c *Cloud) createPlacementGroup(q *call, wanted schema.PlacementGroupCreateRequest) (any, error) {
	if wanted.Type != "spread" {
		return nil, invalid("type", "%q is no type of placement group: it is spread", wanted.Type)
	}
	about, err := c.placementGroups().begin(q, wanted.Name, wanted.Labels)
	if err != nil {
		return nil, err
	}
	made := &placementGroup{about}
	c.state.PlacementGroups[made.ID] = made
	return schema.PlacementGroupCreateResponse{PlacementGroup: c.viewPlacementGroup(made)}, nil
}

// checkPlacement refuses a group that does not exist or is full.
func (c *Cloud) checkPlacement(group int64) error {
	if _, ok := c.state.PlacementGroups[group]; !ok {
		return invalid("placement_group", "placement group with ID '%d' not found", group)
	}
	if len(c.members(group)) >= spreadMax {
		return refuse("placement_error", "a spread placement group holds at most %d servers", spreadMax)
	}
	return nil
}

func addToPlacementGroup(q *call, one *server, wanted schema.ServerActionAddToPlacementGroupRequest) (any, error) {
	if one.Status != statusOff {
		return nil, refuse("server_not_stopped", "the server must be stopped to be added to a placement group")
	}
	if one.PlacementGroup != 0 {
		return nil, refuse("server_already_added", "the server is already in a placement group")
	}
	if err := q.checkPlacement(wanted.PlacementGroup); err != nil {
		return nil, err
	}
	one.PlacementGroup = wanted.PlacementGroup
	return q.acted("add_to_placement_group", on(kindServer, one.ID), on(kindPlacementGroup, wanted.PlacementGroup)), nil
}

func removeFromPlacementGroup(q *call, one *server) (any, error) {
	if one.PlacementGroup == 0 {
		return nil, invalid("placement_group", "the server is in no placement group")
	}
	group := one.PlacementGroup
	one.PlacementGroup = 0
	return q.acted("remove_from_placement_group", on(kindServer, one.ID), on(kindPlacementGroup, group)), nil
}
