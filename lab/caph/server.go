package caph

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-k8s/slipway/lab/caph/api"
)

const (
	providerIDPrefix = "hcloud://"
	// serverOffDeadline: a server that stays off this long fails.
	serverOffDeadline = 10 * time.Minute
	// bootDeadline: a server that is not created, or does not start, within this time is given up (v1.1.0).
	bootDeadline = 6 * time.Minute
	// shutdownDeadline: a server that does not shut down within this time is deleted running.
	shutdownDeadline = 2 * time.Minute
)

// ensure creates the server of an HCloudMachine, powers it on, and attaches it to the network and the load balancer.
func (s *machineScope) ensure(ctx context.Context) (reconcile.Result, error) {
	region, err := s.region()
	if err != nil {
		return reconcile.Result{}, err
	}
	s.hcloudMachine.Status.Region = region
	if s.machine.Spec.Bootstrap.DataSecretName == nil {
		conditions.MarkFalse(s.hcloudMachine, api.BootstrapReady, api.BootstrapNotReady, clusterv1.ConditionSeverityInfo,
			"bootstrap not ready yet")
		return s.after(bootstrapPoll), nil
	}
	conditions.MarkTrue(s.hcloudMachine, api.BootstrapReady)
	if s.overdue("") {
		return reconcile.Result{}, s.timedOut(ctx, api.ServerCreateSucceeded, "HandleBootStateUnsetTimedOut",
			"boot state unset")
	}

	server, err := s.find(ctx)
	if err != nil {
		return s.notFound(err)
	}
	if server == nil && s.follows.failsLost && s.hcloudMachine.Spec.ProviderID != nil {
		return reconcile.Result{}, s.lost(ctx, *s.hcloudMachine.Spec.ProviderID)
	}
	if server == nil {
		// Never created, or vanished: v1.0.7 does not distinguish them and creates it (again).
		server, err = s.create(ctx)
		var impossible *impossibleError
		if errors.As(err, &impossible) {
			return s.after(impossiblePoll), nil
		}
		if s.follows.stopsIrrecoverable && hcloud.IsError(err, hcloud.ErrorCodeInvalidInput,
			hcloud.ErrorCodeResourceUnavailable) {
			conditions.MarkFalse(s.hcloudMachine, api.ServerCreateSucceeded, api.ServerCreateFailedIrrecoverable,
				clusterv1.ConditionSeverityError, "%s", err)
			return reconcile.Result{}, nil
		}
		if s.follows.adopts && hcloud.IsError(err, hcloud.ErrorCodeUniquenessError) {
			return s.after(nameTakenPoll), nil
		}
		if err != nil {
			return reconcile.Result{}, err
		}
	}
	if s.follows.failsLost {
		s.hcloudMachine.Status.FailureReason, s.hcloudMachine.Status.FailureMessage = nil, nil
	}
	conditions.MarkTrue(s.hcloudMachine, api.ServerCreateSucceeded)
	s.hcloudMachine.Spec.ProviderID = ptr.To(providerIDPrefix + strconv.FormatInt(server.ID, 10))
	s.hcloudMachine.Status.Addresses = addresses(server)
	s.hcloudMachine.Status.InstanceState = ptr.To(string(server.Status))
	if s.overdue(api.BootStateBootingToRealOS) {
		return reconcile.Result{}, s.timedOut(ctx, api.ServerProvisioned, "BootingToRealOSTimedOut",
			"booting to real OS")
	}
	s.bootState(server)

	switch status := server.Status; {
	case s.hcloudMachine.Status.BootState == api.BootStateOperatingSystemRunning: // from then on it may be off
	case status == hcloud.ServerStatusOff:
		return s.powerOn(ctx, server)
	case status == hcloud.ServerStatusStarting:
		conditions.MarkFalse(s.hcloudMachine, api.ServerAvailable, api.ServerStarting, clusterv1.ConditionSeverityInfo,
			"server is starting")
		return s.after(startingPoll), nil
	case status == hcloud.ServerStatusRunning:
	default:
		s.hcloudMachine.Status.Ready = false
		return s.after(transitionalPoll), nil
	}

	if err := s.attachToNetwork(ctx, server); err != nil {
		return reconcile.Result{}, s.unavailable(api.NetworkAttachFailed, err)
	}
	if err := s.attachToLoadBalancer(ctx, server); err != nil {
		return reconcile.Result{}, s.unavailable(api.LoadBalancerAttachFailed, err)
	}
	s.hcloudMachine.Status.Ready = true
	conditions.MarkTrue(s.hcloudMachine, api.ServerAvailable)
	return reconcile.Result{}, nil
}

func (s *machineScope) unavailable(reason string, err error) error {
	conditions.MarkFalse(s.hcloudMachine, api.ServerAvailable, reason, clusterv1.ConditionSeverityError, "%s", err)
	return err
}

