package upgrade

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/steps"
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
			"version": "v1.35.4", "infrastructureRef": object{"name": "k8s-db-old"}}}}}))
	cfg := p.configured(t, "KUBERNETES_VERSION=v1.36.5")
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

// An upgrade changes the versions of a pool and nothing else of it: what else was edited since stays as the cluster has
// it, and is named.
func TestWorkerPoolsGetVersionsOnly(t *testing.T) {
	p, tools := newProvider(t)
	labels := object{"labels": object{capi.WorkerPoolLabel: "db", capi.ClusterNameLabel: "k8s"}}
	p.Management.Put(kubetest.Object(clustertest.CAPH, "HCloudMachineTemplate", config.DefaultNamespace, "k8s-db-old",
		object{"metadata": labels, "spec": object{"template": object{"spec": object{"type": "cx33",
			"imageName": "talos-amd64-v1.13.9"}}}}))
	p.Management.Put(kubetest.Object("bootstrap.cluster.x-k8s.io/v1alpha3", "TalosConfigTemplate", config.DefaultNamespace,
		"k8s-db-config", object{"metadata": labels, "spec": object{"template": object{"spec": object{
			"generateType": "worker", "talosVersion": "v1.13.9", "strategicPatches": []any{"machine: {}\n"}}}}}))
	p.Management.Put(kubetest.Object(clustertest.CAPI, "MachineDeployment", config.DefaultNamespace, "k8s-db", object{
		"metadata": labels, "spec": object{"replicas": 4, "template": object{
			"metadata": object{"labels": object{"node.cluster.x-k8s.io/kept": "yes"}},
			"spec": object{"failureDomain": "nbg1", "version": "v1.35.4",
				"bootstrap":         object{"configRef": object{"name": "k8s-db-config"}},
				"infrastructureRef": object{"name": "k8s-db-old"}}}}}))
	cfg := p.configured(t, "KUBERNETES_VERSION=v1.36.5", "TALOS_VERSION=v1.13.10")
	cfg.Workers = config.WorkerPools{{Name: "db", Replicas: 2, ServerType: "cx43"}}
	x, err := Examine(t.Context(), cfg, tools, Options{}, p.say)
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(x.Stages, func(s Stage) bool { return s.Name == StageWorkers }); i < 0 ||
		strings.Contains(x.Stages[i].Does, "cx43") || !strings.Contains(x.Stages[i].Does, "Kubernetes v1.35.4 → v1.36.5") {
		t.Errorf("%+v", x.Stages)
	}
	as := p.configured(t)
	as.Workers = cfg.Workers
	for _, resumes := range []bool{false, true} { // a pool that has the versions is waited for by what resumes an upgrade
		now, err := Examine(t.Context(), as, tools, Options{Resumes: resumes}, p.say)
		if waits := len(now.Stages) == 1 && now.Stages[0].Name == StageWorkers; err != nil || waits != resumes {
			t.Errorf("resumed %t: %v, %+v", resumes, err, now.Stages)
		}
	}
	if left := strings.Join(x.Left, "; "); !strings.Contains(left, "server type cx33 → cx43") ||
		strings.Contains(left, "v1.36.5") || strings.Contains(left, "v1.13.10") {
		t.Errorf("it leaves %q; %q", left, x.Unanswered)
	}
	cfg.Workers = keepReplicas(cfg.Workers, x.Workers)
	e, err := newEnvironment(cfg, tools)
	if err != nil {
		t.Fatal(err)
	}
	step := poolsStep{e}
	if v := step.verify(t.Context(), steps.Workers{}); v.Answer() != flow.AnswerGone {
		t.Errorf("before: %v", v)
	}
	if _, err := step.run(t.Context(), p.say); err != nil {
		t.Fatal(err)
	}
	if v := step.verify(t.Context(), steps.Workers{}); v.Answer() != flow.AnswerHolds {
		t.Errorf("after: %v", v)
	}
	is := p.Management.Get(clustertest.CAPI, "MachineDeployment", config.DefaultNamespace, "k8s-db")
	template := p.Management.Get(clustertest.CAPH, "HCloudMachineTemplate", config.DefaultNamespace,
		capi.Text(is, templateName...))
	talosConfig := p.Management.Get("bootstrap.cluster.x-k8s.io/v1alpha3", "TalosConfigTemplate", config.DefaultNamespace,
		capi.Text(is, configName...))
	if template == nil || talosConfig == nil {
		t.Fatalf("it names templates that are not there: %v", is.Object["spec"])
	}
	for want, got := range map[string]string{
		"v1.36.5":              capi.Text(is, "spec", "template", "spec", "version"),
		"yes":                  capi.Text(is, "spec", "template", "metadata", "labels", "node.cluster.x-k8s.io/kept"),
		"cx33":                 capi.Text(template, "spec", "template", "spec", "type"),
		"talos-amd64-v1.13.10": capi.Text(template, "spec", "template", "spec", "imageName"),
		"v1.13.10":             capi.Text(talosConfig, "spec", "template", "spec", "talosVersion"),
		"worker":               capi.Text(talosConfig, "spec", "template", "spec", "generateType"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	patches, _, _ := unstructured.NestedStringSlice(talosConfig.Object, "spec", "template", "spec", "strategicPatches")
	if capi.Number(is, "spec", "replicas") != 4 || !slices.Equal(patches, []string{"machine: {}\n"}) ||
		template.GetLabels()[capi.WorkerPoolLabel] != "db" {
		t.Errorf("%v, %q, %v", is.Object["spec"], patches, template.GetLabels())
	}
}
