package readopt

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
)

// managedBackup is a backup of a cluster with three control plane Machines. Machine k8s-control-plane-m0 has the
// HCloudMachine, server, node and etcd member k8s-control-plane-0, and so on.
func managedBackup() backup.Cluster {
	c := &backup.Contents{
		Header:   backup.Header{Cluster: "k8s", UID: "workload", Taken: time.Now(), Etcd: backup.Etcd{Revision: 1}},
		Snapshot: backup.Snapshot{Size: 1, SHA256: "5a5a"},
	}
	add := func(to *[]unstructured.Unstructured, apiVersion, kind, name, owner string, fields clustertest.Map) {
		o := kubetest.Object(apiVersion, kind, config.DefaultNamespace, name, fields)
		o.SetUID(types.UID("old-" + kind + "-" + name))
		o.SetResourceVersion("7")
		o.SetFinalizers([]string{"hold"})
		if kind, name, ok := strings.Cut(owner, "/"); ok {
			versions := map[string]string{"Cluster": clustertest.CAPI, "Machine": clustertest.CAPI,
				"TalosControlPlane": clustertest.CACPPT, "TalosConfig": clustertest.CABPT, "HCloudMachine": clustertest.CAPH,
				"HetznerCluster": clustertest.CAPH}
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: versions[kind], Kind: kind, Name: name,
				UID: types.UID("old-" + kind + "-" + name)}})
		}
		*to = append(*to, *o)
	}
	objects, secrets := &c.Objects, &c.Secrets
	of := clustertest.Map{capi.ClusterNameLabel: "k8s", capi.ControlPlaneLabel: ""}
	// Not in the order in which they can be made.
	for i := range 3 {
		server, machine := fmt.Sprintf("k8s-control-plane-%d", i), fmt.Sprintf("k8s-control-plane-m%d", i)
		provider := fmt.Sprintf("hcloud://%d", 100+i)
		add(objects, clustertest.CAPH, "HCloudMachine", server, "Machine/"+machine, clustertest.Map{
			"metadata": clustertest.Map{"labels": of, "annotations": clustertest.Map{capi.ClonedFromAnnotation: "template"}},
			"spec":     clustertest.Map{"providerID": provider, "type": "cx33"}, "status": clustertest.Map{"ready": true}})
		add(objects, clustertest.CABPT, "TalosConfig", machine, "Machine/"+machine,
			clustertest.Map{"metadata": clustertest.Map{"labels": of}})
		add(objects, clustertest.CAPI, "Machine", machine, "TalosControlPlane/k8s-control-plane", clustertest.Map{
			"metadata": clustertest.Map{"labels": of},
			"spec": clustertest.Map{"version": "v1.32.2", "providerID": provider, "failureDomain": "nbg1",
				"infrastructureRef": clustertest.Map{"kind": "HCloudMachine", "name": server},
				"bootstrap": clustertest.Map{"configRef": clustertest.Map{"kind": "TalosConfig", "name": machine},
					"dataSecretName": machine + "-bootstrap-data"}},
			"status": clustertest.Map{"phase": "Running", "observedGeneration": 1}})
		add(secrets, "v1", "Secret", machine+"-bootstrap-data", "TalosConfig/"+machine,
			clustertest.Map{"data": clustertest.Map{"value": "Z2VoZWlt"}})
	}
	add(objects, clustertest.CACPPT, "TalosControlPlane", "k8s-control-plane", "Cluster/k8s", clustertest.Map{
		"spec": clustertest.Map{"replicas": 3, "version": "v1.32.2",
			"infrastructureTemplate": clustertest.Map{"name": "template"}},
		"status": clustertest.Map{"bootstrapped": true, "observedGeneration": 1, "conditions": []any{
			clustertest.Map{"type": "Ready", "status": "True"},
			clustertest.Map{"type": recovery.BootstrappedCondition, "status": "True",
				"lastTransitionTime": "2026-01-02T03:04:05Z"}}}})
	add(objects, clustertest.CAPH, "HetznerCluster", "k8s", "Cluster/k8s", clustertest.Map{
		"spec": clustertest.Map{"controlPlaneEndpoint": clustertest.Map{"host": "127.0.0.7", "port": 6443},
			"controlPlaneRegions": []any{"nbg1"}, "hcloudPlacementGroups": []any{clustertest.Map{"name": "control-plane",
				"type": "spread"}}},
		"status": clustertest.Map{"ready": true, "controlPlaneLoadBalancer": clustertest.Map{"ipv4": "127.0.0.7"}}})
	add(objects, clustertest.CAPH, "HCloudMachineTemplate", "template", "Cluster/k8s",
		clustertest.Map{"spec": clustertest.Map{"template": clustertest.Map{"spec": clustertest.Map{"type": "cx33"}}}})
	add(objects, clustertest.CAPI, "Cluster", "k8s", "",
		clustertest.Map{"spec": clustertest.Map{"controlPlaneRef": clustertest.Map{"name": "k8s-control-plane"}},
			"status": clustertest.Map{"phase": "Provisioned"}})
	secret := func(name, key, value, owner string) {
		add(secrets, "v1", "Secret", name, owner,
			clustertest.Map{"metadata": clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "k8s"}},
				"data": clustertest.Map{key: base64.StdEncoding.EncodeToString([]byte(value))}})
	}
	secret("k8s-talos", "bundle", "every key", "")
	secret("k8s-talosconfig", "talosconfig", "credentials", "Cluster/k8s")
	secret("k8s-kubeconfig", "value", "set by the test", "TalosControlPlane/k8s-control-plane")
	secret(config.TokenSecretName, config.TokenSecretKey, "yesterday's token", "HetznerCluster/k8s")
	return backup.Cluster{Contents: c}
}

