package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/usage"
	"github.com/slipway-k8s/slipway/steps"
)

// target is something to ask the command for that is no step of the graph.
// Dispatch, usage, help and completion are made from the table of them.
type target struct {
	name      string   // one word or more: "lab up"
	arguments []string // what has to follow it, as the usage text writes it: "NAME", or "bash|zsh|fish" for one of these words
	optional  string   // what may follow it besides; "…" at its end: any number of it
	doc       string   // one line
	flags     []string // that go with it, and with no target that does not name them
	outputs   []string // that --output can be besides text and json

	// Either it stands for steps, and can be asked for among others, or it does
	// something of its own, and stands alone.
	steps   func(*steps.Plan) []string
	managed func(*steps.Plan) []string // in place of steps once the cluster manages itself; nil: the same
	do      func(context.Context, *console, arguments) error
}

// Words of the table that the code needs, too.
const (
	targetBootstrap = "bootstrap"
	targetAll       = "all"
	targetStatus    = "status"
	targetLogs      = "logs"
	targetReport    = "report"
	targetImage     = "image" // a step, with flags of its own
	targetPivot     = "pivot" // a step, with a flag of its own
	targetDestroy   = "destroy"
	targetAccess    = "access" // a step
	targetFaultAdd  = "lab fault add"
)

// targets is the table, in the order of the usage text.
func targets() []target {
	return []target{
		{name: targetBootstrap, doc: "the whole cluster, to Ready nodes",
			steps:   func(p *steps.Plan) []string { return p.Bootstrap },
			managed: func(p *steps.Plan) []string { return p.Managed }},
		{name: targetAll, doc: "the whole first day: bootstrap, pivot, firewall, firewall-apply, clean",
			steps: func(p *steps.Plan) []string { return p.All }},
		{name: targetDestroy, doc: "delete the cluster, after a list with prices and a question",
			flags: []string{"dry-run", "n", "images", "volumes"}, do: runDestroy},
		{name: "leftovers", doc: "list what any cluster has in the project, and what it costs a month",
			do: runLeftovers},
		{name: "replace-machine", arguments: []string{"NAME"}, doc: "a new control plane machine in the place of one, if etcd can do without it meanwhile",
			flags: []string{"skip-doctor"}, do: runReplaceMachine},
		{name: "backup", doc: "everything that restores the cluster, in one encrypted file, in a folder or an S3 store",
			flags: []string{"to", "keep", "every", "unencrypted"}, do: runBackup},
		{name: "backup list", doc: "the backups there are", flags: []string{"to"}, do: runBackupList},
		{name: "backup verify", arguments: []string{"FILE"}, doc: "open a backup, check every sum, restore its etcd into a scratch folder and count",
			flags: []string{"identity"}, do: runBackupVerify},
		{name: "backup cronjob", doc: "a CronJob for the cluster itself, which snapshots etcd into the S3 store", flags: []string{"to", "every"},
			do: runBackupCronJob},
		{name: "restore", optional: "FILE", doc: "the cluster of a backup, after all its servers were lost: same data, same keys; --diagnose only tells what is lost",
			flags: []string{"identity", "diagnose", "skip-doctor", "dry-run", "n"}, do: runRestore},
		{name: "readopt", arguments: []string{"FILE"}, doc: "the management of a cluster whose servers live, out of a backup, after a comparison of the two",
			flags: []string{"identity", "accept", "dry-run", "n"}, do: runReadopt},
		{name: "recover-quorum", doc: "etcd again, where it has lost its quorum and servers live, from the member that knows most",
			flags: []string{"dry-run", "n"}, do: runRecoverQuorum},
		{name: "drill", doc: "lose everything in a lab of its own and get it back: what came back, how long it took, how much was lost",
			flags: []string{"backup", "identity", "faults", "keep-lab"}, do: runDrill},
		{name: targetStatus, doc: "what the journal knows and what the world says to it; why it waits, servers, etcd, releases, certificates, cost",
			flags: []string{"watch"}, do: runStatus},
		{name: "effects", optional: "RUN", doc: "what a run changed in the world, call by call; the last, where none is named",
			do: runEffects},
		{name: targetReport, optional: "RUN", doc: "the story of a run, and of those that it went on from, as one HTML page; of the last that did something, where none is named; --list lists the runs",
			flags: []string{"out", "list"}, do: runReport},
		{name: targetLogs, optional: "CONTROLLER…", doc: "follow the logs of the controllers, in whichever cluster they run now: " + strings.Join(controllerNames(), ", "),
			flags: []string{"since", "tail", "no-follow"}, do: runLogs},
		{name: "doctor", doc: "whether a bootstrap would go well: the token, the project, names, ranges, versions, files, sources",
			do: runDoctor},
		{name: "plan", optional: "TARGET…", doc: "what a run would do with each step and why, what it makes and costs, and how long it takes",
			do: runPlan},
		{name: "config show", doc: "every value of the configuration, and where it comes from; secrets hidden", do: runConfigShow},
		{name: "config files", doc: "the files that the cluster is made from, and which are your own; --out DIR writes the built-in ones to start from",
			flags: []string{"out"}, do: runConfigFiles},
		{name: "config schema", doc: "the JSON Schema of bootstrap.yaml, for editors", do: runConfigSchema},
		{name: "graph", doc: "the steps and what each hangs on, as a picture, with the journal's states coloured in",
			outputs: []string{"mermaid", "dot", "svg"}, do: runGraph},
		{name: "lab up", doc: "start the lab by itself", do: runLabUp},
		{name: "lab status", doc: "what runs in the lab, and what of it is real, a stand-in or simulated", do: runLabStatus},
		{name: "lab down", doc: "end the lab; its state is kept", do: runLabDown},
		{name: "lab build", doc: "build the lab's programs", flags: []string{"check", "prune"}, do: runLabBuild},
		{name: "lab save", arguments: []string{"FOLDER"}, doc: "copy the lab, as it stands and with all state, while it is up", do: runLabSave},
		{name: "lab load", arguments: []string{"FOLDER"}, doc: "start a lab on what lab save has saved", do: runLabLoad},
		{name: targetFaultAdd, arguments: []string{"KIND"}, optional: "key=value…", doc: "have something go wrong in the lab: see docs/rehearse.md",
			do: runLabFaultAdd},
		{name: "lab fault list", doc: "what goes wrong in the lab at present", do: runLabFaultList},
		{name: "lab fault remove", arguments: []string{"ID"}, doc: "undo a fault", do: runLabFaultRemove},
		{name: "completion", arguments: []string{"bash|zsh|fish"}, doc: "a script for the shell that completes targets, flags and variables", do: runCompletion},
		{name: "help", optional: "TARGET…", doc: "this, or more about one target", do: runHelp},
	}
}

