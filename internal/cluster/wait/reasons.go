package wait

import (
	"strings"
)

// Reasons collects what is wrong with whom, and says what is wrong with several once.
type Reasons struct {
	Order []string
	who   map[string][]string
}

// Add adds the reason of one object.
func (r *Reasons) Add(who, why string) {
	if r.who == nil {
		r.who = map[string][]string{}
	}
	if r.who[why] == nil {
		r.Order = append(r.Order, why)
	}
	r.who[why] = append(r.who[why], who)
}

// Lines are "a, b: why", in the order in which they were met.
func (r *Reasons) Lines() []string {
	var lines []string
	for _, why := range r.Order {
		lines = append(lines, strings.Join(r.who[why], ", ")+": "+why)
	}
	return lines
}
