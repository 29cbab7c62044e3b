package situation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/platform"
)

// bootstrapDataSuffix follows a Machine's name in the name of the Secret with its bootstrap data.
const bootstrapDataSuffix = "-bootstrap-data"

// outdatedMachines are the names of the control plane's Machines that were made from another configuration than the
// control plane has now.
func outdatedMachines(tcp *unstructured.Unstructured, machines, configs []unstructured.Unstructured) (names []string) {
	if tcp == nil {
		return nil
	}
	wanted := TalosConfigSpec(tcp, "spec", "controlPlaneConfig", "controlplane")
	for _, m := range capi.ControlPlaneMachines(machines) {
		config := TalosConfigSpec(Named(configs, capi.Text(&m, "spec", "bootstrap", "configRef", "name")), "spec")
		if len(config) > 0 && len(wanted) > 0 && !equality.Semantic.DeepEqual(config, wanted) {
			names = append(names, m.GetName())
		}
	}
	return names
}

// NeverMade says why a Machine can be deleted without any loss; see Unmade.
const NeverMade = "it never had a server and gets none: its configuration or its template was wrong, and the control " +
	"plane has another one since, or CAPH has given it up"

// Unmade reports whether a Machine of the control plane can be deleted without any loss, and is of no use: its
// bootstrap configuration cannot be made, or its server is refused, so it never had a server and never was a node;
// and the control plane's configuration, or its template, has been changed since, which the control plane provider
// does not take to a Machine that is there; or CAPH has given the server up before it was created. Otherwise keeps is
// why not.
func Unmade(ctx context.Context, tools platform.Tools, mgmt *kube.Cluster, c Watched,
	name string) (machine *unstructured.Unstructured, keeps string, err error) {
	if machine, err = capi.Get(ctx, mgmt, c.Namespace, capi.MachineKind, name); err != nil {
		return nil, "", err
	}
	cluster, err := capi.Get(ctx, mgmt, c.Namespace, capi.ClusterKind, c.Name)
	if err != nil {
		return nil, "", err
	}
	tcp, err := capi.Get(ctx, mgmt, c.Namespace, capi.TalosControlPlaneKind, c.ControlPlane)
	if err != nil {
		return nil, "", err
	}
	bootstrapConfig, err := capi.Get(ctx, mgmt, c.Namespace, capi.TalosConfigKind,
		capi.Text(machine, "spec", "bootstrap", "configRef", "name"))
	if err != nil {
		return nil, "", err
	}
	servers, err := capi.List(ctx, mgmt, c.Namespace, capi.HCloudMachineKind, c.Name)
	if err != nil {
		return nil, "", err
	}
	server := capi.Text(machine, "spec", "infrastructureRef", "name")
	if keeps := keepsUnmade(cluster, tcp, machine, bootstrapConfig, Named(servers, server)); keeps != "" {
		return machine, keeps, nil
	}
	if !refused(tcp, Named(servers, server)) {
		err = mgmt.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name + bootstrapDataSuffix}, &corev1.Secret{})
		if err == nil {
			return machine, "its bootstrap data are there", nil
		}
		if !kube.Absent(err) {
			return nil, "", fmt.Errorf("get Secret %s: %w", name+bootstrapDataSuffix, err)
		}
	}
	atHetzner, err := hetzner.Servers(ctx, tools.Hetzner, c.Name)
	if err != nil {
		return nil, "", err
	}
	if slices.ContainsFunc(atHetzner, func(s hetzner.Server) bool { return s.Name == server || s.Machine == server }) {
		return machine, "it has a server at Hetzner", nil
	}
	return machine, "", nil
}

// keepsUnmade is why the objects of a Machine do not say that it can be deleted without any loss; empty: they do.
func keepsUnmade(cluster, tcp, machine, bootstrapConfig, server *unstructured.Unstructured) string {
	_, controlPlane := machine.GetLabels()[capi.ControlPlaneLabel]
	failed := capi.FalseCondition(bootstrapConfig, "DataSecretAvailable")
	refused := refused(tcp, server)
	switch {
	case !controlPlane:
		return "it is not one of the control plane"
	case machine.GetDeletionTimestamp() != nil:
		return "it is being deleted"
	case cluster.GetDeletionTimestamp() != nil || tcp.GetDeletionTimestamp() != nil || capi.AtRest(cluster, tcp):
		return "the cluster is paused, or is being deleted"
	case !refused && failed.Reason != "DataSecretGenerationFailed":
		return "its bootstrap configuration can be generated"
	case capi.Text(machine, "status", "nodeRef", "name") != "":
		return "it is a node"
	case capi.Text(machine, "spec", "providerID") != "" || capi.Text(server, "spec", "providerID") != "":
		return "it has a server"
	case !refused && (capi.Text(machine, "spec", "bootstrap", "dataSecretName") != "" || capi.Text(bootstrapConfig, "status",
		"dataSecretName") != ""):
		return "its bootstrap data are there"
	case !refused && len(outdatedMachines(tcp, []unstructured.Unstructured{*machine},
		[]unstructured.Unstructured{*bootstrapConfig})) == 0:
		return "the control plane's configuration is still the one that it was created from, so another Machine would fail " +
			"in the same way"
	}
	return ""
}

// refused reports whether a server that does not exist will not be created: it was ordered by another template than the
// control plane has now, or CAPH has given it up.
func refused(tcp, server *unstructured.Unstructured) bool {
	if capi.ProvisioningFailed(server) {
		return true
	}
	by := server.GetAnnotations()[capi.ClonedFromAnnotation]
	return by != "" && by != capi.Text(tcp, "spec", "infrastructureTemplate", "name")
}

// DeleteUnmade deletes the Machines of a situation that are of no use and without which nothing is lost (see unmade),
// where the operator agreed beforehand, so that the control plane provider makes others. It returns what it did.
func DeleteUnmade(ctx context.Context, tools platform.Tools, mgmt *kube.Cluster, c Watched,
	s why.Situation) (did string, err error) {
	if !tools.Consent {
		return "", nil
	}
	var deleted []string
	for i := range s.Machines {
		m := &s.Machines[i]
		if m.GetDeletionTimestamp() != nil || !s.Unmade(m.GetName()) {
			continue
		}
		now, keeps, err := Unmade(ctx, tools, mgmt, c, m.GetName())
		switch {
		case kube.Absent(err):
			continue
		case err != nil:
			return "", err
		case keeps != "" || now.GetUID() != m.GetUID():
			continue
		}
		if err := capi.DeleteMachine(ctx, mgmt, now); err != nil {
			return "", err
		}
		deleted = append(deleted, m.GetName())
	}
	if len(deleted) == 0 {
		return "", nil
	}
	return fmt.Sprintf("deleted Machine %s, as agreed: %s", strings.Join(deleted, ", "), NeverMade), nil
}
