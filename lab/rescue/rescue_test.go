package rescue

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/slipway-k8s/slipway/lab/cloud"
)

const (
	image = "https://factory.talos.dev/image/ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515/v1.12.2/hcloud-amd64.raw.xz"
	write = `bash -c 'set -euo pipefail && wget --no-verbose -O - "` + image + `" | xz -cd | dd of=/dev/sda bs=4M && sync'`
)

func newKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// machine is one server in its rescue system, reached on a port that needs no privileges.
type machine struct {
	*Rescue
	server cloud.Server
	asked  string // the address that the system wanted
	addr   string
	off    chan int64
}

func boot(t *testing.T, latency Latency, keys ...ssh.Signer) *machine {
	t.Helper()
	m := &machine{off: make(chan int64, 1), server: cloud.Server{ID: 7, Name: "builder", Rescue: true,
		PublicIPv4: netip.MustParseAddr("127.65.4.7")}}
	for _, k := range keys {
		m.server.RescueKeys = append(m.server.RescueKeys, string(ssh.MarshalAuthorizedKey(k.PublicKey())))
	}
	up := make(chan struct{})
	m.Rescue = New(Config{Latency: latency, PoweredOff: func(id int64) { m.off <- id },
		Listen: func(ctx context.Context, addr string) (net.Listener, error) {
			var lc net.ListenConfig
			l, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
			if err == nil {
				m.asked, m.addr = addr, l.Addr().String()
				close(up)
			}
			return l, err
		}})
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := m.Start(t.Context(), m.server); err != nil {
		t.Fatal(err)
	}
	select {
	case <-up:
	case <-time.After(10 * time.Second):
		t.Fatal("the rescue system does not listen")
	}
	return m
}

func (m *machine) login(user string, key ssh.Signer) (*ssh.Client, error) {
	return ssh.Dial("tcp", m.addr, &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
		Timeout: 10 * time.Second,
	})
}

// run returns a command's exit code and output; -1: the connection broke.
func run(t *testing.T, c *ssh.Client, command string) (int, string) {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, err := s.CombinedOutput(command)
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return 0, string(out)
	case errors.As(err, &exit):
		return exit.ExitStatus(), string(out)
	}
	return -1, err.Error()
}

func TestWritesAnImageAndShutsDown(t *testing.T) {
	key := newKey(t)
	m := boot(t, Latency{Write: 10 * time.Millisecond}, key)
	if m.asked != "127.65.4.7:22" {
		t.Errorf("it listens on %s", m.asked)
	}
	c, err := m.login("root", key)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, command := range []string{"blkdiscard /dev/sda", write, "shutdown now"} {
		if code, out := run(t, c, command); code != 0 {
			t.Fatalf("%s: exit code %d: %s", command, code, out)
		}
	}
	select {
	case id := <-m.off:
		if id != 7 {
			t.Errorf("server %d is off", id)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("shutdown does not power the server off")
	}
	if what := m.Activity(7); what != "" {
		t.Errorf("after its end the system still %s", what)
	}
	if _, err := m.login("root", key); err == nil {
		t.Error("a server that is off answers")
	}
}

func TestInventsNoSuccess(t *testing.T) {
	key := newKey(t)
	m := boot(t, Latency{}, key)
	c, err := m.login("root", key)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for command, want := range map[string]int{
		"uname -a":                    exitUnknown,
		"blkdiscard --force /dev/sda": exitUnknown,
		write + "; echo done":         exitUnknown,
		strings.Replace(write, "xz -cd", "zstd -cd", 1):               exitUnknown,
		strings.Replace(write, "factory.talos.dev", "example.org", 1): exitFailed,
		strings.Replace(write, "hcloud-amd64", "metal-amd64", 1):      exitFailed,
		strings.Replace(write, "ce4c980550dd2ab1b17bbf2b", "ce4c", 1): exitFailed,
	} {
		if code, out := run(t, c, command); code != want || out == "" {
			t.Errorf("%s: exit code %d, want %d: %s", command, code, want, out)
		}
	}
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Shell(); err == nil {
		t.Error("it gives a shell")
	}
}

func TestRefusesOtherKeysAndUsers(t *testing.T) {
	key := newKey(t)
	m := boot(t, Latency{}, key)
	for what, try := range map[string]func() (*ssh.Client, error){
		"another key":  func() (*ssh.Client, error) { return m.login("root", newKey(t)) },
		"another user": func() (*ssh.Client, error) { return m.login("admin", key) },
	} {
		if c, err := try(); err == nil {
			c.Close()
			t.Errorf("%s is let in", what)
		}
	}
	if c, err := m.login("root", key); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
}

func TestStopEndsACommand(t *testing.T) {
	key := newKey(t)
	m := boot(t, Latency{Write: time.Hour}, key)
	c, err := m.login("root", key)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	code := make(chan int, 1)
	go func() {
		n, _ := run(t, c, write)
		code <- n
	}()
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(m.Activity(7),
		image); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not write: %s", m.Activity(7))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := m.Stop(ctx, 7, true); err != nil {
		t.Fatal(err)
	}
	if n := <-code; n == 0 {
		t.Error("a command that was cut off succeeded")
	}
	select {
	case <-m.off:
		t.Error("the cloud is notified of a stop that it requested")
	default:
	}
}

func TestNeedsAPublicAddress(t *testing.T) {
	if err := New(Config{}).Start(t.Context(), cloud.Server{ID: 1, Name: "private", Rescue: true}); err == nil {
		t.Error("a server without an address boots")
	}
}
