package caph

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-k8s/slipway/lab/caph/api"
)

// noAddress is how a missing address prints: the original stores that string in the status.
var noAddress = net.IP(nil).String()

// errNothingToAdopt says that spec.controlPlaneLoadBalancer.name names no load balancer.
var errNothingToAdopt = errors.New("no load balancer of that name")

// ensureLoadBalancer finds the cluster's load balancer by its label, else adopts the one that the spec names, else
// creates one; then it updates its type, algorithm, name, network and services. The status is what was read before
// those changes.
func (s *clusterScope) ensureLoadBalancer(ctx context.Context) (reconcile.Result, error) {
	if !s.infra.Spec.ControlPlaneLoadBalancer.Enabled {
		return reconcile.Result{}, nil
	}
	if s.infra.Spec.ControlPlaneEndpoint == nil {
		// Nothing to wait for: a changed spec triggers the next pass.
		return reconcile.Result{}, reconcile.TerminalError(s.loadBalancerFailed(api.LoadBalancerCreateFailed, errors.New(
			"spec.controlPlaneEndpoint is missing, on which CAPH v1.0.7 crashes (nil pointer); set it to {host: "+
				"\"\", port: 6443}")))
	}
	lb, reason, err := s.findOrMakeLoadBalancer(ctx)
	if errors.Is(err, errNothingToAdopt) {
		_ = s.loadBalancerFailed(reason, err)
		return s.after(adoptPoll), nil
	}
	if err != nil {
		return reconcile.Result{}, s.loadBalancerFailed(reason, err)
	}
	s.infra.Status.ControlPlaneLoadBalancer = loadBalancerStatus(lb, s.infra.Status.Network != nil)
	if err := s.updateLoadBalancer(ctx, lb); err != nil {
		return reconcile.Result{}, s.loadBalancerFailed(api.LoadBalancerUpdateFailed, err)
	}
	if err := s.syncServices(ctx, lb); err != nil {
		return reconcile.Result{}, s.loadBalancerFailed(api.LoadBalancerServiceSyncFailed, err)
	}
	conditions.MarkTrue(s.infra, api.LoadBalancerReady)
	return reconcile.Result{}, nil
}

func (s *clusterScope) loadBalancerFailed(reason string, err error) error {
	severity := clusterv1.ConditionSeverityError
	if reason == api.LoadBalancerUpdateFailed || reason == api.LoadBalancerServiceSyncFailed {
		severity = clusterv1.ConditionSeverityWarning
	}
	conditions.MarkFalse(s.infra, api.LoadBalancerReady, reason, severity, "%s", err)
	return fmt.Errorf("load balancer of HetznerCluster %s/%s: %w", s.infra.Namespace, s.infra.Name, err)
}

// findOrMakeLoadBalancer returns the load balancer, or an error and the reason for the condition.
func (s *clusterScope) findOrMakeLoadBalancer(ctx context.Context) (_ *hcloud.LoadBalancer, reason string, _ error) {
	owned, err := s.cloud.LoadBalancer.AllWithOpts(ctx, hcloud.LoadBalancerListOpts{ListOpts: s.selector()})
	if err != nil {
		return nil, api.LoadBalancerUpdateFailed, fmt.Errorf("listing: %w", noteError(s.infra, "ListLoadBalancers", err))
	}
	if len(owned) > 1 {
		return nil, api.LoadBalancerUpdateFailed, fmt.Errorf("%d load balancers carry the label %s: delete all but one",
			len(owned), s.infra.TagKey())
	}
	if len(owned) == 1 {
		return owned[0], "", nil
	}
	if s.infra.Spec.ControlPlaneLoadBalancer.Name != nil {
		lb, err := s.adoptLoadBalancer(ctx, *s.infra.Spec.ControlPlaneLoadBalancer.Name)
		return lb, api.LoadBalancerFailedToOwn, err
	}
	lb, err := s.createLoadBalancer(ctx)
	return lb, api.LoadBalancerCreateFailed, err
}

// adoptLoadBalancer puts the cluster's label on an existing load balancer that no cluster has claimed.
func (s *clusterScope) adoptLoadBalancer(ctx context.Context, name string) (*hcloud.LoadBalancer, error) {
	found, err := s.cloud.LoadBalancer.AllWithOpts(ctx, hcloud.LoadBalancerListOpts{Name: name})
	if err != nil {
		return nil, fmt.Errorf("looking for %q: %w", name, noteError(s.infra, "ListLoadBalancers", err))
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("adopting %q: %w", name, errNothingToAdopt)
	}
	labels := s.infra.Tags()
	for key, value := range found[0].Labels {
		if strings.HasPrefix(key, api.TagPrefix) {
			return nil, fmt.Errorf(
				"adopting %q: it carries the label %s, another cluster's; remove the label if that cluster does not exist any more",
				name, key)
		}
		labels[key] = value
	}
	lb, _, err := s.cloud.LoadBalancer.Update(ctx, found[0], hcloud.LoadBalancerUpdateOpts{Name: name, Labels: labels})
	if err != nil {
		return nil, fmt.Errorf("labelling %q: %w", name, noteError(s.infra, "UpdateLoadBalancer", err))
	}
	return lb, nil
}

