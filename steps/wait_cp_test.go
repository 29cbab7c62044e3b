package steps

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/platform"
)

func TestTroubles(t *testing.T) {
	o := kubetest.Object(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, "x",
		clustertest.Map{"status": clustertest.Map{"conditions": []any{
			clustertest.Map{"type": "Ready", "status": "False", "reason": "ImageNotFound"},
			clustertest.Map{"type": "ServerCreateSucceeded", "status": "False", "reason": "ImageNotFound",
				"message": "no such image"},
			clustertest.Map{"type": "HetznerAPIReachable", "status": "True"},
		}}})
	if got := capi.Troubles(o); got != "ServerCreateSucceeded: ImageNotFound (no such image)" {
		t.Errorf("got %q", got)
	}
}

// stuck is an environment with a control plane that does not make progress, as Cluster API's objects tell it.
func stuck(t *testing.T) (*clustertest.Environment, *Set, *kube.Cluster, Cluster) {
	t.Helper()
	w := clustertest.New(t)
	w.Management.React = nil
	w.Management.Put(kubetest.Object(clustertest.CAPH, "HetznerCluster", config.DefaultNamespace, "k8s",
		clustertest.Map{"status": clustertest.Map{"conditions": []any{
			clustertest.Map{"type": "HetznerAPIReachable", "status": "False", "severity": "Warning",
				"reason": "RateLimitExceeded"},
			clustertest.Map{"type": "TargetClusterReady", "status": "False", "severity": "Error",
				"reason": "KubeAPIServerNotResponding"},
		}}}))
	w.Management.Put(kubetest.Object(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
		clustertest.Map{"spec": clustertest.Map{"replicas": 3}, "status": clustertest.Map{"conditions": []any{
			clustertest.Map{"type": "MachinesCreated", "status": "False", "severity": "Error",
				"reason": "InfrastructureTemplateCloningFailed", "message": "no such template"},
			clustertest.Map{"type": "MachinesBootstrapped", "status": "False", "severity": "Info",
				"reason": "WaitingForMachines"},
		}}}))
	mgmt, err := kube.Connect(w.Management.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	b := newSet(w.Config(), w.Tools(), render.Sources{})
	if err := b.tools.Files.Write(platform.ManagementKubeconfig, w.Management.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	return w, b, mgmt, Cluster{Name: "k8s", ControlPlane: "k8s-control-plane"}
}

func TestWaitSaysWhyNothingHappens(t *testing.T) {
	_, b, mgmt, c := stuck(t)
	s, _ := b.observer.Observe(t.Context(), mgmt, c.watched(config.DefaultNamespace))
	a := why.Explain(s)
	want := "waiting for the load balancer: it has no address yet; HetznerCluster: Hetzner refuses more requests for now"
	if got := a.Sentence(); !strings.HasPrefix(got, want) || !strings.Contains(got, "TalosControlPlane: no such template") {
		t.Errorf("got %q, want it to begin with %q", got, want)
	}
	if terminal := a.Terminal(time.Time{}); terminal != nil {
		t.Errorf("what may yet mend itself counts as terminal: %v", terminal)
	}
}

func TestWaitEndsWhereNoWaitingHelps(t *testing.T) {
	for name, tt := range map[string]struct {
		fail func(*clustertest.Environment)
		want []string
	}{
		"control plane": {func(w *clustertest.Environment) {
			w.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
				clustertest.Map{"status": clustertest.Map{"failureReason": "CreateError", "failureMessage": "no way"}})
		}, []string{"TalosControlPlane k8s-control-plane", "CreateError: no way", "destroy", "refuses more requests"}},
		"server": {func(w *clustertest.Environment) {
			labels := clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "k8s", capi.ControlPlaneLabel: ""}}
			w.Management.Put(kubetest.Object(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, "server",
				clustertest.Map{"metadata": labels,
					"status": clustertest.Map{"failureReason": "UpdateError", "failureMessage": "the server is gone"}}))
			w.Management.Put(kubetest.Object(clustertest.CAPI, "Machine", config.DefaultNamespace, "machine",
				clustertest.Map{"metadata": labels,
					"spec": clustertest.Map{"infrastructureRef": clustertest.Map{"name": "server"}}}))
		}, []string{"server: is given up (UpdateError: the server is gone)", "delete machine machine"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, b, _, c := stuck(t)
			tt.fail(w)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := b.runControlPlane(ctx, t.Logf, Management{Kubeconfig: platform.ManagementKubeconfig}, c)
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("it went on waiting: %v", err)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

// A wait tells why what it waits for is not there, after a moment, and ends where that is terminal since the run began.
func TestWaitBecause(t *testing.T) {
	w, b, mgmt, c := stuck(t)
	because := b.observer.Progress(mgmt, c.watched(config.DefaultNamespace))
	if said, err := because(t.Context()); said != "" || err != nil {
		t.Errorf("at once it says %q, %v", said, err)
	}
	var said string
	for deadline := time.Now().Add(10 * time.Second); said == "" &&
		time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var err error
		if said, err = because(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.HasPrefix(said,
		"the load balancer: it has no address yet; HetznerCluster: Hetzner refuses more requests") {
		t.Errorf("then it says %q", said)
	}
	refuse := func(at time.Time) {
		w.Management.Change(clustertest.CAPH, "HetznerCluster", config.DefaultNamespace, "k8s",
			clustertest.Map{"status": clustertest.Map{"conditions": []any{clustertest.Map{
				"type": "HCloudTokenAvailable", "status": "False", "severity": "Error", "reason": "HCloudCredentialsInvalid",
				"lastTransitionTime": at.UTC().Format(time.RFC3339)}}}})
	}
	b.observer.Began = time.Now()
	ends := func() error {
		t.Helper()
		because := b.observer.Progress(mgmt, c.watched(config.DefaultNamespace))
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if said, err := because(t.Context()); said != "" || err != nil {
				return err
			}
		}
		return errors.New("it says nothing")
	}
	refuse(b.observer.Began.Add(-time.Hour)) // it may have been mended since
	if err := ends(); err != nil {
		t.Errorf("what was found an hour before ends it: %v", err)
	}
	refuse(time.Now())
	if err := ends(); err == nil || !strings.Contains(err.Error(), "does not accept the token") ||
		!strings.Contains(err.Error(), "the target secret, or after a pivot token, takes it") {
		t.Errorf("a token that is refused now: %v", err)
	}
}
