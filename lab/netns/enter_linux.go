package netns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// brokerFD is the socket to the broker on the host: the first one after stdin, stdout and stderr.
	brokerFD = 3
	// helloDeadline is how long the process inside may take to configure its network.
	helloDeadline = 20 * time.Second
	// stopGrace is how long the process inside may take to end after SIGTERM. Its own deadline is shorter.
	stopGrace = 30 * time.Second
)

// Enter runs main in a network namespace of the lab, in another process that runs the same program with the same
// arguments up to this call. It returns when main has returned: its error inside, an *ExitError outside.
//
// When ctx is done outside, the process inside gets SIGTERM. Each of the two processes ends when the other one ends,
// for whatever reason.
//
// dial is what Network.Dial connects with, in the process on the host; nil: nothing is reached.
func Enter(ctx context.Context, dial Dialer, main func(context.Context, Network) error) error {
	if outer := os.Getenv(insideVar); outer != "" {
		return inside(ctx, outer, main)
	}
	err := outside(ctx, dial)
	var refused *refusedError
	if !errors.As(err, &refused) {
		return err
	}
	return main(ctx, &hostNetwork{
		dial: dial,
		isolation: fmt.Sprintf("host loopback (%v); webhook servers of the providers listen on all addresses of this host",
			refused),
		pid: os.Getpid(),
	})
}

// refusedError means that the system does not permit namespaces.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return "namespaces are refused: " + e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// outside starts the process inside and serves it listening sockets until it ends.
func outside(ctx context.Context, dial Dialer) error {
	// Pdeathsig follows the thread that starts the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return &refusedError{fmt.Errorf("socketpair: %w", err)}
	}
	theirs := os.NewFile(uintptr(fds[1]), "broker")
	defer theirs.Close()
	conn, err := unixConn(os.NewFile(uintptr(fds[0]), "broker"))
	if err != nil {
		return &refusedError{err}
	}
	defer conn.Close()

	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", insideVar, os.Getpid()))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return &refusedError{explain(err)}
	}
	theirs.Close() // so that the socket closes when the process inside ends
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	if err := awaitHello(conn); err != nil {
		_ = cmd.Process.Kill() // it may have ended already
		<-ended
		return &refusedError{err}
	}
	go serveBroker(conn, dial)

	stop := ctx.Done()
	var expired <-chan time.Time
	for {
		select {
		case err := <-ended:
			return exitError(err)
		case <-stop:
			stop = nil
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
			expired = time.After(stopGrace)
		case <-expired:
			_ = cmd.Process.Kill()
		}
	}
}

// explain explains the system's error for a refused namespace.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("no more of them are allowed, see sysctl user.max_user_namespaces: %w", err)
	case errors.Is(err, syscall.EPERM):
		return fmt.Errorf("this container or this system's settings forbid them: %w", err)
	default:
		return err
	}
}

func exitError(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return &ExitError{Code: exit.ExitCode(), Reason: exit.Error()}
	}
	return err
}

// inside configures the loopback interface and runs main.
func inside(ctx context.Context, outer string, main func(context.Context, Network) error) error {
	unix.CloseOnExec(brokerFD)
	conn, err := unixConn(os.NewFile(brokerFD, "broker"))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := os.Unsetenv(insideVar); err != nil {
		return err
	}
	var pid int
	if _, err := fmt.Sscan(outer, &pid); err != nil {
		return fmt.Errorf("%s=%q: %w", insideVar, outer, err)
	}
	up := loopbackUp()
	if err := send(conn, hello{Error: text(up)}); err != nil {
		return err
	}
	if up != nil {
		return up
	}
	return main(ctx, &ownNetwork{broker: &broker{conn: conn}, pid: pid})
}

// hello is the first message, from inside: whether the network is configured.
type hello struct {
	Error string `json:"error,omitempty"`
}

func awaitHello(conn *net.UnixConn) error {
	if err := conn.SetReadDeadline(time.Now().Add(helloDeadline)); err != nil {
		return err
	}
	var h hello
	if _, err := receive(conn, &h); err != nil {
		return fmt.Errorf("the process inside the namespace did not report its start: %w", err)
	}
	if h.Error != "" {
		return errors.New(h.Error)
	}
	return conn.SetReadDeadline(time.Time{})
}

// loopbackUp sets lo up; the kernel then assigns 127.0.0.1/8, and with it every address in 127.0.0.0/8.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return fmt.Errorf("read the state of lo: %w", err)
	}
	ifr.SetUint16(ifr.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}

func unixConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close() // FileConn has a copy
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("socket to the host's process: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("socket to the host's process: it is a %T", c)
	}
	return u, nil
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// send writes one message, with at most one file.
func send(conn *net.UnixConn, message any, files ...*os.File) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	var rights []byte
	for _, f := range files {
		rights = unix.UnixRights(int(f.Fd()))
	}
	_, _, err = conn.WriteMsgUnix(b, rights, nil)
	return err
}

// receive reads one message and the file that came with it, if any.
func receive(conn *net.UnixConn, message any) (*os.File, error) {
	b, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := conn.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, err
	}
	f, err := fileOf(oob[:oobn])
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, net.ErrClosed
	}
	return f, json.Unmarshal(b[:n], message)
}

func fileOf(oob []byte) (*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return nil, err
	}
	unix.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), "socket"), nil
}
