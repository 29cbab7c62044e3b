// Package fakeenv is a fake environment in which a whole bootstrap takes a second: the Hetzner API, a management and a
// workload cluster in memory, and stand-ins for their controllers. It continues when the command is killed. For tests.
package fakeenv

import (
	"context"
	"maps"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

// Plan is what is to be bootstrapped, as far as the environment has to know.
type Plan struct {
	Cluster, Namespace, ControlPlane string
	Image                            string // value of the label caph-image-name
	Replicas                         int
	Refused                          Refusal // zero: nothing is
}

// Refusal is what Hetzner does not give to Cluster API at first, as CAPH reports it.
type Refusal struct {
	// of the object that CAPH says it of: HetznerCluster, or HCloudMachine of the first server
	Kind                                 string
	Condition, Severity, Reason, Message string
	NoImage                              bool          // the image is gone meanwhile
	For                                  time.Duration // then it is given; 0: not before Mend
}

// Environment is everything that a bootstrap changes.
type Environment struct {
	Management, Workload *kubetest.Server
	Hetzner              *hetznertest.Server

	plan        Plan
	talosconfig []byte

	reconciling sync.Mutex // one object at a time

	mu      sync.Mutex
	refused *unstructured.Unstructured // what was, and waits
	mended  bool
	made    map[string]int // by the stand-ins: "server k8s-control-plane-0" → how often
}

// New starts an environment on loopback in which nothing is bootstrapped yet.
func New(p Plan) (*Environment, error) {
	w := &Environment{
		Management: kubetest.New("management", managementKinds()...),
		Workload: kubetest.New("workload", kubetest.Resource{Group: "talos.dev", Version: "v1alpha1",
			Kind: "ServiceAccount", Plural: "serviceaccounts"}),
		Hetzner: hetznertest.New(), plan: p, made: map[string]int{},
	}
	w.image()
	w.Management.React, w.Workload.React = w.manage, w.work
	var err error
	if w.talosconfig, err = credentials(p.Cluster); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Close ends the servers of the environment.
func (w *Environment) Close() {
	for _, s := range []*httptest.Server{w.Management.Server, w.Workload.Server, w.Hetzner.Server} {
		s.CloseClientConnections()
		s.Close()
	}
}

// Made tells how often the stand-ins made each thing.
func (w *Environment) Made() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.made)
}

func managementKinds() []kubetest.Resource {
	kind := func(group, version, kind, plural string) kubetest.Resource {
		return kubetest.Resource{Group: group, Version: version, Kind: kind, Plural: plural}
	}
	const core, infrastructure = "cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io"
	return []kubetest.Resource{
		kind(core, "v1beta1", "Cluster", "clusters"),
		kind(core, "v1beta1", "Machine", "machines"),
		kind(core, "v1beta1", "MachineHealthCheck", "machinehealthchecks"),
		kind(infrastructure, "v1beta1", "HetznerCluster", "hetznerclusters"),
		kind(infrastructure, "v1beta1", "HCloudMachine", "hcloudmachines"),
		kind(infrastructure, "v1beta1", "HCloudMachineTemplate", "hcloudmachinetemplates"),
		kind("cluster.x-k8s.io", "v1beta1", "MachineDeployment", "machinedeployments"),
		kind("bootstrap.cluster.x-k8s.io", "v1alpha3", "TalosConfig", "talosconfigs"),
		kind("controlplane.cluster.x-k8s.io", "v1alpha3", "TalosControlPlane", "taloscontrolplanes"),
		kind("clusterctl.cluster.x-k8s.io", "v1alpha3", "Provider", "providers"),
	}
}

// Provider is one that clusterctl installs.
type Provider struct{ Label, Version string }

// Install plays clusterctl's init in a cluster: the inventory and a Deployment for each provider, one call after
// another, and what is there stays.
func Install(ctx context.Context, c *kube.Cluster, providers []Provider) error {
	for _, p := range providers {
		labels := object{providerLabel: p.Label}
		manager := kubetest.Object("apps/v1", "Deployment", p.Label, "manager", object{"metadata": object{"labels": labels},
			"spec": object{"replicas": 1}})
		inventory := kubetest.Object("clusterctl.cluster.x-k8s.io/v1alpha3", "Provider", p.Label, p.Label,
			object{"metadata": object{"labels": labels}, "version": p.Version})
		if err := c.Apply(ctx, manager, inventory); err != nil {
			return err
		}
	}
	return nil
}

// credentials are a talosconfig, as CABPT makes it at first, with one public address.
func credentials(cluster string) ([]byte, error) {
	pair, err := selfSigned()
	if err != nil {
		return nil, err
	}
	return config.NewConfig(cluster, []string{publicAddress(0)}, pair.Crt, pair).Bytes()
}
