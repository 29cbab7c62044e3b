package steps

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"

	slipway "github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/platform"
)

// The providers are installed in the workload cluster where a pivot follows, and not for a bootstrap without one.
func TestProvidersOfTheWorkloadClusterAreForThePivot(t *testing.T) {
	w := clustertest.New(t)
	journal := flow.Memory()
	if _, err := runPlan(t, w, w.Config(), journal, nil); err != nil {
		t.Fatal(err)
	}
	into := func() (clusters []string) {
		w.Mu.Lock()
		defer w.Mu.Unlock()
		for _, o := range w.Inits {
			clusters = append(clusters, filepath.Base(o.Kubeconfig.Path))
		}
		return clusters
	}
	if got := into(); !slices.Equal(got, []string{platform.ManagementKubeconfig}) {
		t.Errorf("a bootstrap installs in %v", got)
	}
	for range 2 { // the second run finds them
		if _, err := runTargets(t, w, w.Config(), w.Tools(), journal, "providers"); err != nil {
			t.Fatal(err)
		}
	}
	if got := into(); !slices.Equal(got, []string{platform.ManagementKubeconfig, platform.Kubeconfig}) {
		t.Errorf("with the step providers, installed in %v", got)
	}
	plan, err := New(w.Config(), w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	needs := map[string][]string{}
	for _, s := range plan.Graph.Steps() {
		needs[s.Name] = s.Needs
	}
	for _, name := range []string{"providers", "wait-machines"} {
		if !slices.Contains(needs["pivot"], name) {
			t.Errorf("pivot needs %v, not %s", needs["pivot"], name)
		}
	}
	if slices.Contains(needs["providers"], "cilium") || slices.Contains(needs["providers"], "wait-nodes") {
		t.Errorf("the providers are not installed beside the nodes: they need %v", needs["providers"])
	}
}

// endlessInit is clusterctl while the Pods of cert-manager do not start.
type endlessInit struct{ platform.Clusterctl }

func (endlessInit) Init(ctx context.Context, _ clusterctl.InitOptions) ([]clusterctl.Components, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// An installation whose Pods no node takes ends with the time of the nodes, and names what the nodes lack.
func TestProvidersEndWithoutANode(t *testing.T) {
	w := clustertest.New(t)
	w.Workload.Put(kubetest.Object("v1", "Node", "", "a", nil))
	cfg, tools := w.Config(), w.Tools()
	cfg.NodesTimeout = slipway.Duration(time.Second)
	inner := tools.Clusterctl
	tools.Clusterctl = func(ctx context.Context, c config.Client, contract string) (platform.Clusterctl, error) {
		made, err := inner(ctx, c, contract)
		return endlessInit{made}, err
	}
	set, err := NewSet(cfg, tools)
	if err != nil {
		t.Fatal(err)
	}
	if err := set.tools.Files.Write(platform.Kubeconfig, w.Workload.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	_, err = set.runWorkloadProviders(t.Context(), t.Logf, Kubeconfig{File: platform.Kubeconfig})
	if err == nil || !strings.Contains(err.Error(), "a node that takes Pods") ||
		!strings.Contains(err.Error(), "a: not Ready") {
		t.Errorf("got %v", err)
	}
}
