package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

const namespace = "slipway"

type object = map[string]any

// manager is a management cluster whose Job controller is played: a Job that begins ends as its cluster's outcome says.
type manager struct {
	*kubetest.Server
	cluster *kube.Cluster

	mu       sync.Mutex
	fails    map[string]bool // clusters whose Jobs fail
	working  map[string]bool
	most     int      // Jobs that worked at once
	began    []string // clusters, in the order in which their Jobs began
	kueue    bool     // Jobs begin by Kueue, which lets one work at a time
	endsSelf bool     // Jobs end by themselves
	fail     func(*http.Request) (int, string)
	takes    time.Duration
	pods     bool // Jobs have a Pod each, which is pending and runs before the Job ends
}

// jobTakes is long enough that Jobs which are begun together work at once.
const jobTakes = 30 * time.Millisecond

func newManager(t testing.TB) *manager {
	t.Helper()
	m := &manager{fails: map[string]bool{}, working: map[string]bool{}, endsSelf: true, takes: jobTakes}
	m.Server = kubetest.New("management", kubetest.RBAC()...)
	m.Server.React = m.react
	m.Server.Fail = func(r *http.Request) (int, string) {
		m.mu.Lock()
		fail := m.fail
		m.mu.Unlock()
		if fail == nil {
			return 0, ""
		}
		return fail(r)
	}
	t.Cleanup(m.Server.Close)
	t.Cleanup(m.Server.CloseClientConnections)
	var err error
	if m.cluster, err = kube.Connect(m.Server.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	return m
}

// setFail sets Fail while the server is in use.
func (m *manager) setFail(fail func(*http.Request) (int, string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = fail
}

func (m *manager) react(o *unstructured.Unstructured) {
	if o.GetKind() != "Job" || o.GetLabels()[ClusterLabel] == "" {
		return
	}
	suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend")
	name, cluster := o.GetName(), o.GetLabels()[ClusterLabel]
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.working[name]; known || suspended && (!m.kueue || o.GetLabels()[QueueLabel] == "") {
		return
	}
	m.working[name] = true
	m.began = append(m.began, cluster)
	at := 0
	for _, works := range m.working {
		if works {
			at++
		}
	}
	m.most = max(m.most, at)
	if m.endsSelf {
		fails := m.fails[cluster]
		if m.pods {
			m.Put(podOf(o, "Pending"))
			time.AfterFunc(m.takes/2, func() { m.Put(podOf(o, "Running")) })
		}
		time.AfterFunc(m.takes, func() { m.end(name, fails) })
	}
}

func podOf(job *unstructured.Unstructured, phase string) *unstructured.Unstructured {
	return kubetest.Object("v1", "Pod", namespace, job.GetName()+"-"+string(job.GetUID()), object{"metadata": object{
		"labels": object{FleetLabel: "demo", batchv1.JobNameLabel: job.GetName()},
		"ownerReferences": []any{object{"apiVersion": "batch/v1", "kind": "Job", "name": job.GetName(),
			"uid": string(job.GetUID()), "controller": true}}}, "status": object{"phase": phase}})
}

func (m *manager) end(job string, fails bool) {
	m.mu.Lock()
	m.working[job] = false
	m.mu.Unlock()
	condition := "Complete"
	if fails {
		condition = "Failed"
	}
	m.Change("batch/v1", "Job", namespace, job, object{"status": object{"startTime": "2026-01-01T00:00:00Z",
		"conditions": []any{object{"type": condition, "status": "True", "reason": "Test", "message": "by the test",
			"lastTransitionTime": "2026-01-01T00:01:00Z"}}}})
}

func (m *manager) order() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.began)
}

func fleetOf(names ...string) Preparation {
	var p Preparation
	for _, name := range names {
		p.Changes = append(p.Changes, Change{Fleet: "demo", Namespace: namespace, Cluster: name, Action: Apply,
			Image: "i", Arguments: []string{"all"}, Files: map[string][]byte{ChangeConfigFile: []byte("clusterName: " + name)},
			Token: "t", Retries: 1, Deadline: time.Hour})
	}
	return p
}

func advance(t testing.TB, m *manager) (AdvanceResult, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return Advance(ctx, m.cluster, namespace, "demo", "", Observer{Changed: func([]ClusterStatus) {}, Note: t.Logf})
}

