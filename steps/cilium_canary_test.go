package steps

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/ensure/canary"
)

const (
	canaryWorker = "k8s-worker-0"
	agentImage   = "quay.io/cilium/cilium:v"
)

// canaries is a cluster with Cilium installed, whose agents are played.
type canaries struct {
	t       *testing.T
	w       *clustertest.Environment
	agents  *clustertest.Agents
	cfg     config.Config
	journal flow.Journal
	dead    atomic.Bool // the run has ended and removes nothing any more
}

// newCanaries installs Cilium on three control plane nodes, and a worker if there is to be one.
func newCanaries(t *testing.T, workers ...string) *canaries {
	w := clustertest.New(t)
	c := &canaries{t: t, w: w, cfg: w.Config(), journal: flow.Memory()}
	c.w.Workload.Fail = func(r *http.Request) (int, string) {
		if c.dead.Load() && r.Method == http.MethodDelete {
			return http.StatusInternalServerError, "the run is dead"
		}
		return 0, ""
	}
	for _, name := range workers {
		w.Workload.Put(kubetest.Object("v1", "Node", "", name, nil))
	}
	nodes := append([]string{"k8s-control-plane-0", "k8s-control-plane-1", "k8s-control-plane-2"}, workers...)
	c.agents = clustertest.PlayAgents(t, w, nodes...)
	if err := c.run(""); err != nil {
		t.Fatal(err)
	}
	if got := c.agents.Happened(); len(got) != len(nodes) {
		t.Fatalf("the installation: %q", got)
	}
	return c
}

// run runs the step, and ends when it says something: as killed, which removes nothing.
func (c *canaries) run(dies string) error {
	c.t.Helper()
	plan, err := New(c.cfg, c.w.Tools())
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	c.dead.Store(false)
	observe := func(e flow.Event) {
		c.t.Log(e.Kind, e.Step, e.Message, e.Err)
		if dies != "" && strings.Contains(e.Message, dies) {
			c.dead.Store(true)
			cancel()
		}
	}
	_, err = plan.Graph.Run(ctx, flow.Options{Journal: c.journal, Targets: []string{"cilium"}, Observe: observe})
	return err
}

// held tells whether the DaemonSet is held back, in the cluster and in the values of the release.
func (c *canaries) held() bool {
	d := c.w.Workload.Get("apps/v1", "DaemonSet", "kube-system", "cilium")
	strategy, _, _ := unstructured.NestedString(d.Object, "spec", "updateStrategy", "type")
	return strategy == "OnDelete"
}

// stopped is the version of before an upgrade that has not come past its canary node; empty: there is none.
func (c *canaries) stopped() string {
	c.t.Helper()
	workload, err := kube.Connect(c.w.Workload.Kubeconfig())
	if err != nil {
		c.t.Fatal(err)
	}
	helm, err := workload.Helm("kube-system", "test", c.t.Logf)
	if err != nil {
		c.t.Fatal(err)
	}
	before, stopped, err := canary.Stopped(helm, "cilium", nil)
	if err != nil || stopped != (before != nil) {
		c.t.Fatalf("stopped %v: %v, %v", stopped, before, err)
	}
	if before == nil {
		return ""
	}
	return before.Version
}

func (c *canaries) probes() (names []string) {
	for _, o := range c.w.Workload.All() {
		if o.GetLabels()["slipway.dev/canary-node"] != "" {
			names = append(names, o.GetName())
		}
	}
	return names
}

// rolled fails unless the canary node came first, was probed, and the others followed.
func (c *canaries) rolled(node, version string) {
	c.t.Helper()
	happened := c.agents.Happened()
	image := agentImage + version
	if len(happened) < 3 || !slices.Equal(happened[:3], []string{node + " " + image, "probe " + node, "probe ends"}) {
		c.t.Errorf("it began with %q", happened)
	}
	c.done(version)
}

func (c *canaries) done(version string) {
	c.t.Helper()
	for node, on := range c.agents.On() {
		if on != agentImage+version {
			c.t.Errorf("node %s runs %s", node, on)
		}
	}
	if c.held() || len(c.probes()) > 0 || c.stopped() != "" {
		c.t.Errorf("held back: %v, probes %q", c.held(), c.probes())
	}
}

func TestANodeTakesANewCiliumFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		workers []string
		canary  string
	}{
		"a worker":         {[]string{canaryWorker, "k8s-worker-1"}, canaryWorker},
		"no worker, so it": {nil, "k8s-control-plane-0"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCanaries(t, tt.workers...)
			c.cfg.CiliumVersion = clustertest.NextCilium
			if err := c.run(""); err != nil {
				t.Fatal(err)
			}
			c.rolled(tt.canary, clustertest.NextCilium)
			if err := c.run(""); err != nil || len(c.agents.Happened()) > 0 {
				t.Errorf("again: %v", err)
			}
		})
	}
}

