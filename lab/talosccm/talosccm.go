// Package talosccm stands in for talos-cloud-controller-manager v1.12.0 (chart 0.5.4), which can take its place, with
// one of its controllers: node-csr-approval, which approves or denies kubelets' requests for serving certificates. The
// flag --controllers selects the controllers, as the chart's value enabledControllers does; the others (cloud-node,
// cloud-node-lifecycle, node-ipam) are not simulated and log that.
//
// The original uses the credentials that Talos mounts at /var/run/secrets/talos.dev and does not start without them.
// node-csr-approval does not need them, so the stand-in only logs if they are missing. A kubelet does not start a Pod
// whose Secret volume does not exist.
package talosccm

import (
	"context"
	"fmt"
	"os"

	rbacv1 "k8s.io/api/rbac/v1"
	cloudprovider "k8s.io/cloud-provider"
	cloudcontrollerconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/lab/standin/ccm"
)

const (
	approvalController = "node-csr-approval"
	ipamController     = "node-ipam-controller"

	// talosCredentials is where Talos mounts a ServiceAccount's talosconfig.
	talosCredentials = "/var/run/secrets/talos.dev/config"
)

// Run is the program: it takes the original's flags and works until ctx ends.
func Run(ctx context.Context, args []string) error {
	if err := lookAtTalosConfig(); err != nil {
		return err
	}
	return ccm.Run(ctx, args, "talos", noCloud{}, ccm.Controllers{
		approvalController: ccm.Start(startApproval),
		names.CloudNodeController: ccm.NotSimulated("cloud-node",
			"Nodes are initialised by another cloud controller manager, or not at all"),
		names.CloudNodeLifecycleController: ccm.NotSimulated("cloud-node-lifecycle", "Nodes of deleted machines stay"),
		ipamController:                     ccm.NotSimulated("node-ipam", "Nodes get no Pod CIDR from here"),
	})
}

// lookAtTalosConfig logs where the Talos credentials are missing.
func lookAtTalosConfig() error {
	path := talosCredentials
	if given := os.Getenv("TALOSCONFIG"); given != "" {
		path = given
	}
	switch _, err := os.Stat(path); {
	case err == nil:
	case os.IsNotExist(err):
		klog.Infof("No Talos credentials at %s: the original would not start; answering certificate requests needs none",
			path)
	default:
		return fmt.Errorf("looking for the Talos credentials: %w", err)
	}
	return nil
}

// readCloudConfig reads --cloud-config, as the chart's ConfigMap has it, and logs what is not simulated.
func readCloudConfig(path string) error {
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		klog.Infof("No file %s (--cloud-config): nothing of it is needed to answer certificate requests", path)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading --cloud-config: %w", err)
	}
	var config struct {
		Transformations []any `json:"transformations"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return fmt.Errorf("parsing %s (--cloud-config): %w", path, err)
	}
	if n := len(config.Transformations); n > 0 {
		klog.Infof("%s has %d transformations, which are not simulated: Nodes keep their labels and annotations", path, n)
	}
	return nil
}

func startApproval(ctx context.Context, config *cloudcontrollerconfig.CompletedConfig) (bool, error) {
	if err := readCloudConfig(config.ComponentConfig.KubeCloudShared.CloudProvider.CloudConfigFile); err != nil {
		return false, err
	}
	a := newApprover(config.Client)
	go a.run(ctx)
	return true, nil
}

// noCloud is an empty cloud provider: no simulated controller uses it.
type noCloud struct{}

func (noCloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (noCloud) LoadBalancer() (cloudprovider.LoadBalancer, bool)                  { return nil, false }
func (noCloud) Instances() (cloudprovider.Instances, bool)                        { return nil, false }
func (noCloud) InstancesV2() (cloudprovider.InstancesV2, bool)                    { return nil, false }
func (noCloud) Zones() (cloudprovider.Zones, bool)                                { return nil, false }
func (noCloud) Clusters() (cloudprovider.Clusters, bool)                          { return nil, false }
func (noCloud) Routes() (cloudprovider.Routes, bool)                              { return nil, false }
func (noCloud) ProviderName() string                                              { return "talos" }
func (noCloud) HasClusterID() bool                                                { return false }

// Rules are the permissions that its service account needs.
func Rules() []rbacv1.PolicyRule {
	certificates := []string{"certificates.k8s.io"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
			Verbs: []string{"get", "create", "update"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch", "update", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"create", "get"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}},
		{APIGroups: certificates, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"list", "watch"}},
		{APIGroups: certificates, Resources: []string{"certificatesigningrequests/approval"}, Verbs: []string{"update"}},
		{APIGroups: certificates, Resources: []string{"signers"}, ResourceNames: []string{"kubernetes.io/kubelet-serving"},
			Verbs: []string{"approve"}},
	}
}