func prepare(t testing.TB, m *manager, r Rollout, p Preparation) {
	t.Helper()
	r.Fleet, r.Namespace, r.Action = "demo", namespace, Apply
	if err := Prepare(t.Context(), m.cluster, r, p); err != nil {
		t.Fatal(err)
	}
}

func phases(all []ClusterStatus) string {
	var words []string
	for _, s := range all {
		words = append(words, s.Cluster+" "+string(s.Phase))
	}
	return strings.Join(words, ", ")
}

func TestCanariesFirstAndSoManyAtOnce(t *testing.T) {
	m := newManager(t)
	prepare(t, m, Rollout{MaxParallel: 2, Canary: []string{"c"}}, fleetOf("a", "b", "c", "d", "e"))
	result, err := advance(t, m)
	if err != nil || result.Held != "" || phases(result.Clusters) != "a done, b done, c done, d done, e done" {
		t.Errorf("%s, held %q, %v", phases(result.Clusters), result.Held, err)
	}
	if order := m.order(); order[0] != "c" || len(order) != 5 || m.most > 2 {
		t.Errorf("began %v, %d at once", order, m.most)
	}
	// The same again changes nothing.
	prepare(t, m, Rollout{MaxParallel: 2, Canary: []string{"c"}}, fleetOf("a", "b", "c", "d", "e"))
	if _, err := advance(t, m); err != nil || len(m.order()) != 5 {
		t.Errorf("a second time %v began: %v", m.order()[5:], err)
	}
	// One that is configured in another way is run again, alone.
	p := fleetOf("a", "b", "c", "d", "e")
	p.Changes[3].Files[ChangeConfigFile] = []byte("clusterName: d\nlocation: fsn1")
	old := fleetOf("d").Changes[0].Name()
	prepare(t, m, Rollout{MaxParallel: 2, Canary: []string{"c"}}, p)
	if _, err := advance(t, m); err != nil || strings.Join(m.order()[5:], " ") != "d" {
		t.Errorf("after a change of d %v began: %v", m.order()[5:], err)
	}
	if m.Get("batch/v1", "Job", namespace, old) != nil {
		t.Error("d's earlier Job is still there")
	}
}

func TestNoneIsBegunAfterTooManyFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		rollout Rollout
		fails   []string
		want    string
		held    string
	}{
		"a canary": {Rollout{MaxParallel: 5, MaxFailures: 9, Canary: []string{"a"}}, []string{"a"},
			"a failed, b waiting, c waiting, d waiting", "canary"},
		"more than allowed": {Rollout{MaxParallel: 1, MaxFailures: 0}, []string{"b"},
			"a done, b failed, c waiting, d waiting", "maxFailures is 0"},
		"as many as allowed": {Rollout{MaxParallel: 1, MaxFailures: 1}, []string{"b"},
			"a done, b failed, c done, d done", ""},
		"the last": {Rollout{MaxParallel: 1}, []string{"d"}, "a done, b done, c done, d failed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t)
			for _, cluster := range tt.fails {
				m.fails[cluster] = true
			}
			prepare(t, m, tt.rollout, fleetOf("a", "b", "c", "d"))
			result, err := advance(t, m)
			if err != nil || phases(result.Clusters) != tt.want || !strings.Contains(result.Held, tt.held) ||
				(tt.held == "") != (result.Held == "") {
				t.Errorf("%s, held %q, %v", phases(result.Clusters), result.Held, err)
			}
			// The same command again tries the failed ones anew, and goes on.
			m.mu.Lock()
			clear(m.fails)
			clear(m.working)
			m.mu.Unlock()
			prepare(t, m, tt.rollout, fleetOf("a", "b", "c", "d"))
			result, err = advance(t, m)
			if err != nil || phases(result.Clusters) != "a done, b done, c done, d done" {
				t.Errorf("again: %s, held %q, %v", phases(result.Clusters), result.Held, err)
			}
		})
	}
}

// Two processes advance one rollout, and neither lets more work than the rollout says.
func TestSeveralAdvanceOneRollout(t *testing.T) {
	m := newManager(t)
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	prepare(t, m, Rollout{MaxParallel: 2}, fleetOf(names...))
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if result, err := advance(t, m); err != nil || !strings.Contains(phases(result.Clusters), "h done") {
				t.Errorf("%s, %v", phases(result.Clusters), err)
			}
		})
	}
	all.Wait()
	if m.most > 2 || len(m.order()) != len(names) {
		t.Errorf("%d at once, began %v", m.most, m.order())
	}
}

