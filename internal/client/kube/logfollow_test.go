package kube_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

// fakeKubelet serves the logs of one container a Pod, as kubelets do.
type fakeKubelet struct {
	mu      sync.Mutex
	runs    map[string][]*fakeRun // by Pod, the present one last
	changed chan struct{}
	asked   []string // queries, by Pod
	broken  bool     // every stream breaks off where it is
}

type fakeRun struct {
	lines []string
	times []time.Time
	ended bool
}

func newFakeKubelet() *fakeKubelet {
	return &fakeKubelet{runs: map[string][]*fakeRun{}, changed: make(chan struct{})}
}

// change changes a Pod's runs and signals the goroutines that follow them.
func (k *fakeKubelet) change(do func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	do()
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *fakeKubelet) begin(pod string) {
	k.change(func() { k.runs[pod] = append(k.runs[pod], &fakeRun{}) })
}

func (k *fakeKubelet) end(pod string) {
	k.change(func() { k.runs[pod][len(k.runs[pod])-1].ended = true })
}

func (k *fakeKubelet) say(pod string, lines ...string) {
	k.change(func() {
		run := k.runs[pod][len(k.runs[pod])-1]
		for _, line := range lines {
			run.lines, run.times = append(run.lines, line), append(run.times, time.Now())
			time.Sleep(time.Microsecond) // so that no two have the same time
		}
	})
}

func (k *fakeKubelet) snap(broken bool) { k.change(func() { k.broken = broken }) }

// run is the present run of a Pod's container, or the one before.
func (k *fakeKubelet) run(pod string, previous bool) *fakeRun {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := len(k.runs[pod]) - 1
	if previous {
		i--
	}
	if i < 0 {
		return &fakeRun{ended: true}
	}
	return k.runs[pod][i]
}

func (k *fakeKubelet) look(r *fakeRun) (run fakeRun, broken bool, changed chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return *r, k.broken, k.changed
}

