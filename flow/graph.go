package flow

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Graph is a set of steps and their dependencies. It is built by one goroutine,
// with Add, and can then be run any number of times.
type Graph struct {
	name     string
	nodes    []*node
	problems []error // found while it was built; Validate reports them
}

// New makes an empty graph. Its name is kept in the journal, so that a journal
// of another graph is not taken for its own.
func New(name string) *Graph { return &Graph{name: name} }

// Name is the graph's name.
func (g *Graph) Name() string { return g.name }

// node is a step without its types.
type node struct {
	graph      *Graph
	name       string
	doc        string
	spec       json.RawMessage // canonical; nil: none
	inputs     []*node         // the arguments, in their order
	rerunAfter []*node         // order, and run again when their outputs change
	after      []*node         // order without data
	orderAfter []*node         // order in a run that wants them, too
	output     reflect.Type
	deadline   time.Duration // 0: none
	waits      []Wait
	sealed     bool
	exempt     bool                 // from seals
	resumeWhen func() (bool, error) // of a sealed step that is not done; nil: only the record counts

	do     func(ctx context.Context, say Say, inputs []any) (any, error)
	decode func(json.RawMessage) (any, error)
	verify func(ctx context.Context, output any) Verdict // nil: the record is enough
}

// needs are all the steps that must be done before n, each once, arguments first.
func (n *node) needs() []*node {
	var all []*node
	for _, m := range slices.Concat(n.inputs, n.rerunAfter, n.after) {
		if m != nil && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	return all
}

// before are all the steps that n waits for where a run wants them.
func (n *node) before() []*node { return append(n.needs(), n.orderAfter...) }

func (g *Graph) problem(format string, args ...any) {
	g.problems = append(g.problems, fmt.Errorf(format, args...))
}

func (g *Graph) find(name string) *node {
	for _, n := range g.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

var kebab = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// Validate finds what is wrong with the graph before anything runs: names,
// handles, cycles, specs, and waits that a deadline cannot hold. Its error is
// an *InvalidError with everything that was found.
func (g *Graph) Validate() error {
	problems := slices.Clone(g.problems)
	report := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }

	seen := map[string]bool{}
	for _, n := range g.nodes {
		if !kebab.MatchString(n.name) {
			report("step name %q is not in kebab case (lower case letters, digits and single hyphens)", n.name)
		}
		if seen[n.name] {
			report("two steps are named %q", n.name)
		}
		seen[n.name] = true
		if n.deadline < 0 {
			report("step %s: deadline %s is negative", n.name, n.deadline)
		}
		for _, err := range []error{n.waitsFit(), n.exemptFits()} {
			if err != nil {
				problems = append(problems, err)
			}
		}
	}
	if _, cycle := g.order(seals{}); cycle != nil {
		report("these steps wait for each other: %s", strings.Join(cycle, " → "))
	}
	if len(problems) > 0 {
		return &InvalidError{Graph: g.name, Problems: problems}
	}
	return nil
}

// order sorts the steps so that each comes after what it waits for, and otherwise
// as they were added. Where that is impossible it returns the names of a cycle.
func (g *Graph) order(s seals) (sorted []*node, cycle []string) {
	const visiting, visited = 1, 2
	state := map[*node]int{}
	var path []*node
	var visit func(n *node) bool
	visit = func(n *node) bool {
		switch state[n] {
		case visited:
			return true
		case visiting:
			for _, m := range path[slices.Index(path, n):] {
				cycle = append(cycle, m.name)
			}
			cycle = append(cycle, n.name)
			return false
		}
		state[n] = visiting
		path = append(path, n)
		for _, m := range s.before(n) {
			if !visit(m) {
				return false
			}
		}
		path = path[:len(path)-1]
		state[n] = visited
		sorted = append(sorted, n)
		return true
	}
	nodes := g.nodes
	if len(s.passed) > 0 { // the skipped steps come first, in the order that it had
		was, _ := g.order(seals{})
		passed := func(n *node) bool { return s.behind[n] != nil }
		open := slices.DeleteFunc(slices.Clone(was), passed)
		nodes = append(slices.DeleteFunc(was, func(n *node) bool { return !passed(n) }), open...)
	}
	for _, n := range nodes {
		if !visit(n) {
			return nil, cycle
		}
	}
	return sorted, nil
}

// ancestors are all the steps that n depends on, directly or not.
func ancestors(n *node) map[*node]bool {
	all := map[*node]bool{}
	var visit func(*node)
	visit = func(n *node) {
		for _, m := range n.needs() {
			if !all[m] {
				all[m] = true
				visit(m)
			}
		}
	}
	visit(n)
	return all
}

// wanted are the targets with all that they depend on, in order; every step for
// no targets.
func (g *Graph) wanted(targets []string, s seals) ([]*node, error) {
	sorted, _ := g.order(s)
	if len(targets) == 0 {
		return sorted, nil
	}
	want := map[*node]bool{}
	var visit func(*node)
	visit = func(n *node) {
		if want[n] {
			return
		}
		want[n] = true
		for _, m := range s.needs(n) {
			visit(m)
		}
	}
	for _, name := range targets {
		n := g.find(name)
		if n == nil {
			return nil, g.unknown(name)
		}
		visit(n)
	}
	return slices.DeleteFunc(sorted, func(n *node) bool { return !want[n] }), nil
}

func (g *Graph) unknown(name string) error {
	names := make([]string, len(g.nodes))
	for i, n := range g.nodes {
		names[i] = n.name
	}
	return &UnknownStepError{Name: name, Nearest: Nearest(name, names)}
}

// Info describes a step of the graph.
type Info struct {
	Name     string        `json:"name"`
	Doc      string        `json:"doc,omitempty"`
	Needs    []string      `json:"needs,omitempty"` // arguments first, then After
	Deadline time.Duration `json:"deadlineNs,omitempty"`
	Waits    []Wait        `json:"waits,omitempty"`
	Sealed   bool          `json:"sealed,omitempty"`
	Exempt   bool          `json:"exempt,omitempty"` // from seals
	// every step that it comes after, and why; one is named once for each reason
	Behind []Link       `json:"behind,omitempty"`
	Output reflect.Type `json:"-"` // the type of its output
}

// Link is a step that another comes after.
type Link struct {
	Step string   `json:"step"`
	Kind LinkKind `json:"kind"`
}

// LinkKind says why a step comes after another. The values are stable: programs
// read them, so they keep the names that the methods had at first.
type LinkKind string

// The kinds of links: an argument, RerunAfter, After and OrderAfter.
const (
	LinkArgument   LinkKind = "argument" // it takes the other's output
	LinkRerunAfter LinkKind = "follows"  // it runs again when the other's output changes
	LinkAfter      LinkKind = "after"    // order, and a run that wants it runs the other, too
	LinkOrderAfter LinkKind = "yields"   // order alone
)

// Steps describes the steps, each after what it needs and otherwise in the
// order in which they were added. It is empty for a graph with a cycle.
func (g *Graph) Steps() []Info {
	sorted, _ := g.order(seals{})
	infos := make([]Info, len(sorted))
	for i, n := range sorted {
		infos[i] = Info{Name: n.name, Doc: n.doc, Deadline: n.deadline, Waits: slices.Clone(n.waits), Sealed: n.sealed,
			Exempt: n.exempt,
			Output: n.output}
		for _, m := range n.needs() {
			infos[i].Needs = append(infos[i].Needs, m.name)
		}
		infos[i].Behind = n.links()
	}
	return infos
}

func (n *node) links() []Link {
	var links []Link
	for _, of := range []struct {
		nodes []*node
		kind  LinkKind
	}{{n.inputs, LinkArgument}, {n.rerunAfter, LinkRerunAfter}, {n.after, LinkAfter}, {n.orderAfter, LinkOrderAfter}} {
		for _, m := range of.nodes {
			if link := (Link{m.name, of.kind}); !slices.Contains(links, link) {
				links = append(links, link)
			}
		}
	}
	return links
}
