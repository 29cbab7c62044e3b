package connect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/platform"
)

// ManagesItself returns nil where the cluster has its own Cluster object, unpaused. With reconciled, its controllers
// must also have reconciled all of its objects.
func ManagesItself(ctx context.Context, cfg config.Config, target *kube.Cluster, reconciled bool) error {
	o, err := FindCluster(ctx, cfg, target)
	switch {
	case err != nil:
		return err
	case o == nil:
		return fmt.Errorf("cluster %s does not hold its own Cluster object: run pivot first", cfg.ClusterName)
	case Paused(o):
		return fmt.Errorf("the Cluster object in cluster %s is paused: run pivot to its end, or unpause it", cfg.ClusterName)
	case !reconciled:
		return nil
	}
	inv, err := capi.ReadInventory(ctx, target, cfg.Namespace)
	if err != nil {
		return err
	}
	if reasons := Unsettled(inv); len(reasons) > 0 {
		return fmt.Errorf("cluster %s is not reconciled: %s", cfg.ClusterName, strings.Join(reasons, "; "))
	}
	return nil
}

// AliveWithin is how long one question takes at most that tells whether a cluster answers. With one to the provider of
// the management cluster it fits into flow's bound of a Verify.
const AliveWithin = 8 * time.Second

// Unsettled says what the controllers have not looked at yet, or not found well. A move does not take the status along,
// so what is there was written by the new controllers. An HCloudMachine that no Machine refers to is left out: the
// control plane provider leaves one behind for each Machine that it could not create (CACPPT v0.5.13, controllers/
// taloscontrolplane_controller.go, bootControlPlane), and CAPH never looks at it.
func Unsettled(inv capi.Inventory) []string {
	var reasons []string
	referred := map[string]bool{} // HCloudMachines, by Machines
	for i := range inv.Moved {
		if o := &inv.Moved[i]; o.GroupVersionKind().GroupKind() == capi.MachineKind.GroupKind() {
			referred[o.GetNamespace()+"/"+capi.ServerOf(o)] = true
		}
	}
	for i := range inv.Moved {
		o := &inv.Moved[i]
		var lacks string
		switch o.GroupVersionKind().GroupKind() {
		case capi.ClusterKind.GroupKind():
			lacks = capi.Unobserved(o)
			if lacks == "" && !(capi.Truth(o, "status", "infrastructureReady") && capi.Truth(o, "status", "controlPlaneReady") &&
				capi.ConditionTrue(o, "Ready")) {
				lacks = "not Ready"
			}
		case capi.TalosControlPlaneKind.GroupKind():
			lacks = capi.Unobserved(o)
			want, ready := capi.Number(o, "spec", "replicas"), capi.Number(o, "status", "readyReplicas")
			if lacks == "" && (!capi.Truth(o, "status", "initialized") || ready != want) {
				lacks = fmt.Sprintf("%d of %d replicas ready", ready, want)
			}
		case capi.MachineKind.GroupKind():
			lacks = capi.Unobserved(o)
			if lacks == "" && (capi.Text(o, "status", "nodeRef", "name") == "" || capi.Text(o, "status", "phase") != "Running") {
				lacks = "phase " + capi.Text(o, "status", "phase")
			}
		case capi.HetznerClusterKind.GroupKind(), capi.HCloudMachineKind.GroupKind():
			left := o.GetKind() == capi.HCloudMachineKind.Kind && !referred[o.GetNamespace()+"/"+o.GetName()] &&
				capi.Text(o, "spec", "providerID") == ""
			if !left && !(capi.Truth(o, "status", "ready") && capi.ConditionTrue(o, "Ready")) {
				lacks = "not ready"
			}
		}
		if lacks == "" {
			continue
		}
		if t := why.Said(o); t != "" {
			lacks += " (" + t + ")"
		}
		reasons = append(reasons, capi.ObjectKeyOf(o).String()+": "+lacks)
	}
	return reasons
}

