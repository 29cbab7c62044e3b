package destroy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/platform"
)

// A project without the cluster, and a cluster that nothing can be asked of, may be a wrong token and a broken network.
// The keys stay.
func TestDestroyKeepsTheKeysOfAClusterThatItDidNotSee(t *testing.T) {
	s := hetznertest.NewEmpty()
	defer s.Close()
	cluster := kubetest.New("workload", clustertest.ClusterAPIKinds()...)
	cluster.Close()
	d := demolisher(t, s, nil)
	keys := []string{platform.Kubeconfig, platform.Talosconfig}
	for _, name := range keys {
		if err := d.tools.Files.Write(name, cluster.Kubeconfig()); err != nil {
			t.Fatal(err)
		}
	}
	// A snapshot alone is left by every destroy.
	s.Put("images", 70, schema.Image{Type: "snapshot",
		Labels: map[string]string{"slipway-cluster": "k8s", "caph-image-name": "talos"}})
	err := listAndDestroy(t.Context(), d, Options{Images: true}, quietly)
	if err == nil || !strings.Contains(err.Error(), "not certain that cluster k8s is gone") {
		t.Errorf("it ended with %v", err)
	}
	for _, name := range keys {
		if _, err := d.tools.Files.Read(name); err != nil {
			t.Error(err)
		}
	}
	if len(s.Writes()) > 0 {
		t.Errorf("it wrote %v", s.Writes())
	}

	// With the token of its project it is destroyed; and killed before its end, it ends when it is run again.
	foreign := plantCluster(s)
	ctx, cancel := context.WithCancel(t.Context())
	err = listAndDestroy(ctx, d, Options{Images: true, Volumes: true},
		func(name, _ string, do func(flow.Say) error) error {
			if name == "management" {
				cancel()
				return ctx.Err()
			}
			return do(t.Logf)
		})
	if err == nil || !slices.Equal(s.Left(), sorted(foreign)) {
		t.Fatalf("killed: %v, left %v", err, s.Left())
	}
	if err := listAndDestroy(t.Context(), d, Options{}, quietly); err != nil {
		t.Error(err)
	}
	for _, name := range append(keys, destroyedFile) {
		if _, err := d.tools.Files.Read(name); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}

// A server that Hetzner refuses to delete ends the wait for Cluster API.
func TestDestroyNamesAProtectedServer(t *testing.T) {
	s := hetznertest.NewEmpty()
	defer s.Close()
	plantCluster(s)
	s.Put("servers", 2, schema.Server{Name: "k8s-b", Labels: map[string]string{"caph-cluster-k8s": "owned"},
		Protection: schema.ServerProtection{Delete: true}})
	source := kubetest.New("management", clustertest.ClusterAPIKinds()...)
	defer source.Close()
	clustertest.Define(source, clustertest.ClusterAPIKinds())
	source.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s",
		clustertest.Map{"spec": clustertest.Map{}}))
	machine := kubetest.Object("infrastructure.cluster.x-k8s.io/v1beta1", "HCloudMachine", config.DefaultNamespace,
		"k8s-b",
		clustertest.Map{"spec": clustertest.Map{"providerID": "hcloud://2"}})
	machine.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "k8s"})
	source.Put(machine)
	d := demolisher(t, s, nil)
	connected, err := d.tools.Connect(source.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	err = d.awaitDeletion(t.Context(), t.Logf, connected, hetzner.NewRemoval(d.tools.Hetzner))
	if err == nil || !strings.Contains(err.Error(), "Hetzner does not delete server k8s-b: it is protected") {
		t.Errorf("it ended with %v", err)
	}
}

// TestServersGoneSinceTheLastQuestion: the HCloudMachines are gone sooner than Hetzner is to be asked again. What is there
// is asked for all the same, as nothing was seen yet.
func TestServersGoneSinceTheLastQuestion(t *testing.T) {
	s := hetznertest.NewEmpty()
	defer s.Close()
	plantCluster(s)
	d := demolisher(t, s, nil)
	d.sweepEvery, d.sweepSlowest = time.Hour, time.Hour
	left := d.cloudLook(hetzner.NewRemoval(d.tools.Hetzner))
	if err := left.refused(t.Context()); err != nil {
		t.Fatal(err)
	}
	if seen, err := left.see(t.Context()); err != nil || !strings.Contains(seen, "k8s-a") {
		t.Errorf("it is said to have %q, %v", seen, err)
	}
}

