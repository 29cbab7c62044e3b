package destroy

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/platform"
)

// A token of another project finds nothing of the cluster there. That is not taken for gone, whoever manages it.
func TestDestroyRefusesTheTokenOfAnotherProject(t *testing.T) {
	owned := map[string]string{"caph-cluster-k8s": "owned"}
	server := func(id int64, name string) func(*hetznertest.Server) {
		return func(s *hetznertest.Server) {
			s.Put("servers", id, schema.Server{Name: name, Labels: owned})
		}
	}
	for name, tt := range map[string]struct {
		project func(*hetznertest.Server)
		token   string // in the manager
		began   bool   // the Cluster is being deleted
		restore string // what the folder knows of one
		says    string // empty: it is destroyed
	}{
		"nothing is there": {says: "the token's project has nothing of it: the token is of another project"},
		"a snapshot of an earlier cluster is there": {project: func(s *hetznertest.Server) {
			s.Put("images", 70, schema.Image{Type: "snapshot",
				Labels: map[string]string{"slipway-cluster": "k8s", "caph-image-name": "talos"}})
		}, says: "nothing of it"},
		"another cluster of the name is there": {project: server(11, "k8s-x"), says: "others of that name, k8s-x"},
		"its manager works with a token of the other": {project: server(11, "k8s-x"), token: "another",
			says: "others of that name, k8s-x"},
		"its server is there":          {project: server(1, "k8s-a")},
		"its server was created again": {project: server(11, "k8s-a")},
		"a destroy was killed before its end": {project: func(s *hetznertest.Server) {
			s.Put("placement_groups", 31,
				schema.PlacementGroup{Name: "slipway-k8s",
					Labels: map[string]string{"slipway-cluster": "k8s", clustertest.ReservedBy: "0123456789abcdef"}})
		}},
		"all was deleted by hand":                 {token: hetznertest.Token},
		"all was created again under other names": {project: server(11, "k8s-x"), token: hetznertest.Token},
		"a restore was begun with other servers": {project: server(11, "k8s-x"),
			restore: `{"began": "2026-01-02T03:04:05Z"}`},
		"a restore came to its end": {project: server(11, "k8s-x"),
			restore: `{"began": "2026-01-02T03:04:05Z", "ended": "2026-01-02T03:14:05Z"}`, says: "others of that name, k8s-x"},
	} {
		for _, file := range []string{platform.Kubeconfig, platform.ManagementKubeconfig} {
			t.Run(name+", by "+file, func(t *testing.T) {
				s := hetznertest.NewEmpty()
				defer s.Close()
				if tt.project != nil {
					tt.project(s)
				}
				manager := kubetest.New("manager", clustertest.ClusterAPIKinds()...)
				defer manager.Close()
				clustertest.Define(manager, clustertest.ClusterAPIKinds())
				manager.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s",
					clustertest.Map{"spec": clustertest.Map{}}))
				manager.Put(kubetest.Object(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, "k8s-a", clustertest.Map{
					"metadata": clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "k8s"}},
					"spec":     clustertest.Map{"providerID": "hcloud://1"}}))
				if tt.token != "" {
					data := clustertest.Map{config.TokenSecretKey: base64.StdEncoding.EncodeToString([]byte(tt.token))}
					manager.Put(kubetest.Object("v1", "Secret", config.DefaultNamespace, config.TokenSecretName,
						clustertest.Map{"data": data}))
				}
				o := demolisher(t, s, nil)
				o.tools.Token = platform.NewSecret(hetznertest.Token)
				o.tools.Management = &clustertest.Provider{There: file == platform.ManagementKubeconfig}
				if err := o.tools.Files.Write(file, manager.Kubeconfig()); err != nil {
					t.Fatal(err)
				}
				if tt.restore != "" {
					if err := records.RestoreFiles(o.tools.Files).Write(records.RestoreRecord, []byte(tt.restore)); err != nil {
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
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("got %v, want %q", err, tt.says)
				}
				if n := len(manager.Writes()) + len(s.Writes()); n > 0 {
					t.Errorf("it wrote %v, %v", manager.Writes(), s.Writes())
				}
				if _, err := o.tools.Files.Read(file); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// The name is given free when everything else is gone, and not before.
func TestDestroyReleasesTheNameLast(t *testing.T) {
	s := hetznertest.NewEmpty()
	defer s.Close()
	foreign := plantCluster(s)
	s.Put("placement_groups", 31,
		schema.PlacementGroup{Name: "slipway-k8s",
			Labels: map[string]string{"slipway-cluster": "k8s", clustertest.ReservedBy: "0123456789abcdef"}})
	s.Put("placement_groups", 131,
		schema.PlacementGroup{Name: "slipway-k8s2",
			Labels: map[string]string{"slipway-cluster": "k8s2", clustertest.ReservedBy: "0123456789abcdef"}})
	o := demolisher(t, s, nil)
	if err := listAndDestroy(t.Context(), o, Options{Images: true, Volumes: true}, quietly); err != nil {
		t.Fatal(err)
	}
	if want := sorted(append(foreign, "placement_groups/131")); !slices.Equal(s.Left(), want) {
		t.Errorf("left %v, want %v", s.Left(), want)
	}
	writes := s.Writes()
	if last := writes[len(writes)-1]; last != "DELETE /placement_groups/31" {
		t.Errorf("the last that was done is %s", last)
	}
}
