package caph

import (
	"context"
	"fmt"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/lab/caph/api"
)

// impossibleError means that a server cannot be created until the operator changes something; the reason is the
// condition's.
type impossibleError struct {
	Reason, Message string
}

func (e *impossibleError) Error() string { return e.Message }

// impossible records on the HCloudMachine why its server cannot be created.
func (s *machineScope) impossible(reason, format string, args ...any) error {
	err := &impossibleError{Reason: reason, Message: fmt.Sprintf(format, args...)}
	conditions.MarkFalse(s.hcloudMachine, api.ServerCreateSucceeded, reason, clusterv1.ConditionSeverityError, "%s",
		err.Message)
	s.events.Event(s.hcloudMachine, "Warning", reason, err.Message)
	return err
}

// create creates the server. It returns an *impossibleError if a requirement is missing.
func (s *machineScope) create(ctx context.Context) (*hcloud.Server, error) {
	userData, err := s.userData(ctx)
	if err != nil {
		return nil, err
	}
	serverType, _, err := s.cloud.ServerType.GetByName(ctx, s.hcloudMachine.Spec.Type)
	if err != nil {
		return nil, fmt.Errorf("getting server type %q: %w", s.hcloudMachine.Spec.Type,
			noteError(s.hcloudMachine, "GetServerType", err))
	}
	if serverType == nil {
		return nil, s.impossible(api.ServerTypeNotFound, "server type %q does not exist", s.hcloudMachine.Spec.Type)
	}
	image, err := s.image(ctx, serverType.Architecture)
	if err != nil {
		return nil, err
	}
	opts := hcloud.ServerCreateOpts{
		Name:             s.hcloudMachine.Name,
		Labels:           s.labels(),
		Image:            image,
		Location:         &hcloud.Location{Name: s.hcloudMachine.Status.Region},
		ServerType:       serverType,
		Automount:        ptr.To(false),
		StartAfterCreate: ptr.To(true),
		UserData:         string(userData),
		PublicNet:        s.publicNet(),
	}
	if opts.PlacementGroup, err = s.placementGroup(); err != nil {
		return nil, err
	}
	if opts.SSHKeys, err = s.sshKeys(ctx); err != nil {
		return nil, err
	}
	if network := s.infra.Status.Network; network != nil {
		opts.Networks = []*hcloud.Network{{ID: network.ID}}
	}

	result, _, err := s.cloud.Server.Create(ctx, opts)
	if s.follows.adopts && hcloud.IsError(err, hcloud.ErrorCodeUniquenessError) {
		if existing, _, findErr := s.cloud.Server.GetByName(ctx, opts.Name); findErr == nil && existing != nil {
			s.events.Eventf(s.hcloudMachine, "Normal", "AdoptedExistingServer",
				"Adopted existing server %s (ID %d) after a uniqueness error on create", existing.Name, existing.ID)
			return existing, nil
		}
	}
	switch {
	case hcloud.IsError(err, hcloud.ErrorCodeResourceLimitExceeded):
		return nil, s.impossible(api.ServerLimitExceeded, "the project's limit of servers is reached: %s", err)
	case err != nil:
		err = fmt.Errorf("creating server %q (%s in %s): %w", s.hcloudMachine.Name, s.hcloudMachine.Spec.Type,
			s.hcloudMachine.Status.Region,
			noteError(s.hcloudMachine, "CreateServer", err))
		conditions.MarkFalse(s.hcloudMachine, api.ServerCreateSucceeded, api.ServerCreateFailed,
			clusterv1.ConditionSeverityWarning, "%s", err)
		return nil, err
	}
	s.hcloudMachine.Status.SSHKeys = nil
	for _, key := range opts.SSHKeys {
		s.hcloudMachine.Status.SSHKeys = append(s.hcloudMachine.Status.SSHKeys,
			api.SSHKey{Name: key.Name, Fingerprint: key.Fingerprint})
	}
	s.events.Eventf(s.hcloudMachine, "Normal", "SuccessfulCreate", "Created new server %s with ID %d", result.Server.Name,
		result.Server.ID)
	return result.Server, nil
}

