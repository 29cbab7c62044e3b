package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/ratelimit"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// reportTime is how a report writes a time, in UTC.
const reportTime = "2006-01-02 15:04:05"

// Page is the story as a report shows it.
func (s *story) Page() Page {
	first, last := s.runs[0], s.runs[len(s.runs)-1]
	end, _ := last.Outcome()
	critical := s.CriticalSteps()
	name := cmp.Or(last.Setup.Cluster, "the cluster")
	p := Page{
		Title: "Bootstrap of " + name, State: runState(end), Lead: s.lead(critical),
		Runs: s.pageRuns(), Ticks: s.ticks(), Rows: s.rows(critical), Path: s.path(critical),
		Waits: s.waits(), Trouble: s.Troubles(), Changes: s.changes(), Notes: s.notes(), Setup: s.setup(), Values: s.values(),
	}
	done := 0
	for _, row := range p.Rows {
		if row.State == Done || row.State == Reused {
			done++
		}
	}
	p.Facts = []Fact{
		{Name: "cluster", Value: name}, {Name: "environment", Value: environmentWords(last.Setup.Environment)},
		{Name: "began (UTC)", Value: first.Began().UTC().Format(reportTime)},
		{Name: text.Plural(len(s.runs), "run", "runs") + ", at work", Value: text.Elapsed(s.Work)},
		{Name: "from the first moment to the last", Value: text.Elapsed(last.Ended().Sub(first.Began()))},
		{Name: "steps that are done", Value: fmt.Sprintf("%d of %d", done, len(p.Rows))},
	}
	if requests, known := s.requests(); known {
		p.Facts = append(p.Facts, Fact{Name: "Hetzner API, this command", Value: requests})
	}
	return p
}

// requests are those of all runs to Hetzner; known is false where no run has counted them.
func (s *story) requests() (sum string, known bool) {
	var all ratelimit.Counts
	uncounted := 0
	for _, r := range s.runs {
		if r.Requests == nil {
			uncounted++
			continue
		}
		all = all.Plus(*r.Requests)
	}
	sum = all.String()
	if uncounted > 0 {
		sum += fmt.Sprintf(", and those of %s that did not count them", text.Plural(uncounted, "run", "runs"))
	}
	return sum, uncounted < len(s.runs)
}

func environmentWords(environment string) string {
	switch environment {
	case statedir.EnvironmentLab:
		return "lab: a rehearsal"
	case statedir.EnvironmentHetzner:
		return "Hetzner Cloud"
	}
	return "not recorded"
}

func runState(end runs.End) State {
	switch end {
	case runs.Finished:
		return Done
	case runs.Failed:
		return Failed
	case runs.Interrupted:
		return Interrupted
	}
	return Killed
}

// lead tells the story in sentences.
func (s *story) lead(critical []string) []string {
	var ends []string
	for i, r := range s.runs {
		end, _ := r.Outcome()
		words := fmt.Sprintf("Run %d %s after %s", i+1, endWords(end), text.Elapsed(r.Ended().Sub(r.Began())))
		if end != runs.Finished {
			words += " (" + s.atWork(i) + ")"
		}
		if i > 0 {
			words += fmt.Sprintf("; it began %s after the one before had ended",
				text.Elapsed(max(0, r.Began().Sub(s.runs[i-1].Ended()))))
		}
		ends = append(ends, words+".")
	}
	var lead []string
	if len(s.runs) == 1 {
		lead = []string{"One run, which" + strings.TrimPrefix(ends[0], "Run 1")}
	} else {
		lead = []string{fmt.Sprintf("It took %d runs. %s", len(s.runs), strings.Join(ends, " "))}
	}
	if len(s.runs) == 1 && s.runs[0].Idle() {
		return append(lead, "It changed nothing: every step was done already.")
	}
	if len(critical) > 0 {
		longest := slices.MaxFunc(critical, func(a, b string) int { return cmp.Compare(s.took(a), s.took(b)) })
		lead = append(lead, fmt.Sprintf("Of %s at work, %s was the longest step on the critical path, with %s.",
			text.Elapsed(s.Work), longest, text.Elapsed(s.took(longest))))
	}
	return lead
}

func endWords(end runs.End) string {
	switch end {
	case runs.Finished:
		return "came to its end"
	case runs.Killed:
		return "was killed"
	case runs.Interrupted:
		return "was interrupted"
	}
	return "failed"
}

// percent is a part of the story's clock.
func (s *story) percent(d time.Duration) float64 {
	return 100 * float64(d) / float64(max(s.Work, time.Millisecond))
}

func (s *story) pageRuns() []Run {
	var all []Run
	for i, r := range s.runs {
		end, why := r.Outcome()
		took := max(0, r.Ended().Sub(r.Began()))
		out := Run{
			Number: i + 1, ID: r.ID, Began: r.Began().UTC().Format(reportTime), Took: text.Elapsed(took), State: runState(end),
			Why:  why,
			Left: s.percent(s.From[i]), Width: s.percent(took), TargetsWanted: strings.Join(r.Setup.Targets, " "),
		}
		if out.TargetsWanted == "" && r.Setup.Cluster != "" {
			out.TargetsWanted = "bootstrap"
		}
		if i > 0 {
			out.After = text.Elapsed(max(0, r.Began().Sub(s.runs[i-1].Ended())))
		}
		all = append(all, out)
	}
	return all
}

