package steps

import (
	"strings"
)

// reasons collects what is wrong with whom, and says what is wrong with several once.
type reasons struct {
	order []string
	who   map[string][]string
}

func (r *reasons) add(who, why string) {
	if r.who == nil {
		r.who = map[string][]string{}
	}
	if r.who[why] == nil {
		r.order = append(r.order, why)
	}
	r.who[why] = append(r.who[why], who)
}

// lines are "a, b: why", in the order in which they were met.
func (r *reasons) lines() []string {
	var lines []string
	for _, why := range r.order {
		lines = append(lines, strings.Join(r.who[why], ", ")+": "+why)
	}
	return lines
}