// region is the Machine's failure domain, else one of the cluster's, always the same for the same name.
func (s *machineScope) region() (string, error) {
	if domain := s.machine.Spec.FailureDomain; domain != nil {
		return *domain, nil
	}
	domains := slices.Sorted(maps.Keys(s.cluster.Status.FailureDomains))
	if len(domains) == 0 {
		return "", fmt.Errorf("Machine %s has no failureDomain and Cluster %s none to choose from yet", s.machine.Name,
			s.cluster.Name)
	}
	return domains[crc32.ChecksumIEEE([]byte(s.hcloudMachine.Name))%uint32(len(domains))], nil
}

// notFound is how a pass goes on that could not find out whether there is a server.
func (s *machineScope) notFound(err error) (reconcile.Result, error) {
	switch {
	case !s.follows.ignoresLimitWhenReady:
		return reconcile.Result{}, err
	case !hcloud.IsError(err, hcloud.ErrorCodeRateLimitExceeded):
		conditions.MarkFalse(s.hcloudMachine, api.ServerAvailable, api.ServerNotFound, clusterv1.ConditionSeverityError,
			"failed to find server: %s", err)
		return reconcile.Result{}, err
	case s.hcloudMachine.Status.Ready:
		conditions.MarkTrue(s.hcloudMachine, api.HetznerAPIReachable)
		return reconcile.Result{}, nil
	default:
		return s.after(rateLimitPoll), nil
	}
}

// lost makes the machine of a server fail that was created and is not there any more.
func (s *machineScope) lost(ctx context.Context, providerID string) error {
	if s.follows.remediatesLost {
		return s.remediate(ctx, api.ServerAvailable, api.NoHCloudServerFound,
			fmt.Sprintf("hcloud server (%q) no longer available. Setting MachineError.", providerID))
	}
	s.hcloudMachine.Status.FailureReason = ptr.To("UpdateError")
	s.hcloudMachine.Status.FailureMessage = ptr.To(fmt.Sprintf("server with providerID %s not found", providerID))
	conditions.MarkFalse(s.hcloudMachine, api.ServerAvailable, api.ServerNotFound, clusterv1.ConditionSeverityError,
		"server with providerID %s no longer exists", providerID)
	return nil
}

// labels are the server's in Hetzner's API.
func (s *machineScope) labels() map[string]string {
	machineType := "worker"
	if util.IsControlPlaneMachine(s.machine) {
		machineType = "control_plane"
	}
	labels := s.infra.Tags()
	labels[api.TagMachineName] = s.hcloudMachine.Name
	labels[api.TagMachineType] = machineType
	return labels
}

// find finds the server by provider ID, else by labels; nil if there is none.
func (s *machineScope) find(ctx context.Context) (*hcloud.Server, error) {
	if s.hcloudMachine.Spec.ProviderID != nil {
		id, err := strconv.ParseInt(strings.TrimPrefix(*s.hcloudMachine.Spec.ProviderID, providerIDPrefix), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("HCloudMachine %s: spec.providerID %q is not hcloud://<number>", s.hcloudMachine.Name,
				*s.hcloudMachine.Spec.ProviderID)
		}
		server, _, err := s.cloud.Server.GetByID(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("getting server %d: %w", id, noteError(s.hcloudMachine, "GetServer", err))
		}
		if server != nil {
			return server, nil
		}
	}
	var terms []string
	for key, value := range s.labels() {
		terms = append(terms, key+"=="+value)
	}
	servers, err := s.cloud.Server.AllWithOpts(ctx,
		hcloud.ServerListOpts{ListOpts: hcloud.ListOpts{LabelSelector: strings.Join(terms, ",")}})
	if err != nil {
		return nil, fmt.Errorf("listing servers: %w", noteError(s.hcloudMachine, "ListServers", err))
	}
	if len(servers) > 1 {
		return nil, fmt.Errorf("%d servers carry the labels of HCloudMachine %s: delete all but one", len(servers),
			s.hcloudMachine.Name)
	}
	if len(servers) == 0 {
		return nil, nil
	}
	return servers[0], nil
}

// powerOn powers on a server that is off, and fails it after ten minutes.
func (s *machineScope) powerOn(ctx context.Context, server *hcloud.Server) (reconcile.Result, error) {
	s.hcloudMachine.Status.Ready = false
	available := conditions.Get(s.hcloudMachine, api.ServerAvailable)
	if available != nil && available.Reason == api.ServerOff &&
		time.Since(available.LastTransitionTime.Time) > serverOffDeadline {
		s.hcloudMachine.Status.FailureReason = ptr.To("CreateError")
		s.hcloudMachine.Status.FailureMessage = ptr.To(
			fmt.Sprintf("reached timeout of waiting for machine that is switched off: server %d stayed off for %s",
				server.ID, serverOffDeadline))
		return reconcile.Result{}, nil
	}
	_, _, err := s.cloud.Server.Poweron(ctx, server)
	if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeLocked) { // locked: an action is running, try again
		return reconcile.Result{}, fmt.Errorf("powering on server %d: %w", server.ID,
			noteError(s.hcloudMachine, "PowerOnServer", err))
	}
	conditions.MarkFalse(s.hcloudMachine, api.ServerAvailable, api.ServerOff, clusterv1.ConditionSeverityInfo,
		"server is switched off")
	return s.after(serverOffPoll), nil
}