// stepFlags are the flags that go with steps, and with no other target.
func stepFlags() map[string][]string {
	return map[string][]string{
		targetImage: {"prune", "packer"},
		targetPivot: {"abort"},
	}
}

// runFlags are the flags that go with every run of steps; some also go with
// targets that name them.
func runFlags() []string { return []string{"dry-run", "n", "skip-doctor"} }

// words are those of the target's name.
func (t target) words() []string { return strings.Fields(t.name) }

// alone tells whether it cannot be one target among others.
func (t target) alone() bool { return t.do != nil }

// usage is the target as it is written, with its arguments.
func (t target) usage() string {
	words := append([]string{t.name}, t.arguments...)
	if t.optional != "" {
		words = append(words, "["+t.optional+"]")
	}
	return strings.Join(words, " ")
}

// asked finds the target that stands alone and that the words ask for. Among
// several, as "lab" and "lab up" would be, it is the longest.
func asked(words []string) (target, bool) {
	var found target
	for _, t := range targets() {
		name := t.words()
		if t.alone() && len(name) > len(found.words()) && len(words) >= len(name) && slices.Equal(words[:len(name)], name) {
			found = t
		}
	}
	return found, found.name != ""
}

// standsAlone tells whether the words ask for a target that runs no steps.
func standsAlone(words []string) bool {
	_, alone := asked(words)
	return alone
}

// rest are the arguments of the target in the words that ask for it.
func (t target) rest(words []string) []string { return words[len(t.words()):] }

// check refuses arguments that do not fit the target.
func (t target) check(words []string) error {
	rest := t.rest(words)
	most := len(t.arguments)
	switch {
	case strings.HasSuffix(t.optional, "…"):
		most = len(rest)
	case t.optional != "":
		most++
	}
	switch {
	case len(rest) < len(t.arguments):
		return usage.Errorf("%s needs %s: write %s", t.name, t.arguments[len(rest)], t.usage())
	case len(rest) > most && most == 0:
		return usage.Errorf("%s stands alone, without %q", t.name, rest[0])
	case len(rest) > most:
		return usage.Errorf("%s stands alone, without %q: write %s", t.name, rest[most], t.usage())
	}
	for i, form := range t.arguments {
		if choice := strings.Split(form, "|"); len(choice) > 1 && !slices.Contains(choice, rest[i]) {
			return usage.Errorf("%s cannot %q%s; it takes one of: %s", t.name, rest[i], usage.DidYouMean("", rest[i], choice), strings.Join(choice, ", "))
		}
	}
	return nil
}

