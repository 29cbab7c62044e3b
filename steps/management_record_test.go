package steps

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/clustertest"
	"github.com/slipway-k8s/slipway/internal/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/management"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/platform"
)

// TestBootstrapRecordsProjectAndManagementCluster holds what destroy later relies on.
func TestBootstrapRecordsProjectAndManagementCluster(t *testing.T) {
	w := clustertest.New(t)
	files := w.Tools().Files
	if err := (ownership.Record{Cluster: "k8s"}).Write(files); err != nil {
		t.Fatal(err)
	}
	if _, err := runPlan(t, w, w.Config(), flow.Memory(), nil); err != nil {
		t.Fatal(err)
	}
	r, err := ownership.Read(files)
	if err != nil || r.Management == nil || *r.Management != (ownership.Management{Provider: "fake", Name: "k8s-mgmt", UID: "management"}) {
		t.Errorf("recorded %+v, %v", r, err)
	}
	if groups := w.Hetzner.PlacementGroups(); len(groups) == 0 || r.Reservation != groups[0].ID {
		t.Errorf("the recorded reservation is %d of %v", r.Reservation, groups)
	}
}

// The kubeconfig of another management cluster, or another provider than the recorded one, is no evidence that the cluster's own
// management cluster is gone.
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
			ownership.Management{Provider: "fake", Name: "k8s-mgmt", UID: "its-own"}, another.Kubeconfig(), "is not the management cluster k8s-mgmt", true,
		},
		"another provider": {
			ownership.Management{Provider: "kubeconfig", Name: "k8s-mgmt", UID: "its-own"}, nil, "set MANAGEMENT_KUBECONFIG", true,
		},
		"the recorded one": {ownership.Management{Provider: "fake", Name: "k8s-mgmt", UID: "another"}, another.Kubeconfig(), "", false},
		"none is recorded": {ownership.Management{}, nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := hetznertest.NewStore()
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
			err := listAndDestroy(t.Context(), o, DestroyOptions{}, quietly)
			if tt.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var wrong *management.WrongManagementError
			if !errors.As(err, &wrong) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %q", err, tt.says)
			}
			if writes := s.Writes(); tt.before && len(writes) > 0 {
				t.Errorf("it deleted %v", writes)
			}
		})
	}
}

// A management cluster that stays, because it manages others, and still holds the Cluster object would make the servers anew.
func TestDestroyIsNotOverWhileTheClusterObjectExists(t *testing.T) {
	s := hetznertest.NewStore()
	defer s.Close()
	plantCluster(s)
	mgmt := kubetest.New("management", clustertest.ClusterAPIKinds()...)
	defer mgmt.Close()
	clustertest.Define(mgmt, clustertest.ClusterAPIKinds())
	mgmt.Put(kubetest.Object("cluster.x-k8s.io/v1beta1", "Cluster", config.Namespace, "other", nil))
	mgmt.Put(kubetest.Object("cluster.x-k8s.io/v1beta1", "Cluster", config.Namespace, "k8s", nil))
	mgmt.Fail = func(r *http.Request) (int, string) {
		if r.Method == http.MethodDelete {
			return http.StatusInternalServerError, `failed calling webhook "validation.cluster.cluster.x-k8s.io": connect: connection refused`
		}
		return 0, ""
	}
	o := demolisher(t, s, nil)
	o.webhooksWithin = time.Second
	o.tools.Management = &clustertest.Provider{Kubeconfig: mgmt.Kubeconfig(), There: true}
	if err := o.tools.Files.Write(platform.ManagementKubeconfig, mgmt.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	err := listAndDestroy(t.Context(), o, DestroyOptions{}, quietly)
	if err == nil || !strings.Contains(err.Error(), "still holds its Cluster object") {
		t.Errorf("got %v", err)
	}
	if _, err := o.tools.Files.Read(platform.ManagementKubeconfig); err != nil {
		t.Error("the kubeconfig of the management cluster was removed")
	}
}

// A token of another project is found before a target that does not go through the reservation.
func TestCheckProject(t *testing.T) {
	w := clustertest.New(t)
	plan, err := New(w.Config(), w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	o := NewDestroyer(w.Config(), w.Tools())
	check := func() error { return CheckProject(t.Context(), o.cfg, o.tools) }
	if err := check(); err != nil {
		t.Errorf("before the first run: %v", err)
	}
	record := ownership.Record{Cluster: "k8s"}
	if err := record.Write(plan.b.tools.Files); err != nil {
		t.Fatal(err)
	}
	if _, err := newReserveStep(plan.b).run(t.Context(), hush); err != nil {
		t.Fatal(err)
	}
	if err := check(); err != nil {
		t.Errorf("in its project: %v", err)
	}
	empty := hetznertest.NewStore()
	defer empty.Close()
	o.tools.Hetzner = empty.Client(nil)
	if err := check(); err != nil {
		t.Errorf("with nothing of the cluster alive: %v", err)
	}
	if err := plan.b.tools.Files.Write(platform.ManagementKubeconfig, w.Management.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	var other *OtherProjectError
	if err := check(); !errors.As(err, &other) || !strings.Contains(err.Error(), "the token is of another project") {
		t.Errorf("with another project's token: %v", err)
	}
	empty.Put("networks", 9, schema.Network{Name: "k8s", Labels: map[string]string{"caph-cluster-k8s": "owned"}})
	if err := check(); err != nil {
		t.Errorf("where only the reservation was deleted: %v", err)
	}
}

// --yes deletes a management cluster that does not answer. One that was not even asked, because another answers in its place, stays.
func TestCleanAsksTheRecordedManagementCluster(t *testing.T) {
	w := newPivotWorld(t)
	mustPivot(t, w)
	w.b.tools.Consent = true
	record := ownership.Record{Cluster: "k8s", Management: &ownership.Management{Provider: w.b.tools.Management.Name(), Name: "k8s-mgmt", UID: "its-own"}}
	if err := record.Write(w.b.tools.Files); err != nil {
		t.Fatal(err)
	}
	_, err := newCleanStep(w.b).run(t.Context(), w.say)
	var wrong *management.WrongManagementError
	if !errors.As(err, &wrong) {
		t.Errorf("got %v", err)
	}
	if _, err := w.b.tools.Files.Read(platform.ManagementKubeconfig); err != nil {
		t.Error("the kubeconfig of the management cluster was removed")
	}
}
