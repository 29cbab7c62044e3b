// Package report writes the story of a bootstrap as one HTML page that needs nothing but a browser: no script, no
// address to load from. Everything on it is text that it is given.
package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

// Page is the content of the page. Texts are as people read them; times and durations are written already.
type Page struct {
	Title   string
	Lead    []string // sentences
	State   State
	Facts   []Fact
	Runs    []Run
	Ticks   []Tick
	Rows    []Row
	Path    []Span // the critical path
	Waits   []Wait // the longest
	Trouble []Trouble
	Changes []Change
	Nodes   []Node
	Made    []Fact
	Notes   []string
	Setup   []Fact // versions and the like
	Values  []Value
	Foot    string // by whom, and when: the last line
}

// State is how something came out. Its text says so, its colour only repeats it.
type State string

// The states.
const (
	Done        State = "done"
	Reused      State = "reused"
	Skipped     State = "skipped"
	Failed      State = "failed"
	Interrupted State = "interrupted"
	Killed      State = "killed"
)

// Fact is a name with its value.
type Fact struct{ Name, Value string }

// Run is one run of the command. Left and Width are in percent of the time line.
type Run struct {
	Number        int
	ID            string
	Began, Took   string
	After         string // the time since the run before ended
	State         State
	Why           string
	Left, Width   float64
	TargetsWanted string
}

// Tick is a mark on the time line.
type Tick struct {
	Left float64
	Text string
}

// Row is a step.
type Row struct {
	Name, Doc string
	Critical  bool
	State     State
	Attempts  int
	Took      string // of all attempts
	Bars      []Bar
	Said      []Said
	Error     string
}

// Bar is an attempt at a step, or a look at what there is.
type Bar struct {
	Left, Width float64
	State       State
	Text        string // the whole of it, for those who cannot see it
	Label       string // beside it; may be empty
	Turned      bool   // the label is left of the bar
}

// Said is what a step said while it was at work.
type Said struct {
	At, For, Text string
	Run           int
	Trouble       bool
}

// Span is a step of the critical path with its share.
type Span struct {
	Name, Took string
	Share      float64 // percent of the path
}

// Wait is a reason that a step waited for.
type Wait struct{ Step, For, Text string }

// Trouble is something that went wrong.
type Trouble struct {
	At, What, Text string
	Run            int
	State          State
}

// Change is what a run changed outside itself.
type Change struct {
	System, What, Step        string
	Times, Failed, Unanswered int
}

// Node is a node of the cluster.
type Node struct{ Name, Version, Private, Public, ID string }

// Value is a value of the configuration.
type Value struct {
	Name, Value, From string
	Changed           bool // not the default
}

//go:embed page.html
var page string

// Write writes the page.
func Write(w io.Writer, p Page) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		// a number is no text of others'
		"percent": func(f float64) template.CSS { return template.CSS(fmt.Sprintf("%.3f%%", f)) },
	}).Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(w, p)
}
