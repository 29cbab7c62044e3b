package caph

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/slipway-k8s/slipway/lab/caph/api"
)

// setupWebhooks serves /validate-… and
// /mutate-infrastructure-cluster-x-k8s-io-v1beta1-<kind in lower case>, the original's paths.
func setupWebhooks(mgr ctrl.Manager) error {
	for _, hook := range []struct {
		object    client.Object
		defaulter admission.CustomDefaulter
		validator admission.CustomValidator
	}{
		{&api.HetznerCluster{}, defaulter(nil), validator[*api.HetznerCluster]{
			create: validateCluster,
			update: validateClusterUpdate,
		}},
		{&api.HCloudMachine{}, defaulter(defaultMachine), validator[*api.HCloudMachine]{
			update: validateMachineUpdate,
		}},
		{&api.HCloudMachineTemplate{}, nil, validator[*api.HCloudMachineTemplate]{
			update: validateTemplateUpdate,
		}},
	} {
		builder := ctrl.NewWebhookManagedBy(mgr).For(hook.object).WithValidator(hook.validator)
		if hook.defaulter != nil {
			builder = builder.WithDefaulter(hook.defaulter)
		}
		if err := builder.Complete(); err != nil {
			return fmt.Errorf("webhook of %T: %w", hook.object, err)
		}
	}
	return nil
}

// defaulter is a mutating webhook; nil changes nothing but lets the API server default the
// structures that come back spelled out.
type defaulter func(runtime.Object)

// Default implements admission.CustomDefaulter.
func (d defaulter) Default(_ context.Context, object runtime.Object) error {
	if d != nil {
		d(object)
	}
	return nil
}

// defaultMachine enables both public addresses of a machine unless its spec sets them.
func defaultMachine(object runtime.Object) {
	if machine, ok := object.(*api.HCloudMachine); ok && machine.Spec.PublicNetwork == nil {
		machine.Spec.PublicNetwork = &api.PublicNetworkSpec{EnableIPv4: ptr.To(true), EnableIPv6: ptr.To(true)}
	}
}

// validator is a validating webhook; a nil function permits.
type validator[T client.Object] struct {
	create func(T) field.ErrorList
	update func(old, new T) field.ErrorList
}

// ValidateCreate implements admission.CustomValidator.
func (v validator[T]) ValidateCreate(_ context.Context, object runtime.Object) (admission.Warnings, error) {
	typed, ok := object.(T)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected %T, got %T", typed, object))
	}
	if v.create == nil {
		return nil, nil
	}
	return nil, invalid(typed, v.create(typed))
}

// ValidateUpdate implements admission.CustomValidator.
func (v validator[T]) ValidateUpdate(
	_ context.Context, oldObject, newObject runtime.Object,
) (admission.Warnings, error) {
	before, okBefore := oldObject.(T)
	after, okAfter := newObject.(T)
	if !okBefore || !okAfter {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected %T, got %T and %T", after, oldObject, newObject))
	}
	if v.update == nil {
		return nil, nil
	}
	return nil, invalid(after, v.update(before, after))
}

// ValidateDelete implements admission.CustomValidator.
func (v validator[T]) ValidateDelete(context.Context, runtime.Object) (admission.Warnings, error) {
	return nil, nil
}

func invalid(object client.Object, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(object.GetObjectKind().GroupVersionKind().GroupKind(), object.GetName(), errs)
}

// networkZones are the zones of Hetzner's locations.
var networkZones = map[string]string{
	"fsn1": "eu-central", "nbg1": "eu-central", "hel1": "eu-central", "ash": "us-east", "hil": "us-west",
	"sin": "ap-southeast",
}

func validateCluster(cluster *api.HetznerCluster) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if len(cluster.Spec.ControlPlaneRegions) == 0 {
		errs = append(errs, field.Invalid(spec.Child("controlPlaneRegions"), cluster.Spec.ControlPlaneRegions,
			"control plane regions must not be empty"))
	} else if !cluster.Spec.HCloudNetwork.Enabled {
		zone := networkZones[cluster.Spec.ControlPlaneRegions[0]]
		for i, region := range cluster.Spec.ControlPlaneRegions {
			if networkZones[region] != zone {
				errs = append(errs, field.Invalid(spec.Child("controlPlaneRegions").Index(i), region,
					"regions are not in one network zone"))
			}
		}
	}
	if lb := cluster.Spec.ControlPlaneLoadBalancer; lb.Enabled && lb.Region == "" {
		errs = append(errs, field.Invalid(spec.Child("controlPlaneLoadBalancer", "region"), lb.Region,
			"region should not be empty if load balancer is enabled"))
	}
	if endpoint := cluster.Spec.ControlPlaneEndpoint; !cluster.Spec.ControlPlaneLoadBalancer.Enabled &&
		(endpoint == nil || endpoint.Host == "" || endpoint.Port == 0) {
		errs = append(errs, field.Invalid(spec.Child("controlPlaneEndpoint"), endpoint,
			"host and port must be set if load balancer is disabled"))
	}
	if key := cluster.Spec.HetznerSecret.Key; key.HCloudToken == "" &&
		(key.HetznerRobotUser == "" || key.HetznerRobotPassword == "") {
		errs = append(errs, field.Invalid(spec.Child("hetznerSecretRef", "key"), key,
			"need to specify credentials for either HCloud or Hetzner Robot"))
	}
	return errs
}

func validateClusterUpdate(before, after *api.HetznerCluster) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	lb := spec.Child("controlPlaneLoadBalancer")
	errs = append(errs, immutable(spec.Child("hcloudNetwork"), before.Spec.HCloudNetwork, after.Spec.HCloudNetwork)...)
	old, now := before.Spec.ControlPlaneLoadBalancer, after.Spec.ControlPlaneLoadBalancer
	errs = append(errs, immutable(lb.Child("enabled"), old.Enabled, now.Enabled)...)
	if old.Enabled {
		errs = append(errs, immutable(lb.Child("port"), old.Port, now.Port)...)
		errs = append(errs, immutable(lb.Child("region"), old.Region, now.Region)...)
	}
	return errs
}

func validateMachineUpdate(before, after *api.HCloudMachine) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	errs = append(errs, immutable(spec.Child("type"), before.Spec.Type, after.Spec.Type)...)
	errs = append(errs, immutable(spec.Child("imageName"), before.Spec.ImageName, after.Spec.ImageName)...)
	errs = append(errs, immutable(spec.Child("sshKeys"), before.Spec.SSHKeys, after.Spec.SSHKeys)...)
	return append(errs, immutable(spec.Child("placementGroupName"), before.Spec.PlacementGroupName,
		after.Spec.PlacementGroupName)...)
}

func validateTemplateUpdate(before, after *api.HCloudMachineTemplate) field.ErrorList {
	return immutable(field.NewPath("spec"), before.Spec, after.Spec)
}

func immutable(path *field.Path, before, after any) field.ErrorList {
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, after, "field is immutable")}
}
