package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// Answer is why a cluster is not further.
type Answer struct {
	For      string    `json:"for,omitempty"`     // what is waited for; empty: nothing is
	Missing  string    `json:"missing,omitempty"` // "2 of 3 servers run"
	Findings []Finding `json:"findings,omitempty"`
}

// Finding is one thing that keeps a cluster.
type Finding struct {
	Who  []string `json:"who"`
	What string   `json:"what"`
	// Do is what the operator can do about it; empty: it passes by itself.
	Do string `json:"do,omitempty"`
	// Target is what to type for Do behind the command's name, where that is one of its targets.
	Target []string `json:"target,omitempty"`
	// Terminal reports that waiting does not help, as of Seen.
	Terminal bool      `json:"hopeless,omitempty"`
	Seen     time.Time `json:"seen,omitzero"`

	limit  bool // of the project: no server is created until the operator has acted
	weight int  // the heaviest come first
}

// Weights of findings.
const (
	weightNormal  = iota // belongs to every bootstrap
	weightTrouble        // something blocks, and may resolve by itself
	weightTerminal
)

// String is "a, b: why".
func (f Finding) String() string {
	if len(f.Who) == 0 {
		return f.What
	}
	return strings.Join(f.Who, ", ") + ": " + f.What
}

// Sentence is the whole in one line: "waiting for etcd: 2 of 3 servers run; k8s-control-plane-x7k2p: …". Empty: nothing
// is waited for.
func (a Answer) Sentence() string {
	if a.For == "" {
		return ""
	}
	return "waiting for " + a.For + ": " + a.Because()
}

// withCommand is a finding that a run goes on in spite of, with what to type meanwhile. What ends a run says it then.
func (f Finding) withCommand() string {
	if len(f.Target) == 0 || f.Terminal {
		return f.String()
	}
	return f.String() + " (" + f.Do + ")"
}

// Because is the sentence without what is waited for.
func (a Answer) Because() string {
	parts := []string{a.Missing}
	for _, f := range a.Findings {
		parts = append(parts, f.String())
	}
	return strings.Join(parts, "; ")
}

// Summary is what it adds for a wait for something else that depends on the same: "etcd: 2 of 3 servers run;
// …".
func (a Answer) Summary() string {
	if a.For == "" {
		return ""
	}
	return a.For + ": " + a.Because()
}

// Troubles are the findings that do not belong to every bootstrap.
func (a Answer) Troubles() string {
	var parts []string
	for _, f := range a.Findings {
		if f.weight > weightNormal {
			parts = append(parts, f.withCommand())
		}
	}
	return strings.Join(parts, "; ")
}

// Terminal is a finding that waiting does not resolve and that was observed since a time; nil: there is none.
func (a Answer) Terminal(since time.Time) *Finding {
	for i, f := range a.Findings {
		// Cluster API writes whole seconds.
		if f.Terminal && !f.Seen.Before(since.Truncate(time.Second)) {
			return &a.Findings[i]
		}
	}
	return nil
}

// TerminalForWorkers is Terminal for a wait for the workers: what they wait for passes, or Cluster API replaces them,
// but for a limit of the project.
func (a Answer) TerminalForWorkers(since time.Time) *Finding {
	for i, f := range a.Findings {
		if f.limit && !f.Seen.Before(since.Truncate(time.Second)) {
			return &a.Findings[i]
		}
	}
	return a.Terminal(since)
}

// Error makes the finding the end of a wait.
func (f *Finding) Error() string {
	if f.Do == "" {
		return f.String()
	}
	return f.String() + ": " + f.Do
}

// Explain says what is missing and why. The API does not count as there before the control plane provider has seen it.
func Explain(s Situation) Answer {
	if why := s.Silent[Management]; why != "" {
		return Answer{For: "the management cluster", Missing: "it does not answer (" + ShortError(why) + ")"}
	}
	if s.Cluster == nil && s.Infrastructure == nil {
		return Answer{For: "the cluster", Missing: "its objects are not applied yet"}
	}
	members := s.members()
	var a Answer
	if a.For, a.Missing = s.stage(members); a.For == "" {
		a.For, a.Missing = s.workersStage()
	}
	if a.For == "" {
		return a
	}
	var found findings
	s.blameCluster(&found)
	for _, m := range members {
		s.addServerFindings(&found, m)
	}
	s.blameWorkers(&found)
	for _, n := range s.Nodes {
		if n.Mismatch != nil {
			found.add(s.mismatch(n))
			continue
		}
		if what := n.troubles(); what != "" {
			found.add(Finding{Who: []string{n.Name}, What: what, weight: weightNormal})
		}
	}
	s.blamePods(&found)
	for _, who := range []string{Workload, Hetzner} {
		if why := s.Silent[who]; why != "" {
			found.add(Finding{What: "could not ask " + silentNames[who] + " (" + ShortError(why) + ")", weight: weightTrouble})
		}
	}
	a.Findings = found.sorted()
	return a
}