// The kubeconfig of another management cluster, or another provider than the recorded one, is no evidence that the
// cluster's own management cluster is gone.
func TestDestroyAsksTheRecordedManagementCluster(t *testing.T) {
	another := kubetest.New("another", clustertest.ClusterAPIKinds()...)
	defer another.Close()
	clustertest.Define(another, clustertest.ClusterAPIKinds())
	for name, tt := range map[string]struct {
		recorded   ownership.Management
		kubeconfig []byte
		says       string
		before     bool // refused before anything is deleted
	}{
		"another cluster answers": {
			ownership.Management{Provider: "fake", Name: "k8s-mgmt", UID: "its-own"}, another.Kubeconfig(),
			"is not the management cluster k8s-mgmt", true,
		},
		"another provider": {
			ownership.Management{Provider: "kubeconfig", Name: "k8s-mgmt", UID: "its-own"}, nil, "set MANAGEMENT_KUBECONFIG",
			true,
		},
		"the recorded one": {ownership.Management{Provider: "fake", Name: "k8s-mgmt", UID: "another"}, another.Kubeconfig(),
			"", false},
		"none is recorded": {ownership.Management{}, nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := hetznertest.NewEmpty()
			defer s.Close()
			plantCluster(s)
			o := demolisher(t, s, nil)
			record := ownership.Record{Cluster: "k8s"}
			if tt.recorded.Name != "" {
				record.Management = &tt.recorded
			}
			if err := record.Write(o.tools.Files); err != nil {
				t.Fatal(err)
			}
			if tt.kubeconfig != nil {
				if err := o.tools.Files.Write(platform.ManagementKubeconfig, tt.kubeconfig); err != nil {
					t.Fatal(err)
				}
			}
			err := listAndDestroy(t.Context(), o, Options{}, quietly)
			if tt.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var wrong *connect.WrongManagementError
			if !errors.As(err, &wrong) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %q", err, tt.says)
			}
			if writes := s.Writes(); tt.before && len(writes) > 0 {
				t.Errorf("it deleted %v", writes)
			}
		})
	}
}

// A management cluster that stays, because it manages others, and still holds the Cluster object would create the
// servers again.
func TestDestroyIsNotOverWhileTheClusterObjectExists(t *testing.T) {
	s := hetznertest.NewEmpty()
	defer s.Close()
	plantCluster(s)
	mgmt := kubetest.New("management", clustertest.ClusterAPIKinds()...)
	defer mgmt.Close()
	clustertest.Define(mgmt, clustertest.ClusterAPIKinds())
	mgmt.Put(kubetest.Object("cluster.x-k8s.io/v1beta1", "Cluster", config.DefaultNamespace, "other", nil))
	mgmt.Put(kubetest.Object("cluster.x-k8s.io/v1beta1", "Cluster", config.DefaultNamespace, "k8s", nil))
	mgmt.Fail = func(r *http.Request) (int, string) {
		if r.Method == http.MethodDelete {
			return http.StatusInternalServerError,
				`failed calling webhook "validation.cluster.cluster.x-k8s.io": connect: connection refused`
		}
		return 0, ""
	}
	o := demolisher(t, s, nil)
	o.webhooksWithin = time.Second
	o.tools.Management = &clustertest.Provider{Kubeconfig: mgmt.Kubeconfig(), There: true}
	if err := o.tools.Files.Write(platform.ManagementKubeconfig, mgmt.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	err := listAndDestroy(t.Context(), o, Options{}, quietly)
	if err == nil || !strings.Contains(err.Error(), "still holds its Cluster object") {
		t.Errorf("got %v", err)
	}
	if _, err := o.tools.Files.Read(platform.ManagementKubeconfig); err != nil {
		t.Error("the kubeconfig of the management cluster was removed")
	}
}
