package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// lab runs `bootstrap lab …` and requires its success.
func (c *command) lab(args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	out, err := c.exec(ctx, append([]string{"lab"}, args...)...)
	if err != nil {
		c.t.Fatalf("lab %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// labFaults makes webhooks refuse connections and kills a server's kube-apiserver; the lab's tests cover the
// faults of the cloud and of management clusters.
func labFaults(t *testing.T, c *command) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	management := clientOf(t, filepath.Join(c.state, "management.kubeconfig"))
	change := func() error {
		return management.RESTClient().Patch(types.MergePatchType).AbsPath(
			"/apis/infrastructure.cluster.x-k8s.io/v1beta1/namespaces/default/hetznerclusters/k8s").
			Param("dryRun", "All").Body([]byte(`{"metadata":{"annotations":{"a":"b"}}}`)).Do(ctx).Error()
	}
	if err := change(); err != nil {
		t.Fatal(err)
	}
	added := c.lab("fault", "add", "webhook-unready", "service=caph-system/*")
	if err := change(); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("with webhooks that do not answer a change ends with %v", err)
	}
	if out := c.lab("fault", "list"); !strings.Contains(out, "webhook-unready service=caph-system/*  1 ") {
		t.Errorf("the list does not count the hit:\n%s", out)
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(added, "fault "), ":")
	c.lab("fault", "remove", id)
	if err := change(); err != nil {
		t.Errorf("after the fault's end: %v", err)
	}

	apiServers := func() (pids []int) {
		var status labStatus
		c.labGet("/v1/status", &status)
		for _, p := range status.Processes {
			if strings.HasSuffix(p.Name, "/kube-apiserver") {
				pids = append(pids, p.PID)
			}
		}
		return pids
	}
	before := apiServers()
	c.lab("fault", "add", "apiserver-restart", "server=k8s-*", "seed=4")
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(c.lab("fault", "list"), "no fault is in force") {
		if time.Now().After(deadline) {
			t.Fatal("a kube-apiserver that was killed is not back after a minute")
		}
		time.Sleep(100 * time.Millisecond)
	}
	after := apiServers()
	same := slices.DeleteFunc(slices.Clone(before), func(pid int) bool { return !slices.Contains(after, pid) })
	if len(before) != 3 || len(after) != 3 || len(same) != 2 {
		t.Errorf("kube-apiservers were processes %v and are %v: one of three is to be another", before, after)
	}
}

func clientOf(t *testing.T, kubeconfig string) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// savedAndLoaded saves the lab, changes its state, ends it, and loads the saved state elsewhere.
func savedAndLoaded(t *testing.T, c *command) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	saved := filepath.Join(t.TempDir(), "saved")
	t.Log(strings.TrimSpace(c.lab("save", saved)))

	plant := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "after-the-save"}}
	if _, err := workload(t, c).CoreV1().ConfigMaps("default").Create(ctx, plant, metav1.CreateOptions{}); err != nil {
		t.Fatalf("a lab that was saved does not continue: %v", err)
	}
	loaded := *c
	loaded.state = filepath.Join(t.TempDir(), "loaded")
	out, err := loaded.exec(ctx, "lab", "load", saved)
	if err == nil || !strings.Contains(out, "which the lab in "+filepath.Join(c.state, "lab")+" has") ||
		exists(loaded.state) {
		t.Errorf("beside the lab whose addresses it needs it is loaded: %v\n%s", err, out)
	}
	c.lab("down")

	t.Cleanup(func() {
		if out, err := loaded.exec(context.Background(), "lab", "down"); err != nil {
			t.Errorf("lab down: %v\n%s", err, out)
		}
	})
	began := time.Now()
	t.Log(strings.TrimSpace(loaded.lab("load", saved)))
	// The loaded API servers know the Pods of before the save until the lab has started them; and a program that starts
	// before the API server of its node ends, and is restarted with a back-off of at most 5 s.
	podsStayReady(t, "the providers", clientOf(t, filepath.Join(loaded.state, "management.kubeconfig")))
	podsStayReady(t, "the releases", workload(t, &loaded))
	before := writes(t, &loaded)
	o := loaded.run(nil, "--lab")
	t.Logf("loaded and run again in %.1fs, %.1fs of it the run", time.Since(began).Seconds(), o.elapsed.Seconds())
	if o.exit != 0 || len(o.steps("step-started")) > 0 {
		t.Errorf("in the loaded lab: exit %d, ran %v\n%s", o.exit, o.steps("step-started"), o.output)
	}
	if wrote := added(before, writes(t, &loaded)); len(wrote) > 0 {
		t.Errorf("the run in the loaded lab wrote: %v", wrote)
	}
	nodesAreReady(t, &loaded)
	if _, err := workload(t, &loaded).CoreV1().ConfigMaps("default").Get(ctx, plant.Name,
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the loaded lab has changes made after the save: %v", err)
	}
	t.Logf("loaded, run again and looked at in %.1fs", time.Since(began).Seconds())
}

// podsStayReady waits until all containers of the cluster are ready and have been running for at least 5 s.
func podsStayReady(t *testing.T, what string, client *kubernetes.Clientset) {
	t.Helper()
	eventually(t, what+" of the loaded lab", time.Minute, func(ctx context.Context) string {
		pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, pod := range pods.Items {
			for _, c := range pod.Status.ContainerStatuses {
				running := c.State.Running
				if running == nil || !c.Ready || time.Since(running.StartedAt.Time) < 5*time.Second {
					return fmt.Sprintf("container %s of Pod %s: %+v", c.Name, pod.Name, c.State)
				}
			}
		}
		return ""
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