// ticks are marks at round times, at most so many that a telephone has room for them.
func (s *story) ticks() []Tick {
	const most = 7
	var every time.Duration
	for _, every = range []time.Duration{time.Second / 10, time.Second / 2, time.Second, 2 * time.Second, 5 * time.Second,
		10 * time.Second, 20 * time.Second, time.Minute / 2, time.Minute,
		2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute, time.Hour / 2, time.Hour, 2 * time.Hour,
		6 * time.Hour} {
		if s.Work/every <= most {
			break
		}
	}
	var ticks []Tick
	for at := time.Duration(0); at <= s.Work && len(ticks) <= 2*most; at += every {
		ticks = append(ticks, Tick{Left: s.percent(at), Text: tickText(at)})
	}
	return ticks
}

func tickText(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d < time.Minute:
		return strings.TrimSuffix(text.Elapsed(d), ".0s") + map[bool]string{true: "s"}[strings.HasSuffix(text.Elapsed(d),
			".0s")]
	case d%time.Minute == 0 && d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return text.Elapsed(d)
}

func (s *story) rows(critical []string) []Row {
	docs := map[string]string{}
	for _, info := range s.graph {
		docs[info.Name] = info.Doc
	}
	var rows []Row
	for _, step := range s.order {
		tries := s.tries[step]
		row := Row{
			Name: step, Doc: docs[step], Critical: slices.Contains(critical, step), State: outcome(tries),
			Took: text.Elapsed(s.took(step)),
		}
		for _, t := range tries {
			if t.state == Skipped {
				continue
			}
			row.Bars = append(row.Bars, s.bar(step, t, row.Bars))
			if t.state != Reused {
				row.Attempts++
			}
			if t.state == Failed {
				row.Error = t.err
			}
			for _, said := range t.said {
				out := Said{At: text.Elapsed(said.from), Text: said.text, Run: t.run + 1,
					Trouble: why.TroubleIn(said.text) != ""}
				if held := said.to - said.from; held >= time.Second {
					out.For = text.Elapsed(held)
				}
				row.Said = append(row.Said, out)
			}
		}
		if row.Attempts == 0 {
			row.Took = ""
		}
		rows = append(rows, row)
	}
	return rows
}

// labelRoom is what the time beside a bar takes of the time line, in percent.
const labelRoom = 8

// bar draws a try behind others of its step. What is long enough to be worth a word has its time beside it; where
// another bar follows too soon, that of the first is left out.
func (s *story) bar(step string, t try, before []Bar) Bar {
	b := Bar{
		Left: s.percent(t.from), Width: s.percent(t.took()), State: t.state,
		Text: fmt.Sprintf("%s, run %d: %s, from %s on for %s", step, t.run+1, t.state, text.Elapsed(t.from),
			text.Elapsed(t.took())),
	}
	free := 0.0 // up to where there are bars
	if n := len(before); n > 0 {
		last := &before[n-1]
		if free = last.Left + last.Width; b.Left < free+labelRoom && !last.Turned {
			last.Label = ""
		}
	}
	if b.Width >= 1 && t.state != Reused {
		b.Turned = b.Left+b.Width > 100-labelRoom
		if !b.Turned || b.Left > free+labelRoom {
			b.Label = text.Elapsed(t.took())
		}
	}
	return b
}

func (s *story) path(critical []string) []Span {
	var whole time.Duration
	for _, step := range critical {
		whole += s.took(step)
	}
	var path []Span
	for _, step := range critical {
		path = append(path, Span{Name: step, Took: text.Elapsed(s.took(step)),
			Share: 100 * float64(s.took(step)) / float64(max(whole, time.Millisecond))})
	}
	return path
}

// changes are the calls of all runs that changed something outside the state folder. The clusters' objects are counted
// by their kinds.
func (s *story) changes() []Change {
	var all []Change
	for _, r := range s.runs {
		for _, row := range runs.CountEffects(r.Effects) {
			if row.System == effect.File || row.System == effect.Journal {
				continue
			}
			what := strings.TrimPrefix(row.Effect, string(row.System)+" ")
			if row.System == effect.Management || row.System == effect.Workload {
				what, _, _ = strings.Cut(what, "/")
			}
			i := slices.IndexFunc(all, func(c Change) bool {
				return c.System == string(row.System) && c.What == what && c.Step == row.Step
			})
			if i < 0 {
				i = len(all)
				all = append(all, Change{System: string(row.System), What: what, Step: row.Step})
			}
			all[i].Times += row.Times
			all[i].Failed += row.Failed
			all[i].Unanswered += row.Unanswered
		}
	}
	rank := func(c Change) int {
		return slices.Index([]string{string(effect.Hetzner), string(effect.Talos), string(effect.Kind), string(effect.Local), string(effect.Lab),
			string(effect.SSH)}, c.System)
	}
	slices.SortStableFunc(all, func(a, b Change) int { // the clusters, which are long, last
		return cmp.Compare(uint(rank(a)), uint(rank(b)))
	})
	return all
}

func (s *story) setup() []Fact {
	last := s.runs[len(s.runs)-1].Setup
	var facts []Fact
	for _, f := range []Fact{{Name: "Slipway", Value: last.Version}, {Name: "Go", Value: last.Go},
		{Name: "system", Value: last.System}} {
		if f.Value != "" {
			facts = append(facts, f)
		}
	}
	for _, v := range last.Settings {
		if strings.HasSuffix(v.Variable, "_VERSION") && v.Value != "" {
			facts = append(facts, Fact{Name: v.Variable, Value: v.Value})
		}
	}
	return facts
}

func (s *story) values() []Value {
	var all []Value
	for _, v := range s.runs[len(s.runs)-1].Setup.Settings {
		if strings.HasSuffix(v.Variable, "_VERSION") || v.Value == "" && v.Default == "" {
			continue
		}
		all = append(all, Value{Name: v.Variable, Value: v.Value, From: v.Source, Changed: v.Value != v.Default})
	}
	return all
}
