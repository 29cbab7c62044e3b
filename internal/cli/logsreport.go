package cli

import (
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/cluster/logs"
)

// logPrinter writes lines of logs, one at a time, and each remark once.
type logPrinter struct {
	*call
	mu      sync.Mutex
	colours map[string]string // by Pod
	noted   map[string]bool
}

func newLogPrinter(c *call) *logPrinter {
	return &logPrinter{call: c, colours: map[string]string{}, noted: map[string]bool{}}
}

// logColours tell Pods apart: all but black and white, of which one is the background, and red, which looks like an
// error.
func logColours() []string {
	return []string{"\x1b[36m", "\x1b[33m", "\x1b[32m", "\x1b[35m", "\x1b[34m", "\x1b[96m", "\x1b[93m", "\x1b[92m",
		"\x1b[95m", "\x1b[94m"}
}

// jsonLogLine is a line in `bootstrap logs --output json`.
type jsonLogLine struct {
	Time       time.Time `json:"time,omitzero"`
	Cluster    string    `json:"cluster"`
	Controller string    `json:"controller"`
	Namespace  string    `json:"namespace"`
	Pod        string    `json:"pod"`
	Container  string    `json:"container"`
	Text       string    `json:"text"`
}

func (p *logPrinter) line(l logs.Line) {
	text := harmless(p.hide.Text(l.Text))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Output == "json" {
		// whoever has closed it is not interested
		_ = ui.PrintJSONLine(p.stdout, jsonLogLine{l.Time, l.Cluster, l.Controller, l.Namespace, l.Pod, l.Container, text})
		return
	}
	_, _ = fmt.Fprintf(p.stdout, "%s %s\n", p.prefix(l), text)
}

// prefix says whose line it is: the cluster, and the Pod, whose name begins with its controller's. The container is
// named where it is not the one that every controller has.
func (p *logPrinter) prefix(l logs.Line) string {
	text := l.Cluster + "/" + l.Pod
	if l.Container != "" && l.Container != "manager" && !strings.HasPrefix(l.Pod, l.Container+"-") {
		text += "/" + l.Container
	}
	text = harmless(text)
	if !p.coloured() {
		return text + " |"
	}
	key := l.Cluster + "/" + l.Namespace + "/" + l.Pod
	if p.colours[key] == "" {
		colours := logColours()
		p.colours[key] = colours[len(p.colours)%len(colours)]
	}
	return p.colours[key] + text + ui.StyleReset + " |"
}

// note says why something is not read, once.
func (p *logPrinter) note(about logs.Line, why string) {
	who := about.Cluster + " cluster"
	if about.Pod != "" {
		who = about.Cluster + "/" + about.Pod + "/" + about.Container
	}
	text := text.Printable(p.hide.Text(who + ": " + why))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.noted[text] {
		return
	}
	p.noted[text] = true
	_, _ = fmt.Fprintln(p.stderr, "note:", text)
}

// harmless leaves a text as it is but for what would move a cursor or change colours.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, s)
}
