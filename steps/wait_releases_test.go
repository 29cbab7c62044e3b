package steps

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// container is a container's state: running, restarted a number of times, and in a crash loop if that is said.
func container(restarts int, loops bool) clustertest.Map {
	c := clustertest.Map{"name": "manager", "ready": !loops, "restartCount": restarts,
		"state": clustertest.Map{"running": clustertest.Map{}}}
	if restarts > 0 {
		c["lastState"] = clustertest.Map{"terminated": clustertest.Map{"exitCode": 1, "message": "no metadata service"}}
	}
	if loops {
		c["state"] = clustertest.Map{"waiting": clustertest.Map{"reason": "CrashLoopBackOff"}}
	}
	return c
}

// putPod puts the Pod of the CCM's Deployment into the workload cluster, whose templates have the label a=b.
func putPod(w *clustertest.Environment, c clustertest.Map) {
	w.Workload.Put(kubetest.Object("v1", "Pod", "kube-system", "hcloud-cloud-controller-manager-1", clustertest.Map{
		"metadata": clustertest.Map{"labels": clustertest.Map{"a": "b"}},
		"status":   clustertest.Map{"containerStatuses": []any{c}}}))
}

// The step hcloud-ccm ends when its Deployment is available. That its container restarts afterwards keeps the run.
func TestReleasesHaveToStayAvailable(t *testing.T) {
	w := clustertest.New(t)
	putPod(w, container(0, false))
	plan, err := New(w.Config(), w.Tools())
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var said []string
	var hcloudCCM, looped, recovered bool
	var began time.Time
	_, err = clustertest.Run(t, plan.Graph, []string{"wait-releases"}, flow.Memory(), func(e flow.Event) {
		mu.Lock()
		defer mu.Unlock()
		hcloudCCM = hcloudCCM || e.Kind == flow.StepDone && e.Step == "hcloud-ccm"
		if e.Kind != flow.StepProgress || e.Step != "wait-releases" {
			return
		}
		said = append(said, e.Message)
		switch {
		case !looped && strings.Contains(e.Message, "is to stay available for 10s"):
			looped = true
			putPod(w, container(1, true))
		case looped && !recovered && strings.Contains(e.Message, "CrashLoopBackOff"):
			recovered, began = true, time.Now()
			putPod(w, container(2, false))
		}
	})
	all := strings.Join(said, "\n")
	if err != nil || !hcloudCCM || !recovered {
		t.Fatalf("hcloud-ccm was done: %v, recovered: %v, %v:\n%s", hcloudCCM, recovered, err, all)
	}
	if took := time.Since(began); took < stableFor {
		t.Errorf("it ended %s after the last restart", took)
	}
	for _, want := range []string{"Pod hcloud-cloud-controller-manager-1: container manager ended with exit code 1, was " +
		"restarted once (CrashLoopBackOff): no metadata service", "bootstrap logs hcloud-ccm --no-follow"} {
		if !strings.Contains(all, want) {
			t.Errorf("it does not say %q:\n%s", want, all)
		}
	}
}

// The time counts from what this process saw, for each release, and begins again with every restart.
func TestSteadiness(t *testing.T) {
	w := clustertest.New(t)
	tools := w.Tools().WithDefaults()
	workload, err := tools.Connect(w.Workload.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	put := func(available int) {
		w.Workload.Put(kubetest.Object("apps/v1", "Deployment", "kube-system", "x", clustertest.Map{
			"spec": clustertest.Map{"template": clustertest.Map{"metadata": clustertest.Map{
				"labels": clustertest.Map{"a": "b"}}}},
			"status": clustertest.Map{"replicas": 1, "updatedReplicas": 1, "availableReplicas": available}}))
	}
	w.Workload.React = nil
	one := &steadiness{window: 10 * time.Second, log: "logs x",
		release: Release{Name: "x", Namespace: "kube-system", Workloads: []Workload{{"Deployment", "kube-system", "x"}}}}
	now := time.Now()
	look := func(after time.Duration, want string) {
		t.Helper()
		got, err := one.look(t.Context(), workload, now.Add(after))
		if err != nil || want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("after %s: %q (%v), want %q", after, got, err, want)
		}
	}
	look(0, "does not exist")
	put(1)
	putPod(w, container(3, false)) // restarted before: how a program starts is not counted
	look(time.Second, "x is to stay available for 10s")
	look(10*time.Second, "x is to stay available")
	putPod(w, container(4, false))
	look(10500*time.Millisecond, "was restarted 4 times: no metadata service (its log: logs x)")
	look(20*time.Second, "was restarted 4 times")
	put(0)
	look(21*time.Second, "has 0 of 1 available")
	put(1)
	look(25*time.Second, "was restarted 4 times")
	look(36*time.Second, "")
	putPod(w, container(4, true))
	look(37*time.Second, "CrashLoopBackOff")

	set := newSet(w.Config(), w.Tools(), render.Sources{})
	if err := set.tools.Files.Write("kubeconfig", w.Workload.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	was := Stability{Releases: []Release{one.release}}
	if v := set.verifyStable(t.Context(), workload, was); v.Answer() != flow.AnswerGone || !strings.Contains(v.String(), "CrashLoop") {
		t.Errorf("in a crash loop, verify answers %v", v)
	}
	putPod(w, container(4, false))
	if v := set.verifyStable(t.Context(), workload, was); v.Answer() != flow.AnswerHolds {
		t.Errorf("verify answers %v", v)
	}
}