// A probe that fails stops the upgrade at one node, also when it is run again, until another version is configured.
func TestAFailedCanaryNodeStopsTheUpgrade(t *testing.T) {
	c := newCanaries(t, canaryWorker)
	was := c.cfg.CiliumVersion
	c.agents.Break(clustertest.NextCilium)
	c.cfg.CiliumVersion, c.cfg.ReleaseTimeout = clustertest.NextCilium, config.Duration(2*time.Second)
	for range 2 {
		err := c.run("")
		var failed *canary.FailedError
		if !errors.As(err, &failed) || failed.Node != canaryWorker {
			t.Fatalf("it did not stop: %v", err)
		}
		for _, says := range []string{"stopped at its canary node " + canaryWorker,
			"KubePrism 127.0.0.1:7445: Readiness probe failed: dial tcp 127.0.0.1:7445: i/o timeout",
			"kubernetes 10.96.0.1:443", "The 3 other nodes run the old agent",
			"helm rollback cilium 1 --namespace kube-system", "chart version " + was} {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("it does not say %q: %v", says, err)
			}
		}
		if on := c.agents.SortedNodes(clustertest.NextCilium); !slices.Equal(on, []string{canaryWorker}) || !c.held() ||
			len(c.probes()) > 0 || c.stopped() != was {
			t.Errorf("the new agent is on %q, held back %v, probes %q, of before %q", on, c.held(), c.probes(), c.stopped())
		}
	}
	c.agents.Happened()
	c.cfg.CiliumVersion, c.cfg.ReleaseTimeout = was, c.w.Config().ReleaseTimeout
	if err := c.run(""); err != nil {
		t.Fatal(err)
	}
	c.rolled(canaryWorker, was)
	c.cfg.CiliumVersion = clustertest.NextCilium
	c.agents.Break("")
	if err := c.run(""); err != nil {
		t.Fatal(err)
	}
	c.rolled(canaryWorker, clustertest.NextCilium)
}

// What a killed run leaves, the next one finishes: the same canary node, no probe of before, no DaemonSet that is held
// back.
func TestAnUpgradeOfCiliumIsResumed(t *testing.T) {
	for _, dies := range []string{"upgrading release cilium: chart", "takes the new agent first", "deleting Pod cilium-",
		"probing from", "the other nodes follow", "upgrading release cilium: new values"} {
		t.Run(dies, func(t *testing.T) {
			c := newCanaries(t, canaryWorker)
			c.cfg.CiliumVersion = clustertest.NextCilium
			if err := c.run(dies); err == nil {
				t.Fatal("it was not ended")
			}
			if err := c.run(""); err != nil {
				t.Fatal(err)
			}
			c.done(clustertest.NextCilium)
			var started []string
			for _, line := range c.agents.Happened() {
				if strings.HasSuffix(line, clustertest.NextCilium) {
					started = append(started, line)
				}
			}
			if len(started) != 4 || started[0] != canaryWorker+" "+agentImage+clustertest.NextCilium {
				t.Errorf("agents started: %q", started)
			}
		})
	}
}

// Where no agent is replaced, or the replacement is left to the operator, no node is probed.
func TestNoCanaryNodeIsNeeded(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*canaries)
		waits  bool // for the operator, so that it ends with its time
	}{
		"values that change no agent": {func(c *canaries) { c.own("debug: {enabled: true}\n") }, false},
		"the operator's own strategy": {func(c *canaries) {
			c.own("updateStrategy: {type: OnDelete}\n")
			c.cfg.CiliumVersion, c.cfg.ReleaseTimeout = clustertest.NextCilium, config.Duration(time.Second)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCanaries(t, canaryWorker)
			tt.change(c)
			err := c.run("")
			if happened := c.agents.Happened(); len(happened) > 0 || tt.waits != (err != nil) || c.held() != tt.waits {
				t.Errorf("%q happened, held back %v: %v", happened, c.held(), err)
			}
		})
	}
	t.Run("values that do", func(t *testing.T) {
		c := newCanaries(t, canaryWorker)
		c.own("podAnnotations: {a: b}\n")
		if err := c.run(""); err != nil {
			t.Fatal(err)
		}
		c.rolled(canaryWorker, c.cfg.CiliumVersion)
	})
}

// own writes the operator's values of Cilium.
func (c *canaries) own(values string) {
	c.t.Helper()
	clustertest.Edit(c.t, c.w.Tools().Overrides, "bootstrap/cilium-values.yaml",
		func(is string) string { return is + values })
}