func (k *fakeKubelet) serve(w http.ResponseWriter, r *http.Request) {
	words := strings.Split(r.URL.Path, "/")
	pod, q := words[len(words)-2], r.URL.Query()
	k.mu.Lock()
	k.asked = append(k.asked, pod+"?"+q.Encode())
	k.mu.Unlock()
	follow := q.Get("follow") == "true"
	pinned := k.run(pod, q.Get("previous") == "true")
	run, _, _ := k.look(pinned)
	next := 0
	if n, err := strconv.Atoi(q.Get("tailLines")); err == nil {
		next = max(0, len(run.lines)-n)
	}
	if since, err := time.Parse(time.RFC3339, q.Get("sinceTime")); err == nil {
		for next < len(run.times) && run.times[next].Before(since) {
			next++
		}
	}
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		now, broken, changed := k.look(pinned)
		if broken {
			panic(http.ErrAbortHandler)
		}
		for ; next < len(now.lines); next++ {
			fmt.Fprintf(w, "%s %s\n", now.times[next].UTC().Format(time.RFC3339Nano), now.lines[next])
		}
		if now.ended || !follow {
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// putPod says that a Pod's container is in a run.
func putPod(s *kubetest.Server, name, run string, running bool) {
	state := map[string]any{"terminated": map[string]any{"exitCode": 1}}
	if running {
		state = map[string]any{"running": map[string]any{"startedAt": time.Now().UTC().Format(time.RFC3339)}}
	}
	s.Put(kubetest.Object("v1", "Pod", "capi-system", name, map[string]any{
		"metadata": map[string]any{"uid": name},
		"status": map[string]any{"containerStatuses": []any{map[string]any{"name": "manager", "containerID": run,
			"state": state}}},
	}))
}

// heard are the lines that a reader was handed.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) line(l kube.LogLine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, l.Pod+": "+l.Text)
}

func (h *heard) await(t *testing.T, want ...string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		h.mu.Lock()
		got := slices.Clone(h.lines)
		h.mu.Unlock()
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) || len(got) > len(want) {
			t.Fatalf("heard\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestFollowLogs(t *testing.T) {
	server, kubelet := kubetest.New("c"), newFakeKubelet()
	server.Logs = kubelet.serve
	t.Cleanup(server.Close)
	cluster, err := kube.Connect(server.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	kubelet.begin("a")
	kubelet.say("a", "1", "2", "3")
	kubelet.begin("other")
	kubelet.say("other", "nobody asked")
	putPod(server, "a", "a/1", true)
	putPod(server, "other", "other/1", true)
	var got heard
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		cluster.FollowLogs(ctx, kube.LogOptions{
			Pods: func(p *corev1.Pod) bool { return p.Name != "other" }, Lines: 2, Line: got.line,
			Trouble: func(where kube.LogLine, err error) { t.Log(where, err) },
		})
	}()
	got.await(t, "a: 2", "a: 3")
	kubelet.say("a", "4")
	got.await(t, "a: 2", "a: 3", "a: 4")

	// A connection breaks, and what was written meanwhile is not lost, nor is anything read twice.
	kubelet.snap(true)
	kubelet.say("a", "5")
	kubelet.snap(false)
	got.await(t, "a: 2", "a: 3", "a: 4", "a: 5")

	// It breaks again, and the container is another run before it can be opened.
	kubelet.snap(true)
	kubelet.say("a", "6, its last words")
	kubelet.end("a")
	kubelet.begin("a")
	kubelet.say("a", "7, a new run")
	putPod(server, "a", "a/2", true)
	kubelet.snap(false)
	want := []string{"a: 2", "a: 3", "a: 4", "a: 5", "a: 6, its last words", "a: 7, a new run"}
	got.await(t, want...)

	// It ends in good order: the next run is heard from its beginning on.
	kubelet.end("a")
	putPod(server, "a", "a/2", false)
	kubelet.begin("a")
	kubelet.say("a", "8")
	putPod(server, "a", "a/3", true)
	want = append(want, "a: 8")
	got.await(t, want...)

	// It is gone, and another one in its place.
	kubelet.end("a")
	server.Remove("v1", "Pod", "capi-system", "a")
	kubelet.begin("b")
	kubelet.say("b", "1", "2", "3")
	putPod(server, "b", "b/1", true)
	want = append(want, "b: 1", "b: 2", "b: 3")
	got.await(t, want...)
	stop()
	<-done
}

func TestOpenLogs(t *testing.T) {
	server, kubelet := kubetest.New("c"), newFakeKubelet()
	server.Logs = func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/pods/dumb/") {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w,
				`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"BadRequest","message":"it is simulated","code":400}`)
			return
		}
		kubelet.serve(w, r)
	}
	t.Cleanup(server.Close)
	cluster, err := kube.Connect(server.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	kubelet.begin("a")
	kubelet.say("a", "old")
	kubelet.change(func() { kubelet.runs["a"][0].times[0] = time.Now().Add(-time.Hour) })
	kubelet.say("a", "new", strings.Repeat("long ", 100_000), "last\r")
	putPod(server, "a", "a/1", true)
	putPod(server, "dumb", "dumb/1", true)
	putPod(server, "unborn", "", false)
	var troubles []string
	read := func(w kube.LogOptions) (lines []string) {
		t.Helper()
		w.Pods = func(*corev1.Pod) bool { return true }
		w.Trouble = func(where kube.LogLine, err error) { troubles = append(troubles, where.Pod+": "+err.Error()) }
		streams, err := cluster.OpenLogs(t.Context(), w)
		if err != nil || len(streams) != 1 {
			t.Fatalf("%d logs, %v; want one", len(streams), err)
		}
		defer streams[0].Close()
		for {
			line, err := streams[0].Next()
			if errors.Is(err, io.EOF) {
				return lines
			}
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line.Text)
		}
	}
	if got := read(kube.LogOptions{Lines: -1}); len(got) != 4 || got[0] != "old" || got[3] != "last" || len(got[2]) > 64<<10 {
		t.Errorf("%d lines, the first %.9q", len(got), got)
	}
	if got := read(kube.LogOptions{Lines: 1}); !slices.Equal(got, []string{"last"}) {
		t.Errorf("the last line is %q", got)
	}
	if got := read(kube.LogOptions{Lines: -1, After: time.Now().Add(-time.Minute)}); len(got) != 3 || got[0] != "new" {
		t.Errorf("%d lines are not older than a minute, the first %.9q", len(got), got)
	}
	if !slices.Equal(troubles, []string{"dumb: it is simulated", "dumb: it is simulated", "dumb: it is simulated"}) {
		t.Errorf("troubles %q", troubles)
	}
}
