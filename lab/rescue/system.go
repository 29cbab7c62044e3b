package rescue

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/slipway-k8s/slipway/lab/cloud"
)

const (
	// Port is SSH's; hcloudimages dials no other.
	Port = 22
	// listenPause is the time between two tries to listen.
	listenPause = 500 * time.Millisecond
	// loginWithin is how long a client may take to log in.
	loginWithin = 30 * time.Second
)

// system is the rescue system of one server, from its boot to its end.
type system struct {
	config   Config
	hardware cloud.Server
	ssh      *ssh.ServerConfig
	end      context.CancelCauseFunc
	ended    chan struct{} // closed when nothing of it is left

	mu    sync.Mutex
	doing string
}

// newSystem makes a system with a host key of its own, as every boot of the real one has.
func newSystem(config Config, hardware cloud.Server) (*system, context.Context, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	host, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, nil, err
	}
	var known []string
	for _, text := range hardware.RescueKeys {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(text))
		if err != nil {
			return nil, nil, fmt.Errorf("a key of its is no SSH key: %w", err)
		}
		known = append(known, string(key.Marshal()))
	}
	s := &system{config: config, hardware: hardware, ended: make(chan struct{}), doing: "boots"}
	s.ssh = &ssh.ServerConfig{
		PublicKeyCallback: func(login ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if login.User() != "root" || !slices.Contains(known, string(key.Marshal())) {
				return nil, errors.New("the key is not one that enabled the rescue system, or the user is not root")
			}
			return &ssh.Permissions{}, nil
		},
	}
	s.ssh.AddHostKey(host)
	ctx, end := context.WithCancelCause(context.Background())
	s.end = end
	return s, ctx, nil
}

// run boots and answers until ctx is done, and returns when every connection is closed.
func (s *system) run(ctx context.Context) {
	log := s.config.Log.With("server", s.hardware.Name)
	if !sleep(ctx, s.config.Latency.Boot) {
		return
	}
	addr := net.JoinHostPort(s.hardware.PublicIPv4.String(), fmt.Sprint(Port))
	l := s.listen(ctx, addr)
	if l == nil {
		return
	}
	log.Info("a rescue system answers", "address", addr)
	s.does("waits for commands")
	context.AfterFunc(ctx, func() { l.Close() })
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			log.Info("a rescue system has ended", "reason", context.Cause(ctx))
			return
		}
		if err != nil {
			log.Warn("a rescue system could not accept a connection", "error", err)
			if !sleep(ctx, listenPause) {
				return
			}
			continue
		}
		connections.Go(func() { s.serve(ctx, conn) })
	}
}

// listen tries until it can or ctx is done; then it returns nil.
func (s *system) listen(ctx context.Context, addr string) net.Listener {
	for {
		l, err := s.config.Listen(ctx, addr)
		if err == nil {
			return l
		}
		s.does(fmt.Sprintf("cannot listen on %s: %v", addr, err))
		if !sleep(ctx, listenPause) {
			return nil
		}
	}
}

// serve serves SSH on one connection.
func (s *system) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(loginWithin)) // fails on a closed connection, as the handshake then does
	login, channels, requests, err := ssh.NewServerConn(conn, s.ssh)
	if err != nil {
		s.config.Log.Info("a login to a rescue system failed", "server", s.hardware.Name, "reason", err)
		return
	}
	defer login.Close()
	_ = conn.SetDeadline(time.Time{})
	go ssh.DiscardRequests(requests)
	var sessions sync.WaitGroup
	defer sessions.Wait()
	for c := range channels {
		if c.ChannelType() != "session" {
			_ = c.Reject(ssh.UnknownChannelType, "the lab's rescue system runs commands, nothing else")
			continue
		}
		channel, requests, err := c.Accept()
		if err != nil {
			return
		}
		sessions.Go(func() { s.session(ctx, channel, requests) })
	}
}

// session runs the one command of a session.
func (s *system) session(ctx context.Context, channel ssh.Channel, requests <-chan *ssh.Request) {
	defer channel.Close()
	for r := range requests {
		var asked struct{ Command string }
		if r.Type != "exec" || ssh.Unmarshal(r.Payload, &asked) != nil {
			_ = r.Reply(false, nil)
			continue
		}
		_ = r.Reply(true, nil)
		status := s.execute(ctx, asked.Command, channel.Stderr())
		// The client may have closed the connection; the command has ended either way.
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
		if asked.Command == shutdownCommand {
			_ = channel.Close() // the client reads its end before the server goes
			s.end(errHalt)
		}
		return
	}
}

func (s *system) does(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doing = what
}

func (s *system) activity() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.doing
}

// sleep waits and returns false when ctx was done before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
