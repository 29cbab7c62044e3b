package test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func statusReports(t *testing.T, c *command) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	table, err := c.exec(ctx, "status", "--lab")
	if err != nil {
		t.Fatalf("%v\n%s", err, table)
	}
	for _, step := range bootstrapSteps {
		if !strings.Contains(table, step) {
			t.Errorf("status does not name step %s:\n%s", step, table)
		}
	}
	var out []byte
	quickest := time.Hour
	for range 3 {
		began := time.Now()
		if out, err = c.cmd(ctx, "status", "--lab", "--output", "json").Output(); err != nil {
			t.Fatalf("status --output json: %v\n%s", err, out)
		}
		quickest = min(quickest, time.Since(began))
	}
	t.Logf("status in %s", quickest)
	if quickest > 8*time.Second { // below one on an idle machine
		t.Errorf("status takes %s", quickest)
	}
	var status struct {
		Steps []struct{ Step, State, World string } `json:"steps"`
		Now   clusterNow                            `json:"now"`
	}
	if err := json.Unmarshal(out, &status); err != nil {
		t.Fatalf("status --output json: %v\n%s", err, out)
	}
	status.Now.whole(t)
	done := map[string]bool{}
	for _, s := range status.Steps {
		done[s.Step] = s.State == "done" && s.World == "holds"
	}
	for _, step := range bootstrapSteps {
		if !done[step] {
			t.Errorf("status does not say of step %s that it is done and holds:\n%s", step, out)
		}
	}
	lab, err := c.exec(ctx, "lab", "status")
	if err != nil {
		t.Fatalf("%v\n%s", err, lab)
	}
	for _, word := range []string{"real", "stand-in", "simulated", "kube-apiserver", "etcd"} {
		if !strings.Contains(lab, word) {
			t.Errorf("lab status does not say %q:\n%s", word, lab)
		}
	}
}

// clusterNow is the status of the cluster itself.
type clusterNow struct {
	Sentence            string
	Servers             []struct{ Name, State, Talos, Node string }
	EtcdMembers         []struct{ Learner bool }
	Releases            []struct{ Name, Status string }
	LoadBalancerTargets []struct{ Health string }
	Certificates        []struct{ Ends time.Time }
	CostAMonth          struct{ Monthly float64 }
	Unknown             []struct{ What, Why string }
}

// whole asserts that all of three servers is there, and known.
func (n clusterNow) whole(t *testing.T) {
	t.Helper()
	if n.Sentence != "" || len(n.Unknown) > 0 {
		t.Errorf("status says %q, unknown is %v", n.Sentence, n.Unknown)
	}
	for _, s := range n.Servers {
		if s.State != "running" || s.Talos != "answers" || s.Node != "Ready" {
			t.Errorf("status says of a server: %+v", s)
		}
	}
	for _, r := range n.Releases {
		if r.Status != "deployed" {
			t.Errorf("status says of a release: %+v", r)
		}
	}
	healthy := 0
	for _, target := range n.LoadBalancerTargets {
		if target.Health == "healthy" {
			healthy++
		}
	}
	if len(n.Servers) != 3 || len(n.EtcdMembers) != 3 || len(n.Releases) != 3 || healthy < 3 || len(n.Certificates) != 3 ||
		n.CostAMonth.Monthly <= 0 {
		t.Errorf("status does not tell all of three servers: %+v", n)
	}
}
