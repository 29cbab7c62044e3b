package steps

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/talos"
)

func TestProgressSaysWhatIsMissing(t *testing.T) {
	up := serverProgress{name: "a", made: true, state: "running", node: talos.Node{Healthy: true}}
	silent := serverProgress{name: "b", made: true, state: "running", talos: errors.New("connection refused")}
	booting := serverProgress{name: "c", made: true, state: "starting", trouble: "InstanceReady: ServerStarting", talos: errors.New("not asked yet")}
	refused := serverProgress{name: "d", trouble: "ServerCreateSucceeded: ServerTypeUnavailable (cx33 is out of stock in nbg1)", talos: errors.New("not asked yet")}
	for name, tt := range map[string]struct {
		p    progress
		want []string
		not  []string
	}{
		"nothing there":      {progress{want: 3, api: "no kubeconfig"}, []string{"of 3 servers 0 made", "API: no kubeconfig"}, nil},
		"out of stock":       {progress{want: 3, servers: []serverProgress{up, booting, refused}, api: "connection refused"}, []string{"2 made, 1 running", "d: ServerCreateSucceeded", "out of stock in nbg1", "c: InstanceReady"}, []string{"not asked"}},
		"Talos silent":       {progress{want: 2, servers: []serverProgress{up, silent}, api: "connection refused"}, []string{"2 running, Talos answers on 1, etcd on 1", "b: connection refused"}, nil},
		"provider is behind": {progress{want: 1, servers: []serverProgress{up}}, []string{"the API answers", "provider has not seen it"}, nil},
		"API flaps":          {progress{want: 1, servers: []serverProgress{up}, initialized: true, api: "EOF"}, []string{"API: EOF"}, nil},
		"Hetzner refuses": {
			progress{want: 3, troubles: []string{"HetznerCluster: HetznerAPIReachable: RateLimitExceeded"}, servers: []serverProgress{refused, silent}, api: "no kubeconfig"},
			[]string{"HetznerCluster: HetznerAPIReachable: RateLimitExceeded; d: ServerCreateSucceeded: ServerTypeUnavailable (cx33 is out of stock in nbg1); of 3 servers", "API: no kubeconfig; b: connection refused"}, nil,
		},
		"there":           {progress{want: 1, servers: []serverProgress{up}, initialized: true}, nil, nil},
		"one server less": {progress{want: 3, servers: []serverProgress{up}, initialized: true}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := tt.p.missing()
			if (got == "") != (len(tt.want) == 0) {
				t.Fatalf("missing %q", got)
			}
			for _, part := range tt.want {
				if !strings.Contains(got, part) {
					t.Errorf("%q does not say %q", got, part)
				}
			}
			for _, part := range tt.not {
				if strings.Contains(got, part) {
					t.Errorf("%q says %q", got, part)
				}
			}
		})
	}
}

func TestTroubles(t *testing.T) {
	o := kubetest.Object(caph, "HCloudMachine", Namespace, "x", object{"status": object{"conditions": []any{
		object{"type": "Ready", "status": "False", "reason": "ImageNotFound"},
		object{"type": "ServerCreateSucceeded", "status": "False", "reason": "ImageNotFound", "message": "no such image"},
		object{"type": "HetznerAPIReachable", "status": "True"},
	}}})
	if got := troubles(o); got != "ServerCreateSucceeded: ImageNotFound (no such image)" {
		t.Errorf("got %q", got)
	}
}

// stuck is a world with a control plane that does not come further, as Cluster API's objects tell it.
func stuck(t *testing.T) (*world, *bootstrapper, *kube.Cluster, Cluster) {
	t.Helper()
	w := newWorld(t)
	w.mgmt.React = nil
	w.mgmt.Put(kubetest.Object(caph, "HetznerCluster", Namespace, "k8s", object{"status": object{"conditions": []any{
		object{"type": "HetznerAPIReachable", "status": "False", "severity": "Warning", "reason": "RateLimitExceeded"},
		object{"type": "TargetClusterReady", "status": "False", "severity": "Error", "reason": "KubeAPIServerNotResponding"},
	}}}))
	w.mgmt.Put(kubetest.Object(cacpt, "TalosControlPlane", Namespace, "k8s-control-plane", object{"spec": object{"replicas": 3}, "status": object{"conditions": []any{
		object{"type": "MachinesCreated", "status": "False", "severity": "Error", "reason": "InfrastructureTemplateCloningFailed", "message": "no such template"},
		object{"type": "MachinesBootstrapped", "status": "False", "severity": "Info", "reason": "WaitingForMachines"},
	}}}))
	mgmt, err := kube.Connect(w.mgmt.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	b := &bootstrapper{cfg: w.config(), tools: w.tools().withDefaults()}
	if err := b.tools.Files.Write(managementFile, w.mgmt.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	return w, b, mgmt, Cluster{Name: "k8s", ControlPlane: "k8s-control-plane"}
}

func TestWaitSaysWhyNothingHappens(t *testing.T) {
	_, b, mgmt, c := stuck(t)
	p, err := b.observe(t.Context(), mgmt, c)
	if err != nil {
		t.Fatal(err)
	}
	want := "HetznerCluster: HetznerAPIReachable: RateLimitExceeded; TalosControlPlane: MachinesCreated: InfrastructureTemplateCloningFailed (no such template); of 3 servers 0 made"
	if got := p.missing(); !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want it to begin with %q", got, want)
	}
	if p.failed != nil {
		t.Errorf("what may yet mend itself counts as failed: %v", p.failed)
	}
}

func TestWaitEndsWhereNoWaitingHelps(t *testing.T) {
	for name, tt := range map[string]struct {
		fail func(*world)
		want []string
	}{
		"control plane": {func(w *world) {
			w.mgmt.Change(cacpt, "TalosControlPlane", Namespace, "k8s-control-plane", object{"status": object{"failureReason": "CreateError", "failureMessage": "no way"}})
		}, []string{"TalosControlPlane k8s-control-plane", "CreateError: no way", "destroy", "RateLimitExceeded"}},
		"server": {func(w *world) {
			labels := object{"labels": object{clusterNameLabel: "k8s", controlPlaneLabel: ""}}
			w.mgmt.Put(kubetest.Object(caph, "HCloudMachine", Namespace, "server", object{"metadata": labels, "status": object{"failureReason": "UpdateError", "failureMessage": "the server is gone"}}))
			w.mgmt.Put(kubetest.Object(capi, "Machine", Namespace, "machine", object{"metadata": labels, "spec": object{"infrastructureRef": object{"name": "server"}}}))
		}, []string{"server server is given up (UpdateError: the server is gone)", "delete machine machine"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, b, _, c := stuck(t)
			tt.fail(w)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := b.waitControlPlane(ctx, t.Logf, Management{Kubeconfig: managementFile}, c)
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
