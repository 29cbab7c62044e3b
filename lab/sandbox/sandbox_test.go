package sandbox_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/lab/netns"
	"github.com/slipway-k8s/slipway/lab/proc"
	"github.com/slipway-k8s/slipway/lab/sandbox"
)

// programVar marks the test's program, which runs in a container.
const programVar = "SANDBOX_TEST_PROGRAM"

// fixedPort is a port that the program has no setting for.
const fixedPort = 9443

// TestMain runs the tests in a network of their own, as the lab does.
func TestMain(m *testing.M) {
	if what := os.Getenv(programVar); what != "" {
		run := program
		if what == attacker {
			run = attack
		}
		if err := run(); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	code := 0
	err := netns.Enter(ctx, nil, func(_ context.Context, n netns.Network) error {
		isolation = n.Isolation()
		code = m.Run()
		if code != 0 {
			os.Exit(code)
		}
		return nil
	})
	if err != nil {
		os.Exit(1)
	}
}

var isolation string

// seen is what the program sees of its container.
type seen struct {
	Hostname string
	Files    map[string]string // by path; "error: …" for one that cannot be read
	Addrs    []string
	PID      int
	Self     string // where /proc/self leads
	ReadOnly bool   // the volume cannot be written to
	Fetched  string // from the lab, at the address in the environment
	Metadata string
}

// program prints what it sees as a line, and then serves its host name at the fixed port until it is ended.
func program() error {
	s := seen{Files: map[string]string{}, PID: os.Getpid()}
	s.Hostname, _ = os.Hostname()
	for _, path := range strings.Fields(os.Getenv("READ")) {
		text, err := os.ReadFile(path)
		if s.Files[path] = string(text); err != nil {
			s.Files[path] = "error: " + err.Error()
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if ip := a.(*net.IPNet); ip.IP.To4() != nil {
			s.Addrs = append(s.Addrs, a.String())
		}
	}
	s.Self, _ = os.Readlink("/proc/self")
	s.ReadOnly = os.WriteFile("/var/run/secrets/example.org/new", nil, 0o600) != nil
	if err := os.WriteFile("/tmp/mine", []byte(s.Hostname), 0o600); err != nil {
		return err
	}
	s.Fetched = fetch(os.Getenv("FETCH"))
	s.Metadata = fetch("http://169.254.169.254/hetzner/v1/metadata/hostname")
	l, err := net.Listen("tcp4", fmt.Sprint(":", fixedPort))
	if err != nil {
		return err
	}
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s.Hostname) }))
}

func fetch(url string) string {
	client := http.Client{Timeout: 3 * time.Second}
	reply, err := client.Get(url)
	if err != nil {
		return "error: " + err.Error()
	}
	defer reply.Body.Close()
	text, _ := io.ReadAll(reply.Body)
	return string(text)
}

func newRuntime(t *testing.T) *sandbox.Runtime {
	t.Helper()
	if isolation != "network namespace" {
		t.Skip("no network of its own: ", isolation)
	}
	r, err := sandbox.New()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func serveAt(t *testing.T, l net.Listener, text string) {
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
}

// run starts the program in a container of a new network, and returns what it sees.
func run(t *testing.T, r *sandbox.Runtime, super *proc.Supervisor, name, volume, lab string) (*sandbox.Network, seen) {
	t.Helper()
	network, err := r.NewNetwork()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { network.Close() })
	metadata, err := network.Listen(netip.MustParseAddrPort("169.254.169.254:80"))
	if err != nil {
		t.Fatal(err)
	}
	serveAt(t, metadata, "server of "+name)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	root, log := filepath.Join(dir, "root"), filepath.Join(dir, "log")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	c := sandbox.Container{Network: network, Hostname: name, Root: root, Visible: []string{self}, Program: self,
		Mounts: []sandbox.Mount{
			{Source: dir, Target: dir},
			{Source: volume, Target: "/var/run/secrets/example.org", ReadOnly: true},
			{Source: volume, Target: "/etc/example.org"},
		}}
	p, err := super.Start(proc.Spec{Name: name, Path: self, LogFile: log, Dir: dir, Enter: c.Enter, Env: []string{
		programVar + "=1", "FETCH=http://" + lab,
		"READ=/var/run/secrets/example.org/token /etc/example.org/token /etc/hostname /tmp/mine /proc/1/cmdline",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(context.Background(), 0) })
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(log)
		if line, err := bufio.NewReader(strings.NewReader(string(text))).ReadString('\n'); err == nil {
			var s seen
			if err := json.Unmarshal([]byte(line), &s); err != nil {
				t.Fatalf("the program of %s: %s", name, text)
			}
			return network, s
		}
		if exit, ended := p.Exit(); ended || time.Now().After(end) {
			t.Fatalf("the program of %s said nothing (%+v): %s", name, exit, text)
		}
	}
}