// lively is the environment of managedBackup.
func lively() living {
	l := living{
		nodes: map[string]*corev1.Node{}, balancer: &hetzner.Survivor{ID: 9, Name: "lb", IPv4: "127.0.0.7", Labelled: true},
		network: 77, groups: []string{"k8s-control-plane"},
	}
	for i := range 3 {
		l.serve(int64(100+i), fmt.Sprintf("k8s-control-plane-%d", i))
	}
	return l
}

// serve adds a server that is a node and a member of etcd.
func (l *living) serve(id int64, name string) {
	l.servers = append(l.servers, hetzner.Server{ID: id, Name: name, Machine: name, ControlPlane: true, Location: "nbg1",
		Public: netip.MustParseAddr("127.0.1.1")})
	l.members = append(l.members, talos.EtcdMember{ID: uint64(id), Name: name})
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.NodeInfo.KubeletVersion = "v1.32.2"
	l.nodes[name] = n
}

// lose takes a server away, and leaves what remembers it.
func (l *living) lose(id int64) {
	l.servers = slices.DeleteFunc(l.servers, func(s hetzner.Server) bool { return s.ID == id })
}

func (l *living) forget(name string) {
	l.members = slices.DeleteFunc(l.members, func(m talos.EtcdMember) bool { return m.Name == name })
}

