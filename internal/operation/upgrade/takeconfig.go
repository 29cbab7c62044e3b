package upgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
)

const (
	// strategyAnnotation is on a TalosControlPlane whose rolloutStrategy a change in place has set to OnDelete until
	// every Machine has a TalosConfig with the new configuration: the type that it had.
	strategyAnnotation = "slipway.dev/rollout-strategy-before"
	// restartedAnnotation is on the Pod template of what was restarted, and when; kubectl rollout restart sets it, too.
	restartedAnnotation = "kubectl.kubernetes.io/restartedAt"
	// onDelete is the rolloutStrategy with which the control plane provider replaces no server by itself.
	onDelete = "OnDelete"
)

// configRef is where a Machine names its TalosConfig.
var configRef = []string{"spec", "bootstrap", "configRef", "name"}

// halfTaken tells whether a change in place has given Cluster API a part of the new configuration.
func halfTaken(tcp *unstructured.Unstructured) bool {
	return tcp.GetAnnotations()[strategyAnnotation] != ""
}

// takeConfiguration gives Cluster API the new configuration of servers that run with it. The control plane provider
// replaces each server whose TalosConfig differs from the TalosControlPlane (CACPPT v0.5.13, controllers/
// controlplane.go, MatchesControlPlaneConfig), a TalosConfig is immutable, and the provider reads both from caches that
// may be behind. So the write that gives it the new configuration sets its rolloutStrategy to OnDelete, with which it
// replaces no server. When each Machine has a TalosConfig with the new configuration, it is restarted, which has it
// read all of them anew, and gets its strategy back. Meanwhile it works: a server that is lost is made again, as
// configured.
func (c *controlPlane) takeConfiguration(ctx context.Context, say flow.Say, wanted any) error {
	tcp, err := c.talosControlPlane(ctx)
	if err != nil {
		return err
	}
	servers, refused, err := c.serversInPlace(ctx, withSpec(tcp, wanted))
	if err == nil && len(refused) > 0 {
		err = &RefusedError{refused}
	}
	if err != nil {
		return err
	}
	if !halfTaken(tcp) && jsonEqual(controlPlaneSpecOf(tcp), wanted) && len(withOther(servers, wanted)) == 0 {
		for _, s := range servers { // of a change that was undone before Cluster API knew of it
			if err := c.deleteConfigs(ctx, s.begun); err != nil {
				return err
			}
		}
		return nil
	}
	err = apply.Change(ctx, c.cfg, say, "the new configuration of "+kube.Describe(tcp),
		func(ctx context.Context) (string, error) { return c.giveSpec(ctx, say, wanted) })
	if err != nil {
		return err
	}
	for { // again, for a Machine that was made from the old configuration meanwhile
		if servers, _, err = c.serversInPlace(ctx, withSpec(tcp, wanted)); err != nil {
			return err
		}
		rest := withOther(servers, wanted)
		if len(rest) == 0 {
			break
		}
		if err := c.replaceConfigs(ctx, say, rest, wanted); err != nil {
			return err
		}
	}
	if err := c.restartProvider(ctx, say); err != nil {
		return err
	}
	return apply.Change(ctx, c.cfg, say, "the rolloutStrategy of "+kube.Describe(tcp),
		func(ctx context.Context) (string, error) { return "", c.giveStrategyBack(ctx, say) })
}

// withOther are the servers whose TalosConfig differs, or that have more than one.
func withOther(servers []serverInPlace, wanted any) []serverInPlace {
	return slices.DeleteFunc(slices.Clone(servers), func(s serverInPlace) bool {
		return jsonEqual(s.config.Object["spec"], wanted) && len(s.begun) == 0
	})
}

// withSpec is a TalosControlPlane with another TalosConfigSpec.
func withSpec(tcp *unstructured.Unstructured, spec any) *unstructured.Unstructured {
	out := tcp.DeepCopy()
	_ = unstructured.SetNestedField(out.Object, spec, controlPlaneSpec...) // it is one, and has these fields
	return out
}

