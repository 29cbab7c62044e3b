package test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"
)

// Requests of Linux's terminals, from asm-generic/ioctls.h.
const (
	unlockPTY = 0x40045431 // TIOCSPTLCK
	numberPTY = 0x80045430 // TIOCGPTN
	setWindow = 0x5414     // TIOCSWINSZ
)

// screen is a terminal of some width that a program runs on, and a person sits at.
type screen struct {
	t    *testing.T
	main *os.File

	mu    sync.Mutex
	shown strings.Builder
	ended chan struct{}
	exit  func() int
}

// at runs the command at a terminal.
func (c *doctorLab) at(t *testing.T, columns int, args ...string) *screen {
	t.Helper()
	main, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	t.Cleanup(func() { _ = main.Close() })
	ask := func(request uintptr, argument unsafe.Pointer) {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, main.Fd(), request, uintptr(argument)); errno != 0 {
			t.Fatalf("ioctl %#x of a terminal: %v", request, errno)
		}
	}
	var lock, number int32
	ask(unlockPTY, unsafe.Pointer(&lock))
	ask(numberPTY, unsafe.Pointer(&number))
	window := [4]uint16{40, uint16(columns)}
	ask(setWindow, unsafe.Pointer(&window))
	side, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := c.withVars(ctx, args...)
	cmd.Env = append(cmd.Env, "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = side, side, side
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = side.Close() // the program has its own
	s := &screen{t: t, main: main, ended: make(chan struct{}), exit: func() int { return cmd.ProcessState.ExitCode() }}
	read := make(chan struct{})
	go func() { defer close(read); s.read() }()
	go func() { defer close(s.ended); _ = cmd.Wait(); <-read }()
	return s
}

func (s *screen) read() {
	block := make([]byte, 4096)
	for {
		n, err := s.main.Read(block)
		s.mu.Lock()
		s.shown.Write(block[:n])
		s.mu.Unlock()
		if err != nil {
			return // the program has ended
		}
	}
}

// colours change how letters look, moves where the next one comes.
var colours, moves = regexp.MustCompile(`\x1b\[[0-9;]*m`), regexp.MustCompile(`\x1b\[[0-9;? ]*[A-Za-ln-z]|\r`)

// text is what was shown so far, as it came; every move of the cursor begins a line.
func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return moves.ReplaceAllString(strings.ReplaceAll(colours.ReplaceAllString(s.shown.String(), ""), "\r\n", "\n"), "\n")
}

// until waits for a text on the screen.
func (s *screen) until(words string) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%q on the screen", words), time.Minute, func(context.Context) string {
		if text := s.text(); !strings.Contains(text, words) {
			return "there is\n" + text
		}
		return ""
	})
}

func (s *screen) types(answer string) {
	s.t.Helper()
	if _, err := s.main.WriteString(answer + "\n"); err != nil {
		s.t.Fatal(err)
	}
}

// end waits until the program has ended.
func (s *screen) end() int {
	s.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(2 * time.Minute):
		s.t.Fatalf("it does not end:\n%s", s.text())
	}
	return s.exit()
}

// operatorIsAsked runs the command at a terminal of 80 columns: a run that would change something shows what it would
// create and its cost, within the width, and asks once. In a pipe, or with --yes, it does not ask.
func operatorIsAsked(lab *command) func(*testing.T) {
	return func(t *testing.T) {
		const question = "Go ahead? [yes/no]"
		c := newDoctorLab(t, lab)
		before := c.everything(t)
		s := c.at(t, 80, "all")
		s.until(question)
		asked := s.text()
		for _, words := range []string{"doctor", "limits", "plan for cluster k8s at Hetzner Cloud", "3 server", "cx33",
			"a month more, VAT included", "expected:", "wait-cp"} {
			if !strings.Contains(asked, words) {
				t.Errorf("before the question there is no %q:\n%s", words, asked)
			}
		}
		for line := range strings.Lines(asked) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
				t.Errorf("a line of %d columns at a terminal of 80: %q", n, line)
			}
		}
		s.types("no")
		if exit := s.end(); exit != 1 || !strings.Contains(s.text(), "not confirmed: nothing was done") {
			t.Errorf("after a no: exit %d\n%q", exit, s.text())
		}
		if after := c.everything(t); strings.Join(after, "\n") != strings.Join(before, "\n") {
			t.Errorf("after a no there is %v, and was %v", after, before)
		}
		s = c.at(t, 80, "firewall")
		s.until(question)
		s.types("yes")
		if exit := s.end(); exit != 0 || strings.Count(s.text(), question) != 1 {
			t.Errorf("after a yes: exit %d\n%s", exit, s.text())
		}
		if after := c.everything(t); len(after) == len(before) {
			t.Errorf("after a yes nothing was made: %v", after)
		}
		s = c.at(t, 80, "firewall", "--yes", "FIREWALL_ALLOW=192.0.2.7/32")
		if exit := s.end(); exit != 0 || strings.Contains(s.text(), question) {
			t.Errorf("with --yes: exit %d\n%s", exit, s.text())
		}
		out, err := c.withVars(t.Context(), "firewall", "FIREWALL_ALLOW=192.0.2.8/32").CombinedOutput()
		if err != nil || strings.Contains(string(out), question) || strings.Contains(string(out), "\x1b") {
			t.Errorf("in a pipe: %v\n%s", err, out)
		}
		// The last check needs an empty project.
		if out, err := c.withVars(t.Context(), "destroy", "--yes").CombinedOutput(); err != nil {
			t.Errorf("destroy: %v\n%s", err, out)
		}
	}
}