// TestEveryDifferenceIsFound has a case for each: what of the environment or the backup is changed, what is found, what
// follows when it is accepted.
func TestEveryDifferenceIsFound(t *testing.T) {
	change := func(kind, name string, value any, fields ...string) func(*backup.Cluster) {
		return func(b *backup.Cluster) {
			_ = unstructured.SetNestedField(b.Object(kind, name).Object, value, fields...)
		}
	}
	const last = "k8s-control-plane-2"
	for _, c := range []struct {
		what   string
		change func(*living)
		backup func(*backup.Cluster)
		want   []string // IDs
		says   string
		then   Comparison
		final  bool // cannot be accepted
	}{
		{what: "nothing"},
		{what: "a server is gone", change: func(l *living) { l.lose(102) }, want: []string{"server-missing/" + last},
			says: "2 of its 3 servers, makes 1 new",
			then: Comparison{LeftOut: []string{"k8s-control-plane-m2"}, Gone: []string{last}}},
		{what: "a server was replaced", change: func(l *living) {
			l.lose(102)
			l.forget(last)
			delete(l.nodes, last)
			l.serve(200, "k8s-control-plane-new")
		},
			want: []string{"server-missing/" + last, "server-unknown/k8s-control-plane-new"}, says: "no server is made, as 3 " +
				"are there",
			then: Comparison{LeftOut: []string{"k8s-control-plane-m2"}, Gone: []string{last},
				Adopted: []Adopted{{Server: "k8s-control-plane-new", ID: 200, Machine: "k8s-control-plane-new",
					Location: "nbg1"}}}},
		{what: "an upgrade replaced a server", change: func(l *living) {
			l.lose(102)
			l.serve(200, "k8s-control-plane-new")
			l.nodes["k8s-control-plane-new"].Status.NodeInfo.KubeletVersion = "v1.33.1"
		},
			want: []string{"server-missing/" + last, "server-unknown/k8s-control-plane-new", "version/k8s-control-plane"},
			says: "k8s-control-plane-new runs v1.33.1",
			then: Comparison{LeftOut: []string{"k8s-control-plane-m2"}, Gone: []string{last}, Version: "v1.32.2",
				Adopted: []Adopted{{Server: "k8s-control-plane-new", ID: 200, Machine: "k8s-control-plane-new",
					Location: "nbg1"}}}},
		{what: "an upgrade replaced every server", change: func(l *living) {
			for i := range 3 {
				name := fmt.Sprintf("k8s-control-plane-%d", i)
				l.lose(int64(100 + i))
				l.forget(name)
				delete(l.nodes, name)
				l.serve(int64(200+i), "new-"+name)
				l.nodes["new-"+name].Status.NodeInfo.KubeletVersion = "v1.33.1"
			}
		},
			want: []string{"server-missing/k8s-control-plane-0", "server-missing/k8s-control-plane-1", "server-missing/" + last,
				"server-unknown/new-k8s-control-plane-0", "server-unknown/new-k8s-control-plane-1", "server-unknown/new-" + last,
				"version/k8s-control-plane"},
			says: "the objects say v1.33.1",
			then: Comparison{LeftOut: []string{"k8s-control-plane-m0", "k8s-control-plane-m1", "k8s-control-plane-m2"},
				Gone: []string{"k8s-control-plane-0", "k8s-control-plane-1", last}, Version: "v1.33.1",
				Adopted: []Adopted{{Server: "new-k8s-control-plane-0", ID: 200, Machine: "new-k8s-control-plane-0",
					Location: "nbg1"},
					{Server: "new-k8s-control-plane-1", ID: 201, Machine: "new-k8s-control-plane-1", Location: "nbg1"},
					{Server: "new-" + last, ID: 202, Machine: "new-" + last, Location: "nbg1"}}}},
		{what: "its node names its Machine", change: func(l *living) {
			l.lose(102)
			l.serve(200, "k8s-control-plane-new")
			l.nodes["k8s-control-plane-new"].Annotations = map[string]string{"cluster.x-k8s.io/machine": "k8s-control-plane-m9"}
		}, want: []string{"server-missing/" + last, "server-unknown/k8s-control-plane-new"}, says: "would evict its member",
			then: Comparison{LeftOut: []string{"k8s-control-plane-m2"}, Gone: []string{last},
				Adopted: []Adopted{{Server: "k8s-control-plane-new", ID: 200, Machine: "k8s-control-plane-m9", Location: "nbg1"}}}},
		{what: "the control plane was scaled up", change: func(l *living) { l.serve(200, "k8s-control-plane-new") },
			says: "would delete servers",
			want: []string{"server-unknown/k8s-control-plane-new", "replicas/k8s-control-plane"},
			then: Comparison{Replicas: 4, Adopted: []Adopted{{Server: "k8s-control-plane-new", ID: 200,
				Machine: "k8s-control-plane-new", Location: "nbg1"}}}},
		{what: "a worker that nobody knows", change: func(l *living) {
			l.servers = append(l.servers,
				hetzner.Server{ID: 300, Name: "w", Machine: "w"})
		},
			want: []string{"server-unknown/w"}, says: "left as it is", then: Comparison{Others: []int64{300}}},
		{what: "a server was made anew under its name", change: func(l *living) { l.servers[2].ID = 202 },
			want: []string{"server-replaced/" + last}, says: "202",
			then: Comparison{Replaced: map[string]int64{last: 202}}},
		{what: "a server was renamed", change: func(l *living) { l.servers[2].Machine = "" }},
		{what: "a server had no ID yet", backup: func(b *backup.Cluster) {
			unstructured.RemoveNestedField(b.Object("HCloudMachine", last).Object, "spec", "providerID")
			unstructured.RemoveNestedField(b.Object("Machine", "k8s-control-plane-m2").Object, "spec", "providerID")
		}},
		{what: "a Machine was being deleted", backup: change("Machine", "k8s-control-plane-m2", "2026-01-02T03:04:05Z",
			"metadata", "deletionTimestamp"),
			want: []string{"machine-deleting/" + last}, says: "a deletion is not put back"},
		{what: "a rollout of a version", backup: change("TalosControlPlane", "k8s-control-plane", "v1.33.1", "spec",
			"version"), says: "deletes this one", then: Comparison{Rolling: true},
			want: []string{"rollout/k8s-control-plane-0", "rollout/k8s-control-plane-1", "rollout/" + last}},
		{what: "a rollout of a template", backup: func(b *backup.Cluster) {
			b.Object("HCloudMachine", last).SetAnnotations(map[string]string{capi.ClonedFromAnnotation: "older"})
		}, want: []string{"rollout/" + last}, says: "template older", then: Comparison{Rolling: true}},
		{what: "a member of nobody", change: func(l *living) {
			l.members = append(l.members,
				talos.EtcdMember{ID: 7, Name: "stray"})
		}, want: []string{"member-unknown/stray"}, says: "would evict it"},
		{what: "a Machine without a member", change: func(l *living) { l.forget(last) },
			want: []string{"member-missing/" + last}, says: "no member"},
		{what: "a Machine without a node", change: func(l *living) { delete(l.nodes, last) },
			want: []string{"node-missing/" + last}, says: "is no node"},
		{what: "a node of nobody", change: func(l *living) { l.nodes["stray"] = &corev1.Node{} },
			want: []string{"node-unknown/stray"}, says: "left as it is"},
		{what: "Kubernetes was upgraded by hand", change: func(l *living) {
			for i, v := range []string{"v1.34.0", "v1.33.10", "v1.33.9"} {
				l.nodes[fmt.Sprintf("k8s-control-plane-%d", i)].Status.NodeInfo.KubeletVersion = v
			}
		}, want: []string{"version/k8s-control-plane"}, says: "v1.33.9, the oldest", then: Comparison{Version: "v1.33.9"}},
		{what: "no load balancer", change: func(l *living) { l.balancer = nil },
			want: []string{"load-balancer-missing/k8s"}, says: "another address", final: true},
		{what: "another load balancer", change: func(l *living) { l.balancer.IPv4 = "127.0.0.8" },
			want: []string{"load-balancer-replaced/k8s"}, says: "127.0.0.8", final: true},
		{what: "a load balancer without label", change: func(l *living) { l.balancer.Labelled = false },
			want: []string{"load-balancer-unlabelled/lb"}, says: "make another", then: Comparison{Balancer: "lb"}},
		{what: "no network", change: func(l *living) { l.network = 0 }, want: []string{"network-missing/k8s"},
			says: "caph-cluster-k8s=owned", final: true},
		{what: "no placement group", change: func(l *living) { l.groups = nil },
			want: []string{"placement-group-missing/k8s-control-plane"}, says: "again, empty"},
		{what: "one more placement group", change: func(l *living) { l.groups = append(l.groups, "k8s-more") },
			want: []string{"placement-group-unknown/k8s-more"}, says: "would delete"},
		{what: "an object without its Cluster", change: func(l *living) { l.left = []Leftover{{"Machine", "m", "u"}} },
			want: []string{"object-left/Machine.m"}, says: "without its finalizers",
			then: Comparison{Left: []Leftover{{"Machine", "m", "u"}}}},
		{what: "a server lives and has lost its labels",
			change: func(l *living) { l.lose(102); l.unlabelled = map[int64]bool{102: true} },
			want:   []string{"server-unlabelled/" + last}, says: "caph-cluster-k8s=owned, machine.caph-name=" + last +
				", machine_type=control_plane", final: true},
	} {
		t.Run(c.what, func(t *testing.T) {
			l, source := lively(), managedBackup()
			if c.change != nil {
				c.change(&l)
			}
			if c.backup != nil {
				c.backup(&source)
			}
			var ids, words []string
			var then Comparison
			for _, m := range mismatches(source, l) {
				ids, words = append(ids, m.ID), append(words, m.String())
				if c.final != (m.Accept == "") || m.Would == "" {
					t.Errorf("can be accepted: %v: %s", m.Accept != "", m)
				}
				if kind, _, _ := strings.Cut(m.ID, "/"); !slices.Contains(mismatchKinds, kind) {
					t.Errorf("--accept does not know %s", m.ID)
				}
				if m.accepted != nil {
					m.accepted(&then)
				}
			}
			if !slices.Equal(ids, c.want) || !strings.Contains(strings.Join(words, "\n"), c.says) {
				t.Errorf("found %v, want %v\n%s", ids, c.want, strings.Join(words, "\n"))
			}
			if !reflect.DeepEqual(then, c.then) {
				t.Errorf("accepted it comes to %+v, want %+v", then, c.then)
			}
		})
	}
}

