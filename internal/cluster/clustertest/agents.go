package clustertest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

// Agents plays the DaemonSet controller and the kubelets for the network's agents, and for the Pods that probe a node,
// in the workload cluster.
type Agents struct {
	t       *testing.T
	cluster *kubetest.Server
	nodes   []string

	mu      sync.Mutex
	broken  string   // image of the agent that cuts the host's network
	happens []string // in order: agents that start, probes that start and end
	probed  bool
	made    int
}

const agentsNamespace, agentsName = "kube-system", "cilium"

// PlayAgents plays them on nodes until the test ends, in the place of what the environment makes of the DaemonSet.
func PlayAgents(t *testing.T, w *Environment, nodes ...string) *Agents {
	a := &Agents{t: t, cluster: w.Workload, nodes: nodes}
	done, ended := make(chan struct{}), make(chan struct{})
	w.Workload.Put(kubetest.Object("v1", "Service", "default", "kubernetes",
		Map{"spec": Map{"clusterIP": "10.96.0.1", "ports": []any{Map{"port": 443}}}}))
	w.Workload.SetReact(func(o *unstructured.Unstructured) {
		if o.GetKind() != "DaemonSet" || o.GetName() != agentsName {
			w.ReactWorkload(o)
		}
	})
	go func() {
		defer close(ended)
		for {
			a.step()
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { close(done); <-ended })
	return a
}

// Break has the agents of an image, a part of its name, cut their node's host network; empty: none does.
func (a *Agents) Break(image string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.broken = image
}

// Happened is what has happened since it was asked last: "NODE IMAGE" where an agent starts, "probe NODE" where a probe
// starts, "probe ends".
func (a *Agents) Happened() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	happened := a.happens
	a.happens = nil
	return happened
}

// On gives the images of the agents, by node.
func (a *Agents) On() map[string]string {
	images := map[string]string{}
	for _, p := range a.pods() {
		images[nodeOf(p)] = imageOf(p)
	}
	return images
}

func (a *Agents) pods() (found []*unstructured.Unstructured) {
	for _, o := range a.cluster.All() {
		if o.GetKind() == "Pod" && o.GetLabels()["k8s-app"] == agentsName {
			found = append(found, o)
		}
	}
	return found
}

func nodeOf(p *unstructured.Unstructured) string {
	node, _, _ := unstructured.NestedString(p.Object, "spec", "nodeName")
	return node
}

func imageOf(o *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "containers")
	c, _ := containers[0].(Map)
	image, _ := c["image"].(string)
	return image
}

func (a *Agents) step() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, node := range a.nodes {
		a.cluster.Put(kubetest.Object("coordination.k8s.io/v1", "Lease", "kube-node-lease", node,
			Map{"spec": Map{"renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")}}))
	}
	a.probe()
	d := a.cluster.Get("apps/v1", "DaemonSet", agentsNamespace, agentsName)
	if d == nil {
		return
	}
	if d.GetGeneration() == 0 { // from now on the server counts
		a.cluster.Change("apps/v1", "DaemonSet", agentsNamespace, agentsName, Map{"metadata": Map{"generation": 1}})
		return
	}
	template, _, _ := unstructured.NestedMap(d.Object, "spec", "template")
	data, _ := json.Marshal(template)
	hash := fmt.Sprintf("%x", sha256.Sum256(data))[:10]
	a.revision(d, hash)
	pods := map[string]*unstructured.Unstructured{}
	for _, p := range a.pods() {
		pods[nodeOf(p)] = p
	}
	strategy, _, _ := unstructured.NestedString(d.Object, "spec", "updateStrategy", "type")
	updated := 0
	for _, node := range a.nodes {
		p := pods[node]
		switch {
		case p == nil:
			a.start(d, template, hash, node)
		case p.GetLabels()["controller-revision-hash"] == hash:
			updated++
		case strategy == "RollingUpdate":
			a.cluster.Remove("v1", "Pod", agentsNamespace, p.GetName())
			a.start(d, template, hash, node)
		}
	}
	a.cluster.Change("apps/v1", "DaemonSet", agentsNamespace, agentsName, Map{"status": Map{
		"observedGeneration": d.GetGeneration(), "desiredNumberScheduled": len(a.nodes), "numberReady": len(a.nodes),
		"updatedNumberScheduled": updated}})
}