// replaceConfigs gives each Machine its new TalosConfig. One that was made meanwhile has its server changed first.
func (c *controlPlane) replaceConfigs(ctx context.Context, say flow.Say, servers []serverInPlace, wanted any) error {
	for _, s := range servers {
		if err := c.createConfig(ctx, say, &s, wanted); err != nil {
			return err
		}
		if len(s.fields) > 0 {
			if err := c.changeServer(ctx, say, s); err != nil {
				return err
			}
		}
		err := apply.Change(ctx, c.cfg, say, "the new TalosConfig of Machine "+s.machine.GetName(),
			func(ctx context.Context) (string, error) { return "", c.replaceConfig(ctx, say, s, wanted) })
		if err != nil {
			return err
		}
	}
	return nil
}

// giveSpec gives the TalosControlPlane the new configuration and the strategy OnDelete in one write, and says what is
// missing until the provider has seen it: a Machine that it makes later has the new configuration.
func (c *controlPlane) giveSpec(ctx context.Context, say flow.Say, wanted any) (missing string, err error) {
	tcp, err := c.talosControlPlane(ctx)
	if err != nil {
		return "", err
	}
	if !halfTaken(tcp) || !jsonEqual(controlPlaneSpecOf(tcp), wanted) {
		changed := withSpec(tcp, wanted)
		if !halfTaken(tcp) {
			annotations := changed.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[strategyAnnotation] = cmp.Or(capi.Text(tcp, strategyType...), "RollingUpdate")
			changed.SetAnnotations(annotations)
		}
		if err := unstructured.SetNestedField(changed.Object, onDelete, strategyType...); err != nil {
			return "", err
		}
		say("giving %s the new configuration, and rolloutStrategy %s until each Machine has it", kube.Describe(tcp),
			onDelete)
		patch := client.MergeFromWithOptions(tcp, client.MergeFromWithOptimisticLock{})
		if err := c.manager.Patch(ctx, changed, patch); err != nil {
			return "", fmt.Errorf("change %s: %w", kube.Describe(tcp), err)
		}
		tcp = changed // as the API server has it now
	}
	if capi.Lagging(tcp) {
		return "the control plane provider has not seen it yet", nil
	}
	return "", nil
}

// strategyType is where a TalosControlPlane says how its servers are replaced.
var strategyType = []string{"spec", "rolloutStrategy", "type"}

// giveStrategyBack ends the change: the provider replaces servers again where they differ.
func (c *controlPlane) giveStrategyBack(ctx context.Context, say flow.Say) error {
	tcp, err := c.talosControlPlane(ctx)
	if err != nil || !halfTaken(tcp) {
		return err
	}
	before := tcp.GetAnnotations()[strategyAnnotation]
	changed := tcp.DeepCopy()
	annotations := changed.GetAnnotations()
	delete(annotations, strategyAnnotation)
	changed.SetAnnotations(annotations)
	if err := unstructured.SetNestedField(changed.Object, before, strategyType...); err != nil {
		return err
	}
	say("giving %s its rolloutStrategy %s back", kube.Describe(tcp), before)
	patch := client.MergeFromWithOptions(tcp, client.MergeFromWithOptimisticLock{})
	if err := c.manager.Patch(ctx, changed, patch); err != nil {
		return fmt.Errorf("change %s: %w", kube.Describe(tcp), err)
	}
	return nil
}

