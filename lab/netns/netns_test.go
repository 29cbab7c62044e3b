//go:build linux

package netns

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary acts as the lab: with this variable set it enters a network, listens, and reports the result.
const roleVar = "SLIPWAY_NETNS_TEST_ROLE"

// report is the output of that lab, one line of JSON.
type report struct {
	Isolation string
	PID       int // as Network tells it
	Own       int // the inner process's, as it sees itself
	Addr      string
	Exposed   string
	Private   string // listened on without the network: visible inside only
	Foreign   string // the refusal of an address that is not loopback
	Taken     bool   // a second Listen at Addr fails as "address already in use"
	Listeners []string
}

func TestMain(m *testing.M) {
	role := os.Getenv(roleVar)
	if role == "" {
		os.Exit(m.Run())
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if role == "refused" { // by its own namespace's limit, which it may set
		if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	err := Enter(ctx, dialerOfTest(), func(ctx context.Context, n Network) error { return playLab(ctx, role, n) })
	var exit *ExitError
	if errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "outer:", err)
		os.Exit(exit.Code)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(7)
	}
}

// targetVar names the one address of the host that may be reached.
const targetVar = "SLIPWAY_TEST_TARGET"

// dialerOfTest reaches the address of targetVar; nil where there is none.
func dialerOfTest() Dialer {
	target := os.Getenv(targetVar)
	if target == "" {
		return nil
	}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		switch addr {
		case target:
			var d net.Dialer
			return d.DialContext(ctx, "tcp4", addr)
		case "slow:1":
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return nil, errors.New(addr + " is not allowed")
	}
}

// dials is what a process inside reports of its ways out.
type dials struct {
	Reached  string // what the host's address answered
	Direct   string // the error of connecting to it without the network's Dial
	Refused  string // the error for an address that is not allowed
	GivenUp  string // the error of a dial that its caller gave up
	Listened bool   // a listening socket was had while a dial was under way
}

