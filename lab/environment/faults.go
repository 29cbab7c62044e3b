package environment

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/lab/cloud"
	"github.com/slipway-k8s/slipway/lab/control"
)

// Fault is a fault that the lab injects on request: one of the simulated cloud (its kinds and fields are those of
// cloud.Fault), or one of the kinds below, with these fields. It is in force until it is removed, has hit Times times,
// or For has passed. When the lab ends, it first ends every fault; it starts without any.
type Fault struct {
	cloud.Fault
	// Cluster is the name of a cluster. webhook-unready: a pattern as of path.Match, empty for every cluster.
	// management-away: empty if there is only one.
	Cluster string `json:"cluster,omitempty"`
	// Service is a pattern, as of path.Match, of the namespace/name of a Service: "caph-system/*".
	Service string `json:"service,omitempty"`
	// File is the absolute path of a kubeconfig.
	File string `json:"file,omitempty"`
	// LoadBalancer is a pattern of the load balancer's name.
	LoadBalancer string `json:"loadBalancer,omitempty"`
	// Remaining is how many requests the project has left at first, Limit how many it can have; zero: as before.
	Remaining *int `json:"remaining,omitempty"`
	Limit     int  `json:"limit,omitempty"`
	// For is how long the fault is in force; zero: until it is removed.
	For cloud.Duration `json:"for,omitzero"`
}

// The kinds of faults that the lab adds to those of the simulated cloud.
const (
	// FaultAPIServerRestart kills the kube-apiserver of a management cluster, those of all servers of a cluster, or that
	// of one Server (a pattern; Seed picks one of several matches), and starts it again: at once, or after For. It ends
	// when they are ready again.
	FaultAPIServerRestart cloud.FaultKind = "apiserver-restart"
	// FaultManagementAway freezes the kube-apiserver of a management cluster: it accepts connections and does not answer.
	FaultManagementAway cloud.FaultKind = "management-away"
	// FaultWebhookUnready makes the webhooks behind the matching Services refuse connections.
	FaultWebhookUnready cloud.FaultKind = "webhook-unready"
	// FaultClusterIPsAway has no ClusterIP answer on the host's network of the matching Servers, as an agent of the
	// network may do. Only probes that name a host meet it: see package kubelet.
	FaultClusterIPsAway cloud.FaultKind = "cluster-ips-away"
	// FaultVanishServer removes a Server (a pattern; Seed picks one of several matches), its machine and its record,
	// without a request or an action.
	FaultVanishServer cloud.FaultKind = "vanish-server"
	// FaultVanishLoadBalancer removes a LoadBalancer (a pattern; Seed picks one of several matches) and its record,
	// without a request or an action. A Primary IP that it has stays.
	FaultVanishLoadBalancer cloud.FaultKind = "vanish-load-balancer"
	// FaultLowBudget leaves the project Remaining requests of its rate limit, which come back as before: up to Limit, and
	// as many in the same time, where that is given. At its end the project has its limit again, whole.
	FaultLowBudget cloud.FaultKind = "low-budget"
	// FaultExpiredKubeconfig replaces the client certificate in the kubeconfig File of a Cluster with one that expired an
	// hour ago: of the same name and key, signed by the cluster's authority. At its end the file is restored, unless it
	// was written since.
	FaultExpiredKubeconfig cloud.FaultKind = "expired-kubeconfig"
)

// InForce is a fault as GET /v1/faults lists it.
type InForce struct {
	ID int64 `json:"id"`
	Fault
	Hits  int       `json:"hits"` // so far
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"` // zero: no time limit
}

// faultFields are the fields that each kind has besides kind and for, by their JSON names; the first ones are required.
var faultFields = map[cloud.FaultKind]struct{ needs, takes []string }{
	cloud.FaultOutOfStock:  {takes: []string{"serverType", "location", "skip", "times", "probability", "seed"}},
	cloud.FaultRateLimit:   {takes: append([]string{"delay"}, requestFields...)},
	cloud.FaultError:       {takes: append([]string{"status", "code", "message"}, requestFields...)},
	cloud.FaultLostReply:   {takes: requestFields},
	cloud.FaultTimeout:     {takes: append([]string{"delay"}, requestFields...)},
	cloud.FaultReset:       {takes: requestFields},
	cloud.FaultActionError: {takes: []string{"command", "code", "message", "skip", "times", "probability", "seed"}},
	cloud.FaultSlowBoot:    {needs: []string{"delay"}, takes: []string{"server", "skip", "times", "probability", "seed"}},
	cloud.FaultStaleLists:  {needs: []string{"delay"}, takes: requestFields},
	FaultAPIServerRestart:  {takes: []string{"cluster", "server", "seed"}},
	FaultManagementAway:    {takes: []string{"cluster"}},
	FaultWebhookUnready:    {needs: []string{"service"}, takes: []string{"cluster"}},
	FaultClusterIPsAway:    {needs: []string{"server"}},
	FaultVanishServer:      {needs: []string{"server"}, takes: []string{"seed"}},

	FaultVanishLoadBalancer: {needs: []string{"loadBalancer"}, takes: []string{"seed"}},
	FaultLowBudget:          {needs: []string{"remaining"}, takes: []string{"limit"}},
	FaultExpiredKubeconfig:  {needs: []string{"cluster", "file"}},
}

var requestFields = []string{"method", "path", "actor", "skip", "times", "probability", "seed"}

