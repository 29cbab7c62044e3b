package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func lostLabAndInterrupt(t *testing.T, c *command) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if out, err := c.exec(ctx, "lab", "down"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.RemoveAll(filepath.Join(c.state, "lab")); err != nil {
		t.Fatal(err)
	}
	var interrupted time.Time
	o := c.run(func(e event, p *os.Process) {
		if e.Step == "wait-cp" && e.Kind == "step-progress" && interrupted.IsZero() {
			interrupted = time.Now()
			if err := p.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}, "--lab")
	if interrupted.IsZero() {
		t.Fatalf("wait-cp never said what it waits for\n%s", o.output)
	}
	took := time.Since(interrupted)
	t.Logf("interrupted in wait-cp, ended after %.2fs", took.Seconds())
	if o.exit != 130 {
		t.Errorf("interrupted it ended with %d, not 130\n%s", o.exit, o.end())
	}
	if took > 20*time.Second { // two seconds are promised; noise is allowed for
		t.Errorf("interrupted it took %s to end", took)
	}
	if ran := o.steps("step-done"); !slices.Contains(ran, "kind-create") || !slices.Contains(ran, "capi-init") {
		t.Errorf("after the loss of the lab only %v ran", ran)
	}
	journal, err := os.ReadFile(filepath.Join(c.state, "journal.json"))
	if err != nil || !json.Valid(journal) {
		t.Fatalf("the journal after an interruption: %v", err)
	}
	o = c.run(nil, "--lab")
	if o.exit != 0 {
		t.Fatalf("the run after the interrupted one: exit %d\n%s", o.exit, o.end())
	}
	for _, step := range []string{"kind-create", "capi-init", "apply"} {
		if !slices.Contains(o.steps("step-reused"), step) {
			t.Errorf("step %s was not reused after the interruption", step)
		}
	}
	nodesAreReady(t, c)
}

func downLeavesNothing(t *testing.T, c *command) {
	var status labStatus
	c.labGet("/v1/status", &status)
	if len(status.Processes) < 10 || len(status.Listeners) < 3 {
		t.Fatalf("before: %d processes, listeners %v", len(status.Processes), status.Listeners)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if out, err := c.exec(ctx, "lab", "down"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, p := range status.Processes {
		if alive(p.PID) {
			t.Errorf("process %d (%s) is still there", p.PID, p.Name)
		}
	}
	for _, address := range status.Listeners {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			conn.Close()
			t.Errorf("something still listens on %s", address)
		}
	}
}

// alive says whether a process runs and is no zombie.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, ok := strings.Cut(string(data), ") ")
	return ok && !strings.HasPrefix(state, "Z")
}