func playDials(ctx context.Context, n Network) error {
	target := os.Getenv(targetVar)
	var r dials
	slow, giveUp := context.WithCancel(ctx)
	given := make(chan error, 1)
	go func() {
		_, err := n.Dial(slow, "slow:1")
		given <- err
	}()
	l, err := n.Listen(ctx, "127.0.0.1:0")
	r.Listened = err == nil && l.Close() == nil
	giveUp()
	r.GivenUp = fmt.Sprint(<-given)
	_, err = n.Dial(ctx, "127.0.0.1:1")
	r.Refused = fmt.Sprint(err)
	if target != "" {
		_, err = net.DialTimeout("tcp4", target, 5*time.Second)
		r.Direct = fmt.Sprint(err)
		conn, err := n.Dial(ctx, target)
		if err != nil {
			return err
		}
		defer conn.Close()
		if r.Reached, err = bufio.NewReader(conn).ReadString('\n'); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func playLab(ctx context.Context, role string, n Network) error {
	if role == "fail" {
		return errors.New("as told")
	}
	if role == "dial" {
		return playDials(ctx, n)
	}
	l, err := n.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	private, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	exposed, err := n.Expose(ctx, private.Addr().String())
	if err != nil {
		return err
	}
	hidden, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go answer(l, "listened")
	go answer(private, "exposed")
	go answer(hidden, "hidden")
	_, foreign := n.Listen(ctx, "0.0.0.0:0")
	_, taken := n.Listen(ctx, l.Addr().String())
	r := report{Isolation: n.Isolation(), PID: n.PID(), Own: os.Getpid(), Addr: l.Addr().String(),
		Exposed: private.Addr().String(),
		Private: hidden.Addr().String(), Foreign: fmt.Sprint(foreign), Taken: errors.Is(taken, syscall.EADDRINUSE),
		Listeners: n.Listeners()}
	// Its own programs reach it at the same address.
	if got, err := ask(r.Addr); err != nil || got != "listened" {
		return fmt.Errorf("inside, %s answered %q, %v", r.Addr, got, err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	if role == "close" {
		if err := errors.Join(l.Close(), exposed.Close()); err != nil {
			return err
		}
		fmt.Println(len(n.Listeners()))
	}
	<-ctx.Done()
	fmt.Println("asked to stop")
	return nil
}

// answer writes a word to every connection and what it reads after it, until the client has finished.
func answer(l net.Listener, word string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			fmt.Fprintln(c, word)
			_, _ = io.Copy(c, c)
		}()
	}
}

func ask(addr string) (string, error) {
	c, err := net.DialTimeout("tcp4", addr, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "echo"); err != nil {
		return "", err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	if err != nil {
		return "", err
	}
	word, ok := strings.CutSuffix(string(b), "\necho")
	if !ok {
		return "", fmt.Errorf("answer %q lacks the echo", b)
	}
	return word, nil
}

// lab is a started test binary in its role.
type lab struct {
	cmd *exec.Cmd
	out *bufio.Reader
	raw []byte // the first line that it wrote
	report
}

func startLab(t *testing.T, role string, edit func(*exec.Cmd)) *lab {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{cmd: exec.Command(self)}
	l.cmd.Env = append(os.Environ(), roleVar+"="+role)
	l.cmd.Stderr = os.Stderr
	if edit != nil {
		edit(l.cmd)
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	l.out = bufio.NewReader(out)
	if err := l.cmd.Start(); errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		t.Skipf("no namespaces here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.cmd.Process.Kill() // mostly it has ended
		_ = l.cmd.Wait()
	})
	l.raw = []byte(l.line(t))
	if err := json.Unmarshal(l.raw, &l.report); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lab) line(t *testing.T) string {
	t.Helper()
	s, err := l.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the lab ended: %v", err)
	}
	return strings.TrimSpace(s)
}

// check checks the isolation of a lab in its own network.
func (l *lab) check(t *testing.T) {
	t.Helper()
	if l.Isolation != "network namespace" {
		t.Skipf("no namespaces here: %s", l.Isolation)
	}
	if l.PID != l.cmd.Process.Pid || l.Own != 1 {
		t.Errorf("pid %d, want %d; inside %d, want 1", l.PID, l.cmd.Process.Pid, l.Own)
	}
	for addr, want := range map[string]string{l.Addr: "listened", l.Exposed: "exposed"} {
		if got, err := ask(addr); err != nil || got != want {
			t.Errorf("%s answered %q, %v, want %q", addr, got, err, want)
		}
	}
	if got, err := ask(l.Private); err == nil && got == "hidden" {
		t.Error("a port that only the lab should see is visible on the host")
	}
	if !strings.Contains(l.Foreign, "127.0.0.0/8 only") {
		t.Errorf("0.0.0.0 was not refused: %q", l.Foreign)
	}
	if !l.Taken {
		t.Error("a second Listen at one address did not fail as address in use")
	}
	if len(l.Listeners) != 2 {
		t.Errorf("listeners %v, want two", l.Listeners)
	}
}

// gone waits until nothing listens on the host and no process of the lab is left.
func (l *lab) gone(t *testing.T, inner int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		_, errA := net.Dial("tcp4", l.Addr)
		_, errB := net.Dial("tcp4", l.Exposed)
		if errors.Is(errA, syscall.ECONNREFUSED) && errors.Is(errB, syscall.ECONNREFUSED) &&
			syscall.Kill(inner, 0) == syscall.ESRCH {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("something is left: %v, %v, process %d: %v", errA, errB, inner, syscall.Kill(inner, 0))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// inner finds the process inside, which the outer process started.
func (l *lab) inner(t *testing.T) (pid int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", l.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil {
			if _, err := fmt.Sscan(string(b), &pid); err == nil {
				return pid
			}
		}
	}
	t.Fatal("no process inside")
	return 0
}

func TestEnterServesBothSides(t *testing.T) {
	l := startLab(t, "serve", nil)
	l.check(t)
	inner := l.inner(t)
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := l.line(t); got != "asked to stop" {
		t.Errorf("got %q", got)
	}
	if err := l.cmd.Wait(); err != nil {
		t.Errorf("end: %v", err)
	}
	l.gone(t, inner)
}

func TestEnterWithoutPrivileges(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("every other test of this package runs without privileges already")
	}
	dir, err := os.MkdirTemp("", "netns") // not t.TempDir, whose parents others may not enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "lab")
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	l := startLab(t, "serve", func(cmd *exec.Cmd) {
		cmd.Path = program
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	})
	l.check(t)
}

func TestCloseTakesAddressesBack(t *testing.T) {
	l := startLab(t, "close", nil)
	if l.Isolation != "network namespace" {
		t.Skipf("no namespaces here: %s", l.Isolation)
	}
	if got := l.line(t); got != "0" {
		t.Errorf("%s listeners are left after Close", got)
	}
	for _, addr := range []string{l.Addr, l.Exposed} {
		if _, err := net.Dial("tcp4", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s still answers: %v", addr, err)
		}
	}
}

func TestEachSideDiesWithTheOther(t *testing.T) {
	t.Run("outer", func(t *testing.T) {
		l := startLab(t, "serve", nil)
		l.check(t)
		inner := l.inner(t)
		if err := l.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = l.cmd.Wait()
		l.gone(t, inner)
	})
	t.Run("inner", func(t *testing.T) {
		l := startLab(t, "serve", nil)
		l.check(t)
		inner := l.inner(t)
		if err := syscall.Kill(inner, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := l.cmd.Wait(); err == nil {
			t.Error("the outer process claims success")
		}
		l.gone(t, inner)
	})
}

func TestEnterPassesTheExitCodeOn(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVar+"=fail")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 || !strings.Contains(string(out), "as told") {
		t.Errorf("exit %v, output %s", err, out)
	}
}

// If namespaces are refused the lab runs on the host's loopback, and reports that.
func TestEnterFallsBackToTheHost(t *testing.T) {
	l := startLab(t, "refused", func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
	})
	if !strings.HasPrefix(l.Isolation, "host loopback (") || !strings.Contains(l.Isolation, "user.max_user_namespaces") {
		t.Errorf("isolation %q", l.Isolation)
	}
	if l.PID != l.cmd.Process.Pid || l.Own != l.PID {
		t.Errorf("pid %d, itself %d, want %d: nothing is inside", l.PID, l.Own, l.cmd.Process.Pid)
	}
	for addr, want := range map[string]string{l.Addr: "listened", l.Exposed: "exposed", l.Private: "hidden"} {
		if got, err := ask(addr); err != nil || got != want {
			t.Errorf("%s answered %q, %v, want %q", addr, got, err, want)
		}
	}
	if !strings.Contains(l.Foreign, "127.0.0.0/8 only") || !l.Taken || len(l.Listeners) != 2 {
		t.Errorf("refusal %q, taken %v, listeners %v", l.Foreign, l.Taken, l.Listeners)
	}
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := l.line(t); got != "asked to stop" {
		t.Errorf("got %q", got)
	}
}