// check refuses an unknown kind, and fields that the kind does not have.
func (f Fault) check() error {
	fields, known := faultFields[f.Kind]
	if !known {
		kinds := slices.Sorted(maps.Keys(faultFields))
		return fmt.Errorf("there is no fault %q: there are %s", f.Kind, join(kinds))
	}
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	var given map[string]any
	if err := json.Unmarshal(b, &given); err != nil {
		return err
	}
	takes := slices.Concat(fields.needs, fields.takes, []string{"for"})
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if name != "kind" && !slices.Contains(takes, name) {
			return fmt.Errorf("%s has no %s: it takes %s", f.Kind, name, join(takes))
		}
	}
	for _, name := range fields.needs {
		if _, ok := given[name]; !ok {
			return fmt.Errorf("%s needs %s: it takes %s", f.Kind, name, join(takes))
		}
	}
	if f.For < 0 {
		return fmt.Errorf("%s for %s: a time cannot be negative", f.Kind, time.Duration(f.For))
	}
	return nil
}

func join[S ~string](words []S) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(w))
	}
	return b.String()
}

// effect is the running effect of a fault.
type effect struct {
	undo func()          // ends it; nil: nothing to end
	over <-chan struct{} // closed when it has ended without being removed; nil: never
	hits func() int      // so far; nil: one
	// ownTime is true for kinds that evaluate For themselves.
	ownTime bool
}

// ended says whether it has ended without being removed.
func (e effect) ended() bool {
	select {
	case <-e.over:
		return true
	default:
		return false
	}
}

// faults are the faults in force. All changes go through its methods.
type faults struct {
	lab *Lab

	mu      sync.Mutex
	last    int64
	all     map[int64]*inForce
	stopped bool
}

type inForce struct {
	InForce
	effect effect
	remove chan struct{} // closed once, to end it
	gone   chan struct{} // closed when it has ended
	once   sync.Once
}

func newFaults(lab *Lab) *faults { return &faults{lab: lab, all: map[int64]*inForce{}} }

// errNoFault is returned for a number that no fault in force has.
var errNoFault = control.NotFound("there is no such fault in force")

// add puts a fault in force and returns it with the random choices filled in.
func (s *faults) add(ctx context.Context, f Fault) (InForce, error) {
	if err := f.check(); err != nil {
		return InForce{}, control.BadRequest(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock() // one at a time: none begins while the lab ends
	if s.stopped {
		return InForce{}, control.ErrStopping
	}
	begun, err := s.lab.begin(ctx, &f)
	if err != nil {
		return InForce{}, fmt.Errorf("fault %s: %w", f.Kind, err)
	}
	s.last++
	one := &inForce{InForce: InForce{ID: s.last, Fault: f, Since: time.Now()}, effect: begun, remove: make(chan struct{}),
		gone: make(chan struct{})}
	if f.For > 0 && !begun.ownTime {
		one.Until = one.Since.Add(time.Duration(f.For))
	}
	s.all[one.ID] = one
	s.lab.cfg.Log.Info("a fault is in force", one.attributes()...)
	go s.keep(one)
	return one.seen(), nil
}

// attributes are the log attributes of a fault.
func (f *inForce) attributes() []any {
	b, _ := json.Marshal(f.Fault) // it was encoded in the same form when it was checked
	return []any{"fault", f.ID, "is", string(b)}
}

func (f *inForce) seen() InForce {
	seen := f.InForce
	seen.Hits = 1
	if f.effect.hits != nil {
		seen.Hits = f.effect.hits()
	}
	return seen
}

// keep ends a fault after its time.
func (s *faults) keep(f *inForce) {
	var expired <-chan time.Time
	if !f.Until.IsZero() {
		timer := time.NewTimer(time.Until(f.Until))
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-f.remove:
	case <-expired:
	case <-f.effect.over:
	}
	if f.effect.undo != nil {
		f.effect.undo()
	}
	seen := f.seen()
	s.lab.cfg.Log.Info("a fault has ended", append(f.attributes(), "hits", seen.Hits)...)
	s.mu.Lock()
	delete(s.all, f.ID)
	s.mu.Unlock()
	close(f.gone)
}

// list returns the faults in force, by number.
func (s *faults) list() []InForce {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]InForce, 0, len(s.all))
	for _, f := range s.all {
		if !f.effect.ended() {
			list = append(list, f.seen())
		}
	}
	slices.SortFunc(list, func(a, b InForce) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// end ends a fault and returns when it has.
func (s *faults) end(id int64) error {
	s.mu.Lock()
	f := s.all[id]
	s.mu.Unlock()
	if f == nil {
		return fmt.Errorf("fault %d: %w", id, errNoFault)
	}
	f.once.Do(func() { close(f.remove) })
	<-f.gone
	return nil
}

// stop ends all faults and refuses new ones.
func (s *faults) stop() {
	s.mu.Lock()
	s.stopped = true
	all := slices.Collect(maps.Values(s.all))
	s.mu.Unlock()
	for _, f := range all {
		f.once.Do(func() { close(f.remove) })
	}
	for _, f := range all {
		<-f.gone
	}
}

// serve adds the fault endpoints to the control API.
func (s *faults) serve(handle func(pattern string, do func(*http.Request) (any, error))) {
	handle("POST /v1/faults", func(r *http.Request) (any, error) {
		var f Fault
		decoder := json.NewDecoder(http.MaxBytesReader(nil, r.Body, largestFault))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&f); err != nil {
			return nil, control.BadRequest(fmt.Errorf("read the fault: %w", err))
		}
		return s.add(r.Context(), f)
	})
	handle("GET /v1/faults", func(*http.Request) (any, error) {
		return map[string][]InForce{"faults": s.list()}, nil
	})
	handle("DELETE /v1/faults/{id}", func(r *http.Request) (any, error) {
		id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
		if err != nil {
			return nil, control.BadRequest(fmt.Errorf("fault %q is not a number", r.PathValue("id")))
		}
		return struct{}{}, s.end(id)
	})
}

// largestFault bounds the description of a fault, in bytes.
const largestFault = 64 << 10
