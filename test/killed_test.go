package test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/test/stores"
)

// everyMoment says whether recoveries are killed at the beginning and at the end of each of their steps, which takes
// half an hour, or only at the most important calls.
func everyMoment() bool { return os.Getenv(crashVariable) != "" }

// momentsOf are the beginning and the end of every step of a graph: begun and
// nothing done, and done with no record of it.
func momentsOf(g *flow.Graph) (moments []string) {
	for _, s := range g.Steps() {
		moments = append(moments, "saved journal save "+s.Name+"/started#1", "before journal save "+s.Name+"/done#1")
	}
	return moments
}

// maxStops is how many runs of a target that is killed everywhere may stop because something was too slow to answer:
// that stops a run, and the next continues.
const maxStops = 10

// killedAt runs a target until it ends. Each run continues where the previous one stopped, and kills itself at the
// first of the remaining moments that it reaches. after is called after every kill. A moment that is never reached is
// an error: it was not tested.
func (c *command) killedAt(t *testing.T, moments []string, after func(moment string), args ...string) outcome {
	t.Helper()
	left, began, stops := slices.Clone(moments), time.Now(), 0
	for {
		r := *c
		r.env = append(slices.Clone(c.env), effect.CrashVariable+"="+strings.Join(left, "\n"))
		o := r.run(nil, args...)
		switch {
		case o.exit == 0 && len(left) == 0:
			t.Logf("%s: killed %d times, and at its end in %.1fs; the last run took %.1fs", args[0], len(moments),
				time.Since(began).Seconds(), o.elapsed.Seconds())
			return o
		case o.exit == 0:
			t.Errorf("%s came to its end, and never to these moments:\n%s", args[0], strings.Join(left, "\n"))
			return o
		case o.exit == 1 && stops < maxStops && strings.Contains(o.output, "could not verify whether what step"):
			stops++
			_, why, _ := strings.Cut(o.output, "could not verify")
			t.Logf("stopped after %.1fs, to be run again: could not verify%s", o.elapsed.Seconds(), why)
			continue
		case o.exit != -1:
			t.Fatalf("%s, after %d kills: exit %d\n%s", args[0], len(moments)-len(left), o.exit, o.end())
		}
		moment, err := c.killedLast()
		if err != nil { // it ran for too long, and the test has ended it
			t.Fatalf("%s, after %d kills, was ended by the test after %.0fs: %v\n%s",
				args[0], len(moments)-len(left), o.elapsed.Seconds(), err, o.output)
		}
		i := slices.Index(left, moment)
		if i < 0 {
			t.Fatalf("%s was killed at %q, which was not wanted", args[0], moment)
		}
		left = slices.Delete(left, i, i+1)
		t.Logf("killed %s after %.1fs", moment, o.elapsed.Seconds())
		after(moment)
	}
}

// killedLast is where the last run was killed, as it recorded. A run that the test ended recorded nothing.
func (c *command) killedLast() (moment string, err error) {
	paths, err := filepath.Glob(filepath.Join(c.state, "runs", "*", "effects.jsonl"))
	if err != nil || len(paths) == 0 {
		return "", fmt.Errorf("no run wrote down what it did: %v, %v", paths, err)
	}
	file, err := os.Open(slices.Max(paths)) // a run's name begins with its time
	if err != nil {
		return "", err
	}
	defer file.Close()
	lines, err := effect.Read(file)
	if err != nil || len(lines) == 0 || lines[len(lines)-1].Phase != effect.Killed {
		return "", fmt.Errorf("%s does not end with a kill: %w", file.Name(),
			cmp.Or(err, errors.New("the run did not end itself")))
	}
	return lines[len(lines)-1].Error, nil
}

// storesState has the command's runs keep the state in a store, of another kind each day.
func (c *command) storesState() {
	kind := stores.OfDay(c.t, stores.Today())
	c.t.Logf("the state is in the store %s (%s chooses another)", kind, stores.Variable)
	c.env = append(c.env, stores.Environment(c.t, kind)...)
}

// onPaper returns what a plan of a recovery needs, to list its steps.
func onPaper() (config.Config, platform.Tools) {
	return config.Defaults(), platform.Tools{Management: noManagement{}}
}

// source reads the backup.
func (l *lostCluster) source(t *testing.T) backup.Cluster {
	t.Helper()
	file, err := os.Open(l.file)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var identities []age.Identity
	if l.identity != "" {
		identities = must(keys.ParseIdentities(must(os.ReadFile(l.identity))(t)))(t)
	}
	archive := must(backup.Open(file, identities...))(t)
	return backup.Cluster{Contents: must(archive.Read(io.Discard))(t)}
}

// noManagement has only a name, which a plan needs.
type noManagement struct{}

var errOnPaper = errors.New("this plan is only read")

func (noManagement) Name() string { return "lab" }
func (noManagement) Ensure(context.Context, string, flow.Say) ([]byte, error) {
	return nil, errOnPaper
}
func (noManagement) Exists(context.Context, string) (bool, error) { return false, errOnPaper }
func (noManagement) Delete(context.Context, string) error         { return errOnPaper }
