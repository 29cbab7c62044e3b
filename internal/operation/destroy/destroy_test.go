package destroy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/platform"
)

func TestDestroyTakesWhatIsLabelledAndNothingElse(t *testing.T) {
	s := hetznertest.NewEmpty()
	defer s.Close()
	foreign := plantCluster(s)
	var before []string
	for _, f := range foreign {
		before = append(before, snapshot(s, f))
	}
	o := demolisher(t, s, nil)

	plan, err := o.Plan(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Writes()) > 0 {
		t.Errorf("the list of what would go wrote %v", s.Writes())
	}
	var sum float64
	for _, r := range plan.Take {
		sum += r.Price.Monthly
	}
	// 3 servers with IPv4, 2 load balancers, an IPv4 that is assigned to nothing.
	if len(plan.Take) != 10 || sum != 3*(5+1)+2*6+1 || len(plan.Keep) != 2 {
		t.Errorf("%d go for %v, %d stay: %+v", len(plan.Take), sum, len(plan.Keep), plan)
	}

	s.Lock(2, 2)
	s.Lock(10, 1)
	if err := listAndDestroy(t.Context(), o, Options{}, quietly); err != nil {
		t.Fatal(err)
	}
	if want := sorted(foreign, "volumes/50", "images/70"); !slices.Equal(s.Left(), want) {
		t.Errorf("left %v, want %v", s.Left(), want)
	}
	// The volume outlived its server, and is still known to be the cluster's.
	if err := listAndDestroy(t.Context(), o, Options{Images: true, Volumes: true}, quietly); err != nil {
		t.Fatal(err)
	}
	if want := sorted(foreign); !slices.Equal(s.Left(), want) {
		t.Errorf("with everything asked for, left %v, want %v", s.Left(), want)
	}
	for i, f := range foreign {
		if now := snapshot(s, f); now != before[i] {
			t.Errorf("%s was touched: %s, before %s", f, now, before[i])
		}
	}
	writes := len(s.Writes())
	if err := listAndDestroy(t.Context(), o, Options{}, quietly); err != nil || len(s.Writes()) != writes {
		t.Errorf("with nothing left: %v, it wrote %v", err, s.Writes()[writes:])
	}
}

// A process that dies at any request, and is run again, leaves nothing and has touched nothing of others.
func TestDestroyKilledAtEveryRequest(t *testing.T) {
	opts := Options{Images: true, Volumes: true}
	whole := hetznertest.NewEmpty()
	defer whole.Close()
	plantCluster(whole)
	if err := listAndDestroy(t.Context(), demolisher(t, whole, nil), opts, quietly); err != nil {
		t.Fatal(err)
	}
	requests := whole.Requests()
	for n := 1; n <= requests; n++ {
		for _, arrives := range []bool{false, true} {
			s := hetznertest.NewEmpty()
			foreign := plantCluster(s)
			ctx, cancel := context.WithCancel(t.Context())
			if err := listAndDestroy(ctx, demolisher(t, s, &dying{n: n, arrives: arrives, kill: cancel}), opts,
				quietly); err == nil {
				t.Errorf("killed at request %d: it came to its end", n)
			}
			cancel()
			if err := listAndDestroy(t.Context(), demolisher(t, s, nil), opts, quietly); err != nil {
				t.Errorf("after a death at request %d of %d: %v", n, requests, err)
			}
			if want := sorted(foreign); !slices.Equal(s.Left(), want) {
				t.Errorf("after a death at request %d (arrived: %v) left %v, want %v", n, arrives, s.Left(), want)
			}
			s.Close()
		}
	}
	t.Logf("killed at each of %d requests, before and after it arrived", requests)
}

