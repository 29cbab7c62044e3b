package crash

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/test/judge"
)

// LabFault is a fault of the lab during a stage.
type LabFault struct {
	Name  string
	Stage string
	Words []string       // of `lab fault add`
	After time.Duration  // since the run began; 0: before it
	Again map[string]int // how often a request may be repeated, as in judge.MadeOnce
}

const (
	caph       = "actor=cluster-api-provider-hetzner"
	own        = "actor=slipway"
	caphServer = "cluster-api-provider-hetzner POST /v1/servers"
)

// Faults are the faults of the lab, each during the stage that it disturbs most. The cloud removes what a failed action
// created, so that it has to be created again.
func Faults() []LabFault {
	fault := func(stage, words string) LabFault {
		return LabFault{Name: stage + ": " + words, Stage: stage, Words: strings.Fields(words)}
	}
	later := func(after time.Duration, stage, words string) LabFault {
		f := fault(stage, words)
		f.After, f.Name = after, fmt.Sprintf("%s after %s", f.Name, after)
		return f
	}
	again := func(n int, request string, f LabFault) LabFault {
		f.Again = map[string]int{request: n}
		return f
	}
	const s = time.Second
	return []LabFault{
		fault("image", "rate-limit method=POST path=/ssh_keys delay=2s times=2 "+own),
		fault("image", "rate-limit path=/images delay=3s times=3 "+own),
		fault("image", "error status=500 method=POST path=/servers times=1 "+own),
		fault("image", "error status=502 path=/images times=2 "+own),
		fault("image", "timeout path=/images delay=3s times=1 "+own),
		again(1, "slipway POST /v1/servers", fault("image", "lost-reply method=POST path=/servers times=1 "+own)),
		again(1, "slipway POST /v1/ssh_keys", fault("image", "lost-reply method=POST path=/ssh_keys times=1 "+own)),
		fault("image", "reset method=POST path=/servers times=1 "+own),
		fault("image", "reset path=/servers/* times=1 "+own),
		again(1, "slipway POST /v1/servers/*/actions/create_image",
			fault("image", "action-error command=create_image times=1")),
		fault("image", "stale-lists delay=2s for=40s"),
		fault("providers", "webhook-unready service=capi-system/* for=15s"),
		later(3*s, "providers", "apiserver-restart cluster=k8s-mgmt for=3s"),
		later(1*s, "providers", "management-away for=30s"),
		fault("servers", "out-of-stock serverType=cx33 skip=1 times=2"),
		fault("servers", "lost-reply method=POST path=/servers times=1 "+caph),
		fault("image", "lost-reply method=POST path=/primary_ips times=1 "+own),
		fault("image", "lost-reply method=POST path=/load_balancers times=1 "+own),
		fault("image", "error status=503 method=POST path=/load_balancers times=2 "+own),
		fault("servers", "rate-limit path=/servers delay=2s times=3 "+caph),
		again(1, caphServer, fault("servers", "action-error command=create_server times=1")),
		fault("servers", "slow-boot server=k8s-* delay=8s times=1"),
		fault("servers", "error status=502 probability=0.2 seed=1 times=8"),
		fault("servers", "stale-lists delay=1s for=30s"),
		fault("servers", "webhook-unready service=caph-system/* for=10s"),
		// The control plane provider may not see its Machines for a moment and make some once more; wait-cp takes them away.
		again(2, caphServer, later(2*s, "servers", "apiserver-restart cluster=k8s-mgmt for=2s")),
		later(2*s, "servers", "management-away for=30s"),
		later(1*s, "nodes", "apiserver-restart cluster=k8s for=3s"),
		fault("nodes", "expired-kubeconfig cluster=k8s file=kubeconfig"),
		fault("pivot", "webhook-unready service=capi-system/* cluster=k8s for=20s"),
		later(4*s, "pivot", "management-away for=30s"),
		later(9*s, "pivot", "apiserver-restart cluster=k8s for=2s"),
		later(9*s, "pivot", "apiserver-restart cluster=k8s-mgmt for=2s"),
		fault("all", "lost-reply method=POST path=/firewalls times=1 "+own),
		fault("all", "rate-limit path=/firewalls delay=2s times=2 "+own),
		fault("all", "error status=500 path=/firewalls/*/actions/* times=2 "+own),
		fault("all", "action-error command=apply_firewall times=1"),
		fault("all", "expired-kubeconfig cluster=k8s file=kubeconfig"),
		fault("destroy", "error status=500 method=DELETE path=/servers/* times=2 "+own),
		fault("destroy", "lost-reply method=DELETE path=/servers/* times=2 "+own),
		fault("destroy", "rate-limit delay=2s times=3 "+own),
		fault("destroy", "reset probability=0.1 seed=2 times=6 "+own),
		fault("destroy", "stale-lists delay=2s for=40s"),
	}
}

