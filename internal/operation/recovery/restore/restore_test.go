package restore

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

func TestABackupSaysWhatItsClusterIsMadeOf(t *testing.T) {
	cfg, err := lostBackup(t).Configure(config.Defaults())
	if err != nil || cfg.ServerType != "cax21" || cfg.ImageName != "talos-arm64-v9" || cfg.ControlPlaneReplicas != 3 {
		t.Errorf("%+v, %v", cfg, err)
	}
	several := config.Defaults()
	several.ServerType, several.Spread = "cx33,cax31,cax21", config.SpreadLocation
	guide := config.Defaults()
	clustertest.Configure(t, &guide, "VERSIONS=guide")
	for _, tt := range []struct {
		configured              config.Config
		core, caph              string // of the backup
		wantCore, wantCAPH, has string
	}{
		{guide, "v1.13.6", "v1.1.8", "v1.13.6", "v1.1.8", "of a core of the new line"},
		{config.Defaults(), "v1.10.2", "v1.0.3", "v1.10.2", "v1.0.3", "of a core of the old line"},
		{guide, "v1.10.2", "v1.0.3", guide.CAPIVersion, guide.CAPHVersion, "within its line the configuration counts"},
	} {
		b := lostBackup(t)
		b.Contents.Header.Versions = map[string]string{"CAPI_VERSION": tt.core, "CAPH_VERSION": tt.caph}
		if c, err := b.Configure(tt.configured); err != nil || c.CAPIVersion != tt.wantCore || c.CAPHVersion != tt.wantCAPH ||
			c.CABPTVersion != tt.configured.CABPTVersion {
			t.Errorf("%s: %s, CAPH %s, CABPT %s, %v", tt.has, c.CAPIVersion, c.CAPHVersion, c.CABPTVersion, err)
		}
	}
	if cfg, err = lostBackup(t).Configure(several); err != nil || cfg.ServerType != "cax21,cax31" ||
		cfg.Spread != config.SpreadHost {
		t.Errorf("what it had, and for lack of stock others of its architecture: %q, %v", cfg.ServerType, err)
	}
	for name, spoil := range map[string]func(*backup.Cluster){
		"CLUSTER_NAME=other": func(b *backup.Cluster) { b.Contents.Header.Cluster = "other" },
		"Secret k8s-talos":   func(b *backup.Cluster) { b.Contents.Secrets = nil },
		"TalosControlPlane":  func(b *backup.Cluster) { b.Contents.Objects = b.Contents.Objects[:2] },
	} {
		b := lostBackup(t)
		spoil(&b)
		if _, err := b.Configure(config.Defaults()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A cluster that answers with what the backup knows of it is not restored. A rehearsal makes a copy of it, and does not
// ask it.
func TestACopyOfALivingCluster(t *testing.T) {
	w := newRestoreWorld(t)
	s := kubetest.Object("v1", "Secret", config.DefaultNamespace, "k8s-kubeconfig",
		clustertest.Map{"data": clustertest.Map{"value": base64.StdEncoding.EncodeToString(w.Workload.Kubeconfig())}})
	w.r.source.Contents.Secrets = append(w.r.source.Contents.Secrets, *s)
	if _, err := w.r.ensureLost(t.Context(), w.say); !errors.Is(err, ErrAlive) {
		t.Fatalf("a cluster that answers: %v", err)
	}
	var asked atomic.Bool
	w.Workload.Fail = func(*http.Request) (int, string) { asked.Store(true); return 0, "" }
	w.r.source.Copies = true
	if _, err := w.r.ensureLost(t.Context(), w.say); err != nil || asked.Load() {
		t.Errorf("a copy of it: %v; the cluster was asked: %v", err, asked.Load())
	}
}

func TestOnlyALostClusterIsRestored(t *testing.T) {
	w := newRestoreWorld(t)
	files := w.r.tools.Files
	for _, name := range []string{bootstrapJournal, platform.Kubeconfig} {
		if err := files.Write(name, []byte("of the lost cluster")); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what string) {
		t.Helper()
		if _, err := w.r.ensureLost(t.Context(), w.say); !errors.Is(err, ErrAlive) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := files.Read(bootstrapJournal); err != nil {
			t.Errorf("%s: the folder was changed: %v", what, err)
		}
	}
	w.Hetzner.SetServers(schema.Server{ID: 1, Name: "k8s-control-plane-0", Status: "off",
		Labels: map[string]string{"caph-cluster-k8s": "owned"}})
	refused("with a server that is off")
	w.Hetzner.SetServers()
	w.Provider.There = true
	w.Management.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s", nil))
	w.Management.Put(clustertest.CRD("clusters", "cluster.x-k8s.io", "v1beta1", "Cluster"))
	refused("with a management cluster that holds it")
	w.Provider.There = false
	if err := files.Write(platform.Kubeconfig, w.Workload.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	refused("with an API that answers")
	w.Workload.Fail = func(*http.Request) (int, string) { return http.StatusUnauthorized, "the certificate has expired" }
	refused("with an API that answers, and does not take the credentials any more")
	w.Workload.Fail = nil
	if err := files.Write(platform.Kubeconfig, []byte("of the lost cluster")); err != nil {
		t.Fatal(err)
	}
	// Of a recovery that the loss of the servers has overtaken nothing is to be resumed.
	if err := errors.Join(records.Consent{Cluster: "k8s"}.BeginQuorum(files),
		records.Readopt{}.Write(files)); err != nil {
		t.Fatal(err)
	}

	if lost, err := w.r.ensureLost(t.Context(), w.say); err != nil || lost.IP != "" ||
		lost.Was != "127.0.0.7" {
		t.Fatalf("%+v, %v", lost, err)
	}
	if said := strings.Join(w.said, "\n"); !strings.Contains(said, "another address") {
		t.Errorf("a lost load balancer goes unmentioned: %s", said)
	}
	for _, name := range []string{bootstrapJournal, platform.Kubeconfig} {
		if data, err := files.Read(filepath.Join(records.RestoreFolder, lostFolder, name)); err != nil ||
			string(data) != "of the lost cluster" {
			t.Errorf("%s was not set aside: %v", name, err)
		}
	}
	quorum, quorumErr := records.ReadQuorum(files)
	readoption, readoptErr := records.ReadReadopt(files)
	if quorum != nil || readoption != nil || quorumErr != nil || readoptErr != nil {
		t.Errorf("other recoveries were not set aside: %v, %v, %v, %v", quorum, readoption, quorumErr, readoptErr)
	}
	// A restore that was interrupted while another state folder restored the cluster does not resume, whether its look is
	// recorded or not.
	w.Hetzner.SetServers(schema.Server{ID: 2, Name: "k8s-control-plane-1",
		Labels: map[string]string{"caph-cluster-k8s": "owned"}})
	goesOn := func(what string, want bool) {
		t.Helper()
		v := w.r.verifyLost(t.Context(), Lost{})
		_, err := w.r.ensureLost(t.Context(), w.say)
		if (v.Answer() == flow.AnswerHolds) != want || errors.Is(v.Err(), ErrAlive) == want || (err == nil) != want ||
			errors.Is(err, ErrAlive) == want {
			t.Errorf("%s: %v, %v", what, v, err)
		}
	}
	goesOn("with a server that is another's", false)
	w.Provider.There = true
	goesOn("with a management cluster that no restore has made", false)
	// The next run of the same restore finds its own servers, and its own files, and takes neither for the lost cluster's.
	w.Management.Put(restoredCluster(w))
	if err := files.Write(platform.Kubeconfig, []byte("the restore's own")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.r.ensureLost(t.Context(), w.say); err != nil {
		t.Error(err)
	}
	goesOn("with what it has made itself", true)
	if data, err := files.Read(platform.Kubeconfig); err != nil || string(data) != "the restore's own" {
		t.Errorf("the restore's own kubeconfig was set aside: %q, %v", data, err)
	}
	w.Provider.There = false // and when its pivot has moved that, and the management cluster is gone
	if err := records.PivotCopyOf(w.r.tools).SetState(records.PivotState{Cluster: "k8s",
		Phase: records.Moving}); err != nil {
		t.Fatal(err)
	}
	goesOn("with a pivot under way", true)
	contents := *w.source.Contents
	contents.Snapshot.SHA256 = "another"
	if err := records.PrepareRestore(files, backup.Cluster{Contents: &contents}); err == nil {
		t.Error("the restore of another backup begins in the middle of this one")
	}
}

// What a restore created is its own to resume with until its end, at which it gives its claim up; then it is an
// existing cluster.
func TestAClusterThatWasRestoredIsNotRestoredAgain(t *testing.T) {
	w := newRestoreWorld(t)
	w.Provider.There = true
	w.Management.Put(clustertest.CRD("clusters", "cluster.x-k8s.io", "v1beta1", "Cluster"))
	w.Management.Put(restoredCluster(w))
	server := schema.Server{ID: 1, Name: "k8s-control-plane-0", Labels: map[string]string{"caph-cluster-k8s": "owned"}}
	// or its servers are lost again: the management cluster makes them anew
	for _, servers := range [][]schema.Server{{server}, nil} {
		w.Hetzner.SetServers(servers...)
		if _, err := w.r.ensureLost(t.Context(), w.say); !errors.Is(err, ErrAlive) {
			t.Errorf("after its end, with %d servers: %v", len(servers), err)
		}
	}
	w.Hetzner.SetServers(server)
	w.Hetzner.SetPlacementGroups(schema.PlacementGroup{ID: 7, Name: "slipway-k8s.restore", Type: "spread",
		Labels: map[string]string{
			"slipway-cluster": "k8s", clustertest.ReservedBy: "0123456789abcdef"}})
	if _, err := w.r.ensureLost(t.Context(), w.say); err != nil {
		t.Errorf("before its end, without its folder: %v", err)
	}
}

func TestASurvivingLoadBalancerKeepsTheAddress(t *testing.T) {
	ours, foreign := map[string]string{"caph-cluster-k8s": "owned"}, map[string]string{"caph-cluster-other": "owned"}
	lb := func(ip string, labels map[string]string) schema.LoadBalancer {
		return schema.LoadBalancer{ID: 3, Name: "lb", Labels: labels, PublicNet: schema.LoadBalancerPublicNet{Enabled: true,
			IPv4: schema.LoadBalancerPublicNetIPv4{IP: ip}}}
	}
	for _, c := range []struct {
		what string
		lb   schema.LoadBalancer
		want Lost
		err  string
	}{
		{"with the cluster's label", lb("127.0.0.7", ours), Lost{IP: "127.0.0.7", Was: "127.0.0.7"}, ""},
		{"with the label and another address", lb("127.0.0.8", ours), Lost{IP: "127.0.0.8", Was: "127.0.0.7"}, ""},
		{"without label", lb("127.0.0.7", nil), Lost{Balancer: "lb", IP: "127.0.0.7", Was: "127.0.0.7"}, ""},
		{"of another cluster", lb("127.0.0.7", foreign), Lost{}, "caph-cluster-other"},
		{"of somebody else", lb("127.0.0.8", nil), Lost{Was: "127.0.0.7"}, ""},
	} {
		w := newRestoreWorld(t)
		w.Hetzner.SetLoadBalancers(c.lb)
		lost, err := w.r.findSurvivors(t.Context(), w.say)
		if lost != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %+v, %v", c.what, lost, err)
		}
	}
}

// The name by which an earlier restore, or readoption, had CAPH adopt a load balancer stays in later backups. CAPH
// waits for ever for one of the name, where there is none.
func TestAGoneLoadBalancerIsNotAskedForByName(t *testing.T) {
	w := newRestoreWorld(t)
	if err := unstructured.SetNestedField(w.source.Object("HetznerCluster", "k8s").Object, "adopted", "spec",
		"controlPlaneLoadBalancer", "name"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		lost Lost
		want string
	}{{Lost{}, ""}, {Lost{IP: "127.0.0.7"}, "adopted"}, {Lost{IP: "127.0.0.7", Balancer: "lb"}, "lb"}} {
		for _, ip := range []string{"", "127.0.0.9"} { // before and after CAPH has said what the address is
			for _, o := range w.r.restored(c.lost, ip) {
				if name := capi.Text(o, "spec", "controlPlaneLoadBalancer", "name"); o.GetKind() == "HetznerCluster" &&
					name != c.want {
					t.Errorf("%+v, %q: CAPH is told %q", c.lost, ip, name)
				}
			}
		}
	}
}

// What a core of v1.13 stores is read as v1beta1 with all of it in an annotation, the address of the API, too. Without
// the Cluster object CAPH would never make the load balancer.
func TestTheClusterIsAppliedBeforeItHasAnAddress(t *testing.T) {
	w := newRestoreWorld(t)
	was, _ := w.source.Endpoint()
	cluster := w.source.Object("Cluster", "k8s")
	backup.Annotate(cluster, capi.ConversionDataAnnotation, `{"spec":{"controlPlaneEndpoint":{"host":"`+was+`"}}}`)
	for _, ip := range []string{"", "127.0.0.9"} {
		i := slices.IndexFunc(w.r.restored(Lost{}, ip), func(o *unstructured.Unstructured) bool {
			return o.GetKind() == "Cluster"
		})
		if was == "" || i < 0 {
			t.Errorf("with the address %q there is no Cluster object; it was %q", ip, was)
		}
	}
}

func TestTheSeedIsNotPutOverAnotherClustersKeys(t *testing.T) {
	w := newRestoreWorld(t)
	if err := w.r.tools.Files.Write(platform.ManagementKubeconfig, w.Management.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	m := steps.Management{Kubeconfig: platform.ManagementKubeconfig}
	for range 2 {
		if _, err := w.r.seedSecrets(t.Context(), w.say, m); err != nil {
			t.Fatal(err)
		}
	}
	is := w.Management.Get("v1", "Secret", config.DefaultNamespace, "k8s-talos")
	if is == nil || is.GetLabels()[capi.ClusterNameLabel] != "k8s" ||
		capi.Text(is, "data", "bundle") != base64.StdEncoding.EncodeToString([]byte("every key")) {
		t.Errorf("the seed is %v", is)
	}
	w.Management.Change("v1", "Secret", config.DefaultNamespace, "k8s-talos",
		map[string]any{"data": map[string]any{"bundle": "b3RoZXI="}})
	if _, err := w.r.seedSecrets(t.Context(), w.say, m); err == nil ||
		strings.Contains(err.Error(), "every key") {
		t.Errorf("another cluster's keys are overwritten, or told: %v", err)
	}
}

// What a ClusterResourceSet names, and what a person has marked to go along, is swept out of the restored etcd with the
// rest: it comes back out of the backup, or not at all.
func TestTheSeedBringsWhatNobodyMakesAgain(t *testing.T) {
	w := newRestoreWorld(t)
	if err := w.r.tools.Files.Write(platform.ManagementKubeconfig, w.Management.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	add := func(to *[]unstructured.Unstructured, kind, name string, owner map[string]any, fields clustertest.Map) {
		metadata := map[string]any{"uid": "old-" + name, "resourceVersion": "7"}
		if owner != nil {
			owner["uid"] = "old-owner"
			metadata["ownerReferences"] = []any{owner}
		} else {
			metadata["labels"] = map[string]any{capi.MoveLabel: "", "team": "shop"}
		}
		fields["metadata"] = metadata
		*to = append(*to, *kubetest.Object("v1", kind, config.DefaultNamespace, name, fields))
	}
	c := w.source.Contents
	add(&c.Objects, "ConfigMap", "addons", map[string]any{"apiVersion": "addons.cluster.x-k8s.io/v1beta1",
		"kind": "ClusterResourceSet", "name": "addons"},
		clustertest.Map{"data": map[string]any{"manifest": "kind: Namespace"}})
	add(&c.Secrets, "Secret", "mine", nil, clustertest.Map{"type": "Opaque", "data": map[string]any{"key": "dmFsdWU="}})
	add(&c.Secrets, "Secret", "k8s-control-plane-old-bootstrap-data", map[string]any{"apiVersion": clustertest.CAPI,
		"kind": "TalosConfig", "name": "k8s-control-plane-old"}, clustertest.Map{})
	add(&c.Secrets, "Secret", "k8s-kubeconfig", nil, clustertest.Map{})
	add(&c.Secrets, "Secret", config.TokenSecretName, nil,
		clustertest.Map{"data": map[string]any{config.TokenSecretKey: "b2xk"}})
	for range 2 { // the second time as after a kill
		if _, err := w.r.seedSecrets(t.Context(), w.say,
			steps.Management{Kubeconfig: platform.ManagementKubeconfig}); err != nil {
			t.Fatal(err)
		}
	}
	addons, mine := w.Management.Get("v1", "ConfigMap", config.DefaultNamespace, "addons"), w.Management.Get("v1",
		"Secret",
		config.DefaultNamespace, "mine")
	if addons == nil || capi.Text(addons, "data", "manifest") != "kind: Namespace" ||
		len(addons.GetOwnerReferences()) > 0 {
		t.Errorf("what the ClusterResourceSet names is %v", addons)
	}
	if mine == nil || capi.Text(mine, "data", "key") != "dmFsdWU=" || mine.GetLabels()["team"] != "shop" ||
		capi.Text(mine, "type") != "Opaque" {
		t.Errorf("the Secret that goes along is %v", mine)
	}
	for _, o := range []*unstructured.Unstructured{addons, mine} {
		if _, moves := o.GetLabels()[capi.MoveLabel]; !moves {
			t.Errorf("%s %s stays behind at the pivot", o.GetKind(), o.GetName())
		}
	}
	for _, name := range []string{"k8s-control-plane-old-bootstrap-data", "k8s-kubeconfig", config.TokenSecretName} {
		if w.Management.Get("v1", "Secret", config.DefaultNamespace, name) != nil {
			t.Errorf("Secret %s of the lost cluster was written", name)
		}
	}
}

func TestTheControlPlaneProviderIsToldBeforeItIsLetGo(t *testing.T) {
	w := newRestoreWorld(t)
	if err := w.r.tools.Files.Write(platform.ManagementKubeconfig, w.Management.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var states []string
	w.Management.React = func(o *unstructured.Unstructured) {
		switch o.GetKind() {
		case "HetznerCluster":
			if capi.Text(o, "status", "controlPlaneLoadBalancer", "ipv4") == "" {
				w.Management.Change(clustertest.CAPH, "HetznerCluster", config.DefaultNamespace, "k8s", map[string]any{
					"spec":   map[string]any{"controlPlaneEndpoint": map[string]any{"host": "127.0.0.9"}},
					"status": map[string]any{"controlPlaneLoadBalancer": map[string]any{"ipv4": "127.0.0.9"}}})
			}
		case "TalosControlPlane":
			_, held := o.GetAnnotations()[capi.PausedAnnotation]
			mu.Lock()
			states = append(states, fmt.Sprintf("%5s held=%v told=%v", o.GetResourceVersion(), held,
				capi.Truth(o, "status", "bootstrapped")))
			mu.Unlock()
		}
	}
	m := steps.Management{Kubeconfig: platform.ManagementKubeconfig}
	c, err := w.r.applyPaused(t.Context(), w.say, m, Lost{Was: "127.0.0.7"}, steps.Image{},
		steps.Endpoint{})
	if err != nil {
		t.Fatal(err)
	}
	if c.LoadBalancerIP != "127.0.0.9" || c.Endpoint != "127.0.0.9:6443" || c.Replicas != 3 {
		t.Errorf("the cluster is %+v", c)
	}
	tcp := w.Management.Get(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane")
	patches, _, _ := unstructured.NestedStringSlice(tcp.Object, "spec", "controlPlaneConfig", "controlplane",
		"strategicPatches")
	if !slices.Equal(patches, []string{"certSANs: [127.0.0.9, 127.0.0.70]"}) {
		t.Errorf("the patches name %v", patches)
	}
	if w.Management.Get(clustertest.CAPI, "Machine", config.DefaultNamespace, "k8s-control-plane-old") != nil {
		t.Error("a Machine of the backup was applied: its server would be made")
	}
	cluster := w.Management.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s")
	if capi.Truth(cluster, "spec", "paused") || len(cluster.GetFinalizers()) > 0 ||
		capi.Text(cluster, "spec", "controlPlaneRef", "name") == "" ||
		cluster.GetAnnotations()[capi.RestoredAnnotation] != "5a5a" {
		t.Errorf("the Cluster is %v", cluster.Object)
	}
	// The server reports what was written after the client has its answer, so the last of it may be outstanding.
	through := func() (all []string, whole bool) {
		mu.Lock()
		defer mu.Unlock()
		all = slices.Sorted(slices.Values(states))
		return all, len(all) > 0 && strings.HasSuffix(all[len(all)-1], "held=false told=true") &&
			slices.ContainsFunc(all, func(s string) bool { return strings.HasSuffix(s, "held=true told=false") })
	}
	deadline := time.Now().Add(10 * time.Second)
	all, whole := through()
	for ; !whole && time.Now().Before(deadline); all, whole = through() {
		time.Sleep(time.Millisecond)
	}
	if !whole {
		t.Errorf("it went through %v", all)
	}
	for _, s := range all {
		if strings.HasSuffix(s, "held=false told=false") {
			t.Errorf("the provider was free to found an etcd: %v", all)
		}
	}
}

func TestTheFirewallComesBack(t *testing.T) {
	w := newRestoreWorld(t)
	if _, err := w.r.ensureLost(t.Context(), w.say); err != nil {
		t.Fatal(err)
	}
	covers := func() bool {
		for _, f := range w.Hetzner.Firewalls() {
			if len(f.AppliedTo) > 0 {
				return true
			}
		}
		return false
	}
	if lifted, err := w.r.detachFirewall(t.Context(), w.say); err != nil || lifted.Firewall != 0 {
		t.Fatalf("without a firewall: %+v, %v", lifted, err)
	}
	if _, _, err := hetzner.EnsureFirewall(t.Context(), w.r.tools.Hetzner, "k8s", nil); err != nil {
		t.Fatal(err)
	}
	f, err := hetzner.FindFirewall(t.Context(), w.r.tools.Hetzner, "k8s")
	if err != nil {
		t.Fatal(err)
	}
	if err := hetzner.CoverServers(t.Context(), w.r.tools.Hetzner, f, "k8s"); err != nil || !covers() {
		t.Fatalf("the firewall covers nothing: %v", err)
	}
	var lifted DetachedFirewall
	for range 2 { // the second time as after a kill: it knows what it took off
		if lifted, err = w.r.detachFirewall(t.Context(), w.say); err != nil || lifted.Firewall != f.ID ||
			covers() {
			t.Fatalf("%+v, %v; it covers servers that are made: %v", lifted, err, covers())
		}
	}
	if _, err := w.r.attachFirewall(t.Context(), w.say); err != nil || !covers() {
		t.Errorf("the servers stay in the open: %v", err)
	}
}

func TestTheRestorePlanIsSound(t *testing.T) {
	source := lostBackup(t)
	tools := clustertest.New(t).Tools()
	p, err := New(config.Defaults(), tools, source)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range p.Graph.Steps() {
		names = append(names, s.Name)
	}
	for _, order := range [][]string{
		{"lost", "kind-create", "capi-init", "apply"}, {"seed", "apply"}, {"firewall-lift", "apply"},
		{"servers", "etcd-recover", "etcd-bootstrap", "quiet", "sweep", "release", "wait-nodes", "pivot", "clean"},
		{"etcd-members", "release"},
	} {
		last := -1
		for _, name := range order {
			i := slices.Index(names, name)
			if i <= last {
				t.Errorf("%s comes too early in %v", name, names)
			}
			last = i
		}
	}
	source.Contents.Header.SelfManaged = false
	if p, err = New(config.Defaults(), tools, source); err != nil || slices.ContainsFunc(p.Graph.Steps(),
		func(s flow.Info) bool { return s.Name == "pivot" }) ||
		!slices.Contains(p.All, "wait-machines") {
		t.Errorf("a cluster that did not manage itself: %v, %v", p.All, err)
	}
}

func TestAnAddressIsReplacedAsAWhole(t *testing.T) {
	for was, want := range map[string]string{
		"10.0.0.1": "9.9.9.9", "https://10.0.0.1:6443": "https://9.9.9.9:6443", "110.0.0.1": "110.0.0.1",
		"10.0.0.12 10.0.0.1": "10.0.0.12 9.9.9.9", "10.0.0.1.5": "10.0.0.1.5",
	} {
		if is := backup.ReplaceAddress(was, "10.0.0.1", "9.9.9.9"); is != want {
			t.Errorf("%q becomes %q", was, is)
		}
	}
}
