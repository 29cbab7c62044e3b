package apply

import (
	"encoding/base64"
	"reflect"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

// Another state folder with the same CLUSTER_NAME, in another project, adopts the management cluster by its name. It
// must not get to manage with the other project's token.
func TestTokenOfOtherProjectIsNotGivenToTheManagementCluster(t *testing.T) {
	for name, tt := range map[string]struct {
		token   string // in the Secret
		servers bool   // that the management cluster manages
		here    bool   // they are in the token's project
		refused bool
		reads   bool // the token may only read
	}{
		"another token, servers elsewhere": {token: "first", servers: true, refused: true},
		"a new token of the same project":  {token: "first", servers: true, here: true},
		"a new token that may only read":   {token: "first", servers: true, here: true, reads: true, refused: true},
		"the same token":                   {token: hetznertest.Token, servers: true},
		"the same token, which only reads": {token: hetznertest.Token, servers: true, reads: true},
		"no server was created yet":        {token: "first"},
		"no Secret yet, and it only reads": {reads: true, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.New(t)
			s := hetznertest.NewEmpty()
			defer s.Close()
			if tt.token != "" {
				w.Management.Put(kubetest.Object("v1", "Secret", config.DefaultNamespace, config.TokenSecretName,
					clustertest.Map{"data": clustertest.Map{config.TokenSecretKey: base64.StdEncoding.EncodeToString([]byte(tt.token))}}))
			}
			if tt.servers {
				w.Management.Put(kubetest.Object("infrastructure.cluster.x-k8s.io/v1beta1", "HCloudMachine", config.DefaultNamespace,
					"k8s-control-plane-a", clustertest.Map{
						"metadata": clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "k8s"}},
						"spec":     clustertest.Map{"providerID": "hcloud://7"},
					}))
			}
			if tt.here {
				s.Put("servers", 7, schema.Server{Name: "k8s-control-plane-a",
					Labels: map[string]string{"caph-cluster-k8s": "owned"}})
			}
			says := "a second time"
			if tt.reads {
				s.ReadOnly()
				says = "reading only"
			}
			tools := w.Tools()
			tools.Hetzner = s.Client(nil)
			mgmt, err := kube.Connect(w.Management.Kubeconfig())
			if err != nil {
				t.Fatal(err)
			}
			_, err = Token(t.Context(), w.Config(), tools.WithDefaults(), clustertest.Silent, mgmt)
			if tt.refused != (err != nil && strings.Contains(err.Error(), says)) || !tt.refused && err != nil {
				t.Fatalf("got %v", err)
			}
			if tt.token == "" {
				if is := w.Management.Get("v1", "Secret", config.DefaultNamespace, config.TokenSecretName); is != nil {
					t.Error("the Secret was created")
				}
				return
			}
			want := base64.StdEncoding.EncodeToString([]byte(hetznertest.Token))
			if got := capi.Text(w.Management.Get("v1", "Secret", config.DefaultNamespace, config.TokenSecretName), "data",
				config.TokenSecretKey); (got == want) == tt.refused {
				t.Errorf("the Secret has the new token: %t", got == want)
			}
		})
	}
}

// A namespace has one token. It is not replaced under another cluster, unless the new one is of that one's project.
func TestTokenIsNotReplacedUnderAnotherCluster(t *testing.T) {
	const other, namespace = "other", "team-a"
	for name, tt := range map[string]struct {
		in      string // the namespace of this cluster
		token   string // in the Secret of the other one
		here    bool   // the other's server is in this token's project
		refused bool
	}{
		"another token":                   {in: namespace, token: "first", refused: true},
		"a new token of the same project": {in: namespace, token: "first", here: true},
		"the same token":                  {in: namespace, token: hetznertest.Token},
		"another namespace":               {in: "team-b", token: "first"},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.New(t)
			clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
			s := hetznertest.NewEmpty()
			defer s.Close()
			w.Management.Put(kubetest.Object("v1", "Namespace", "", namespace, nil))
			w.Management.Put(kubetest.Object("v1", "Secret", namespace, config.TokenSecretName,
				clustertest.Map{"data": clustertest.Map{config.TokenSecretKey: base64.StdEncoding.EncodeToString([]byte(tt.token))}}))
			w.Management.Put(kubetest.Object(clustertest.CAPI, "Cluster", namespace, other, nil))
			w.Management.Put(kubetest.Object(clustertest.CAPH, "HCloudMachine", namespace, "other-a", clustertest.Map{
				"metadata": clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: other}},
				"spec":     clustertest.Map{"providerID": "hcloud://7"},
			}))
			if tt.here {
				s.Put("servers", 7, schema.Server{Name: "other-a", Labels: map[string]string{"caph-cluster-other": "owned"}})
			}
			before := w.Management.Get("v1", "Secret", namespace, config.TokenSecretName)
			tools, cfg := w.Tools(), w.Config()
			tools.Hetzner, cfg.Namespace = s.Client(nil), tt.in
			mgmt, err := kube.Connect(w.Management.Kubeconfig())
			if err != nil {
				t.Fatal(err)
			}
			_, err = Token(t.Context(), cfg, tools.WithDefaults(), clustertest.Silent, mgmt)
			if tt.refused != (err != nil && strings.Contains(err.Error(), "cluster other is managed from namespace team-a") &&
				strings.Contains(err.Error(), "Set NAMESPACE")) || !tt.refused && err != nil {
				t.Fatalf("got %v", err)
			}
			if err != nil && strings.Contains(err.Error(), hetznertest.Token) {
				t.Errorf("the error has the token: %v", err)
			}
			after := w.Management.Get("v1", "Secret", namespace, config.TokenSecretName)
			if (tt.refused || tt.in != namespace) && !reflect.DeepEqual(before, after) {
				t.Errorf("the other cluster's Secret was changed: %v", after)
			}
			if mine := w.Management.Get("v1", "Secret", tt.in, config.TokenSecretName); !tt.refused && capi.Text(mine, "data",
				config.TokenSecretKey) != base64.StdEncoding.EncodeToString([]byte(hetznertest.Token)) {
				t.Error("the Secret does not have the token")
			}
		})
	}
}