// revision keeps the DaemonSet's template as its newest.
func (a *Agents) revision(d *unstructured.Unstructured, hash string) {
	name, newest := agentsName+"-"+hash, int64(0)
	var own int64
	for _, o := range a.cluster.All() {
		if o.GetKind() == "ControllerRevision" {
			number, _, _ := unstructured.NestedInt64(o.Object, "revision")
			if newest = max(newest, number); o.GetName() == name {
				own = number
			}
		}
	}
	if own == 0 || own < newest {
		a.cluster.Put(kubetest.Object("apps/v1", "ControllerRevision", agentsNamespace, name, Map{
			"revision": newest + 1, "metadata": Map{"ownerReferences": ownedBy(d),
				"labels": Map{"k8s-app": agentsName, "controller-revision-hash": hash}}}))
	}
}

func ownedBy(d *unstructured.Unstructured) []any {
	return []any{Map{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": d.GetName(), "uid": string(d.GetUID()),
		"controller": true}}
}

func (a *Agents) start(d *unstructured.Unstructured, template Map, hash, node string) {
	a.made++
	o := kubetest.Object("v1", "Pod", agentsNamespace, fmt.Sprintf("%s-%d", agentsName, a.made), Map{
		"metadata": Map{"ownerReferences": ownedBy(d),
			"labels": Map{"k8s-app": agentsName, "controller-revision-hash": hash}},
		"spec":   template["spec"],
		"status": Map{"conditions": []any{Map{"type": "Ready", "status": "True"}}},
	})
	_ = unstructured.SetNestedField(o.Object, node, "spec", "nodeName")
	a.cluster.Put(o)
	a.happens = append(a.happens, node+" "+imageOf(o))
	a.cluster.Change("v1", "Node", "", node,
		Map{"status": Map{"conditions": []any{Map{"type": "Ready", "status": "True"}}}})
}

// probe plays the kubelet for the Pod that probes a node.
func (a *Agents) probe() {
	var found *unstructured.Unstructured
	for _, o := range a.cluster.All() {
		if o.GetKind() == "Pod" && o.GetLabels()["slipway.dev/canary-node"] == agentsName {
			found = o
		}
	}
	switch {
	case found == nil && a.probed:
		a.probed = false
		a.happens = append(a.happens, "probe ends")
		return
	case found == nil || a.probed:
		return
	}
	a.probed = true
	node := nodeOf(found)
	a.happens = append(a.happens, "probe "+node)
	on := ""
	for _, p := range a.pods() {
		if nodeOf(p) == node {
			on = imageOf(p)
		}
	}
	works := a.broken == "" || !strings.Contains(on, a.broken)
	containers, _, _ := unstructured.NestedSlice(found.Object, "spec", "containers")
	var statuses []any
	for _, c := range containers {
		c := c.(Map)
		statuses = append(statuses, Map{"name": c["name"], "ready": works, "state": Map{"running": Map{}}})
		if !works {
			probed, _, _ := unstructured.NestedMap(c, "readinessProbe", "tcpSocket")
			a.cluster.Put(kubetest.Object("v1", "Event", agentsNamespace, fmt.Sprintf("event-%v", c["name"]), Map{
				"type": "Warning", "reason": "Unhealthy", "lastTimestamp": time.Now().UTC().Format(time.RFC3339),
				"message": fmt.Sprintf("Readiness probe failed: dial tcp %v:%v: i/o timeout", probed["host"], probed["port"]),
				"involvedObject": Map{"kind": "Pod", "name": found.GetName(), "uid": string(found.GetUID()),
					"fieldPath": fmt.Sprintf("spec.containers{%v}", c["name"])}}))
		}
	}
	ready := map[bool]string{true: "True", false: "False"}[works]
	a.cluster.Change("v1", "Pod", agentsNamespace, found.GetName(), Map{"status": Map{"phase": "Running",
		"containerStatuses": statuses, "conditions": []any{Map{"type": "Ready", "status": ready}}}})
}

// SortedNodes are the nodes on which an image's agent runs.
func (a *Agents) SortedNodes(image string) (nodes []string) {
	for node, on := range a.On() {
		if strings.Contains(on, image) {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}
