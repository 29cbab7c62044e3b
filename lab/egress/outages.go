package egress

import (
	"fmt"
	"path"
	"sync"
)

// Outages are the Services of all clusters that are not to answer, on demand.
type Outages struct {
	mu    sync.Mutex
	begun []*outage
	cuts  map[target]chan struct{}
}

// outage is of every Service that the patterns match.
type outage struct {
	cluster, service string // patterns as of path.Match; empty: any
	hit              func()
}

type target struct{ cluster, service string }

// NewOutages returns none.
func NewOutages() *Outages { return &Outages{cuts: map[target]chan struct{}{}} }

// Begin has the Services that match the patterns (a cluster's name; namespace/name of a Service; empty: any) refuse
// connections, and breaks those that there are, until end is called. hit is called for each that is refused.
func (o *Outages) Begin(cluster, service string, hit func()) (end func()) {
	begun := &outage{cluster, service, hit}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begun = append(o.begun, begun)
	for t, cut := range o.cuts {
		if begun.matches(t) {
			close(cut)
			delete(o.cuts, t)
		}
	}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		for i, other := range o.begun {
			if other == begun {
				o.begun = append(o.begun[:i:i], o.begun[i+1:]...)
				return
			}
		}
	}
}

// admit refuses a connection to a Service that is not to answer; otherwise cut is closed when it stops to.
func (o *Outages) admit(cluster, service string) (cut <-chan struct{}, err error) {
	if o == nil {
		return nil, nil
	}
	t := target{cluster, service}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, begun := range o.begun {
		if begun.matches(t) {
			begun.hit()
			return nil, fmt.Errorf("Service %s does not answer: an injected fault", service)
		}
	}
	if o.cuts[t] == nil {
		o.cuts[t] = make(chan struct{})
	}
	return o.cuts[t], nil
}

func (o *outage) matches(t target) bool {
	return matches(o.cluster, t.cluster) && matches(o.service, t.service)
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return pattern == "" || err == nil && ok
}