// A volume that the cluster alone knows is listed before it is deleted; and one that came up after the list was made is
// not.
func TestDestroyDeletesTheVolumesThatItListed(t *testing.T) {
	kinds := append(clustertest.ClusterAPIKinds(),
		kubetest.Resource{Version: "v1", Kind: "PersistentVolume", Plural: "persistentvolumes", Cluster: true})
	volume := func(name, handle string) *unstructured.Unstructured {
		return kubetest.Object("v1", "PersistentVolume", "", name,
			clustertest.Map{"spec": clustertest.Map{"csi": clustertest.Map{"driver": csiDriver, "volumeHandle": handle}}})
	}
	s := hetznertest.NewEmpty()
	defer s.Close()
	foreign := plantCluster(s)
	self := kubetest.New("workload", kinds...)
	defer self.Close()
	self.Put(volume("pvc-2", "150"))
	o := demolisher(t, s, nil)
	if err := o.tools.Files.Write(platform.Kubeconfig, self.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	listed, err := o.Plan(t.Context(), Options{Images: true, Volumes: true})
	if err != nil || len(s.Writes())+len(self.Writes()) > 0 {
		t.Fatalf("%v; it wrote %v, %v", err, s.Writes(), self.Writes())
	}
	for _, id := range []int64{50, 150} {
		if !slices.ContainsFunc(listed.Take,
			func(r hetzner.Resource) bool { return r.Kind == hetzner.KindVolume && r.ID == id }) {
			t.Errorf("volume %d is not in the list: %+v", id, listed.Take)
		}
	}
	one := int64(1)
	s.Put("volumes", 51, schema.Volume{Name: "pvc-3", Labels: map[string]string{"managed-by": "csi-driver"}, Server: &one})
	s.Put("volumes", 151, schema.Volume{Name: "pvc-4", Labels: map[string]string{"managed-by": "csi-driver"}})
	self.Put(volume("pvc-4", "151"))
	var said []string
	stage := func(_, _ string, do func(flow.Say) error) error {
		return do(func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
	}
	if err := o.Destroy(t.Context(), listed, stage); err != nil {
		t.Fatal(err)
	}
	late := []string{"volumes/151", "volumes/51"}
	foreign = slices.DeleteFunc(foreign, func(f string) bool { return f == "volumes/150" })
	if want := sorted(foreign, late...); !slices.Equal(s.Left(), want) {
		t.Errorf("left %v, want %v", s.Left(), want)
	}
	if text := strings.Join(said, "\n"); !strings.Contains(text, "volume pvc-4 (151) was not in the list and stays") {
		t.Errorf("it said %q", text)
	}
	// They are still known to be the cluster's.
	if err := listAndDestroy(t.Context(), o, Options{Volumes: true}, quietly); err != nil ||
		!slices.Equal(s.Left(), foreign) {
		t.Errorf("asked again: %v, left %v, want %v", err, s.Left(), foreign)
	}
}

// Resources of another cluster that use the cluster's are named, and not touched. A destroy that was killed halfway
// leaves a kubeconfig behind whose cluster has no servers any more. The next one resumes.
func TestDestroyGoesOnWhereTheClusterIsSilent(t *testing.T) {
	s := hetznertest.NewEmpty()
	defer s.Close()
	plantCluster(s)
	cluster := kubetest.New("workload", clustertest.ClusterAPIKinds()...)
	cluster.Close()
	o := demolisher(t, s, nil)
	if err := o.tools.Files.Write(platform.Kubeconfig, cluster.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	var said []string
	stage := func(_, _ string, do func(flow.Say) error) error {
		return do(func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
	}
	if err := listAndDestroy(t.Context(), o, Options{}, stage); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(said, "\n"); !strings.Contains(text, "cluster k8s does not answer") {
		t.Errorf("it said %q", text)
	}
	if plan, err := o.Plan(t.Context(), Options{}); err != nil || len(plan.Take) > 0 {
		t.Errorf("left: %+v, %v", plan.Take, err)
	}
}

// TestDestroyAsksASilentClusterOnce: each question to a cluster that has lost its quorum takes seconds until it is
// given up.
func TestDestroyAsksASilentClusterOnce(t *testing.T) {
	s := hetznertest.NewEmpty()
	defer s.Close()
	plantCluster(s)
	cluster := kubetest.New("workload", clustertest.ClusterAPIKinds()...)
	defer cluster.Close()
	var mu sync.Mutex
	var asked []string
	cluster.Fail = func(r *http.Request) (int, string) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.Path)
		if strings.Contains(r.URL.Path, "customresourcedefinitions") {
			return http.StatusServiceUnavailable, "etcdserver: no leader"
		}
		return 0, "" // what another server has in its memory
	}
	o := demolisher(t, s, nil)
	if err := o.tools.Files.Write(platform.Kubeconfig, cluster.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	if err := o.Destroy(t.Context(), Deletion{}, quietly); err != nil {
		t.Fatal(err)
	}
	if len(asked) == 0 ||
		slices.ContainsFunc(asked, func(path string) bool { return strings.Contains(path, "persistentvolumes") }) {
		t.Errorf("of a cluster that does not answer it asked for %q", asked)
	}
}

func TestDestroyStopsAtWhatIsShared(t *testing.T) {
	for _, tt := range []struct {
		what  string
		plant func(*hetznertest.Server)
		want  string
	}{
		{"a foreign server in the network", func(s *hetznertest.Server) {
			s.Put("networks", 10,
				schema.Network{Name: "k8s", Labels: map[string]string{"caph-cluster-k8s": "owned"}, IPRange: "10.10.0.0/16",
					Servers: []int64{1, 2, 101}})
		}, "network k8s (10) is not deleted: server 101 is in it"},
		{"a load balancer of a Service before a foreign server, too", func(s *hetznertest.Server) {
			target := func(id int64) schema.LoadBalancerTarget {
				return schema.LoadBalancerTarget{Type: "server", Server: &schema.LoadBalancerTargetServer{ID: id}}
			}
			s.Put("load_balancers", 21,
				schema.LoadBalancer{Name: "a1b2c3", Labels: map[string]string{"hcloud-ccm/service-uid": "u-1"},
					PrivateNet: []schema.LoadBalancerPrivateNet{{Network: 10}},
					Targets:    []schema.LoadBalancerTarget{target(1), target(101)}})
		}, "network k8s (10) is not deleted: load balancer a1b2c3 (21) is in it, and not of this cluster alone"},
		{"the firewall over a foreign server", func(s *hetznertest.Server) {
			s.Put("firewalls", 40, schema.Firewall{Name: "k8s", Labels: map[string]string{"slipway-cluster": "k8s"},
				AppliedTo: []schema.FirewallResource{{Type: "server", Server: &schema.FirewallResourceServer{ID: 101}}}})
		}, "firewall k8s (40) is not deleted: it is applied to server 101"},
		{"a protected load balancer", func(s *hetznertest.Server) {
			s.Put("load_balancers", 20,
				schema.LoadBalancer{Name: "k8s-kube-apiserver-x", Labels: map[string]string{"caph-cluster-k8s": "owned"},
					Protection: schema.LoadBalancerProtection{Delete: true}})
		}, "it is protected"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			s := hetznertest.NewEmpty()
			defer s.Close()
			foreign := plantCluster(s)
			tt.plant(s)
			err := listAndDestroy(t.Context(), demolisher(t, s, nil), Options{}, quietly)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			for _, f := range foreign {
				if !slices.Contains(s.Left(), f) {
					t.Errorf("%s is gone", f)
				}
			}
		})
	}
}

// What a recovery that was under way knows goes with the cluster: it would keep every target out of the folder, for
// good.
func TestDestroyEndsARecovery(t *testing.T) {
	s := hetznertest.NewEmpty()
	defer s.Close()
	plantCluster(s)
	o := demolisher(t, s, nil)
	files := o.tools.Files
	err := errors.Join(records.Consent{Cluster: "k8s"}.BeginQuorum(files), records.Readopt{}.Write(files),
		records.Restore{}.Write(files),
		records.QuorumFiles(files).Write(records.SnapshotFile, []byte("every Secret")))
	if err != nil {
		t.Fatal(err)
	}
	if err := listAndDestroy(t.Context(), o, Options{}, quietly); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []platform.Files{records.QuorumFiles(files), records.ReadoptFiles(files),
		records.RestoreFiles(files)} {
		if _, err := os.Lstat(folder.Path("")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", folder, err)
		}
	}
}

// A cluster that manages itself is paused before anything of it is deleted.
func TestDestroyPausesAClusterThatManagesItself(t *testing.T) {
	s := hetznertest.NewEmpty()
	defer s.Close()
	plantCluster(s)
	kind := clustertest.Resource("Cluster", "clusters", "cluster.x-k8s.io", "v1beta1")
	self := kubetest.New("workload", kind)
	defer self.Close()
	clustertest.Define(self, []kubetest.Resource{kind})
	self.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s",
		clustertest.Map{"spec": clustertest.Map{}}))
	o := demolisher(t, s, nil)
	if err := o.tools.Files.Write(platform.Kubeconfig, self.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	pausedFirst := false
	err := listAndDestroy(t.Context(), o, Options{}, func(name, _ string, do func(flow.Say) error) error {
		if name == "sweep" {
			pausedFirst = connect.Paused(self.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s"))
			if len(s.Writes()) != 2 { // the labels of a load balancer and a volume
				t.Errorf("before the sweep it wrote %v", s.Writes())
			}
		}
		return do(t.Logf)
	})
	if err != nil || !pausedFirst {
		t.Errorf("paused before the sweep: %v; %v", pausedFirst, err)
	}
	if _, err := o.tools.Files.Read(platform.Kubeconfig); err == nil {
		t.Error("the kubeconfig of a cluster that is gone is still there")
	}
}

// A management cluster that the state folder knows, and that cannot be asked, may create the servers again at any time.
func TestDestroyLeavesNoManagementClusterUnasked(t *testing.T) {
	mgmt, self := kubetest.New("management", clustertest.ClusterAPIKinds()...),
		kubetest.New("workload", clustertest.ClusterAPIKinds()...)
	mgmt.Close()
	self.Close()
	for name, tt := range map[string]struct {
		files map[string][]byte
		says  string
	}{
		"the folder opens it": {map[string][]byte{platform.ManagementKubeconfig: mgmt.Kubeconfig()},
			"cannot tell whether management cluster k8s-mgmt exists: no Docker"},
		"the folder opens both": {map[string][]byte{platform.ManagementKubeconfig: mgmt.Kubeconfig(),
			platform.Kubeconfig: self.Kubeconfig()}, "remove "},
		"the folder knows of none": {nil, ""},
		"the cluster was its own manager": {map[string][]byte{platform.ManagementKubeconfig: self.Kubeconfig(),
			platform.Kubeconfig: self.Kubeconfig()}, ""},
		"the folder opens only the cluster": {map[string][]byte{platform.Kubeconfig: self.Kubeconfig()}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := hetznertest.NewEmpty()
			defer s.Close()
			plantCluster(s)
			s.Put("placement_groups", 31,
				schema.PlacementGroup{Name: "slipway-k8s",
					Labels: map[string]string{"slipway-cluster": "k8s", clustertest.ReservedBy: "0123456789abcdef"}})
			o := demolisher(t, s, nil)
			o.tools.Management = &clustertest.Provider{ExistsError: errors.New("no Docker")}
			for file, content := range tt.files {
				if err := o.tools.Files.Write(file, content); err != nil {
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
			if _, err := o.tools.Files.Read(platform.ManagementKubeconfig); err != nil {
				t.Error(err)
			}
			if left := s.Left(); !slices.Contains(left, "placement_groups/31") || slices.Contains(left, "servers/1") {
				t.Errorf("left %v", left)
			}
			// Lost for good, as it says.
			if err := o.tools.Files.Remove(platform.ManagementKubeconfig); err != nil {
				t.Fatal(err)
			}
			if err := listAndDestroy(t.Context(), o, Options{}, quietly); err != nil ||
				slices.Contains(s.Left(), "placement_groups/31") {
				t.Errorf("without its kubeconfig: %v, left %v", err, s.Left())
			}
		})
	}
}

// A management cluster without running controllers refuses the deletion of the Cluster object, as nothing answers its
// webhooks.
func TestDestroyGoesOnWhereTheWebhooksAreDown(t *testing.T) {
	const down = `Internal error occurred: failed calling webhook "validation.cluster.cluster.x-k8s.io": connect: connection refused`
	for name, tt := range map[string]struct {
		method, message string
		times           int64  // that it is refused
		begun           bool   // the Cluster object is being deleted, and paused
		deleted         bool   // it goes in the end
		says            string // error; empty: it is destroyed
	}{
		"for good":                 {method: http.MethodDelete, message: down, times: 1000},
		"for a moment":             {method: http.MethodDelete, message: down, times: 1, deleted: true},
		"to be unpaused, for good": {method: http.MethodPatch, message: down, times: 1000, begun: true},
		"another refusal": {method: http.MethodDelete, message: "etcdserver: no space", times: 1000,
			says: "etcdserver: no space"},
		"another, of being unpaused": {method: http.MethodPatch, message: "etcdserver: no space", times: 1000, begun: true,
			says: "etcdserver: no space"},
	} {
		t.Run(name, func(t *testing.T) {
			s := hetznertest.NewEmpty()
			defer s.Close()
			plantCluster(s)
			source := kubetest.New("management", clustertest.ClusterAPIKinds()...)
			defer source.Close()
			clustertest.Define(source, clustertest.ClusterAPIKinds())
			cluster := kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s",
				clustertest.Map{"spec": clustertest.Map{"paused": tt.begun}})
			if tt.begun {
				cluster.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
			}
			source.Put(cluster)
			var refused atomic.Int64
			source.Fail = func(r *http.Request) (int, string) {
				if r.Method == tt.method && strings.HasSuffix(r.URL.Path, "/clusters/k8s") && refused.Add(1) <= tt.times {
					return http.StatusInternalServerError, tt.message
				}
				return 0, ""
			}
			o := demolisher(t, s, nil)
			o.webhooksWithin = 3 * time.Second
			o.tools.Management = &clustertest.Provider{There: true}
			if err := o.tools.Files.Write(platform.ManagementKubeconfig, source.Kubeconfig()); err != nil {
				t.Fatal(err)
			}
			stage := func(name, _ string, do func(flow.Say) error) error {
				err := do(t.Logf)
				if name == "cluster-api" && err == nil &&
					(source.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s") == nil) != tt.deleted {
					t.Errorf("the Cluster object is gone: %v", !tt.deleted)
				}
				return err
			}
			err := listAndDestroy(t.Context(), o, Options{}, stage)
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) || !slices.Contains(s.Left(), "servers/1") {
					t.Errorf("got %v, want %q; left %v", err, tt.says, s.Left())
				}
				return
			}
			if err != nil || slices.Contains(s.Left(), "servers/1") {
				t.Errorf("got %v; left %v", err, s.Left())
			}
		})
	}
}