// restartProvider restarts the control plane provider, and waits until none of its Pods of before is left.
func (c *controlPlane) restartProvider(ctx context.Context, say flow.Say) error {
	var found appsv1.DeploymentList
	var old []types.UID // of the Pods before the restart
	restarted := false
	w := wait.Wait{What: "the restart of the control plane provider", Within: c.cfg.ProvidersTimeout.D()}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		provider := client.MatchingLabels{capi.ProviderLabel: capi.ControlPlaneProviderName}
		if err := c.manager.List(ctx, &found, provider); err != nil {
			return "", fmt.Errorf("find the control plane provider: %w", err)
		}
		if len(found.Items) == 0 {
			return "no Deployment has the label " + capi.ProviderLabel + "=" + capi.ControlPlaneProviderName, nil
		}
		var missing []string
		for i := range found.Items {
			d := &found.Items[i]
			pods, err := c.podsOf(ctx, d)
			if err != nil {
				return "", err
			}
			if !restarted {
				old = append(old, pods...)
				if err := c.restart(ctx, say, d); err != nil {
					return "", err
				}
				missing = append(missing, kube.Describe(d)+" was restarted a moment ago")
				continue
			}
			if slices.ContainsFunc(pods, func(uid types.UID) bool { return slices.Contains(old, uid) }) {
				missing = append(missing, "a Pod of before has not ended")
			}
			unready, err := c.manager.Unready(ctx,
				kube.Workload{Kind: "Deployment", Namespace: d.Namespace, Name: d.Name})
			if err != nil {
				return "", err
			}
			missing = append(missing, unready)
		}
		restarted = true
		return wait.Sentences(missing...), nil
	})
}

// podsOf are the UIDs of a Deployment's Pods.
func (c *controlPlane) podsOf(ctx context.Context, d *appsv1.Deployment) (uids []types.UID, err error) {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("read the selector of %s: %w", kube.Describe(d), err)
	}
	var pods corev1.PodList
	if err := c.manager.List(ctx, &pods, client.InNamespace(d.Namespace),
		client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list the Pods of %s: %w", kube.Describe(d), err)
	}
	for _, p := range pods.Items {
		uids = append(uids, p.UID)
	}
	return uids, nil
}

func (c *controlPlane) restart(ctx context.Context, say flow.Say, d *appsv1.Deployment) error {
	say("restarting %s, so that it reads every TalosConfig anew", kube.Describe(d))
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, restartedAnnotation,
		time.Now().UTC().Format(time.RFC3339Nano))
	if err := c.manager.Patch(ctx, d.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("restart %s: %w", kube.Describe(d), err)
	}
	return nil
}

// createConfig creates the TalosConfig with the new configuration that a Machine is to refer to, where it refers to
// another one.
func (c *controlPlane) createConfig(ctx context.Context, say flow.Say, s *serverInPlace, wanted any) error {
	if jsonEqual(s.config.Object["spec"], wanted) {
		return nil
	}
	made := &unstructured.Unstructured{Object: map[string]any{"spec": wanted}}
	made.SetGroupVersionKind(capi.TalosConfigKind)
	name, err := render.NameByContent(s.machine.GetName(), made)
	if err != nil {
		return err
	}
	made.SetNamespace(c.cfg.Namespace)
	made.SetName(name)
	made.SetLabels(s.config.GetLabels())
	made.SetOwnerReferences(s.config.GetOwnerReferences())
	if slices.ContainsFunc(s.begun, func(o *unstructured.Unstructured) bool { return o.GetName() == name }) {
		return nil
	}
	say("creating %s for %s", kube.Describe(made), kube.Describe(s.machine))
	if err := c.manager.Create(ctx, made); err != nil && !apierrors.IsAlreadyExists(err) { // its answer was lost
		return fmt.Errorf("create %s: %w", kube.Describe(made), err)
	}
	s.begun = append(s.begun, made)
	return nil
}