// What a process decides from an older reading does not count.
func TestADecisionFromAnOlderReadingIsRefused(t *testing.T) {
	m := newManager(t)
	prepare(t, m, Rollout{MaxParallel: 1}, fleetOf("a", "b"))
	older, err := readStored(t.Context(), m.cluster, namespace, "demo")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := older.release(t.Context(), m.cluster, []string{"a"}); again || err != nil {
		t.Fatalf("the first: %v, %v", again, err)
	}
	if again, err := older.release(t.Context(), m.cluster, []string{"b"}); !again || err != nil {
		t.Errorf("the second: %v, %v", again, err)
	}
	if r, err := ReadRollout(t.Context(), m.cluster, namespace, "demo"); err != nil || !slices.Equal(r.Released,
		[]string{"a"}) {
		t.Errorf("released %v, %v", r.Released, err)
	}
}

// A Job that was changed since it was listed is not begun: it may have been made anew, and its turn is to come again.
func TestAJobIsBegunAsItWasListed(t *testing.T) {
	m := newManager(t)
	m.Server.Strict = true
	prepare(t, m, Rollout{MaxParallel: 2}, fleetOf("a", "b"))
	s, err := readStored(t.Context(), m.cluster, namespace, "demo")
	if err != nil {
		t.Fatal(err)
	}
	is, err := look(t.Context(), m.cluster, s.Rollout)
	if err != nil {
		t.Fatal(err)
	}
	s.Released = []string{"a", "b"}
	name := fleetOf("a").Changes[0].Name()
	m.Change("batch/v1", "Job", namespace, name, object{"metadata": object{"annotations": object{"changed": "since"}}})
	suspended := func(cluster string) bool {
		job := m.Get("batch/v1", "Job", namespace, fleetOf(cluster).Changes[0].Name())
		is, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend")
		return is
	}
	a := &advancing{cluster: m.cluster}
	if again, err := a.begin(t.Context(), s.Rollout, is.jobs); !again || err != nil || !suspended("a") || suspended("b") {
		t.Errorf("again %t, a suspended %t, b suspended %t: %v", again, suspended("a"), suspended("b"), err)
	}
	// The next look begins it.
	if result, err := advance(t, m); err != nil || phases(result.Clusters) != "a done, b done" {
		t.Errorf("%s, %v", phases(result.Clusters), err)
	}
}

// Whatever a fleet's size: no Job is asked for by itself, and each is begun by one request.
func TestRequestsForEachJob(t *testing.T) {
	m := newManager(t)
	m.pods = true
	var asked, begun atomic.Int64
	m.Server.Fail = func(r *http.Request) (int, string) {
		if _, name, is := strings.Cut(r.URL.Path, "/jobs/"); is && name != "" {
			switch r.Method {
			case http.MethodGet:
				asked.Add(1)
			case http.MethodPatch:
				begun.Add(1)
			}
		}
		return 0, ""
	}
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprintf("c%02d", i))
	}
	prepare(t, m, Rollout{MaxParallel: 3}, fleetOf(names...))
	if result, err := advance(t, m); err != nil || strings.Count(phases(result.Clusters), "done") != len(names) ||
		asked.Load() != 0 || begun.Load() != int64(len(names)) {
		t.Errorf("%d Jobs were asked for, %d begun: %s, %v", asked.Load(), begun.Load(), phases(result.Clusters), err)
	}
}

// A Job that is made anew under its name is not taken for running while Pods of its predecessor are still there.
func TestPodsOfAnEarlierJobOfTheSameName(t *testing.T) {
	m := newManager(t)
	m.pods = true
	prepare(t, m, Rollout{MaxParallel: 1}, fleetOf("a"))
	if _, err := advance(t, m); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	clear(m.working)
	m.mu.Unlock()
	p := fleetOf("a")
	p.Again = true
	prepare(t, m, Rollout{MaxParallel: 1}, p)
	r, err := ReadRollout(t.Context(), m.cluster, namespace, "demo")
	if err != nil {
		t.Fatal(err)
	}
	if all, _, err := Statuses(t.Context(), m.cluster, r); err != nil || len(all) != 1 || all[0].Phase != Waiting ||
		all[0].Attempts != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if result, err := advance(t, m); err != nil || phases(result.Clusters) != "a done" || len(m.order()) != 2 ||
		result.Clusters[0].Attempts != 1 {
		t.Errorf("%+v, began %v: %v", result.Clusters, m.order(), err)
	}
}