// A process inside that cannot configure its network is a refusal, and Enter falls back.
func TestHelloCarriesARefusal(t *testing.T) {
	inner, outer := pair(t)
	if err := send(inner, hello{Error: "lo stays down"}); err != nil {
		t.Fatal(err)
	}
	if err := awaitHello(outer); err == nil || err.Error() != "lo stays down" {
		t.Errorf("got %v", err)
	}
	inner.Close()
	if err := awaitHello(outer); err == nil {
		t.Error("a closed conversation was taken for a hello")
	}
}

func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conns := [2]*net.UnixConn{}
	for i, fd := range fds {
		if conns[i], err = unixConn(os.NewFile(uintptr(fd), "pair")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conns[i].Close() })
	}
	return conns[0], conns[1]
}

// The only way out of the network is the dialer, which decides on the host.
func TestDial(t *testing.T) {
	target, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	go answer(target, "of the host")
	for _, address := range []string{target.Addr().String(), ""} {
		l := startLab(t, "dial", func(c *exec.Cmd) { c.Env = append(c.Env, targetVar+"="+address) })
		var r dials
		if err := json.Unmarshal(l.raw, &r); err != nil {
			t.Fatal(err)
		}
		want := "is not allowed"
		if address == "" {
			want = "no way out"
		} else if r.Reached != "of the host\n" || !strings.Contains(r.Direct, "refused") ||
			!strings.Contains(r.GivenUp, "canceled") {
			t.Errorf("with a dialer: %+v", r)
		}
		if !strings.Contains(r.Refused, want) || !r.Listened {
			t.Errorf("target %q: %+v", address, r)
		}
	}
}
