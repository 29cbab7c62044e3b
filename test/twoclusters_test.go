package test

import (
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTwoClusters bootstraps two clusters in one lab at once. Each has servers of its own, and the end of one does not
// touch the other.
func TestTwoClusters(t *testing.T) {
	lab := newCommand(t)
	shared := filepath.Join(lab.state, "lab")
	if out, err := lab.exec(t.Context(), "lab", "up"); err != nil {
		t.Fatalf("lab up: %v\n%s", err, out)
	}
	names := []string{"one", "two"}
	clusters, ended := map[string]*command{}, make(chan func(), len(names))
	args := func(name string, target string) []string {
		return []string{target, "--yes", "--lab", "--lab-dir", shared, "CLUSTER_NAME=" + name, "CONTROL_PLANE_REPLICAS=1"}
	}
	for _, name := range names {
		c := *lab
		c.state = filepath.Join(t.TempDir(), name)
		clusters[name] = &c
		go func() {
			o := c.run(nil, args(name, "bootstrap")...)
			ended <- func() {
				if o.exit != 0 {
					t.Errorf("cluster %s: exit %d\n%s", name, o.exit, o.output)
				}
			}
		}()
	}
	for range names {
		(<-ended)()
	}
	if t.Failed() {
		return
	}
	addresses := map[string]string{}
	nodes := func(name string) {
		t.Helper()
		list, err := workload(t, clusters[name]).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("cluster %s has %d Nodes, %v", name, len(list.Items), err)
		}
		for _, a := range list.Items[0].Status.Addresses {
			if other := addresses[a.Address]; other != "" && other != name {
				t.Errorf("the clusters %s and %s have the address %s", name, other, a.Address)
			}
			addresses[a.Address] = name
		}
	}
	for _, name := range names {
		nodes(name)
	}
	if o := clusters["one"].run(nil, args("one", "destroy")...); o.exit != 0 {
		t.Fatalf("destroy: exit %d\n%s", o.exit, o.output)
	}
	nodes("two")
	if o := clusters["two"].run(nil, args("two", "bootstrap")...); o.exit != 0 || len(o.steps("step-started")) > 0 {
		t.Errorf("after the end of cluster one, a run for cluster two: exit %d, %v ran", o.exit, o.steps("step-started"))
	}
}
