package upgrade

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

// An upgrade changes the versions of the worker pools that there are: they keep their numbers of servers, and none is
// created.
func TestWorkerPoolsKeepTheirNumbers(t *testing.T) {
	p, tools := newProvider(t)
	labels := object{"labels": object{capi.WorkerPoolLabel: "db", capi.ClusterNameLabel: "k8s"}}
	p.Management.Put(kubetest.Object(clustertest.CAPH, "HCloudMachineTemplate", config.DefaultNamespace, "k8s-db-old",
		object{
			"metadata": labels, "spec": object{"template": object{"spec": object{"type": "cx33"}}}}))
	p.Management.Put(kubetest.Object(clustertest.CAPI, "MachineDeployment", config.DefaultNamespace, "k8s-db", object{
		"metadata": labels, "spec": object{"replicas": 4, "template": object{"spec": object{"failureDomain": "nbg1",
			"version": "v1.32.2", "infrastructureRef": object{"name": "k8s-db-old"}}}}}))
	cfg := p.configured(t, "KUBERNETES_VERSION=v1.33.5")
	cfg.Workers = config.WorkerPools{{Name: "db", Replicas: 2}, {Name: "web", Replicas: 1}}
	x, err := Examine(t.Context(), cfg, tools, Options{}, p.say)
	if err != nil {
		t.Fatal(err)
	}
	does := ""
	for _, s := range x.Stages {
		if s.Name == StageWorkers {
			does = s.Does
		}
	}
	if !strings.Contains(does, "replaces all 4 servers") || strings.Contains(does, "removes") ||
		strings.Contains(does, "web") {
		t.Errorf("the stage workers %q", does)
	}
	if kept := keepReplicas(cfg.Workers, x.Workers); len(kept) != 1 || kept[0].Replicas != 4 {
		t.Errorf("%+v", x.Workers)
	}
	if cfg.Workers[0].Replicas != 2 {
		t.Error("the caller's configuration was changed")
	}
}