// given is a management cluster that was there before.
type given struct{ clustertest.Provider }

func (*given) Given() bool { return true }

func (*given) Delete(context.Context, string) error { return errors.New("it was deleted") }

// A management cluster that was there before stays, with the clusters in it; what Slipway created in it for the cluster
// goes.
func TestDestroyInAGivenManagementCluster(t *testing.T) {
	kinds := clustertest.ClusterAPIKinds()
	mgmt := kubetest.New("management", kinds...)
	defer mgmt.Close()
	clustertest.Define(mgmt, kinds)
	ours := clustertest.Map{"metadata": clustertest.Map{"labels": clustertest.Map{"app.kubernetes.io/managed-by": "slipway"}}}
	for _, namespace := range []string{"team-a", "team-b"} {
		mgmt.Put(kubetest.Object("v1", "Namespace", "", namespace, ours))
		mgmt.Put(kubetest.Object("v1", "Secret", namespace, config.TokenSecretName, nil))
	}
	mgmt.Put(kubetest.Object(clustertest.CAPI, "Cluster", "team-a", "k8s", nil))
	mgmt.Put(kubetest.Object(clustertest.CAPI, "Cluster", "team-b", "k8s", nil)) // of the same name
	theirs := func() string {
		return fmt.Sprint(mgmt.Get("v1", "Namespace", "", "team-b"), mgmt.Get(clustertest.CAPI, "Cluster", "team-b", "k8s"),
			mgmt.Get("v1", "Secret", "team-b", config.TokenSecretName))
	}
	before := theirs()
	s := hetznertest.NewEmpty()
	defer s.Close()
	plantCluster(s)
	o := demolisher(t, s, nil)
	o.cfg.Namespace = "team-a"
	o.tools.Management = &given{clustertest.Provider{Kubeconfig: mgmt.Kubeconfig(), There: true}}
	if err := o.tools.Files.Write(platform.ManagementKubeconfig, mgmt.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	if err := listAndDestroy(t.Context(), o, Options{}, quietly); err != nil {
		t.Fatal(err)
	}
	if mgmt.Get(clustertest.CAPI, "Cluster", "team-a", "k8s") != nil || mgmt.Get("v1", "Namespace", "", "team-a") != nil {
		t.Error("the cluster's object or its namespace is left")
	}
	if after := theirs(); after != before {
		t.Errorf("the other cluster was touched: %s, before %s", after, before)
	}
}
