package serve

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// every is how often the files of runs are looked at.
const every = time.Second

// metrics are those of some clusters.
type metrics struct {
	registry *prometheus.Registry
	clusters []*cluster

	runs     *prometheus.GaugeVec
	ended    *prometheus.CounterVec
	steps    *prometheus.HistogramVec
	atWork   *prometheus.GaugeVec
	silent   *prometheus.GaugeVec
	said     *prometheus.CounterVec
	calls    *prometheus.CounterVec
	requests *prometheus.GaugeVec
	left     *prometheus.GaugeVec
	limit    *prometheus.GaugeVec

	mu       sync.Mutex
	followed map[string]*followed // by cluster and id of the run in the state folder
}

// followed is how far the files of a run have been counted.
type followed struct {
	events, effects int64
	atWork          map[string]time.Time // step to when it was last heard of
	over            bool
}

// newMetrics makes the metrics. Runs that had ended before are not counted.
func newMetrics(clusters []*cluster) *metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "slipway", Name: name, Help: help}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "slipway", Name: name, Help: help}, labels)
	}
	m := &metrics{registry: prometheus.NewRegistry(), clusters: clusters, followed: map[string]*followed{},
		runs:  gauge("runs", "Runs that are known, by state.", "cluster", "state"),
		ended: counter("runs_ended_total", "Runs that ended since serve started.", "cluster", "state"),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "slipway", Name: "step_duration_seconds",
			Help:    "How long steps took, by outcome.",
			Buckets: []float64{0.1, 0.5, 1, 5, 15, 30, 60, 120, 300, 600, 1200, 3600}},
			[]string{"cluster", "step", "outcome"}),
		atWork: gauge("step_at_work", "1 for each step that is at work.", "cluster", "step"),
		silent: gauge("step_unchanged_seconds", "How long a step that is at work has waited for the same.",
			"cluster", "step"),
		said: counter("step_waits_total", "How often what a step does or waits for has changed.", "cluster",
			"step"),
		calls: counter("calls_total", "Calls that change something outside of the process, by where, verb and outcome.",
			"cluster", "world", "verb", "outcome"),
		requests: gauge("hetzner_requests", "Requests to the Hetzner API of the last run that has said so, by kind.",
			"cluster", "kind"),
		left: gauge("hetzner_ratelimit_remaining", "Requests that the Hetzner project had left at the last answer.",
			"cluster"),
		limit: gauge("hetzner_ratelimit_limit", "The most requests that the Hetzner project can have left.", "cluster"),
	}
	m.registry.MustRegister(m.runs, m.ended, m.steps, m.atWork, m.silent, m.said, m.calls, m.requests, m.left, m.limit,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.look(true)
	return m
}

// Follow counts until the context ends.
func (m *metrics) Follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
			m.look(false)
		}
	}
}

// Handler answers with the metrics, as of now.
func (m *metrics) Handler() http.Handler {
	next := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.look(false)
		next.ServeHTTP(w, r)
	})
}

// look counts what is new in the files of the runs.
func (m *metrics) look(first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.atWork.Reset()
	m.silent.Reset()
	var known []string
	for _, c := range m.clusters {
		all, err := c.Runs()
		if err != nil {
			continue // the answer of GET /api/v1/clusters/…/runs has the error
		}
		for _, state := range []State{Starting, Running, Finished, Failed, Interrupted,
			Cancelled} {
			n := 0
			for _, r := range all {
				if r.State == state {
					n++
				}
			}
			m.runs.WithLabelValues(c.Name, string(state)).Set(float64(n))
		}
		for _, r := range slices.Backward(all) { // the newest last: it sets the gauges
			key := c.Name + "/" + r.ID
			known = append(known, key)
			f, before := m.followed[key]
			if !before {
				f = &followed{atWork: map[string]time.Time{}, over: first && r.State.Ended()}
				m.followed[key] = f
			}
			if !f.over && r.Run != "" {
				m.count(c, r, f)
			}
			if !f.over && r.State.Ended() {
				f.over = true
				m.ended.WithLabelValues(c.Name, string(r.State)).Inc()
			}
			if !r.State.Ended() {
				for step, heard := range f.atWork {
					m.atWork.WithLabelValues(c.Name, step).Set(1)
					m.silent.WithLabelValues(c.Name, step).Set(max(0, time.Since(heard).Seconds()))
				}
			}
		}
	}
	for key := range m.followed {
		if !slices.Contains(known, key) {
			delete(m.followed, key)
		}
	}
}

// count counts the new lines of one run.
func (m *metrics) count(c *cluster, r Run, f *followed) {
	path := func(name string) string { return c.State.Path(filepath.Join(statedir.RunsFolder, r.Run, name)) }
	follow(path(statedir.EventsFile), &f.events, func(line []byte) {
		var e flow.Event
		if json.Unmarshal(line, &e) == nil && e.Step != "" {
			m.event(c.Name, e, f)
		}
	})
	follow(path(statedir.EffectsFile), &f.effects, func(line []byte) {
		var l effect.Line
		if json.Unmarshal(line, &l) == nil && (l.Phase == effect.Applied || l.Phase == effect.Failed) {
			m.calls.WithLabelValues(c.Name, string(l.System), l.Verb, string(l.Phase)).Inc()
		}
	})
	data, err := os.ReadFile(path(runs.RateFile))
	var rate runs.Rate
	if err != nil || json.Unmarshal(data, &rate) != nil {
		return // of an earlier version, or it has sent none
	}
	for kind, n := range map[string]float64{"sent": float64(rate.Requests), "slowed": float64(rate.Slowed),
		"refused": float64(rate.Refused), "waited_seconds": rate.Waited.Seconds()} {
		m.requests.WithLabelValues(c.Name, kind).Set(n)
	}
	if rate.Limit > 0 {
		m.left.WithLabelValues(c.Name).Set(float64(rate.Remaining))
		m.limit.WithLabelValues(c.Name).Set(float64(rate.Limit))
	}
}

// event counts an event of a step.
func (m *metrics) event(cluster string, e flow.Event, f *followed) {
	outcome := flow.Outcome("")
	switch e.Kind {
	case flow.StepStarted, flow.StepVerifying:
		f.atWork[e.Step] = e.Time
		return
	case flow.StepProgress:
		f.atWork[e.Step] = e.Time
		m.said.WithLabelValues(cluster, e.Step).Inc()
		return
	case flow.StepDone:
		outcome = flow.Ran
	case flow.StepReused:
		outcome = flow.Reused
	case flow.StepFailed:
		outcome = flow.Failed
	case flow.StepInterrupted:
		outcome = flow.Interrupted
	case flow.StepSkipped:
		outcome = flow.Skipped
	default:
		return
	}
	delete(f.atWork, e.Step)
	m.steps.WithLabelValues(cluster, e.Step, string(outcome)).Observe(e.Elapsed.Seconds())
}

// follow hands the new lines of a file on.
func follow(path string, at *int64, line func([]byte)) {
	for {
		lines, next, err := tail(path, *at)
		if err != nil || next < *at || len(lines) == 0 && next == *at {
			if errors.Is(err, os.ErrNotExist) {
				*at = 0
			}
			return
		}
		*at = next
		for _, l := range lines {
			line(l)
		}
	}
}