// A process that is ended before or after any write is followed by one that ends the rollout.
func TestEndedAnywhereAndContinued(t *testing.T) {
	for after := 1; ; after++ {
		m := newManager(t)
		ctx, cancel := context.WithCancel(t.Context())
		var writes atomic.Int32
		m.Server.Fail = func(r *http.Request) (int, string) {
			if r.Method != http.MethodGet && int(writes.Add(1)) == after {
				cancel()
				return http.StatusServiceUnavailable, "ended here"
			}
			return 0, ""
		}
		r := Rollout{Fleet: "demo", Namespace: namespace, Action: Apply, MaxParallel: 2, Canary: []string{"a"}}
		err := Prepare(ctx, m.cluster, r, fleetOf("a", "b", "c"))
		if err == nil {
			_, err = Advance(ctx, m.cluster, namespace, "demo", "", Observer{Changed: func([]ClusterStatus) {}, Note: t.Logf})
		}
		if cancel(); err == nil {
			if after < 10 {
				t.Errorf("only %d writes were tried", after)
			}
			return
		}
		prepare(t, m, r, fleetOf("a", "b", "c"))
		result, err := advance(t, m)
		if err != nil || phases(result.Clusters) != "a done, b done, c done" || m.most > 2 || len(m.order()) != 3 ||
			m.order()[0] != "a" {
			t.Fatalf("ended at write %d: %s, began %v, %d at once: %v", after, phases(result.Clusters), m.order(), m.most, err)
		}
	}
}