func (s *machineScope) attachToNetwork(ctx context.Context, server *hcloud.Server) error {
	network := s.infra.Status.Network
	if network == nil || slices.Contains(network.AttachedServers, server.ID) {
		return nil
	}
	_, _, err := s.cloud.Server.AttachToNetwork(ctx, server,
		hcloud.ServerAttachToNetworkOpts{Network: &hcloud.Network{ID: network.ID}})
	if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeServerAlreadyAttached) {
		return fmt.Errorf("attaching server %d to network %d: %w", server.ID, network.ID,
			noteError(s.hcloudMachine, "AttachServerToNetwork", err))
	}
	return nil
}

// attachToLoadBalancer makes a control plane server a target at once: only kubeadm
// control planes wait until they are healthy.
func (s *machineScope) attachToLoadBalancer(ctx context.Context, server *hcloud.Server) error {
	lb := s.infra.Status.ControlPlaneLoadBalancer
	if !s.behindLoadBalancer() ||
		slices.ContainsFunc(lb.Targets, func(t api.LoadBalancerTarget) bool { return t.ServerID == server.ID }) {
		return nil
	}
	_, _, err := s.cloud.LoadBalancer.AddServerTarget(ctx, &hcloud.LoadBalancer{ID: lb.ID},
		hcloud.LoadBalancerAddServerTargetOpts{
			Server: server, UsePrivateIP: ptr.To(len(server.PrivateNet) > 0),
		})
	if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeTargetAlreadyDefined) {
		return fmt.Errorf("adding server %d to load balancer %d: %w", server.ID, lb.ID,
			noteError(s.hcloudMachine, "AddTargetServerToLoadBalancer", err))
	}
	return nil
}

func (s *machineScope) behindLoadBalancer() bool {
	return util.IsControlPlaneMachine(s.machine) && s.infra.Spec.ControlPlaneLoadBalancer.Enabled &&
		s.infra.Status.ControlPlaneLoadBalancer != nil
}

// delete removes the server from the load balancer, shuts it down, and deletes it when it is off or does not shut down.
func (s *machineScope) delete(ctx context.Context) (reconcile.Result, error) {
	if s.follows.deletesKnown && s.hcloudMachine.Spec.ProviderID == nil {
		return reconcile.Result{}, nil
	}
	server, err := s.find(ctx)
	if err != nil || server == nil {
		return reconcile.Result{}, err
	}
	s.hcloudMachine.Status.Ready = false
	if s.behindLoadBalancer() {
		id := s.infra.Status.ControlPlaneLoadBalancer.ID
		_, _, err := s.cloud.LoadBalancer.RemoveServerTarget(ctx, &hcloud.LoadBalancer{ID: id}, server)
		// invalid_input: it is no target any more; not_found: the load balancer does not exist.
		if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeInvalidInput, hcloud.ErrorCodeNotFound) {
			return reconcile.Result{}, fmt.Errorf("removing server %d from load balancer %d: %w", server.ID, id,
				noteError(s.hcloudMachine, "DeleteTargetServerOfLoadBalancer", err))
		}
	}
	available := conditions.Get(s.hcloudMachine, api.ServerAvailable)
	terminating := available != nil && available.Reason == api.ServerTerminating
	if server.Status == hcloud.ServerStatusRunning &&
		!(terminating && time.Since(available.LastTransitionTime.Time) > shutdownDeadline) {
		if _, _, err := s.cloud.Server.Shutdown(ctx, server); err != nil && !hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
			return reconcile.Result{}, fmt.Errorf("shutting down server %d: %w", server.ID,
				noteError(s.hcloudMachine, "ShutdownServer", err))
		}
		conditions.MarkFalse(s.hcloudMachine, api.ServerAvailable, api.ServerTerminating, clusterv1.ConditionSeverityInfo,
			"Instance has been shut down")
		return s.after(shutdownPoll), nil
	}
	if _, _, err := s.cloud.Server.DeleteWithResult(ctx, server); err != nil &&
		!hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
		return reconcile.Result{}, fmt.Errorf("deleting server %d: %w", server.ID,
			noteError(s.hcloudMachine, "DeleteServer", err))
	}
	s.events.Eventf(s.hcloudMachine, "Normal", "HCloudServerDeleted", "HCloud server %d deleted", server.ID)
	return reconcile.Result{}, nil
}

// addresses lists a server's: public IPv4 (the text "<nil>" if it has none, as the original), the first
// IPv6 of its /64, and each private one.
func addresses(server *hcloud.Server) []clusterv1.MachineAddress {
	list := []clusterv1.MachineAddress{{Type: clusterv1.MachineExternalIP, Address: server.PublicNet.IPv4.IP.String()}}
	if base := server.PublicNet.IPv6.IP; len(base) == net.IPv6len {
		first := slices.Clone(base)
		first[net.IPv6len-1]++
		list = append(list, clusterv1.MachineAddress{Type: clusterv1.MachineExternalIP, Address: first.String()})
	}
	for _, private := range server.PrivateNet {
		list = append(list, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: private.IP.String()})
	}
	return list
}
