package steps

import (
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/platform"
)

// TestSetKnowsWhenItBegan: what was found terminal before the run may have been mended since, so a plan that is
// composed from a set must not end at it.
func TestSetKnowsWhenItBegan(t *testing.T) {
	before := time.Now()
	tools := platform.Tools{Management: &clustertest.Provider{}, Files: platform.FilesIn(t.TempDir())}
	s, err := NewSet(config.Defaults(), tools)
	if err != nil {
		t.Fatal(err)
	}
	if s.observer.Began.Before(before) {
		t.Errorf("the set began %s; want %s or later", s.observer.Began, before)
	}
}

// workloadOf is the cluster that the kubeconfig in the state folder of a set opens.
func workloadOf(t *testing.T, s *Set) *kube.Cluster {
	t.Helper()
	workload, err := connect.Cluster(s.tools, platform.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return workload
}