// A second change of a cluster is refused while the first is at work, and nothing is written.
func TestTwoChangesOfOneCluster(t *testing.T) {
	m := newManager(t)
	m.endsSelf = false
	prepare(t, m, Rollout{MaxParallel: 1}, fleetOf("a", "b"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Advance(ctx, m.cluster, namespace, "demo", "", Observer{Changed: func(all []ClusterStatus) {
			if strings.Contains(phases(all), "a queued") {
				cancel()
			}
		}, Note: t.Logf})
		ended <- err
	}()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	p := fleetOf("a", "b")
	p.Changes[0].Image = "another"
	before := len(m.Writes())
	err := Prepare(t.Context(), m.cluster, Rollout{Fleet: "demo", Namespace: namespace, MaxParallel: 1}, p)
	works := "at work, as the Jobs " + namespace + "/" + fleetOf("a").Changes[0].Name() + ":"
	if err == nil || !strings.Contains(err.Error(), works) || len(m.Writes()) != before {
		t.Errorf("%v, writes %v", err, m.Writes()[before:])
	}
	// One of the other cluster, which waits, is replaced.
	p = fleetOf("a", "b")
	p.Changes[1].Image = "another"
	prepare(t, m, Rollout{MaxParallel: 1}, p)
	r, err := ReadRollout(t.Context(), m.cluster, namespace, "demo")
	if err != nil || r.Entries[1].Job != p.Changes[1].Name() {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAnotherRolloutTakesOver(t *testing.T) {
	m := newManager(t)
	m.endsSelf = false
	prepare(t, m, Rollout{MaxParallel: 1}, fleetOf("a", "b"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var once sync.Once
	_, err := Advance(ctx, m.cluster, namespace, "demo", "", Observer{Note: t.Logf, Changed: func([]ClusterStatus) {
		once.Do(func() { prepare(t, m, Rollout{MaxParallel: 1}, fleetOf("a", "b", "c")) })
	}})
	if !errors.Is(err, ErrReplaced) {
		t.Errorf("%v", err)
	}
}

// With Kueue a Job gets the name of the queue when its turn has come, and begins when Kueue lets it.
func TestKueue(t *testing.T) {
	m := newManager(t)
	m.kueue = true
	prepare(t, m, Rollout{MaxParallel: 2, Queue: "hetzner", Canary: []string{"b"}}, fleetOf("a", "b", "c"))
	result, err := advance(t, m)
	if err != nil || phases(result.Clusters) != "a done, b done, c done" || m.order()[0] != "b" || m.most > 2 {
		t.Errorf("%s, began %v, %d at once: %v", phases(result.Clusters), m.order(), m.most, err)
	}
	jobs := &batchv1.JobList{}
	if err := m.cluster.List(t.Context(), jobs, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for _, job := range jobs.Items {
		if !*job.Spec.Suspend || job.Labels[QueueLabel] != "hetzner" {
			t.Errorf("Job %s: suspended %v, labels %v", job.Name, *job.Spec.Suspend, job.Labels)
		}
	}
}

// The management cluster is away for a while: the rollout goes on when it is back. A refusal ends it.
func TestManagementClusterAway(t *testing.T) {
	var away, forbidden atomic.Bool
	m := newManager(t)
	m.Server.Fail = func(*http.Request) (int, string) {
		switch {
		case forbidden.Load():
			return http.StatusForbidden, "not allowed"
		case away.Load():
			return http.StatusServiceUnavailable, "away"
		}
		return 0, ""
	}
	prepare(t, m, Rollout{MaxParallel: 1}, fleetOf("a"))
	var notes []string
	away.Store(true)
	result, err := Advance(t.Context(), m.cluster, namespace, "demo", "", Observer{Changed: func([]ClusterStatus) {},
		Note: func(format string, args ...any) {
			notes = append(notes, fmt.Sprintf(format, args...))
			away.Store(false)
		}})
	if err != nil || phases(result.Clusters) != "a done" || len(notes) != 2 ||
		!strings.Contains(notes[0], "does not answer") || !strings.Contains(notes[1], "again") {
		t.Errorf("%s, notes %q: %v", phases(result.Clusters), notes, err)
	}
	forbidden.Store(true)
	if _, err := Advance(t.Context(), m.cluster, namespace, "demo", "", Observer{Changed: func([]ClusterStatus) {},
		Note: t.Logf}); err == nil ||
		!strings.Contains(err.Error(), "not allowed") {
		t.Errorf("%v", err)
	}
}

// known are the names of the clusters of the fleet.
func (m *manager) known(ctx context.Context) (names []string, err error) {
	changes, err := LastChanges(ctx, m.cluster, namespace, "demo")
	return Preparation{Changes: changes}.Clusters(), err
}

func (m *manager) lastChange(ctx context.Context, cluster string) (Change, error) {
	changes, err := LastChanges(ctx, m.cluster, namespace, "demo")
	i := slices.IndexFunc(changes, func(c Change) bool { return c.Cluster == cluster })
	if err == nil && i < 0 {
		err = fmt.Errorf("no change of cluster %s was begun", cluster)
	}
	if err != nil {
		return Change{}, err
	}
	return changes[i], nil
}

func TestClustersAndLastChange(t *testing.T) {
	m := newManager(t)
	prepare(t, m, Rollout{MaxParallel: 2}, fleetOf("a", "b"))
	if _, err := advance(t, m); err != nil {
		t.Fatal(err)
	}
	last, err := m.lastChange(t.Context(), "b")
	if err != nil || string(last.Files[ChangeConfigFile]) != "clusterName: b" || last.Token != "t" || last.Image != "i" ||
		last.Deadline != time.Hour || last.Retries != 1 {
		t.Errorf("%+v, %v", last, err)
	}
	last.Action, last.Arguments = Destroy, []string{"destroy"}
	r := Rollout{Fleet: "demo", Namespace: namespace, Action: Destroy, MaxParallel: 1}
	if err := Prepare(t.Context(), m.cluster, r, Preparation{Changes: []Change{last}}); err != nil {
		t.Fatal(err)
	}
	if names, err := m.known(t.Context()); err != nil || !slices.Equal(names,
		[]string{"a", "b"}) {
		t.Errorf("%v, %v", names, err)
	}
	if _, err := advance(t, m); err != nil {
		t.Fatal(err)
	}
	if names, err := m.known(t.Context()); err != nil || !slices.Equal(names,
		[]string{"a"}) {
		t.Errorf("after b was destroyed: %v, %v", names, err)
	}
	if _, err := ReadRollout(t.Context(), m.cluster, namespace, "other"); !errors.Is(err, ErrNone) {
		t.Errorf("%v", err)
	}
}

// A cluster is known as long as it may be there, also without its Job.
func TestClustersWithoutJobs(t *testing.T) {
	m := newManager(t)
	prepare(t, m, Rollout{MaxParallel: 1}, fleetOf("a"))
	if names, err := m.known(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("before it began: %v, %v", names, err)
	}
	if _, err := advance(t, m); err != nil {
		t.Fatal(err)
	}
	m.Remove("batch/v1", "Job", namespace, fleetOf("a").Changes[0].Name())
	if names, err := m.known(t.Context()); err != nil || !slices.Equal(names,
		[]string{"a"}) {
		t.Errorf("without its Job: %v, %v", names, err)
	}
	// One that was prepared and never begun is not what it was made from.
	p := fleetOf("a")
	p.Changes[0].Token = "another"
	prepare(t, m, Rollout{MaxParallel: 1}, p)
	if last, err := m.lastChange(t.Context(), "a"); err != nil || last.Token != "t" {
		t.Errorf("last %+v, %v", last, err)
	}
}

// A destruction that is ended before or after any write leaves the cluster known until it is destroyed.
func TestDestroyEndedAnywhere(t *testing.T) {
	for after := 1; ; after++ {
		m := newManager(t)
		prepare(t, m, Rollout{MaxParallel: 1}, fleetOf("a"))
		if _, err := advance(t, m); err != nil {
			t.Fatal(err)
		}
		var writes atomic.Int32
		var armed atomic.Bool
		armed.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		m.setFail(func(r *http.Request) (int, string) {
			if armed.Load() && r.Method != http.MethodGet && int(writes.Add(1)) == after {
				cancel()
				return http.StatusServiceUnavailable, "ended here"
			}
			return 0, ""
		})
		destroy := func(ctx context.Context) error {
			last, err := m.lastChange(ctx, "a")
			if err != nil {
				return err
			}
			last.Action, last.Arguments = Destroy, []string{"destroy"}
			r := Rollout{Fleet: "demo", Namespace: namespace, Action: Destroy, MaxParallel: 1}
			if err := Prepare(ctx, m.cluster, r, Preparation{Changes: []Change{last}}); err != nil {
				return err
			}
			_, err = Advance(ctx, m.cluster, namespace, "demo", "", Observer{Changed: func([]ClusterStatus) {}, Note: t.Logf})
			return err
		}
		err := destroy(ctx)
		cancel()
		armed.Store(false)
		if err == nil {
			if after < 6 {
				t.Errorf("only %d writes were tried", after)
			}
			return
		}
		names, listErr := m.known(t.Context())
		if listErr == nil && len(names) == 1 {
			err = destroy(t.Context())
		} else { // its Job has ended
			_, err = advance(t, m)
		}
		if err != nil {
			t.Fatalf("ended at write %d, %v: %v", after, names, err)
		}
		if names, err := m.known(t.Context()); err != nil || len(names) > 0 {
			t.Errorf("ended at write %d: %v is still there, %v", after, names, err)
		}
	}
}

// A rollout that would leave out clusters of one that has not ended is refused, until that one is stopped.
func TestALeftOutClusterIsRefused(t *testing.T) {
	m := newManager(t)
	prepare(t, m, Rollout{MaxParallel: 1}, fleetOf("a", "b"))
	r := Rollout{Fleet: "demo", Namespace: namespace, Action: Apply, MaxParallel: 1}
	before := len(m.Writes())
	err := Prepare(t.Context(), m.cluster, r, fleetOf("a"))
	if err == nil || !strings.Contains(err.Error(), "has not ended for b,") || len(m.Writes()) != before {
		t.Errorf("%v, writes %v", err, m.Writes()[before:])
	}
	if err := Stop(t.Context(), m.cluster, namespace, "demo"); err != nil {
		t.Fatal(err)
	}
	result, err := advance(t, m)
	if err != nil || phases(result.Clusters) != "a waiting, b waiting" || !strings.Contains(result.Held, "stop") {
		t.Errorf("after the stop: %s, held %q, %v", phases(result.Clusters), result.Held, err)
	}
	prepare(t, m, r, fleetOf("a"))
	if result, err := advance(t, m); err != nil || phases(result.Clusters) != "a done" {
		t.Errorf("%s, %v", phases(result.Clusters), err)
	}
	all, _, err := Statuses(t.Context(), m.cluster, Rollout{Fleet: "demo", Namespace: namespace})
	if err != nil || phases(all) != "a done, b waiting" {
		t.Errorf("the fleet is %s, %v", phases(all), err)
	}
}

func TestOneClusterInTwoFleets(t *testing.T) {
	m := newManager(t)
	prepare(t, m, Rollout{MaxParallel: 1}, fleetOf("a", "b"))
	p := fleetOf("b", "c")
	for i := range p.Changes {
		p.Changes[i].Fleet = "other"
	}
	err := Prepare(t.Context(), m.cluster, Rollout{Fleet: "other", Namespace: namespace, MaxParallel: 1}, p)
	if err == nil || !strings.Contains(err.Error(), "another fleet in this namespace has b:") {
		t.Errorf("%v", err)
	}
}

// Consent is to what was planned when it was given: a Job that waits is made anew where it differs.
func TestConsentOfJobsThatWait(t *testing.T) {
	m := newManager(t)
	consents := func() bool {
		job := &batchv1.Job{}
		if err := m.cluster.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: fleetOf("a").Changes[0].Name()},
			job); err != nil {
			t.Fatal(err)
		}
		return consents(job)
	}
	for _, consent := range []bool{true, false, true} {
		p := fleetOf("a")
		p.Changes[0].Consent = consent
		prepare(t, m, Rollout{MaxParallel: 1}, p)
		if consents() != consent {
			t.Errorf("the Job that waits has the consent %t, not %t", !consent, consent)
		}
	}
}

// What advances one rollout does not go on with the next one.
func TestAnEarlierRolloutIsNotAdvanced(t *testing.T) {
	m := newManager(t)
	earlier := Revision(fleetOf("a").Entries())
	prepare(t, m, Rollout{MaxParallel: 1}, fleetOf("a", "b"))
	_, err := Advance(t.Context(), m.cluster, namespace, "demo", earlier, Observer{Changed: func([]ClusterStatus) {},
		Note: t.Logf})
	if !errors.Is(err, ErrReplaced) || len(m.order()) > 0 {
		t.Errorf("%v, began %v", err, m.order())
	}
}

// A Job that Kueue has suspended while its Pod works is at work.
func TestASuspendedJobWithAPodIsAtWork(t *testing.T) {
	suspended, one := true, int32(1)
	job := &batchv1.Job{Spec: batchv1.JobSpec{Suspend: &suspended}}
	if phaseOf(job) != Waiting {
		t.Errorf("without a Pod it is %s", phaseOf(job))
	}
	job.Status.Terminating = &one
	if !phaseOf(job).working() {
		t.Errorf("while its Pod ends it is %s", phaseOf(job))
	}
	job.Status = batchv1.JobStatus{Active: 1}
	if !phaseOf(job).working() {
		t.Errorf("while its Pod runs it is %s", phaseOf(job))
	}
}

// A cluster that is created again after its destruction is known, also where the Job of the destruction is still there.
func TestACreatedAgainClusterIsKnown(t *testing.T) {
	m := newManager(t)
	prepare(t, m, Rollout{MaxParallel: 1}, fleetOf("a"))
	if _, err := advance(t, m); err != nil {
		t.Fatal(err)
	}
	last, err := m.lastChange(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	last.Action, last.Arguments = Destroy, []string{"destroy"}
	r := Rollout{Fleet: "demo", Namespace: namespace, Action: Destroy, MaxParallel: 1}
	if err := Prepare(t.Context(), m.cluster, r, Preparation{Changes: []Change{last}}); err != nil {
		t.Fatal(err)
	}
	if _, err := advance(t, m); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	clear(m.working) // the Job of the first change is made anew under its name
	m.mu.Unlock()
	m.setFail(func(r *http.Request) (int, string) {
		if r.Method == http.MethodDelete {
			return http.StatusServiceUnavailable, "ended here"
		}
		return 0, ""
	})
	r.Action = Apply
	if err := Prepare(t.Context(), m.cluster, r, fleetOf("a")); err == nil {
		t.Fatal("nothing was deleted")
	}
	if _, err := advance(t, m); err != nil {
		t.Fatal(err)
	}
	if names, err := m.known(t.Context()); err != nil || !slices.Equal(names,
		[]string{"a"}) {
		t.Errorf("created again: %v, %v", names, err)
	}
}
