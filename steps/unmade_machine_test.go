package steps

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// newUnmade is a living cluster whose fourth Machine was made from a patch with a mistake, which has been mended since.
func newUnmade(t *testing.T) surplusWorld {
	t.Helper()
	w := newSurplus(t)
	w.serverless("m4")
	w.Hetzner.SetServers(
		schema.Server{ID: 1, Name: "m1", Status: "running", Labels: map[string]string{"caph-cluster-k8s": "owned"}},
		schema.Server{ID: 2, Name: "m2", Status: "running", Labels: map[string]string{"caph-cluster-k8s": "owned"}},
		schema.Server{ID: 3, Name: "m3", Status: "running", Labels: map[string]string{"caph-cluster-k8s": "owned"}})
	w.tcp(clustertest.Map{"status": clustertest.Map{"bootstrapped": true, "initialized": true}})
	w.Environment.Management.Change(clustertest.CABPT, "TalosConfig", config.DefaultNamespace, "m4", clustertest.Map{
		"spec": clustertest.Map{"strategicPatches": []any{"machine: {nonsense: true}"}},
		"status": clustertest.Map{"conditions": []any{clustertest.Map{"type": "DataSecretAvailable", "status": "False",
			"severity": "Error",
			"reason":   "DataSecretGenerationFailed", "message": "unknown keys",
			"lastTransitionTime": "2026-05-04T12:00:00Z"}}}})
	w.b.observer.Began = time.Now()
	return w
}

// A wait of a living cluster names the Machine and what to type; with consent it deletes it.
func TestUnmadeMachine(t *testing.T) {
	t.Parallel()
	for _, consent := range []bool{false, true} {
		w := newUnmade(t)
		w.b.tools.Consent = consent
		w.b.observer.Tools = w.b.tools
		because := w.b.observer.Obstacles(w.mgmt, w.cluster.watched(config.DefaultNamespace))
		var said string
		var err error
		for deadline := time.Now().Add(10 * time.Second); said == "" && err == nil &&
			time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			said, err = because(t.Context())
		}
		if consent {
			if err != nil || !strings.HasPrefix(said, "deleted Machine m4, as agreed: ") || w.left() != "m1 m2 m3" {
				t.Errorf("with consent it says %q, %v; %s are left", said, err, w.left())
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "so does the target replace-machine: bootstrap replace-machine m4") ||
			w.left() != "m1 m2 m3 m4" {
			t.Errorf("without consent it says %q, %v; %s are left", said, err, w.left())
		}
	}
}

// Before etcd is started the wait for the control plane deletes it, too, and does not take it for terminal without
// consent.
func TestUnmadeMachineBeforeEtcd(t *testing.T) {
	t.Parallel()
	w := newUnmade(t)
	w.tcp(clustertest.Map{"status": clustertest.Map{"bootstrapped": false, "initialized": false}})
	w.b.cfg.ControlPlaneTimeout = config.Duration(8 * time.Second)
	w.b.observer.Cfg = w.b.cfg
	_, err := w.b.runControlPlane(t.Context(), t.Logf, Management{Kubeconfig: platform.ManagementKubeconfig},
		w.cluster)
	if waited := (*wait.TimeoutError)(nil); !errors.As(err, &waited) || !strings.Contains(err.Error(), "changed since") ||
		w.left() != "m1 m2 m3 m4" {
		t.Errorf("without consent: %v; %s are left", err, w.left())
	}
	w.b.tools.Consent = true
	w.b.observer.Tools = w.b.tools
	if _, err = w.b.runControlPlane(t.Context(), t.Logf, Management{Kubeconfig: platform.ManagementKubeconfig},
		w.cluster); err == nil || w.left() != "m1 m2 m3" {
		t.Errorf("with consent: %v; %s are left", err, w.left())
	}
}

// What CAPH has given up before it created a server is deleted with consent, before and after etcd is started, though
// nothing has been changed since and the bootstrap data are there.
func TestUnmadeMachineThatCAPHHasGivenUp(t *testing.T) {
	t.Parallel()
	for _, started := range []bool{false, true} {
		w := newSurplus(t)
		w.serverless("m4")
		w.Hetzner.SetServers()
		w.tcp(clustertest.Map{"spec": clustertest.Map{"replicas": 4},
			"status": clustertest.Map{"bootstrapped": started, "initialized": started}})
		w.Environment.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, "m4",
			clustertest.Map{"spec": clustertest.Map{"bootstrap": clustertest.Map{"dataSecretName": "m4-bootstrap-data"}}})
		w.Environment.Management.Change(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, "m4", clustertest.Map{
			"status": clustertest.Map{"bootState": "ProvisioningFailed", "conditions": []any{clustertest.Map{
				"type": "ServerCreateSucceeded", "status": "False", "severity": "Warning", "reason": "ImageNotFound",
				"message": "no image found with name talos (boot state unset timed out, in this state since 10m1s)"}}}})
		for _, consent := range []bool{false, true} {
			w.b.tools.Consent = consent
			did, err := situation.DeleteUnmade(t.Context(), w.b.tools, w.mgmt, w.cluster.watched(config.DefaultNamespace),
				w.see(t))
			if err != nil || (did != "") != consent {
				t.Errorf("etcd started %v, consent %v: %q, %v", started, consent, did, err)
			}
		}
		if w.left() != "m1 m2 m3" {
			t.Errorf("etcd started %v: %s are left", started, w.left())
		}
	}
}

