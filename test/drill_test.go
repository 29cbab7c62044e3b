package test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/session/drill"
)

// drillEvent is the last line of a drill.
type drillEvent struct {
	Kind        string
	Passed      bool
	Comparisons []drill.Comparison
	RTO         time.Duration `json:"rtoNs"`
	Bootstrap   time.Duration `json:"bootstrapNs"`
	Ratio       float64
	RPO         struct {
		Time          time.Duration `json:"ns"`
		Written, Gone int
	}
	Steps []struct {
		Step  string
		After time.Duration `json:"afterNs"`
	}
}

// maxDrillRatio is how many times a bootstrap a restore may take in one run of a lab on a machine that does other work,
// too. It was seen between 0.77 and 0.79.
const maxDrillRatio = 2.5

// TestDrill loses a cluster that manages itself and restores it, undisturbed, as a team rehearses it: the drill itself
// compares.
func TestDrill(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	o := c.run(nil, "drill")
	var d drillEvent
	lines := strings.Split(strings.TrimSpace(o.output), "\n")
	for _, line := range lines {
		if strings.Contains(line, `"kind":"drill"`) {
			if err := json.Unmarshal([]byte(line), &d); err != nil {
				t.Fatal(err)
			}
		}
	}
	if o.exit != 0 || !d.Passed {
		t.Fatalf("exit %d\n%s", o.exit, o.end())
	}
	if len(d.Comparisons) != 9 {
		t.Errorf("it compared %d things: %+v", len(d.Comparisons), d.Comparisons)
	}
	var back time.Duration
	for _, s := range d.Steps {
		if s.Step == "etcd-bootstrap" {
			back = s.After
		}
	}
	if back <= 0 || d.RTO <= back || d.Bootstrap <= 0 || d.Ratio <= 0 {
		t.Errorf("RTO %s, the API after %s, the bootstrap %s, ratio %.2f", d.RTO, back, d.Bootstrap, d.Ratio)
	}
	// The documented bound is 1.5. Other load of the machine slows both down, but not equally: this bound exceeds that
	// noise.
	if d.Ratio > maxDrillRatio {
		t.Errorf("the restore took %s, %.2f times the bootstrap of %s in the same lab: more than %.1f times", d.RTO, d.Ratio,
			d.Bootstrap, maxDrillRatio)
	}
	if d.RPO.Time <= 0 || d.RPO.Gone < 8 || d.RPO.Written <= d.RPO.Gone {
		t.Errorf("RPO %+v", d.RPO)
	}
	t.Logf("RTO %.1fs, %.2f times the bootstrap of %.1fs; the API after %.1fs; RPO %.1fs, %d of %d writes gone; command "+
		"%d MiB at most",
		d.RTO.Seconds(), d.Ratio, d.Bootstrap.Seconds(), back.Seconds(), d.RPO.Time.Seconds(), d.RPO.Gone, d.RPO.Written,
		o.maxRSS>>20)
	for _, name := range []string{"AGE-SECRET-KEY", "PRIVATE KEY"} {
		if strings.Contains(o.output, name) {
			t.Errorf("%s is in the output", name)
		}
	}
	if _, err := os.Stat(c.state); err == nil {
		t.Error("a drill that passed left its folder")
	}
}

// TestDrillInterrupted ends a drill while it creates its cluster: neither its lab nor its folder remains.
func TestDrillInterrupted(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	var lab labStatus
	o := c.run(func(e event, p *os.Process) {
		if e.Step != "capi-init" || e.Kind != "step-started" {
			return
		}
		c.labGet("/v1/status", &lab)
		if err := p.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
	}, "drill")
	if o.exit != 130 || !strings.Contains(o.output, "nothing of the drill is left") {
		t.Errorf("exit %d\n%s", o.exit, o.end())
	}
	if len(lab.Processes) < 3 {
		t.Fatalf("its lab had the processes %v: they cannot prove anything", lab.Processes)
	}
	for _, p := range lab.Processes {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", p.PID)); err == nil {
			t.Errorf("process %d (%s) of its lab is left", p.PID, p.Name)
		}
	}
	if _, err := os.Stat(c.state); err == nil {
		t.Error("its folder is left")
	}
}