var silentNames = map[string]string{Workload: "the cluster", Hetzner: "Hetzner"}

// stage is the first stage of every bootstrap that is not reached yet, and how far it is.
func (s Situation) stage(members []member) (what, missing string) {
	want, run, answer, etcd := s.wanted(), 0, 0, 0
	for _, m := range members {
		if m.state == running {
			run++
			if m.talos.Trouble == "" {
				answer++
			}
		}
		if m.talos.Etcd {
			etcd++
		}
	}
	initialized := capi.Truth(s.ControlPlane, "status", "initialized")
	switch {
	case s.Infrastructure != nil && capi.Text(s.Infrastructure, "spec", "controlPlaneEndpoint", "host") == "":
		return "the load balancer", "it has no address yet"
	case s.ControlPlane == nil:
		return "the control plane", "its objects are not applied yet"
	case !initialized && (len(members) < want || run < want):
		return "etcd", fmt.Sprintf("%d of %d servers run", run, want)
	case !initialized && answer < want:
		return "Talos", fmt.Sprintf("it answers on %d of %d servers", answer, want)
	case !initialized && etcd == 0:
		return "etcd", fmt.Sprintf("Talos answers on %d of %d servers, etcd runs on none", answer, max(want, len(members)))
	case s.API != "":
		return "the API", ShortError(s.API)
	case !initialized:
		return "the API", "it answers; the control plane provider has not seen it yet"
	case len(members) != want:
		return "the machines", fmt.Sprintf("%d of the control plane instead of %d", len(members), want)
	}
	return s.later(members)
}

// later is the stage of a cluster whose API answers.
func (s Situation) later(members []member) (what, missing string) {
	ready, seen, finished := 0, 0, true
	for _, n := range s.Nodes {
		if n.Ready {
			ready++
		}
		finished = finished && len(n.Troubles) == 0
	}
	for _, m := range members {
		if capi.Text(m.machine, "status", "nodeRef", "name") != "" {
			seen++
		}
	}
	switch {
	case ready < len(members) || len(s.Nodes) > ready:
		return "the nodes", fmt.Sprintf("%d of %d Ready", ready, max(len(members), len(s.Nodes)))
	case !finished:
		return "the nodes", "all Ready"
	case len(s.Pods) > 0:
		return "the system's Pods", fmt.Sprintf("%d not ready", len(s.Pods))
	case seen < len(members):
		return "the machines",
			fmt.Sprintf("Cluster API has seen the nodes of %d of %d (it looks twice a minute)", seen, len(members))
	case slices.ContainsFunc(members, func(m member) bool { return m.state != running }):
		return "the servers", "not all run"
	case slices.ContainsFunc(members, func(m member) bool { return s.stopped(m) || s.unhealthy(m) }):
		runs := 0
		for _, m := range members {
			if m.talos.Etcd {
				runs++
			}
		}
		return "etcd", fmt.Sprintf("it is healthy on %d of %d servers", runs, len(members))
	}
	return "", ""
}

// findings collects what is wrong with whom, and says what is wrong with several once.
type findings []Finding

func (all *findings) add(f Finding) {
	for i := range *all {
		if (*all)[i].What == f.What {
			for _, who := range f.Who {
				if !slices.Contains((*all)[i].Who, who) {
					(*all)[i].Who = append((*all)[i].Who, who)
				}
			}
			(*all)[i].Seen = later((*all)[i].Seen, f.Seen)
			return
		}
	}
	*all = append(*all, f)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sorted has the heaviest first. Of what belongs to every bootstrap nothing stays beside real troubles.
func (all findings) sorted() []Finding {
	slices.SortStableFunc(all, func(a, b Finding) int { return b.weight - a.weight })
	if len(all) > 0 && all[0].weight > weightNormal && len(all[0].Who) > 0 {
		return slices.DeleteFunc(all, func(f Finding) bool { return f.weight == weightNormal })
	}
	return all
}