// A Machine with which something might be lost, or of which another one would be no better, is left alone, whatever was
// agreed to.
func TestUnmadeMachineIsLeftAlone(t *testing.T) {
	t.Parallel()
	machine := func(change clustertest.Map) func(surplusWorld) {
		return func(w surplusWorld) {
			w.Environment.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, "m4", change)
		}
	}
	configChange := func(change clustertest.Map) func(surplusWorld) {
		return func(w surplusWorld) {
			w.Environment.Management.Change(clustertest.CABPT, "TalosConfig", config.DefaultNamespace, "m4", change)
		}
	}
	for name, change := range map[string]func(surplusWorld){
		"it is a node":        machine(clustertest.Map{"status": clustertest.Map{"nodeRef": clustertest.Map{"name": "m4"}}}),
		"it has a server":     machine(clustertest.Map{"spec": clustertest.Map{"providerID": "hcloud://4"}}),
		"it has data":         machine(clustertest.Map{"spec": clustertest.Map{"bootstrap": clustertest.Map{"dataSecretName": "x"}}}),
		"it is being deleted": machine(clustertest.Map{"metadata": clustertest.Map{"deletionTimestamp": "2026-05-04T12:00:00Z", "finalizers": []any{"x"}}}),
		"CAPH has a server": func(w surplusWorld) {
			w.Environment.Management.Change(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, "m4",
				clustertest.Map{"spec": clustertest.Map{"providerID": "hcloud://4"}})
		},
		"Hetzner has a server": func(w surplusWorld) {
			w.Hetzner.SetServers(schema.Server{ID: 4, Name: "m4", Status: "running",
				Labels: map[string]string{"caph-cluster-k8s": "owned"}})
		},
		"its Secret is there": func(w surplusWorld) {
			w.Environment.Management.Put(kubetest.Object("v1", "Secret", config.DefaultNamespace, "m4-bootstrap-data",
				clustertest.Map{"data": clustertest.Map{"value": "eA=="}}))
		},
		"the patch was not mended": func(w surplusWorld) {
			w.tcp(clustertest.Map{"spec": clustertest.Map{"controlPlaneConfig": clustertest.Map{"controlplane": clustertest.Map{"strategicPatches": []any{"machine: {nonsense: true}"}}}}})
		},
		"its configuration is not made yet": configChange(clustertest.Map{"status": clustertest.Map{"conditions": []any{clustertest.Map{"type": "DataSecretAvailable", "status": "False", "reason": "WaitingForInfrastructure"}}}}),
		"it is paused": func(w surplusWorld) {
			w.Environment.Management.Change(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s",
				clustertest.Map{"spec": clustertest.Map{"paused": true}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newUnmade(t)
			w.b.tools.Consent = true
			w.b.observer.Tools = w.b.tools
			before := w.see(t)
			change(w)
			// it was chosen before that
			did, err := situation.DeleteUnmade(t.Context(), w.b.tools, w.mgmt, w.cluster.watched(config.DefaultNamespace), before)
			if w.left() != "m1 m2 m3 m4" || did != "" || err != nil {
				t.Errorf("%q, %v; %s are left", did, err, w.left())
			}
			if did, err := situation.DeleteUnmade(t.Context(), w.b.tools, w.mgmt, w.cluster.watched(config.DefaultNamespace), w.see(t)); did != "" ||
				err != nil {
				t.Errorf("looking again: %q, %v", did, err)
			}
		})
	}
}

// In what is told of a cluster there are no credentials.
func TestSituationHasNoCredentials(t *testing.T) {
	w := newUnmade(t)
	w.Environment.Management.Change(clustertest.CABPT, "TalosConfig", config.DefaultNamespace, "m1",
		clustertest.Map{"status": clustertest.Map{"talosConfig": "key: planted"}})
	s := w.see(t)
	for _, c := range s.Configs {
		if capi.Text(&c, "status", "talosConfig") != "" {
			t.Errorf("%s has a talosconfig", c.GetName())
		}
	}
	if !slices.Equal(s.Outdated, []string{"m4"}) {
		t.Errorf("made from an earlier configuration are %v", s.Outdated)
	}
}