// checkTargets refuses words that cannot be asked for together, and flags that
// go with another target.
func checkTargets(words, flagsGiven []string) error {
	alone, found := asked(words)
	if found {
		if err := alone.check(words); err != nil {
			return err
		}
	} else if so, verbs := following(words); len(verbs) > 0 {
		return halfNamed(words, so, verbs)
	}
	for _, name := range flagsGiven {
		owners, ofRuns := flagOwners(name), slices.Contains(runFlags(), name)
		switch {
		case len(owners) == 0 && !ofRuns:
		case found && slices.Contains(owners, alone.name):
		case !found && (ofRuns || len(words) == 1 && slices.Contains(owners, words[0])):
		case len(owners) == 0:
			return usage.Errorf("--%s goes with a run of steps, and with nothing else", name)
		case ofRuns:
			return usage.Errorf("--%s goes with the target %s, and with a run of steps", name, strings.Join(owners, " or "))
		default:
			return usage.Errorf("--%s goes with the target %s, and no other", name, strings.Join(owners, " or "))
		}
	}
	return nil
}

// checkOutput refuses a form of output that the target does not have.
func checkOutput(words []string, output string) error {
	forms := []string{"text", "json"}
	if t, found := asked(words); found {
		forms = append(forms, t.outputs...)
	}
	switch {
	case slices.Contains(forms, output):
		return nil
	case len(forms) == 2:
		return usage.Errorf("--output %q is neither text nor json", output)
	default:
		return usage.Errorf("--output %q is none of %s", output, strings.Join(forms, ", "))
	}
}

// following are the words that make targets of the first so many words, which
// are none by themselves: up, status, down and so on of lab.
func following(words []string) (so int, verbs []string) {
	for so = len(words); so > 0 && len(verbs) == 0; so-- {
		for _, t := range targets() {
			name := t.words()
			if len(name) > so && slices.Equal(name[:so], words[:so]) && !slices.Contains(verbs, name[so]) {
				verbs = append(verbs, name[so])
			}
		}
	}
	return so + 1, verbs
}

func halfNamed(words []string, so int, verbs []string) error {
	target := strings.Join(words[:so], " ")
	if len(words) == so {
		return usage.Errorf("%s takes one of: %s", target, strings.Join(verbs, ", "))
	}
	return usage.Errorf("%s cannot %q%s; it takes one of: %s", target, words[so], usage.DidYouMean("", words[so], verbs), strings.Join(verbs, ", "))
}

// flagOwners are the targets that a flag goes with; none: it goes with all.
func flagOwners(name string) []string {
	var owners []string
	for _, t := range targets() {
		if slices.Contains(t.flags, name) {
			owners = append(owners, t.name)
		}
	}
	for step, flags := range stepFlags() {
		if slices.Contains(flags, name) {
			owners = append(owners, step)
		}
	}
	slices.Sort(owners)
	return owners
}

// resolveTargets turns targets into the names of steps to run, of a cluster that
// manages itself or does not. Every error is a usageError.
func resolveTargets(words []string, plan *steps.Plan, managed bool) ([]string, error) {
	if len(words) == 0 {
		words = []string{targetBootstrap}
	}
	table := targets()
	var known []string
	for _, t := range table {
		if name := t.words()[0]; !slices.Contains(known, name) {
			known = append(known, name)
		}
	}
	for _, s := range plan.Graph.Steps() {
		known = append(known, s.Name)
	}
	var names []string
	for _, word := range words {
		i := slices.IndexFunc(table, func(t target) bool { return t.words()[0] == word })
		switch {
		case i >= 0 && table[i].alone():
			return nil, usage.Errorf("%s stands alone: it cannot be one target among others", word)
		case i >= 0 && managed && table[i].managed != nil:
			names = append(names, table[i].managed(plan)...)
		case i >= 0:
			names = append(names, table[i].steps(plan)...)
		case slices.Contains(known, word):
			names = append(names, word)
		case usage.DidYouMean("", word, known) != "":
			return nil, usage.Errorf("there is no target %q%s", word, usage.DidYouMean("", word, known))
		default:
			return nil, usage.Errorf("there is no target %q; there are %s", word, strings.Join(known, ", "))
		}
	}
	return names, nil
}

// targetLines writes the table for the usage text, with the steps where the
// targets that stand for steps end.
func targetLines(plan *steps.Plan) []string {
	line := func(left, doc string) string { return fmt.Sprintf("  %s\t%s", left, doc) }
	var among, alone []string
	for _, t := range targets() {
		if t.alone() {
			alone = append(alone, line(t.usage(), t.doc))
		} else {
			among = append(among, line(t.name, t.doc))
		}
	}
	for _, s := range plan.Graph.Steps() {
		among = append(among, line(s.Name, s.Doc))
	}
	return append(among, alone...)
}
