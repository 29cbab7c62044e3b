package cloud

import (
	"net/http"
	"slices"
	"time"
)

// past has earlier states of the project, for lists that are out of date. States are kept only while a fault needs
// them, and only as long as the most outdated list.
type past struct {
	keep    time.Duration // 0: nothing is kept
	moments []moment      // by time
}

// moment is the state from a time until the next moment.
type moment struct {
	at    time.Time
	state []byte
	cloud *Cloud // that shows it; nil until it is requested
}

// remember begins to keep the states of the project, for lists that are out of date by at most this long.
func (c *Cloud) remember(lag time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past.keep = max(c.past.keep, lag)
	data, err := c.state.encode()
	if err != nil {
		c.config.Log.Error("lists will not lag behind from here", "error", err)
		return
	}
	c.past.add(now(), data)
}

// add keeps a state, and drops those that no list shows any more.
func (p *past) add(at time.Time, state []byte) {
	if p.keep == 0 {
		return
	}
	p.moments = append(p.moments, moment{at: at, state: state})
	if shown := p.last(at.Add(-p.keep)); shown > 0 {
		p.moments = slices.Delete(p.moments, 0, shown)
	}
}

// last is the index of the last moment that is not after a time; the first one if all are after it.
func (p *past) last(at time.Time) int {
	i, found := slices.BinarySearchFunc(p.moments, at, func(m moment, at time.Time) int { return m.at.Compare(at) })
	if found {
		return i
	}
	return max(0, i-1)
}

// asOf returns a Cloud that shows what was there at a time, or the oldest that is remembered. It must
// only be read from, and under the lock.
func (c *Cloud) asOf(at time.Time) *Cloud {
	if len(c.past.moments) == 0 {
		return c
	}
	seen := &c.past.moments[c.past.last(at)]
	if seen.cloud == nil {
		then, err := decodeState(seen.state)
		if err != nil { // cannot fail: encode wrote it
			c.config.Log.Error("a list does not lag behind", "error", err)
			return c
		}
		seen.cloud = &Cloud{
			config: c.config, catalog: c.catalog, faults: c.faults, balancer: c.balancer, state: then,
			mux: http.NewServeMux(), routes: map[string]handler{}, lists: map[string]bool{},
		}
		seen.cloud.registerAll()
	}
	return seen.cloud
}
