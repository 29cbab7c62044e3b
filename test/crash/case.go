package crash

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Kind is a kind of case.
type Kind string

// The kinds of cases.
const (
	Single Kind = "single" // one kill, then to the end of the stage
	Chain  Kind = "chain"  // a kill at every effect of a stage, one after the other, each resumed up to the next
	Pair   Kind = "pair"   // a kill, and another while that is being recovered from
	Random Kind = "random" // two to five kills by key or by time, from a stage to the end of `all`
	Fault  Kind = "fault"  // of the lab
	Disk   Kind = "disk"   // the machine's: the disk, the journal's file, the clock
)

// Kinds are all kinds in the order in which they run: those that cover most in the least time come first.
func Kinds() []Kind { return []Kind{Chain, Disk, Fault, Single, Pair, Random} }

// Points are the moments of an effect at which the command can be killed, in their order.
func Points() []string { return []string{"before", "applied", "replied", "torn", "saved"} }

// Case is one experiment.
type Case struct {
	ID    string
	Kind  Kind
	Stage string // that is run
	// single: "<point> <key>"; pair: one, then those of which the first to come counts; chain: of
	// every effect; random: those that may hit
	Kills []string
	What  string // fault, disk: its name
}

// kill is a value of SLIPWAY_CRASH.
func kill(point, key string) string { return point + " " + key }

// Amounts are how many sampled cases a full suite has.
type Amounts struct{ Pairs, Random int }

// Full is the size of the whole suite. Of ten random schedules about two hit fewer than two kills, and do not count.
func Full() Amounts { return Amounts{Pairs: 60, Random: 65} }

// Enumerate returns all cases of the effects of all stages. The same effects give the same cases.
func Enumerate(effects []Effect, amounts Amounts) []Case {
	var cases []Case
	byStage := map[string][]Effect{}
	for _, e := range effects {
		byStage[e.Stage] = append(byStage[e.Stage], e)
	}
	for _, stage := range Stages() {
		list := byStage[stage.Name]
		if len(list) == 0 {
			continue
		}
		for turn, point := range Points() {
			cases = append(cases, chainOf(stage.Name, list, turn, "from "+point))
		}
		for i, e := range list {
			for _, point := range pointsOf(list[i:]) {
				cases = append(cases, Case{ID: fmt.Sprintf("single %s: %s %s", stage.Name, point, e.Key), Kind: Single,
					Stage: stage.Name, Kills: []string{kill(point, e.Key)}})
			}
		}
	}
	cases = append(cases, pairs(byStage, amounts.Pairs)...)
	cases = append(cases, schedules(byStage, amounts.Random)...)
	for _, f := range Faults() {
		cases = append(cases, Case{ID: "fault " + f.Name, Kind: Fault, Stage: f.Stage, What: f.Name})
	}
	for _, d := range Disks() {
		cases = append(cases, Case{ID: "disk " + d.Name, Kind: Disk, Stage: d.Stage, What: d.Name})
	}
	return ordered(cases)
}

// ordered sorts cases for their run. Of the single kills, which are the most, a part of the time shows a part of every
// stage: one of each in the order of the stages, so that the next begins where the one before has ended, and so on.
func ordered(cases []Case) []Case {
	r := rand.New(rand.NewPCG(1, 3))
	round := map[string]int{} // of a single kill, by its id
	rounds := map[string]int{}
	for _, i := range r.Perm(len(cases)) {
		if c := cases[i]; c.Kind == Single {
			round[c.ID] = rounds[c.Stage]
			rounds[c.Stage]++
		}
	}
	slices.SortStableFunc(cases, func(a, b Case) int {
		return cmp.Or(slices.Index(Kinds(), a.Kind)-slices.Index(Kinds(), b.Kind), round[a.ID]-round[b.ID])
	})
	return cases
}

// chainOf gives every effect one point; the points go round from the turn's, so that
// five chains give each effect all of its.
func chainOf(stage string, effects []Effect, turn int, name string) Case {
	c := Case{ID: fmt.Sprintf("chain %s %s", stage, name), Kind: Chain, Stage: stage}
	for i, e := range effects {
		points := chainPoints(e.Key)
		c.Kills = append(c.Kills, kill(points[(turn+i)%len(points)], e.Key))
	}
	return c
}

// pointsOf are the points of the first of a stage's last effects: "torn" and "saved" come with a write of the journal.
func pointsOf(effects []Effect) []string {
	if slices.ContainsFunc(effects, func(e Effect) bool { return strings.HasPrefix(e.Key, "journal ") }) {
		return Points()
	}
	return Points()[:3]
}

// chainPoints are the points of an effect that a chain can reach. "torn" and "saved" come with the next write of the
// journal, and a chain is killed at another effect before that: it has them of the writes themselves.
func chainPoints(key string) []string {
	if strings.HasPrefix(key, "journal ") {
		return Points()
	}
	return Points()[:3]
}

// pairs samples a kill and a later one of the same stage.
func pairs(byStage map[string][]Effect, number int) []Case {
	var cases []Case
	for i := range number {
		seed := uint64(i + 1)
		r := rand.New(rand.NewPCG(seed, 1))
		stage := Stages()[i%len(Stages())].Name
		list := byStage[stage]
		if len(list) < 2 {
			continue
		}
		first := r.IntN(len(list) - 1)
		// Later by a little: while the first is being recovered from. What the first run has done does not come again.
		second := min(len(list)-1, first+r.IntN(6))
		at := func(i int) string {
			points := pointsOf(list[i:])
			return kill(points[r.IntN(len(points))], list[i].Key)
		}
		c := Case{Kind: Pair, Stage: stage, Kills: []string{at(first)}}
		for i := second; i < len(list); i++ {
			c.Kills = append(c.Kills, at(i))
		}
		c.ID = fmt.Sprintf("pair %d %s: %s, then %s or later", seed, stage, c.Kills[0], c.Kills[1])
		cases = append(cases, c)
	}
	return cases
}

// schedules begins at a random stage and goes to the end of `all`.
func schedules(byStage map[string][]Effect, number int) []Case {
	var cases []Case
	for i := range number {
		seed := uint64(i + 1)
		r := rand.New(rand.NewPCG(seed, 2))
		begins := r.IntN(len(Stages()) - 1) // destroy removes what is compared
		c := Case{ID: fmt.Sprintf("random %d from %s", seed, Stages()[begins].Name), Kind: Random,
			Stage: Stages()[begins].Name}
		var keys []string
		for _, stage := range Stages()[begins : len(Stages())-1] {
			for _, e := range byStage[stage.Name] {
				keys = append(keys, e.Key)
			}
		}
		// Each kill at an effect comes after the previous one: a later run does not repeat what a run has done.
		number := 2 + r.IntN(4)
		at := make([]int, 0, number)
		for len(keys) > 0 && len(at) < number {
			at = append(at, r.IntN(len(keys)))
		}
		slices.Sort(at)
		for _, i := range at {
			if r.IntN(3) == 0 {
				c.Kills = append(c.Kills, fmt.Sprintf("after %d ms", 200+r.IntN(10000)))
				continue
			}
			c.Kills = append(c.Kills, kill(Points()[r.IntN(len(Points()))], keys[i]))
		}
		cases = append(cases, c)
	}
	return cases
}
