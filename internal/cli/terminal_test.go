//go:build unix

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// onTerminal is the command on a terminal, with a screen that shows what a person would see.
type onTerminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	screen vt10x.Terminal
}

// onTerminal starts a bootstrap in the fake environment.
func (q *quick) onTerminal(t *testing.T, columns, rows int) *onTerminal {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "bootstrap", "--yes", "--skip-doctor", "--state-dir", string(q.state()),
		"CILIUM_REPOSITORY="+q.charts, "HCLOUD_CCM_REPOSITORY="+q.charts, "TALOS_CCM_REPOSITORY="+q.charts,
		"MANAGEMENT_KUBECONFIG="+filepath.Join(q.dir, "kubeconfig"), "CONTROL_PLANE_ENDPOINT=load-balancer")
	cmd.Dir = q.dir
	cmd.Env = []string{
		"HOME=" + q.dir, "PATH=" + os.Getenv("PATH"), "TERM=xterm-256color", quickCommand + "=1", settings.TokenVariable +
			"=" + hetznertest.Token,
		settings.EndpointVariable + "=" + q.Hetzner.URL, effect.CrashVariable + "=",
	}
	master, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: uint16(columns), Rows: uint16(rows)})
	if err != nil {
		t.Fatal(err)
	}
	o := &onTerminal{t: t, cmd: cmd, master: master, screen: vt10x.New(vt10x.WithSize(columns, rows))}
	t.Cleanup(func() { _ = master.Close() })
	go func() { // until the last writer is gone
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			if err != nil {
				return
			}
			_, _ = o.screen.Write(buffer[:n])
		}
	}()
	return o
}

func (o *onTerminal) lines() []string {
	var lines []string
	for line := range strings.Lines(o.screen.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return lines
}

// shows waits until the screen is as it should be.
func (o *onTerminal) shows(what string, is func(lines []string) bool) {
	o.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(o.lines()); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			o.t.Fatalf("the screen does not show %s:\n%s", what, strings.Join(o.lines(), "\n"))
		}
	}
}

func has(lines []string, prefix string) bool {
	for _, line := range lines {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// once reports whether exactly one line has the words.
func once(lines []string, words string) bool {
	return strings.Count(strings.Join(lines, "\n"), words) == 1
}

// TestTerminal runs the command on a terminal, in an environment in which no load balancer is ever created: the tree
// shows what waits, follows the terminal when it becomes narrow, and Ctrl-C ends the run with what is kept and how to
// resume.
func TestTerminal(t *testing.T) {
	q := newQuick(t, quickCharts(t))
	all := q.Management.React
	q.Management.SetReact(func(o *unstructured.Unstructured) {
		if o.GetKind() != "HetznerCluster" {
			all(o)
		}
	})
	o := q.onTerminal(t, 100, 30)
	o.shows("the step that waits, and those to come", func(lines []string) bool {
		return has(lines, "✓ secret") &&
			has(lines, "    waiting for the load balancer: HetznerCluster k8s has no address yet") && has(lines, "· wait-nodes")
	})
	if err := pty.Setsize(o.master, &pty.Winsize{Cols: 40, Rows: 30}); err != nil {
		t.Fatal(err)
	}
	o.screen.Resize(40, 30)
	o.shows("the tree in 40 columns, once", func(lines []string) bool {
		return once(lines, "· wait-nodes") && once(lines, "waiting for the load balancer:\n") && once(lines, "✓ secret")
	})
	if _, err := o.master.Write([]byte{3}); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	err := o.cmd.Wait()
	if code := o.cmd.ProcessState.ExitCode(); code != ExitInterrupted {
		t.Fatalf("exit %d, %v", code, err)
	}
	o.shows("what is kept and how to resume", func(lines []string) bool {
		text := strings.ReplaceAll(strings.Join(lines, ""), " ", "") // the terminal itself breaks long lines, anywhere
		return has(lines, "! apply") && strings.Contains(text, "whatisdoneiskeptin") &&
			strings.Contains(text, "runthesamecommandagaintoresume") &&
			!has(lines, "· ") && once(lines, "✓ secret") && !has(lines, "✓ ✓")
	})
	if !o.screen.CursorVisible() {
		t.Error("the cursor is hidden")
	}
}
