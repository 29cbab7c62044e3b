package hetzner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Removal deletes resources, one attempt at a time, and remembers which deletions Hetzner is still busy with. It holds
// nothing that a new one would not find out again.
type Removal struct {
	client *hcloud.Client
	busy   map[string]*hcloud.Action // by Resource.String
}

// NewRemoval begins.
func NewRemoval(c *hcloud.Client) *Removal {
	return &Removal{client: c, busy: map[string]*hcloud.Action{}}
}

// Claim labels what belongs to a cluster by its surroundings alone, before they go: a killed run must find it again.
func (m *Removal) Claim(ctx context.Context, r Resource) error {
	if r.Claimed || r.Cluster == "" {
		return nil
	}
	labels := maps.Clone(r.labels)
	labels[OwnerLabel] = r.Cluster
	var err error
	switch r.Kind {
	case KindLoadBalancer:
		_, _, err = m.client.LoadBalancer.Update(ctx, &hcloud.LoadBalancer{ID: r.ID},
			hcloud.LoadBalancerUpdateOpts{Labels: labels})
	case KindVolume:
		_, _, err = m.client.Volume.Update(ctx, &hcloud.Volume{ID: r.ID}, hcloud.VolumeUpdateOpts{Labels: labels})
	}
	if hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("label %s as %s=%s: %w", r, OwnerLabel, r.Cluster, explain(err))
	}
	return nil
}

// Refresh asks how the deletions go that Hetzner is still busy with, in one request for 25 of them. An action that it
// does not know any more counts as done: Remove tries again then. Without a Refresh, Remove takes a deletion for
// running.
func (m *Removal) Refresh(ctx context.Context) error {
	byID := map[int64]string{}
	for resource, a := range m.busy {
		if a.Status == hcloud.ActionStatusRunning {
			byID[a.ID] = resource
		}
	}
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(byID)), 25) {
		opts := hcloud.ActionListOpts{ID: ids, ListOpts: hcloud.ListOpts{PerPage: len(ids)}}
		actions, _, err := m.client.Action.List(ctx, opts)
		if err != nil {
			return fmt.Errorf("ask how %d deletions go: %w", len(ids), explain(err))
		}
		for _, id := range ids {
			m.busy[byID[id]] = &hcloud.Action{ID: id, Status: hcloud.ActionStatusSuccess}
		}
		for _, a := range actions {
			m.busy[byID[a.ID]] = a
		}
	}
	return nil
}

// Remove asks for a resource's deletion. pending says why it cannot be deleted yet, or that Hetzner is at it; with
// neither that nor an error it is deleted or being deleted, as the next inventory tells. An error is one that waiting
// does not resolve.
func (m *Removal) Remove(ctx context.Context, r Resource) (pending string, err error) {
	switch {
	case !r.Claimed:
		return "", fmt.Errorf("%s does not carry a label of its cluster: it is not deleted", r)
	case r.Shared != "":
		return "", fmt.Errorf("%s is not deleted: %s; take that away and run again", r, r.Shared)
	}
	if r.IsEndpointAddress() && r.assigned { // else it would be unprotected while its cluster still has it
		return fmt.Sprintf("%s is assigned to its load balancer", r), nil
	}
	if was := m.busy[r.String()]; was != nil {
		if was.Status == hcloud.ActionStatusRunning {
			return fmt.Sprintf("%s is being deleted (%d %%)", r, was.Progress), nil
		}
		delete(m.busy, r.String())
		if was.Status == hcloud.ActionStatusError {
			return fmt.Sprintf("the deletion of %s failed (%s), it is tried again", r, was.ErrorMessage), nil
		}
	}
	action, err := m.delete(ctx, r)
	switch {
	case err == nil && action != nil:
		m.busy[r.String()] = action
		return "", nil
	case err == nil, hcloud.IsError(err, hcloud.ErrorCodeNotFound):
		return "", nil
	}
	return transient("delete "+r.String(), err)
}

// transient says of an error that passes that it is waited for.
func transient(doing string, err error) (pending string, _ error) {
	if passes(err) {
		return fmt.Sprintf("cannot %s yet: %v", doing, err), nil
	}
	if hcloud.IsError(err, hcloud.ErrorCodeProtected) {
		return "", fmt.Errorf("%s: it is protected: take the protection away in Hetzner's console and run again: %w", doing,
			err)
	}
	return "", fmt.Errorf("%s: %w", doing, explain(err))
}

// errMustBeUnassigned is the code since 2026-05-01 for a Primary IP that something still has. hcloud-go does not name
// it.
const errMustBeUnassigned hcloud.ErrorCode = "must_be_unassigned"