func (s *clusterScope) createLoadBalancer(ctx context.Context) (*hcloud.LoadBalancer, error) {
	spec := s.infra.Spec.ControlPlaneLoadBalancer
	opts := hcloud.LoadBalancerCreateOpts{
		Name:             s.infra.Name + "-kube-apiserver-" + util.RandomString(5),
		LoadBalancerType: &hcloud.LoadBalancerType{Name: spec.Type},
		Algorithm:        &hcloud.LoadBalancerAlgorithm{Type: hcloud.LoadBalancerAlgorithmType(spec.Algorithm)},
		Location:         &hcloud.Location{Name: spec.Region},
		Labels:           s.infra.Tags(),
		PublicInterface:  ptr.To(true),
		Services: []hcloud.LoadBalancerCreateOptsService{{
			Protocol:        hcloud.LoadBalancerServiceProtocolTCP,
			ListenPort:      ptr.To(int(s.infra.Spec.ControlPlaneEndpoint.Port)),
			DestinationPort: ptr.To(spec.Port),
			Proxyprotocol:   ptr.To(false),
		}},
	}
	if s.infra.Status.Network != nil {
		opts.Network = &hcloud.Network{ID: s.infra.Status.Network.ID}
	}
	result, _, err := s.cloud.LoadBalancer.Create(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("creating: %w", noteError(s.infra, "CreateLoadBalancer", err))
	}
	s.events.Eventf(s.infra, "Normal", "CreateLoadBalancer", "Created load balancer with ID %d", result.LoadBalancer.ID)
	return result.LoadBalancer, nil
}

// updateLoadBalancer updates the mutable fields, and attaches the load balancer to the network.
func (s *clusterScope) updateLoadBalancer(ctx context.Context, lb *hcloud.LoadBalancer) error {
	spec := s.infra.Spec.ControlPlaneLoadBalancer
	if lb.LoadBalancerType != nil && lb.LoadBalancerType.Name != spec.Type {
		if _, _, err := s.cloud.LoadBalancer.ChangeType(ctx, lb, hcloud.LoadBalancerChangeTypeOpts{
			LoadBalancerType: &hcloud.LoadBalancerType{Name: spec.Type},
		}); err != nil {
			return fmt.Errorf("changing type to %s: %w", spec.Type, noteError(s.infra, "ChangeLoadBalancerType", err))
		}
	}
	if string(lb.Algorithm.Type) != spec.Algorithm {
		if _, _, err := s.cloud.LoadBalancer.ChangeAlgorithm(ctx, lb, hcloud.LoadBalancerChangeAlgorithmOpts{
			Type: hcloud.LoadBalancerAlgorithmType(spec.Algorithm),
		}); err != nil {
			return fmt.Errorf("changing algorithm to %s: %w", spec.Algorithm, noteError(s.infra, "ChangeLoadBalancerAlgorithm",
				err))
		}
	}
	if spec.Name != nil && lb.Name != *spec.Name {
		if _, _, err := s.cloud.LoadBalancer.Update(ctx, lb, hcloud.LoadBalancerUpdateOpts{Name: *spec.Name}); err != nil {
			return fmt.Errorf("renaming to %q: %w", *spec.Name, noteError(s.infra, "UpdateLoadBalancer", err))
		}
	}
	if len(lb.PrivateNet) > 0 || s.infra.Status.Network == nil {
		return nil
	}
	_, _, err := s.cloud.LoadBalancer.AttachToNetwork(ctx, lb, hcloud.LoadBalancerAttachToNetworkOpts{
		Network: &hcloud.Network{ID: s.infra.Status.Network.ID},
	})
	if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeLoadBalancerAlreadyAttached) {
		return fmt.Errorf("attaching to network %d: %w", s.infra.Status.Network.ID,
			noteError(s.infra, "AttachLoadBalancerToNetwork", err))
	}
	return nil
}