// OpenManagement connects to the management cluster; nil where its provider says that there is none, or a partially
// created one.
func OpenManagement(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say) (*kube.Cluster, string,
	error) {
	p, name := tools.Management, cfg.ManagementName()
	source, err := Cluster(tools, platform.ManagementKubeconfig)
	if err == nil {
		var uid string
		if uid, err = source.UID(ctx); err == nil {
			return recordedSource(tools, source, uid)
		}
	}
	if wrong := CheckManagementProvider(tools); wrong != nil {
		return nil, "", wrong
	}
	exists, existsErr := p.Exists(ctx, name)
	switch {
	case existsErr != nil:
		return nil, "", fmt.Errorf("management cluster %s does not answer (%w) and %s cannot tell whether it exists: %w",
			name, err, p.Name(), existsErr)
	case !exists:
		return nil, "", nil
	case !errors.Is(err, fs.ErrNotExist) && !kubeconfig.Refused(err):
		return nil, "", fmt.Errorf("management cluster %s exists but does not answer: %w: start it again, it may hold the "+
			"only record of the cluster's servers", name, err)
	}
	// Its kubeconfig was lost, or is none that may be used; who made it has another.
	data, err := tools.Existing(ctx, name)
	if err != nil {
		return nil, "", fmt.Errorf("management cluster %s: %w", name, err)
	}
	if data == nil {
		say("management cluster %s is half made, and holds nothing", name)
		return nil, "", nil
	}
	if err := tools.Files.Write(platform.ManagementKubeconfig, data); err != nil {
		return nil, "", err
	}
	if source, err = Management(tools, data); err != nil {
		return nil, "", err
	}
	uid, err := source.UID(ctx)
	if err != nil {
		return nil, "", err
	}
	return recordedSource(tools, source, uid)
}

// recordedSource is the management cluster that answers, where it is the one that the state folder recorded.
func recordedSource(tools platform.Tools, source *kube.Cluster, uid string) (*kube.Cluster, string, error) {
	if err := checkManagementUID(tools, uid); err != nil {
		return nil, "", err
	}
	return source, uid, nil
}

// FindCluster reads the Cluster object; nil where there is none, or no Cluster API. That it is not there is told by a
// list that was answered: an API server that has just started says "not found" of kinds that it does not serve yet.
func FindCluster(ctx context.Context, cfg config.Config, c *kube.Cluster) (*unstructured.Unstructured, error) {
	all, err := capi.Clusters(ctx, c, client.InNamespace(cfg.Namespace))
	for i := range all {
		if all[i].GetName() == cfg.ClusterName {
			return &all[i], nil
		}
	}
	return nil, err
}

// HeldBy opens the cluster of a kubeconfig in the state folder, and asks it for the Cluster object; nil where it holds
// none. An error without a cluster says why that cannot be opened.
func HeldBy(ctx context.Context, cfg config.Config, tools platform.Tools, file string) (*kube.Cluster,
	*unstructured.Unstructured, error) {
	c, err := Cluster(tools, file)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, AliveWithin)
	defer cancel()
	object, err := FindCluster(ctx, cfg, c)
	return c, object, err
}

// Paused tells whether a Cluster object is paused.
func Paused(cluster *unstructured.Unstructured) bool { return capi.Truth(cluster, "spec", "paused") }

// SecretValue reads one key of one of the cluster's Secrets in a namespace of the management cluster.
func SecretValue(ctx context.Context, mgmt *kube.Cluster, namespace, name, key string) ([]byte, error) {
	s := &corev1.Secret{}
	if err := mgmt.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s); err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", name, err)
	}
	if len(s.Data[key]) == 0 {
		return nil, fmt.Errorf("Secret %s has no key %s yet", name, key)
	}
	return s.Data[key], nil
}

// WorkloadKubeconfig reads the kubeconfig that the control plane provider keeps in one of the cluster's Secrets. Who
// can write to the namespace can write it: one that kubeconfig.Accept does not take is an error that names the
// Secret.
func WorkloadKubeconfig(ctx context.Context, manager *kube.Cluster, namespace, cluster string) ([]byte, error) {
	name := cluster + "-kubeconfig"
	data, err := SecretValue(ctx, manager, namespace, name, "value")
	if err != nil {
		return nil, err
	}
	if _, err := kubeconfig.Accept(data); err != nil {
		return nil, fmt.Errorf("the kubeconfig in Secret %s/%s is not used: %w. The control plane provider writes no such "+
			"kubeconfig: find out who changed the Secret; once it is deleted, the provider writes it anew", namespace, name, err)
	}
	return data, nil
}
