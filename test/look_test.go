package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// doctorLooks runs the doctor on the lab: it finds no defect, passes no check that it cannot decide, and is fast; and
// it finds a token that Hetzner refuses.
func doctorLooks(t *testing.T, c *command) {
	type report struct {
		Checks []struct{ Check, Verdict, Reason string }
		Failed int
	}
	examine := func(c *command) (report, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		out, err := c.cmd(ctx, "doctor", "--lab", "--output", "json").Output()
		var r report
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatalf("doctor: %v\n%s", err, out)
		}
		return r, err
	}
	began := time.Now()
	r, err := examine(c)
	took := time.Since(began)
	if err != nil || r.Failed != 0 || len(r.Checks) < 15 {
		t.Errorf("doctor: %v, %+v", err, r)
	}
	for _, f := range r.Checks {
		t.Logf("%-15s %-8s %s", f.Check, f.Verdict, f.Reason)
		if f.Check == "limits" && f.Verdict != "unknown" {
			t.Errorf("the project's limits are %s: the API does not tell them", f.Verdict)
		}
	}
	t.Logf("doctor in %s", took)
	if took > time.Minute { // 5 s on an idle machine
		t.Errorf("the doctor took %s", took)
	}
	wrong := *c
	wrong.env = []string{"LAB_HCLOUD_TOKEN=not-a-token-of-this-lab"}
	r, err = examine(&wrong)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || r.Failed != 1 {
		t.Errorf("with a wrong token: %v, %+v", err, r)
	}
	for _, f := range r.Checks {
		if (f.Check == "token") != (f.Verdict == "failed") {
			t.Errorf("with a wrong token %s is %s: %s", f.Check, f.Verdict, f.Reason)
		}
	}
}

// planTellsTheChange checks the output of plan after Cilium's values were edited: the step, the field and both values,
// that nothing is created, and an estimate from the recorded runs. Planning writes nothing.
func planTellsTheChange(t *testing.T, c *command) {
	before := writes(t, c)
	journal, err := os.ReadFile(filepath.Join(c.state, "journal.json"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := c.cmd(ctx, "plan", "--lab", "--output", "json").Output()
	if err != nil {
		t.Fatalf("plan: %v\n%s", err, out)
	}
	var plan struct {
		Steps []struct {
			Step, Would string
			BuiltIn     bool
			Changes     []struct{ File, Field, Was, Is string }
		}
		Bill struct{ New []any }
	}
	if err := json.Unmarshal(out, &plan); err != nil {
		t.Fatalf("plan: %v\n%s", err, out)
	}
	for _, s := range plan.Steps {
		switch {
		case s.Step == "cilium":
			if s.Would != "run" || s.BuiltIn || len(s.Changes) != 1 ||
				!strings.HasSuffix(s.Changes[0].File, "cilium-values.yaml") ||
				s.Changes[0].Field != "debug.enabled" || s.Changes[0].Was != "(none)" {
				t.Errorf("plan says of cilium: %+v", s)
			}
		case s.Step == "wait-nodes" || s.Step == "wait-releases":
			if s.Would != "may-run" {
				t.Errorf("plan says of %s: %+v", s.Step, s)
			}
		case s.Would != "reuse":
			t.Errorf("plan says of %s: %+v", s.Step, s)
		}
	}
	if len(plan.Bill.New) > 0 {
		t.Errorf("plan would make %v", plan.Bill.New)
	}
	if wrote := added(before, writes(t, c)); len(wrote) > 0 {
		t.Errorf("planning wrote: %v", wrote)
	}
	if now, err := os.ReadFile(filepath.Join(c.state, "journal.json")); err != nil || !bytes.Equal(now, journal) {
		t.Errorf("planning changed the journal, or it cannot be read: %v", err)
	}
}

// helpIsFast measures how long the command takes to start: the fastest of several, because the machine is busy.
func helpIsFast(t *testing.T, c *command) {
	quickest := time.Hour
	for range 10 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		began := time.Now()
		out, err := c.exec(ctx, "help")
		quickest = min(quickest, time.Since(began))
		cancel()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	t.Logf("help in %s", quickest)
	if quickest > 1500*time.Millisecond { // a tenth of it on an idle machine
		t.Errorf("help takes %s", quickest)
	}
}