// Passes tells errors that go away by themselves, and that of a name that is taken: what was created a moment ago, by a
// request whose answer was lost, may not be in a list yet. An error that came neither from the API nor from the line to
// it stays.
func Passes(err error) bool {
	if errors.As(err, new(hcloud.Error)) {
		return passes(err) || hcloud.IsError(err, hcloud.ErrorCodeUniquenessError)
	}
	return errors.As(err, new(*url.Error)) && !errors.Is(err, context.Canceled)
}

// passes tells errors that go away by themselves: another client is working on it, a dependency is being deleted, the
// line broke.
func passes(err error) bool {
	if hcloud.IsError(err, hcloud.ErrorCodeLocked, hcloud.ErrorCodeConflict, hcloud.ErrorCodeResourceLocked,
		hcloud.ErrorCodeRateLimitExceeded,
		hcloud.ErrorCodeTimeout, hcloud.ErrorCodeBadGateway, hcloud.ErrorCodeMaintenance, hcloud.ErrorCodeServerError,
		hcloud.ErrorCodeServiceError, hcloud.ErrorCodeUnknownError, hcloud.ErrorCodeResourceInUse, errMustBeUnassigned) {
		return true
	}
	var broken net.Error
	var api hcloud.Error
	return errors.As(err, &broken) || !errors.As(err, &api) && !errors.Is(err, context.Canceled)
}

// delete deletes a resource; the action is nil where Hetzner does it at once.
func (m *Removal) delete(ctx context.Context, r Resource) (*hcloud.Action, error) {
	c := m.client
	var err error
	switch r.Kind {
	case KindServer:
		result, _, err := c.Server.DeleteWithResult(ctx, &hcloud.Server{ID: r.ID})
		if err != nil {
			return nil, err
		}
		return result.Action, nil
	case KindLoadBalancer:
		return deleteLoadBalancer(ctx, c, r.ID)
	case KindVolume:
		_, err = c.Volume.Delete(ctx, &hcloud.Volume{ID: r.ID})
	case KindPrimaryIP:
		if r.IsEndpointAddress() && r.protected {
			if err := protectEndpointIP(ctx, c, r.ID, false); err != nil {
				return nil, err
			}
		}
		_, err = c.PrimaryIP.Delete(ctx, &hcloud.PrimaryIP{ID: r.ID})
	case KindFirewall:
		return nil, m.deleteFirewall(ctx, r)
	case KindPlacementGroup:
		_, err = c.PlacementGroup.Delete(ctx, &hcloud.PlacementGroup{ID: r.ID})
	case KindNetwork:
		_, err = c.Network.Delete(ctx, &hcloud.Network{ID: r.ID})
	case KindSSHKey:
		_, err = c.SSHKey.Delete(ctx, &hcloud.SSHKey{ID: r.ID})
	case KindSnapshot:
		_, err = c.Image.Delete(ctx, &hcloud.Image{ID: r.ID})
	default:
		return nil, fmt.Errorf("a %s cannot be deleted: the kind is unknown", r.Kind)
	}
	return nil, err
}

// deleteLoadBalancer deletes a load balancer, and gives the action at whose end it is gone. Before 2026-10-05 it was
// deleted at once and without one: then the action is nil.
func deleteLoadBalancer(ctx context.Context, c *hcloud.Client, id int64) (*hcloud.Action, error) {
	result, response, err := c.LoadBalancer.DeleteWithResult(ctx, &hcloud.LoadBalancer{ID: id})
	if response != nil && response.Response != nil && response.StatusCode == http.StatusNoContent {
		return nil, nil
	}
	return result.Action, err
}

// DeleteServer deletes one server, and does not wait until it is gone. One that is gone is no error.
func DeleteServer(ctx context.Context, c *hcloud.Client, id int64) error {
	_, _, err := c.Server.DeleteWithResult(ctx, &hcloud.Server{ID: id})
	if err == nil || hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
		return nil
	}
	return fmt.Errorf("delete server %d: %w", id, explain(err))
}

// deleteFirewall takes the firewall off the cluster's servers first: a label selector keeps it in use though no server
// is left.
func (m *Removal) deleteFirewall(ctx context.Context, r Resource) error {
	if len(r.covers) > 0 {
		actions, _, err := m.client.Firewall.RemoveResources(ctx, &hcloud.Firewall{ID: r.ID}, r.covers)
		err = finish(ctx, m.client, err, actions...)
		if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeFirewallResourceNotFound) {
			return err
		}
	}
	_, err := m.client.Firewall.Delete(ctx, &hcloud.Firewall{ID: r.ID})
	return err
}
