package rotation

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

type fields = map[string]any

// playground is a cluster with workloads, whose controllers the test plays.
type playground struct {
	*kubetest.Server
	cluster *kube.Cluster
}

func newPlayground(t *testing.T) playground {
	t.Helper()
	s := kubetest.New("workload",
		kubetest.Resource{Group: "apps", Version: "v1", Kind: "ReplicaSet", Plural: "replicasets"})
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	c, err := kube.Connect(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	return playground{s, c}
}

// own makes an object that another one controls.
func own(o *unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	yes := true
	o.SetUID(types.UID("uid of " + o.GetName()))
	if kind != "" {
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name,
			UID: types.UID("uid of " + name), Controller: &yes}})
	}
	return o
}

// deployment puts one with a ReplicaSet and a Pod that runs.
func (p playground) deployment(name string, available int) {
	d := kubetest.Object("apps/v1", "Deployment", "default", name, fields{"metadata": fields{"generation": 1},
		"spec": fields{"replicas": 1, "template": fields{"metadata": fields{}}}})
	p.Put(own(d, "", ""))
	p.Change("apps/v1", "Deployment", "default", name, fields{"status": availability(1, available)})
	p.Put(own(kubetest.Object("apps/v1", "ReplicaSet", "default", name+"-1", nil), "Deployment", name))
	p.pod(name+"-1-a", "ReplicaSet", name+"-1")
}

func availability(generation, available int) fields {
	return fields{"observedGeneration": generation, "replicas": available, "updatedReplicas": available,
		"availableReplicas": available}
}

// pod puts one that has the authority of the Kubernetes API mounted.
func (p playground) pod(name, kind, owner string) *unstructured.Unstructured {
	o := kubetest.Object("v1", "Pod", "default", name, fields{"spec": fields{"nodeName": "a",
		"volumes": []any{fields{"name": "token", "projected": fields{"sources": []any{
			fields{"configMap": fields{"name": rootCA}}}}}}}})
	p.Put(own(o, kind, owner))
	return o
}

func TestClientsOfTheAPI(t *testing.T) {
	p := newPlayground(t)
	p.deployment("shop", 1)
	p.deployment("broken", 0)
	p.pod("lonely", "", "")
	p.pod("report-x", "Job", "report")
	p.pod("of-others", "Rollout", "canary")
	p.deployment("still", 1)
	p.Change("apps/v1", "Deployment", "default", "still", fields{"spec": fields{"paused": true}})
	p.Put(own(kubetest.Object("v1", "Pod", "default", "plain-1", fields{"spec": fields{"nodeName": "a"}}), "ReplicaSet",
		"shop-1"))
	found, err := findClients(t.Context(), p.cluster)
	if err != nil {
		t.Fatal(err)
	}
	want := clients{left: []string{"default/lonely", "default/of-others", "default/still (Deployment is paused)"},
		workloads: []kube.Workload{{Kind: "Deployment", Namespace: "default", Name: "broken"},
			{Kind: "Deployment", Namespace: "default", Name: "shop"}},
		unready: []kube.Workload{{Kind: "Deployment", Namespace: "default", Name: "broken"}}}
	if fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("found %v, want %v", found, want)
	}
}

// A Deployment whose new Pod has no room beside the old one, on the only node, is restarted all the same, and one that
// was broken before is not waited for. What was restarted already stays.
func TestRestart(t *testing.T) {
	p := newPlayground(t)
	p.deployment("operator", 1)
	p.deployment("broken", 0)
	var refused, evicted atomic.Int32
	p.Fail = func(r *http.Request) (int, string) {
		if !strings.HasSuffix(r.URL.Path, "/eviction") {
			return 0, ""
		}
		if refused.Add(1) == 1 {
			return http.StatusTooManyRequests, "Cannot evict pod as it would violate the pod's disruption budget."
		}
		if name := "operator-1-a"; strings.HasSuffix(r.URL.Path, name+"/eviction") && evicted.Add(1) == 1 {
			go func() {
				p.Remove("v1", "Pod", "default", name)
				p.Change("apps/v1", "Deployment", "default", "operator", fields{"status": availability(2, 1)})
			}()
		}
		return http.StatusNotFound, "it is on its way out"
	}
	p.SetReact(func(o *unstructured.Unstructured) {
		mark, _, _ := unstructured.NestedString(o.Object,
			"spec", "template", "metadata", "annotations", authorityAnnotation)
		if o.GetName() != "operator" || mark != "new" || p.Get("v1", "Pod", "default", "operator-2-a") != nil {
			return
		}
		p.Put(own(kubetest.Object("apps/v1", "ReplicaSet", "default", "operator-2", nil), "Deployment", "operator"))
		created := own(kubetest.Object("v1", "Pod", "default", "operator-2-a", nil), "ReplicaSet", "operator-2")
		created.SetAnnotations(map[string]string{authorityAnnotation: mark})
		created.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-time.Minute)))
		p.Put(created)
		p.Change("v1", "Pod", "default", "operator-2-a", fields{"status": fields{"conditions": []any{
			fields{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}}}})
	})
	found, err := findClients(t.Context(), p.cluster)
	if err != nil {
		t.Fatal(err)
	}
	r := restarter{workload: p.cluster, mark: "new", ends: time.Now().Add(time.Minute), within: time.Minute,
		unready: found.unready}
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	if err := r.together(t.Context(), say, found.workloads); err != nil {
		t.Fatal(err)
	}
	if evicted.Load() == 0 {
		t.Error("the old Pod was not evicted")
	}
	if !strings.Contains(strings.Join(said, "\n"), "PodDisruptionBudget keeps") {
		t.Errorf("it does not say what keeps the old Pod: %q", said)
	}
	writes := len(p.Writes())
	if err := r.together(t.Context(), clustertest.Silent, found.workloads); err != nil {
		t.Fatal(err)
	}
	if again := p.Writes()[writes:]; len(again) > 0 {
		t.Errorf("a second time it writes %v", again)
	}
}