// replaceConfig has a Machine refer to the TalosConfig with the new configuration: the Secret with the machine
// configuration first, from which CAPH makes a vanished server again. The other ones are deleted last.
func (c *controlPlane) replaceConfig(ctx context.Context, say flow.Say, s serverInPlace, wanted any) error {
	machine, err := capi.Get(ctx, c.manager, c.cfg.Namespace, capi.MachineKind, s.machine.GetName())
	if kube.Absent(err) || err == nil && machine.GetDeletionTimestamp() != nil {
		return nil // the next list of servers has it no more, or another one in its place
	}
	if err != nil {
		return err
	}
	s.machine = machine // by now it names its Secret
	is := s.config
	if !jsonEqual(is.Object["spec"], wanted) {
		at := slices.IndexFunc(s.begun, func(o *unstructured.Unstructured) bool {
			return jsonEqual(o.Object["spec"], wanted)
		})
		if at < 0 {
			return fmt.Errorf("%s has no TalosConfig with the new configuration: the API server has another one than "+
				"it was given", kube.Describe(s.machine))
		}
		is, err = capi.Get(ctx, c.manager, c.cfg.Namespace, capi.TalosConfigKind, s.begun[at].GetName())
		if err != nil {
			return err
		}
	}
	if err := c.changeBootstrapData(ctx, s, is); err != nil {
		return err
	}
	if capi.Text(machine, configRef...) != is.GetName() {
		say("having %s refer to %s", kube.Describe(machine), kube.Describe(is))
		changed := machine.DeepCopy()
		if err := unstructured.SetNestedField(changed.Object, is.GetName(), configRef...); err != nil {
			return err
		}
		if _, has, _ := unstructured.NestedString(changed.Object, "spec", "bootstrap", "configRef", "uid"); has {
			if err := unstructured.SetNestedField(changed.Object, string(is.GetUID()), "spec", "bootstrap", "configRef",
				"uid"); err != nil {
				return err
			}
		}
		patch := client.MergeFromWithOptions(machine, client.MergeFromWithOptimisticLock{})
		if err := c.manager.Patch(ctx, changed, patch); err != nil {
			return fmt.Errorf("change the TalosConfig of %s: %w", kube.Describe(machine), err)
		}
	}
	return c.deleteConfigs(ctx, slices.DeleteFunc(append(slices.Clone(s.begun), s.config),
		func(o *unstructured.Unstructured) bool { return o.GetName() == is.GetName() }))
}

// changeBootstrapData gives the machine configuration in the Machine's Secret the change, and the Secret its new owner.
func (c *controlPlane) changeBootstrapData(ctx context.Context, s serverInPlace,
	owner *unstructured.Unstructured) error {
	secret, text, err := c.bootstrapData(ctx, s)
	if err != nil {
		return err
	}
	changed := secret.DeepCopy()
	owned := slices.ContainsFunc(secret.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.UID == owner.GetUID()
	})
	if owned && text == nil {
		return nil
	}
	if !owned {
		changed.OwnerReferences = slices.DeleteFunc(changed.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.Kind == capi.TalosConfigKind.Kind
		})
		changed.OwnerReferences = append(changed.OwnerReferences, *metav1.NewControllerRef(owner, capi.TalosConfigKind))
	}
	if text != nil {
		changed.Data[capi.BootstrapDataKey] = text
	}
	patch := client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{})
	if err := c.manager.Patch(ctx, changed, patch); err != nil {
		return fmt.Errorf("change Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// bootstrapData is the Secret with the machine configuration that a server was made from, and that configuration with
// the change; nil: it has it.
func (c *controlPlane) bootstrapData(ctx context.Context, s serverInPlace) (*corev1.Secret, []byte, error) {
	secret := &corev1.Secret{}
	name := capi.Text(s.machine, "spec", "bootstrap", "dataSecretName")
	key := client.ObjectKey{Namespace: c.cfg.Namespace, Name: name}
	if err := c.manager.Get(ctx, key, secret); err != nil {
		return nil, nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	is, err := configloader.NewFromBytes(secret.Data[capi.BootstrapDataKey])
	if err != nil { // not the error itself, which may quote a key
		return nil, nil, fmt.Errorf("the key %s of Secret %s is not a machine configuration", capi.BootstrapDataKey,
			key)
	}
	text, others, err := s.changed(is)
	if err == nil && len(others) > 0 {
		err = errors.New(strings.Join(others, ", ") + " differs in it")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the machine configuration in Secret %s: %w", key, err)
	}
	return secret, text, nil
}

// deleteConfigs deletes TalosConfigs that no Machine refers to.
func (c *controlPlane) deleteConfigs(ctx context.Context, all []*unstructured.Unstructured) error {
	for _, one := range all {
		if err := c.manager.Delete(ctx, one); err != nil && !kube.Absent(err) {
			return fmt.Errorf("delete %s: %w", kube.Describe(one), err)
		}
	}
	return nil
}