// syncServices compares services by listen port alone, as the original does: a service
// whose target port changed stays as it is.
func (s *clusterScope) syncServices(ctx context.Context, lb *hcloud.LoadBalancer) error {
	wanted := append(slices.Clone(s.infra.Spec.ControlPlaneLoadBalancer.ExtraServices), api.LoadBalancerServiceSpec{
		Protocol:        string(hcloud.LoadBalancerServiceProtocolTCP),
		ListenPort:      int(s.infra.Spec.ControlPlaneEndpoint.Port),
		DestinationPort: s.infra.Spec.ControlPlaneLoadBalancer.Port,
	})
	for _, service := range lb.Services {
		if slices.ContainsFunc(wanted, func(w api.LoadBalancerServiceSpec) bool {
			return w.ListenPort == service.ListenPort
		}) {
			continue
		}
		if _, _, err := s.cloud.LoadBalancer.DeleteService(ctx, lb, service.ListenPort); err != nil {
			return fmt.Errorf("deleting service on port %d: %w", service.ListenPort,
				noteError(s.infra, "DeleteServiceFromLoadBalancer", err))
		}
	}
	for _, service := range wanted {
		if slices.ContainsFunc(lb.Services, func(have hcloud.LoadBalancerService) bool {
			return have.ListenPort == service.ListenPort
		}) {
			continue
		}
		if _, _, err := s.cloud.LoadBalancer.AddService(ctx, lb, hcloud.LoadBalancerAddServiceOpts{
			Protocol:        hcloud.LoadBalancerServiceProtocol(service.Protocol),
			ListenPort:      ptr.To(service.ListenPort),
			DestinationPort: ptr.To(service.DestinationPort),
			Proxyprotocol:   ptr.To(false),
		}); err != nil {
			return fmt.Errorf("adding service on port %d: %w", service.ListenPort, noteError(s.infra, "AddServiceToLoadBalancer",
				err))
		}
	}
	return nil
}

func (s *clusterScope) deleteLoadBalancer(ctx context.Context) error {
	status := s.infra.Status.ControlPlaneLoadBalancer
	if status == nil {
		return nil
	}
	if status.Protected || s.infra.Spec.ControlPlaneLoadBalancer.Name != nil {
		return s.disownLoadBalancer(ctx)
	}
	_, _, err := s.cloud.LoadBalancer.DeleteWithResult(ctx, &hcloud.LoadBalancer{ID: status.ID})
	if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
		return s.loadBalancerFailed(api.LoadBalancerDeleteFailed,
			fmt.Errorf("deleting %d: %w", status.ID, noteError(s.infra, "DeleteLoadBalancer", err)))
	}
	s.infra.Status.ControlPlaneLoadBalancer = nil
	return nil
}

// disownLoadBalancer takes the cluster's label off a load balancer that is protected or was adopted.
func (s *clusterScope) disownLoadBalancer(ctx context.Context) error {
	owned, err := s.cloud.LoadBalancer.AllWithOpts(ctx, hcloud.LoadBalancerListOpts{ListOpts: s.selector()})
	if err != nil {
		return fmt.Errorf("listing: %w", noteError(s.infra, "ListLoadBalancers", err))
	}
	for _, lb := range owned {
		labels := maps.Clone(lb.Labels)
		delete(labels, s.infra.TagKey())
		if _, _, err := s.cloud.LoadBalancer.Update(ctx, lb, hcloud.LoadBalancerUpdateOpts{Labels: labels}); err != nil {
			return s.loadBalancerFailed(api.LoadBalancerUpdateFailed,
				fmt.Errorf("removing the label of %d: %w", lb.ID, noteError(s.infra, "UpdateLoadBalancer", err)))
		}
	}
	s.infra.Status.ControlPlaneLoadBalancer = nil
	s.events.Eventf(s.infra, "Normal", "LoadBalancerOwnedLabelRemoved", "removed owned label of load balancer")
	return nil
}

func loadBalancerStatus(lb *hcloud.LoadBalancer, hasNetwork bool) *api.LoadBalancerStatus {
	status := &api.LoadBalancerStatus{
		ID:        lb.ID,
		IPv4:      lb.PublicNet.IPv4.IP.String(),
		IPv6:      lb.PublicNet.IPv6.IP.String(),
		Protected: lb.Protection.Delete,
	}
	if hasNetwork && len(lb.PrivateNet) > 0 {
		status.InternalIP = lb.PrivateNet[0].IP.String()
	}
	for _, target := range lb.Targets {
		switch target.Type {
		case hcloud.LoadBalancerTargetTypeServer:
			status.Targets = append(status.Targets,
				api.LoadBalancerTarget{Type: string(target.Type), ServerID: target.Server.Server.ID})
		case hcloud.LoadBalancerTargetTypeIP:
			status.Targets = append(status.Targets, api.LoadBalancerTarget{Type: string(target.Type), IP: target.IP.IP})
		}
	}
	return status
}