func TestServersThatComeAndGo(t *testing.T) {
	for _, c := range []struct {
		what string
		d    Comparison
		now  []int64
		ok   bool
	}{
		{"the same", Comparison{Servers: []int64{1, 2}}, []int64{1, 2}, true},
		{"one is gone", Comparison{Servers: []int64{1, 2}}, []int64{1}, false},
		{"one is gone and one is new", Comparison{Servers: []int64{1, 2}, Made: 1}, []int64{1, 3}, false},
		{"one is new", Comparison{Servers: []int64{1, 2}}, []int64{1, 2, 3}, false},
		{"one is new, as said", Comparison{Servers: []int64{1, 2}, Made: 1}, []int64{1, 2, 3}, true},
		{"two are new, where one was said", Comparison{Servers: []int64{1, 2}, Made: 1}, []int64{1, 2, 3, 4}, false},
		{"one of nobody", Comparison{Servers: []int64{1, 2}, Others: []int64{9}}, []int64{1, 2, 9}, true},
		{"a rollout that goes on", Comparison{Servers: []int64{1, 2}, Rolling: true}, []int64{1, 3}, true},
	} {
		if err := c.d.untouched(c.now); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// What is said of a worker names neither etcd nor the control plane provider, nor a command that is for the control
// plane alone.
func TestWorkersHaveNothingToDoWithEtcd(t *testing.T) {
	worker := backup.ClusterMachine{Name: "k8s-general-a-b", Server: "k8s-general-a-b", ServerID: 7}
	c := &comparing{explained: map[string]bool{}}
	c.missing(worker)
	worker.Now, worker.Deleting = &hetzner.Server{ID: 7, Name: worker.Server}, true
	c.machines = []backup.ClusterMachine{worker}
	c.compareMachines()
	c.compareNodes()
	var ids []string
	for _, m := range c.found {
		ids = append(ids, m.ID)
		for _, word := range []string{"etcd", "control plane", "replace-machine"} {
			if text := m.What + m.Would + m.Accept; strings.Contains(text, word) {
				t.Errorf("%s says %q: %s", m.ID, word, text)
			}
		}
	}
	if want := []string{"server-missing/" + worker.Server, "machine-deleting/" + worker.Server,
		"node-missing/" + worker.Server}; !slices.Equal(ids, want) {
		t.Errorf("found %q, want %q", ids, want)
	}
}
