package fleet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// otherFleet is a fleet with the same clusters, configured in another way.
func otherFleet(names ...string) Preparation {
	p := fleetOf(names...)
	for i := range p.Changes {
		p.Changes[i].Files[ChangeConfigFile] = []byte("other: configuration")
	}
	return p
}

// entriesOf are the Jobs that a preparation makes.
func entriesOf(p Preparation) (names []string) {
	for _, e := range p.Entries() {
		names = append(names, e.Job)
	}
	return names
}

// While one command prepares its Jobs, another applies a different file: the second one's rollout counts as a whole,
// and no Job of the first begins.
func TestARolloutThatWasReplacedWhileItWasPrepared(t *testing.T) {
	for name, applied := range map[string]bool{"the first of the fleet": false, "a later one": true} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t)
			m.Server.Strict = true
			if applied {
				prepare(t, m, Rollout{MaxParallel: 3}, fleetOf("a", "b", "c"))
				if _, err := advance(t, m); err != nil {
					t.Fatal(err)
				}
			}
			before := len(m.order())
			first, second := otherFleet("a", "b", "c"), otherFleet("b", "c")
			second.Changes[0].Files[ChangeConfigFile] = []byte("b: of the second")
			second.Changes[1].Files[ChangeConfigFile] = []byte("c: of the second")
			first.MoveStates = func(context.Context) error {
				prepare(t, m, Rollout{MaxParallel: 1}, second)
				return nil
			}
			r := Rollout{Fleet: "demo", Namespace: namespace, Action: Apply, MaxParallel: 3}
			err := Prepare(t.Context(), m.cluster, r, first)
			if !errors.Is(err, errMeanwhile) {
				t.Fatalf("the first was not refused: %v", err)
			}
			is, err := ReadRollout(t.Context(), m.cluster, namespace, "demo")
			if err != nil || !slices.Equal(is.Entries, second.Entries()) || is.MaxParallel != 1 {
				t.Errorf("the rollout is %+v, %v", is, err)
			}
			if result, err := advance(t, m); err != nil || phases(result.Clusters) != "b done, c done" {
				t.Errorf("%s, %v", phases(result.Clusters), err)
			}
			if began := m.order()[before:]; strings.Join(began, " ") != "b c" {
				t.Errorf("began %v", began)
			}
			for _, job := range entriesOf(first) {
				suspended, _, _ := unstructured.NestedBool(m.Get("batch/v1", "Job", namespace, job).Object, "spec", "suspend")
				if !suspended {
					t.Errorf("Job %s of the command that was refused has begun", job)
				}
			}
		})
	}
}

// A cluster that was begun by the earlier rollout while the next was prepared is not changed by both.
func TestARolloutThatBeganAClusterMeanwhile(t *testing.T) {
	m := newManager(t)
	prepare(t, m, Rollout{MaxParallel: 1}, fleetOf("a", "b"))
	next := otherFleet("a", "b")
	next.MoveStates = func(ctx context.Context) error {
		s, err := readStored(ctx, m.cluster, namespace, "demo")
		if err == nil {
			_, err = s.release(ctx, m.cluster, []string{"a"})
		}
		return err
	}
	err := Prepare(t.Context(), m.cluster, Rollout{Fleet: "demo", Namespace: namespace, Action: Apply, MaxParallel: 1},
		next)
	if !errors.Is(err, errMeanwhile) {
		t.Errorf("it was not refused: %v", err)
	}
}

// Two commands that apply the same at once do no harm.
func TestTheSameRolloutTwiceAtOnce(t *testing.T) {
	m := newManager(t)
	first := fleetOf("a", "b")
	first.MoveStates = func(context.Context) error {
		prepare(t, m, Rollout{MaxParallel: 1}, fleetOf("a", "b"))
		return nil
	}
	prepare(t, m, Rollout{MaxParallel: 1}, first)
	if result, err := advance(t, m); err != nil || phases(result.Clusters) != "a done, b done" {
		t.Errorf("%s, %v", phases(result.Clusters), err)
	}
}

// The Job that installs the providers is over before a cluster's begins; where it fails none does.
func TestTheProvidersFirst(t *testing.T) {
	for name, fails := range map[string]bool{"done": false, "failed": true} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t)
			p := fleetOf("a", "b")
			files, job, err := ProvidersJob("demo", namespace, "i", map[string][]byte{"f": nil}, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			p.Providers, p.ProvidersFiles = job, files
			name := job.Name // Prepare writes to the object while Jobs of the fleet already run
			react, once := m.Server.React, sync.Once{}
			end := func() {
				pod := podOf(m.Get("batch/v1", "Job", namespace, name), "Failed")
				pod.Object["status"].(object)["containerStatuses"] = []any{object{"state": object{
					"terminated": object{"exitCode": int64(4), "message": "the registry is away"}}}}
				m.Put(pod)
				m.end(name, fails)
			}
			m.Server.React = func(o *unstructured.Unstructured) {
				suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend")
				if o.GetName() == name && o.GetKind() == "Job" && !suspended {
					if began := m.order(); len(began) > 0 {
						t.Errorf("before the providers were installed began %v", began)
					}
					once.Do(end)
				}
				react(o)
			}
			prepare(t, m, Rollout{MaxParallel: 2}, p)
			result, err := advance(t, m)
			want, held := "a done, b done", ""
			if fails {
				want, held = "a waiting, b waiting", "exit code 4: the registry is away"
			}
			if err != nil || phases(result.Clusters) != want || !strings.Contains(result.Held, held) ||
				held == "" && result.Held != "" {
				t.Errorf("%s, held %q, %v", phases(result.Clusters), result.Held, err)
			}
		})
	}
	// One that is gone is said to be.
	r := Rollout{Namespace: namespace, Providers: "gone", MaxParallel: 1, Entries: []Entry{{"a", "job-a"}}}
	d := r.decide(observed{clusters: []ClusterStatus{{Cluster: "a", Job: "job-a", Phase: Waiting}},
		providers: ClusterStatus{Phase: lost}})
	if len(d.release) > 0 || !d.ended || !strings.Contains(d.held, "is gone") {
		t.Errorf("%+v", d)
	}
}
