package cli

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/platform"
)

// errorWidth is the width of the terminal that errors are read at; 0: they are
// not, or stdout, which is asked for it, is none.
func errorWidth(c *console) int {
	if f, isFile := c.stderr.(*os.File); isFile && !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	return c.width()
}

// console is what a command sees of the machine: streams, environment, working directory, terminal.
type console struct {
	stdin          io.Reader // answers of the operator; nil: none can be asked
	stdout, stderr io.Writer
	environment    map[string]string
	workDir        string
	size           func() (columns, rows int) // of the terminal behind stdout; 0: it is none
	hide           *redact.Redactor
	// readFaults reads where a run is to end itself, for the crash suite; nil: this command is built without fault
	// injection.
	readFaults func(text string) (func() effect.Faults, error)
	faults     func() effect.Faults // makes the faults of a run; nil: there are none
	// equip changes what a run at Hetzner works with; nil: nothing. Tests put their own in the place of what no fake
	// stands for.
	equip func(*platform.Tools)
	// charts downloads what a plan renders; nil: as a run does.
	charts checks.Download
	memory session.Memory
}

// terminalSize is 0 where f is no terminal that understands control sequences.
func terminalSize(f *os.File) (columns, rows int) {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) || os.Getenv("TERM") == "dumb" {
		return 0, 0
	}
	columns, rows, err := term.GetSize(fd)
	if err != nil {
		return 0, 0
	}
	return columns, rows
}

// width is the terminal's; 0 where there is none.
func (c *console) width() int {
	columns, _ := c.size()
	return columns
}