// fault runs the stage with a fault. The run may fail with a reason; the next one may not.
func (t *trial) fault(ctx context.Context) error {
	all := Faults()
	f := all[slices.IndexFunc(all, func(f LabFault) bool { return f.Name == t.c.What })]
	t.again = f.Again
	words := slices.Clone(f.Words)
	for i, word := range words {
		if name, ok := strings.CutPrefix(word, "file="); ok {
			words[i] = "file=" + filepath.Join(t.State, name)
		}
	}
	begun := make(chan error, 1)
	begin := func() { begun <- t.lab(ctx, append([]string{"fault", "add"}, words...)...) }
	if f.After == 0 {
		begin()
	} else {
		timer := time.AfterFunc(f.After, begin)
		defer timer.Stop()
	}
	o, err := t.run(ctx, Run{})
	if err != nil {
		return err
	}
	select {
	case err := <-begun:
		if err != nil {
			return err
		}
	default:
		return fmt.Errorf("the run ended after %.1fs, before the fault began", o.Elapsed.Seconds())
	}
	if o.Exit != 0 && o.Exit != 1 {
		t.find("the run with the fault", fmt.Sprintf("exit %d: %s", o.Exit, lastLine(o.Output)))
	}
	if left, err := judge.Records(t.Place()); err != nil {
		return err
	} else if o.Exit != 0 && left.Journal["image"] == "failed" {
		t.uploads++ // the next run begins it again
	}
	if err := t.removeFaults(ctx); err != nil {
		return err
	}
	return t.finish(ctx)
}

// removeFaults ends those that are still in force, and notes whether any has hit.
func (t *trial) removeFaults(ctx context.Context) error {
	list, err := t.Do(ctx, Run{Args: []string{"lab", "fault", "list"}, Timeout: time.Minute})
	if err != nil {
		return err
	}
	for line := range strings.Lines(list.Output) {
		var id int
		if _, err := fmt.Sscanf(line, "%d ", &id); err != nil {
			continue // the heading
		}
		if err := t.lab(ctx, "fault", "remove", fmt.Sprint(id)); err != nil {
			return err
		}
	}
	hits, err := awaitHits(ctx, filepath.Join(t.Place().Lab(), "lab.log"))
	if err == nil && hits == 0 {
		t.missed = "the fault was in force and never hit anything"
	}
	return err
}

// endedFault matches the line of the lab's log about a fault that has ended, for any reason.
var endedFault = regexp.MustCompile(`(?m)^\S+ level=INFO msg="a fault has ended" fault=\d+ is=.* hits=(\d+)$`)

// hitsOf is how often the faults that ended according to a log have hit; known is false if none ended.
func hitsOf(log []byte) (hits int, known bool) {
	for _, line := range endedFault.FindAllSubmatch(log, -1) {
		var n int
		_, _ = fmt.Sscan(string(line[1]), &n) // the pattern has digits there
		hits, known = hits+n, true
	}
	return hits, known
}

// awaitHits waits for the line of a fault that has just ended.
func awaitHits(ctx context.Context, path string) (int, error) {
	const lookEvery, within = 100 * time.Millisecond, 20 * time.Second
	for deadline := time.Now().Add(within); ; {
		log, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		hits, known := hitsOf(log)
		switch {
		case known:
			return hits, nil
		case time.Now().After(deadline):
			return 0, fmt.Errorf("%s has no line within %s about how often the fault has hit", path, within)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(lookEvery):
		}
	}
}
