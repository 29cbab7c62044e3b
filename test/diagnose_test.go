package test

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"
)

// diagnosis is the part of the output of restore --diagnose that the tests read.
type diagnosis struct {
	Disaster string // "none", "servers-lost", "quorum-lost", "management-lost" or "unclear"
	Sentence string
	Seen     []string // the observations that it follows from
	First    []string // preparations
	Command  string   // the command
	Lost     []string
	Backup   struct{ Taken time.Time }
	Takes    struct {
		Seconds       float64
		RecordedSteps int
	}
}

// diagnose asks which disaster it is, with a backup or without, and fails if that changes
// anything in the cloud or the state folder.
func (c *command) diagnose(t *testing.T, backup ...string) (d diagnosis) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	before, entries := serverWrites(t, c), must(os.ReadDir(c.state))(t)
	cmd := c.cmd(ctx, append([]string{"restore", "--diagnose", "--lab", "--output", "json"}, backup...)...)
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &d)
	}
	if err != nil {
		t.Fatalf("restore --diagnose %v: %v\n%s", backup, err, out)
	}
	if after := serverWrites(t, c); len(after) != len(before) || len(must(os.ReadDir(c.state))(t)) != len(entries) {
		t.Errorf("a diagnosis changed something: %v", after)
	}
	return d
}
