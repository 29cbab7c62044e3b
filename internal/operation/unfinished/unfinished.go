// Package unfinished lists the operations on a cluster that were begun and have not ended, from their records in the
// state folder: upgrade, scale, replace-machine, pivot, the recoveries, and the rotation of the certificate
// authorities.
package unfinished

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/operation/replace"
	"github.com/slipway-k8s/slipway/internal/operation/scale"
	"github.com/slipway-k8s/slipway/internal/operation/upgrade"
	"github.com/slipway-k8s/slipway/platform"
)

// Operations, each by the name of its command.
const (
	Upgrade       = "upgrade"
	Apply         = "apply"
	Scale         = "scale"
	Pivot         = "pivot"
	Restore       = "restore"
	Readopt       = "readopt"
	RecoverQuorum = "recover-quorum"
	Replace       = "replace-machine"
	RotateCA      = "rotate ca"
)

// Operation is one that was begun and has not ended.
type Operation struct {
	Operation string    `json:"operation"` // the name of its command
	Began     time.Time `json:"began,omitzero"`
	Sentence  string    `json:"sentence"`
	Command   string    `json:"command,omitempty"` // resumes it

	group    string // of servers that are scaled
	ofApply  bool   // a scaling that apply began
	explains func(changes.Deviation) bool
}

// Explains tells whether a deviation is only that the operation has not ended.
func (o Operation) Explains(d changes.Deviation) bool { return o.explains != nil && o.explains(d) }

// ResumedBy tells whether a command, by its words, resumes the operation.
func (o Operation) ResumedBy(words []string) bool {
	switch o.Operation {
	case Pivot, Apply:
		return slices.Contains(words, o.Operation) || slices.Contains(words, "all")
	case Scale:
		return len(words) > 1 && words[0] == Scale && words[1] == o.group ||
			o.ofApply && (slices.Contains(words, Apply) || slices.Contains(words, "all"))
	}
	return strings.Join(words, " ") == o.Operation || len(words) > 0 && words[0] == o.Operation
}

// Pauses tells whether the operation pauses the whole cluster in the cluster that manages it, until it ends.
func (o Operation) Pauses() bool {
	return slices.Contains([]string{Pivot, Restore, Readopt, RecoverQuorum, RotateCA}, o.Operation)
}

// String is the operation in one line.
func (o Operation) String() string {
	if o.Command == "" {
		return o.Sentence
	}
	return o.Sentence + "; run the same again: " + o.Command
}

// In lists what was begun in the state folder of tools. run names the run that is at work there; empty: none is. A
// record that cannot be read is listed with the reason.
func In(ctx context.Context, tools platform.Tools, cluster, run string) (all []Operation) {
	r := reader{ctx: ctx, tools: tools, cluster: cluster, run: run}
	for operation, read := range map[string]func() ([]Operation, error){
		Upgrade: r.upgrade, Scale: r.scale, Pivot: r.pivot,
		Restore: r.restore, Readopt: r.readopt, RecoverQuorum: r.quorum, Replace: r.replacement,
		RotateCA: r.rotation} {
		found, err := read()
		if err != nil {
			found = append(found, Operation{Operation: operation,
				Sentence: fmt.Sprintf("whether %s was begun and has not ended is not known: %v", operation, err)})
		}
		all = append(all, found...)
	}
	slices.SortStableFunc(all, func(a, b Operation) int {
		if c := a.Began.Compare(b.Began); c != 0 {
			return c
		}
		return strings.Compare(a.Operation+a.Command, b.Operation+b.Command)
	})
	return all
}

type reader struct {
	ctx          context.Context
	tools        platform.Tools
	cluster, run string
}

// cutOff is "was cut off", or that a run is at work on it, which is then not to be resumed.
func (r reader) cutOff(o Operation, where string, again ...string) []Operation {
	if r.run != "" {
		o.Sentence += " is under way" + where + "; a run is at work (" + r.run + ")"
		return []Operation{o}
	}
	o.Sentence += " was cut off" + where
	o.Command = r.tools.Command(again...)
	return []Operation{o}
}

func at(began time.Time) string { return began.UTC().Format(time.RFC3339) }

func (r reader) upgrade() ([]Operation, error) {
	record, err := upgrade.ReadRecord(r.tools.Files)
	if err != nil || record == nil {
		return nil, err
	}
	progress, err := record.Progress(r.ctx, r.tools.Files)
	o := Operation{Operation: Upgrade, Began: record.Began,
		Sentence: fmt.Sprintf("an upgrade to %s begun at %s", record.Target(), at(record.Began)),
		explains: func(d changes.Deviation) bool { return record.Explains(d.Variable, d.Wanted, d.Live) }}
	if record.ByApply() {
		o.Operation, o.Sentence = Apply, fmt.Sprintf("a change of the cluster to %s begun at %s", record.Target(),
			at(record.Began))
	}
	again := record.Command()
	if record.PauseAfter != "" && !slices.Contains(progress.Done, record.PauseAfter) {
		again = append(slices.Clone(again), "--pause-after", record.PauseAfter)
	}
	if record.Aborted {
		o.Sentence += " was aborted at its first server (upgrade --abort)"
		o.Command = r.tools.Command("upgrade", "--abort")
		if record.ByApply() {
			o.Sentence += "; to end it, configure what was before"
			o.Command = r.tools.Command("apply")
		}
		return []Operation{o}, nil
	}
	done := ""
	if len(progress.Done) > 0 {
		done = " (done: " + strings.Join(progress.Done, ", ") + ")"
	}
	switch {
	case err != nil:
		return r.cutOff(o, fmt.Sprintf(" at a stage that is not known (%v)", err), again...), nil
	case r.run == "" && !progress.Begun && record.PauseAfter != "" && slices.Contains(progress.Done, record.PauseAfter):
		o.Sentence += fmt.Sprintf(" was ended after %s, as asked (--pause-after)%s", record.PauseAfter,
			next(progress))
		o.Command = r.tools.Command(again...)
		return []Operation{o}, nil
	case progress.At == "":
		return r.cutOff(o, " after its stages"+done+", before its end was verified", again...), nil
	case progress.Why != "" && r.run == "":
		o.Sentence += fmt.Sprintf(" failed at stage %s%s: %s", progress.At, done, progress.Why)
		o.Command = r.tools.Command(again...)
		return []Operation{o}, nil
	case !progress.Begun:
		return r.cutOff(o, " before stage "+progress.At+done, again...), nil
	}
	return r.cutOff(o, " at stage "+progress.At+done, again...), nil
}