func TestTwoPodsHaveTheSamePortAndPaths(t *testing.T) {
	r, super := newRuntime(t), proc.New()
	lab, err := net.Listen("tcp4", "127.65.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveAt(t, lab, "the lab")
	threads := len(netnsOfThreads(t))
	for _, name := range []string{"one", "two"} {
		volume := t.TempDir()
		if err := os.WriteFile(filepath.Join(volume, "token"), []byte("token of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
		network, s := run(t, r, super, name, volume, lab.Addr().String())
		want := []string{"127.0.0.1/10", network.Address().String() + "/32", "169.254.169.254/32"}
		slices.Sort(s.Addrs)
		slices.Sort(want)
		if !slices.Equal(s.Addrs, want) {
			t.Errorf("%s has the addresses %v, want %v", name, s.Addrs, want)
		}
		for path, want := range map[string]string{
			"/var/run/secrets/example.org/token": "token of " + name, "/etc/example.org/token": "token of " + name,
			"/etc/hostname": name + "\n",
		} {
			if s.Files[path] != want {
				t.Errorf("%s reads %q at %s, want %q", name, s.Files[path], path, want)
			}
		}
		if mine := s.Files["/tmp/mine"]; !strings.HasPrefix(mine, "error: ") {
			t.Errorf("%s sees another one's file in /tmp: %q", name, mine)
		}
		if s.Hostname != name || !s.ReadOnly || s.Fetched != "the lab" || s.Metadata != "server of "+name {
			t.Errorf("%s sees %+v", name, s)
		}
		if s.Self != fmt.Sprint(s.PID) || !strings.HasPrefix(s.Files["/proc/1/cmdline"], "error: ") {
			t.Errorf("%s has the process id %d, its /proc says %s", name, s.PID, s.Self)
		}
		// From the lab, and from the Pod's own loopback, each at the same port.
		if got := fetch(fmt.Sprintf("http://%s:%d", network.Address(), fixedPort)); got != name {
			t.Errorf("at the address of %s answers %q", name, got)
		}
		client := http.Client{Transport: &http.Transport{DialContext: network.DialContext}, Timeout: 3 * time.Second}
		reply, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d", fixedPort))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(reply.Body)
		reply.Body.Close()
		if string(text) != name {
			t.Errorf("at the loopback of %s answers %q", name, text)
		}
	}
	if _, err := os.Stat("/etc/example.org"); err == nil {
		t.Error("a mount point was made on the machine")
	}
	if err := super.StopAll(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	// The threads that have entered a namespace end with the processes.
	for end := time.Now().Add(5 * time.Second); len(netnsOfThreads(t)) > threads; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("threads are left in namespaces of Pods: %v", netnsOfThreads(t))
		}
	}
}

// netnsOfThreads are the network namespaces that the threads of this process are in.
func netnsOfThreads(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	links, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if namespace, err := os.Readlink(link); err == nil { // a thread may end meanwhile
			all[namespace]++
		}
	}
	return all
}

// A program that cannot be started in its container is an error of Start.
func TestEnterFails(t *testing.T) {
	r, super := newRuntime(t), proc.New()
	network, err := r.NewNetwork()
	if err != nil {
		t.Fatal(err)
	}
	defer network.Close()
	c := sandbox.Container{Network: network, Hostname: "x", Root: t.TempDir(),
		Mounts: []sandbox.Mount{{Source: "/nonexistent", Target: "/etc/x"}}}
	_, err = super.Start(proc.Spec{Name: "x", Path: "/bin/true", Enter: c.Enter})
	if err == nil || !strings.Contains(err.Error(), "mount /etc/x") {
		t.Errorf("got %v", err)
	}
}

// TestRefusal runs New where the system permits no further namespace of a kind.
func TestRefusal(t *testing.T) {
	if isolation != "network namespace" {
		t.Skip("no network of its own: ", isolation)
	}
	const limit = "/proc/sys/user/max_mnt_namespaces"
	before, err := os.ReadFile(limit)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(limit, []byte("0"), 0); err != nil {
		t.Skip("the limit of this user namespace cannot be set: ", err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(limit, before, 0); err != nil {
			t.Error(err)
		}
	})
	if _, err := sandbox.New(); err == nil || !strings.Contains(err.Error(), "see sysctl user.max_mnt_namespaces") {
		t.Errorf("got %v", err)
	}
}