// userData is the unchanged value of the bootstrap secret: Talos reads it without cloud-init.
func (s *machineScope) userData(ctx context.Context) ([]byte, error) {
	key := client.ObjectKey{Namespace: s.machine.Namespace, Name: *s.machine.Spec.Bootstrap.DataSecretName}
	secret, err := s.acquire(ctx, key, s.hcloudMachine, false)
	if err != nil {
		return nil, fmt.Errorf("reading the bootstrap data of Machine %s: %w", s.machine.Name, err)
	}
	value, ok := secret.Data["value"]
	if !ok {
		return nil, fmt.Errorf("the bootstrap secret %s has no key \"value\"", key)
	}
	return value, nil
}

// image finds the image of imageName: by label, and by name. Its status is not checked.
func (s *machineScope) image(ctx context.Context, architecture hcloud.Architecture) (*hcloud.Image, error) {
	name := s.hcloudMachine.Spec.ImageName
	byLabel, err := s.cloud.Image.AllWithOpts(ctx, hcloud.ImageListOpts{
		ListOpts:     hcloud.ListOpts{LabelSelector: api.TagImageName + "==" + name},
		Architecture: []hcloud.Architecture{architecture},
	})
	if err != nil {
		return nil, fmt.Errorf("listing images labelled %s: %w", name, noteError(s.hcloudMachine, "ListImages", err))
	}
	byName, err := s.cloud.Image.AllWithOpts(ctx,
		hcloud.ImageListOpts{Name: name, Architecture: []hcloud.Architecture{architecture}})
	if err != nil {
		return nil, fmt.Errorf("listing images named %s: %w", name, noteError(s.hcloudMachine, "ListImages", err))
	}
	switch images := append(byLabel, byName...); len(images) {
	case 0:
		return nil, s.impossible(api.ImageNotFound, "no image found with name %s (label %s=%s, architecture %s)", name,
			api.TagImageName, name, architecture)
	case 1:
		return images[0], nil
	default:
		return nil, s.impossible(api.ImageAmbiguous,
			"image is ambiguous: %d images have the name %s (label %s=%s, architecture %s)",
			len(images), name, api.TagImageName, name, architecture)
	}
}

// publicNet says which public addresses the server gets: both unless told otherwise, and
// IPv4 always where no private network is.
func (s *machineScope) publicNet() *hcloud.ServerCreatePublicNet {
	spec := ptr.Deref(s.hcloudMachine.Spec.PublicNetwork, api.PublicNetworkSpec{})
	return &hcloud.ServerCreatePublicNet{
		EnableIPv4: ptr.Deref(spec.EnableIPv4, true) || s.infra.Status.Network == nil,
		EnableIPv6: ptr.Deref(spec.EnableIPv6, true),
	}
}

// placementGroup finds the machine's group among those of the HetznerCluster.
func (s *machineScope) placementGroup() (*hcloud.PlacementGroup, error) {
	name := s.hcloudMachine.Spec.PlacementGroupName
	if name == nil {
		return nil, nil
	}
	for _, group := range s.infra.Status.HCloudPlacementGroups {
		if group.Name == *name {
			return &hcloud.PlacementGroup{ID: group.ID, Name: group.Name, Type: hcloud.PlacementGroupType(group.Type)}, nil
		}
	}
	return nil, s.impossible(api.InstanceHasNonExistingPlacementGroup, "placement group %q does not exist in cluster",
		*name)
}

// sshKeys are the machine's, else the cluster's, and the one that the Hetzner secret
// names, looked up on the first page of keys.
func (s *machineScope) sshKeys(ctx context.Context) ([]*hcloud.SSHKey, error) {
	wanted := s.infra.Spec.SSHKeys.HCloud
	if s.hcloudMachine.Spec.SSHKeys != nil {
		wanted = s.hcloudMachine.Spec.SSHKeys
	}
	if name := string(s.secret[s.infra.Spec.HetznerSecret.Key.SSHKey]); name != "" {
		wanted = append(slices.Clone(wanted), api.SSHKey{Name: name})
	}
	existing, _, err := s.cloud.SSHKey.List(ctx, hcloud.SSHKeyListOpts{})
	if err != nil {
		return nil, fmt.Errorf("listing SSH keys: %w", noteError(s.hcloudMachine, "ListSSHKeys", err))
	}
	var keys []*hcloud.SSHKey
	for _, want := range wanted {
		i := slices.IndexFunc(existing, func(key *hcloud.SSHKey) bool { return key.Name == want.Name })
		if i < 0 {
			return nil, s.impossible(api.SSHKeyNotFound, "ssh key %q not present in hcloud", want.Name)
		}
		if !slices.Contains(keys, existing[i]) {
			keys = append(keys, existing[i])
		}
	}
	return keys, nil
}
