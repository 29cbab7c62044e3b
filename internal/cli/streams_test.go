//go:build unix

package cli

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// A run with an output that no process reads any more comes to its end, and its exit code is that of what it did.
func TestARunOutlivesItsReader(t *testing.T) {
	q := newQuick(t, quickCharts(t))
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	q.stdout = writer
	if code := q.run(t, death{}); code != ExitDone {
		t.Errorf("it ends with %d: %s", code, q.stderr)
	}
}

// So is work on the lab done: `lab up | head` leaves a lab that is up.
func TestWorkOnTheLabOutlivesItsReader(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "lab", "build")
	cmd.Dir = t.TempDir() // nothing can be built there, which it says when it has come so far
	cmd.Env = []string{"HOME=" + cmd.Dir, "PATH=" + os.Getenv("PATH"), quickCommand + "=1"}
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = writer, &stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != ExitFailed && exit.ExitCode() != ExitUsage ||
		!strings.Contains(stderr.String(), "error: ") {
		t.Errorf("it ends with %v: %s", err, stderr.String())
	}
}

// A question is asked where a person sees it.
func TestQuestionsAreSeen(t *testing.T) {
	const question = "Go ahead? "
	master, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer terminal.Close()
	for name, where := range map[string]func(c *console, file *os.File) (ofFile string){
		"bootstrap 2>file": func(c *console, file *os.File) string { c.stdout, c.stderr = terminal, file; return "" },
		"bootstrap >file":  func(c *console, file *os.File) string { c.stdout, c.stderr = file, terminal; return "" },
		"both":             func(c *console, file *os.File) string { c.stdout, c.stderr = file, file; return question },
	} {
		path := filepath.Join(t.TempDir(), "file")
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		c := &console{stdin: strings.NewReader("yes\n")}
		want := where(c, file)
		if err := c.confirm(t.Context(), question, "yes"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Fatalf("%s: the file has %q, %v", name, got, err)
		}
		if want != "" {
			continue
		}
		seen := make([]byte, len(question))
		if _, err := io.ReadFull(master, seen); err != nil || string(seen) != question {
			t.Errorf("%s: the terminal shows %q, %v", name, seen, err)
		}
	}
}
