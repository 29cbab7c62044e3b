// Package effect names every call of a run that changes something outside the process, writes it down before it leaves
// and after its reply.
package effect

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// System is what a call changes.
type System string

// The environments. Management is the cluster that Cluster API works in until the pivot, Workload the cluster that is
// made: it stays Workload when it manages itself.
const (
	Hetzner    System = "hetzner"
	Management System = "management"
	Workload   System = "workload"
	Talos      System = "talos"
	Gitea      System = "gitea" // in the workload cluster
	SSH        System = "ssh"
	Kind       System = "kind"
	Local      System = "local" // the daemon of a local management cluster
	Lab        System = "lab"
	File       System = "file"
	Journal    System = "journal"
)

// Systems lists them.
func Systems() []System {
	return []System{Hetzner, Management, Workload, Talos, Gitea, SSH, Kind, Local, Lab, File, Journal}
}

// Phase is what a line says of a call.
type Phase string

// The phases. A call without Applied or Failed is one that the process did not see answered before it ended.
const (
	Leaves  Phase = "before"  // it is about to leave
	Applied Phase = "applied" // it was answered, and not refused
	Failed  Phase = "failed"  // it was refused, or not answered; it may have come about all the same
	Killed  Phase = "killed"  // the run ended itself here, at the place that Error holds
)

// Line is a line of a run's effects.jsonl. Its JSON names are stable.
type Line struct {
	Time   time.Time `json:"time"`
	Seq    int       `json:"seq"` // of the call in its run, from 1; both lines of a call have it
	System System    `json:"world"`
	Verb   string    `json:"verb"`
	Object string    `json:"object"`
	Nth    int       `json:"nth"` // of the calls in the run that are called the same, from 1
	Phase  Phase     `json:"phase"`
	Step   string    `json:"step,omitempty"`
	Error  string    `json:"error,omitempty"` // with Failed and Killed
}

// Name is "hetzner create firewalls/k8s", the same in every undisturbed run.
func (l Line) Name() string { return fmt.Sprintf("%s %s %s", l.System, l.Verb, l.Object) }

// Key is "hetzner create firewalls/k8s#1": one call of a run.
func (l Line) Key() string { return fmt.Sprintf("%s#%d", l.Name(), l.Nth) }

// Options are what a Recorder works with.
type Options struct {
	// Lines takes each line in one write; nil: they are not written. It never gets a request's body.
	Lines io.Writer
	// Warn hears, once, that Lines takes no more. The run goes on: what it resumes by is the journal and the cluster, and
	// to stop between two changes because a third cannot be noted would leave more behind, not less.
	Warn func(error)
	// Step names the step that a context belongs to; nil or empty: it is unknown.
	Step func(context.Context) string
	// Watch hears of every call but those of File and Journal, those that change nothing too; what it returns is called
	// with how the call ended, with the status of HTTP where there is one. nil: none.
	Watch func(context.Context, Seen) (ended func(status int, err error))
	// Faults ends the process where a test wants that; nil: nothing does.
	Faults Faults
	// Lease guards the run where its state is in a store that others can write; nil: no one else can.
	Lease Lease
}

// Lease is what a run may change things under.
type Lease interface {
	// Guard returns why nothing may be changed any more; nil: it may.
	Guard() error
	// Push makes what has changed in the state folder last outside of this machine. It is called after each change of a
	// file and of the journal.
	Push(ctx context.Context) error
}

// Recorder sees the calls of one run. A nil one sees nothing.
type Recorder struct {
	options Options

	mu     sync.Mutex
	seq    int
	nth    map[string]int // by name
	silent bool           // Lines has failed
}

// New makes the recorder of a run.
func New(o Options) *Recorder { return &Recorder{options: o, nth: map[string]int{}} }

// Call is a call that has not been answered yet.
type Call struct {
	recorder *Recorder
	line     Line
}

// Begin is called right before a call leaves. Objects are written as Plain leaves them; those of Journal are
// "<step>/<state>".
func (r *Recorder) Begin(ctx context.Context, system System, verb, object string) *Call {
	if r == nil {
		return nil
	}
	line := Line{System: system, Verb: verb, Object: Plain(object), Phase: Leaves}
	switch {
	case system == Journal: // a record is of the step that it names, whichever step is running meanwhile
		line.Step, _, _ = strings.Cut(object, "/")
	case r.options.Step != nil:
		line.Step = r.options.Step(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reached(PointReplied, Line{}) // the caller has its reply
	r.seq++
	r.nth[line.Name()]++
	line.Seq, line.Nth = r.seq, r.nth[line.Name()]
	r.write(line)
	r.reached(PointBefore, line)
	return &Call{r, line}
}

// End is called as soon as the reply is there, before its caller sees it. err is why the call failed; its text is kept.
func (c *Call) End(err error) {
	if c == nil {
		return
	}
	r, line := c.recorder, c.line
	line.Phase = Applied
	if err != nil {
		line.Phase, line.Error = Failed, err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reached(PointApplied, line)
	r.write(line)
}

// Do records a call that is a function.
func (r *Recorder) Do(ctx context.Context, system System, verb, object string, call func() error) error {
	if err := r.guard(system); err != nil {
		return err
	}
	ended := func(int, error) {}
	if system == Kind {
		ended = r.watch(ctx, Seen{System: system, Verb: verb, Object: Plain(object)})
	}
	c := r.Begin(ctx, system, verb, object)
	err := call()
	if err == nil && local(system) && r != nil && r.options.Lease != nil {
		err = r.options.Lease.Push(context.WithoutCancel(ctx))
	}
	c.End(err)
	ended(0, err)
	return err
}

// local reports whether a call changes the state folder.
func local(system System) bool { return system == File || system == Journal }

// guard refuses what a run may not change any more. Its own folder it may: a later run sorts that out.
func (r *Recorder) guard(system System) error {
	if r == nil || r.options.Lease == nil || local(system) {
		return nil
	}
	return r.options.Lease.Guard()
}

// write writes a line at once: the process may end at the next instruction. It is not flushed to the disk, so a power
// failure may take the last lines; nothing depends on them.
func (r *Recorder) write(line Line) {
	if r.options.Lines == nil || r.silent {
		return
	}
	line.Time = time.Now()
	data, err := json.Marshal(line)
	if err == nil {
		_, err = r.options.Lines.Write(append(data, '\n'))
	}
	if err != nil {
		r.silent = true
		if r.options.Warn != nil {
			r.options.Warn(err)
		}
	}
}