// next says with which stage an upgrade that was paused continues.
func next(p upgrade.Progress) string {
	if p.At == "" {
		return ""
	}
	return "; next is " + p.At
}

func (r reader) scale() (all []Operation, err error) {
	groups, err := scale.Records(r.tools.Files)
	for _, g := range groups {
		o := Operation{Operation: Scale, group: g.Group, ofApply: g.Apply, Began: g.Began, Sentence: fmt.Sprintf("the "+
			"scaling of %s from %d to %d servers begun at %s", scale.Change{Group: g.Group}.Called(), g.From, g.To, at(g.Began))}
		o.explains = func(d changes.Deviation) bool { return explainsCount(g, d) }
		all = append(all, r.cutOff(o, "", "scale", g.Group, strconv.Itoa(g.To))...)
	}
	return all, err
}

// explainsCount tells whether both numbers of a deviation lie on the way of the scaling.
func explainsCount(g scale.Record, d changes.Deviation) bool {
	wanted, errWanted := strconv.Atoi(d.Wanted)
	live, errLive := strconv.Atoi(d.Live)
	variable := changes.ReplicasVariable
	if pool, is := strings.CutPrefix(g.Group, scale.PoolGroup); is {
		variable = changes.PoolReplicas(pool)
	}
	return d.Variable == variable && errWanted == nil && errLive == nil &&
		(wanted == g.From || wanted == g.To) && min(g.From, g.To) <= live && live <= max(g.From, g.To)
}

func (r reader) pivot() ([]Operation, error) {
	state, err := records.PivotCopyOf(r.tools).State(r.cluster)
	if err != nil || state.Phase != records.Copied && state.Phase != records.Moving {
		return nil, err
	}
	o := Operation{Operation: Pivot, Began: state.Since,
		Sentence: fmt.Sprintf("the pivot of cluster %s begun at %s", r.cluster, at(state.Since))}
	where := ", before it moved an object"
	if state.Phase == records.Moving {
		where = " while it moves the objects of Cluster API, whose controllers are paused until it ends"
	}
	return r.cutOff(o, where, Pivot), nil
}

func (r reader) restore() ([]Operation, error) {
	record, err := records.ReadRestore(r.tools.Files)
	if err != nil || record == nil || !record.Ended.IsZero() {
		return nil, err
	}
	o := Operation{Operation: Restore, Began: record.Began, Sentence: fmt.Sprintf(
		"the restore of cluster %s (etcd snapshot %.12s…) begun at %s", record.Cluster, record.Snapshot, at(record.Began))}
	return r.cutOff(o, ", and takes the same file", Restore, "FILE"), nil
}

func (r reader) readopt() ([]Operation, error) {
	record, err := records.ReadReadopt(r.tools.Files)
	if err != nil || record == nil || !record.Ended.IsZero() {
		return nil, err
	}
	o := Operation{Operation: Readopt, Began: record.Began, Sentence: fmt.Sprintf(
		"the readoption of cluster %s (etcd snapshot %.12s…) begun at %s", record.Cluster, record.Snapshot,
		at(record.Began))}
	return r.cutOff(o, ", and takes the same file", Readopt, "FILE"), nil
}

// replacement is a replacement of a Machine: its record is removed once it has ended.
func (r reader) replacement() ([]Operation, error) {
	record, err := replace.Begun(r.tools.Files)
	if err != nil || record == nil {
		return nil, err
	}
	o := Operation{Operation: Replace, Began: record.Began,
		Sentence: fmt.Sprintf("the replacement of Machine %s begun at %s", record.Machine, at(record.Began))}
	if record.Began.IsZero() { // of an older release
		o.Sentence = fmt.Sprintf("the replacement of Machine %s", record.Machine)
	}
	return r.cutOff(o, "", Replace, record.Asked), nil
}

func (r reader) quorum() ([]Operation, error) {
	record, err := records.ReadQuorum(r.tools.Files)
	if err != nil || record == nil {
		return nil, err
	}
	o := Operation{Operation: RecoverQuorum, Began: record.Began,
		Sentence: fmt.Sprintf("the recovery of the etcd of cluster %s begun at %s", record.Cluster, at(record.Began))}
	return r.cutOff(o, "", RecoverQuorum), nil
}

func (r reader) rotation() ([]Operation, error) {
	record, err := records.ReadRotation(r.tools.Files)
	if err != nil || record == nil {
		return nil, err
	}
	o := Operation{Operation: RotateCA, Began: record.Began, Sentence: fmt.Sprintf(
		"the rotation of the certificate authorities of cluster %s begun at %s", record.Cluster, at(record.Began))}
	return r.cutOff(o, "", "rotate", "ca"), nil
}
