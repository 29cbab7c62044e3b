package netns

import (
	"errors"
	"io"
	"net"
	"sync"
)

// merged accepts from two listeners of one address, one inside and one on the host.
type merged struct {
	inside, host net.Listener
	conns        chan net.Conn
	failed       chan error
	done         chan struct{}
	once         sync.Once
}

func merge(inside, host net.Listener) *merged {
	m := &merged{inside: inside, host: host, conns: make(chan net.Conn), failed: make(chan error),
		done: make(chan struct{})}
	go m.accept(inside)
	go m.accept(host)
	return m
}

func (m *merged) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			select {
			case m.failed <- err:
				continue // servers try again after a passing error, such as too many open files
			case <-m.done:
				return
			}
		}
		select {
		case m.conns <- c:
		case <-m.done:
			c.Close()
			return
		}
	}
}

func (m *merged) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case err := <-m.failed:
		return nil, err
	case <-m.done:
		return nil, net.ErrClosed
	}
}

func (m *merged) Close() error {
	m.once.Do(func() { close(m.done) })
	return errors.Join(m.inside.Close(), m.host.Close())
}

func (m *merged) Addr() net.Addr { return m.inside.Addr() }

// relay forwards connections of the host to the same address inside, until the listener is closed.
func relay(host net.Listener, addr string) {
	for {
		c, err := host.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		go func() {
			defer c.Close()
			to, err := net.Dial("tcp4", addr)
			if err != nil {
				return // no process listens inside: the connection is closed
			}
			defer to.Close()
			pipe(c.(*net.TCPConn), to.(*net.TCPConn))
		}()
	}
}

// pipe copies in both directions and passes a half-close on.
func pipe(a, b *net.TCPConn) {
	var wg sync.WaitGroup
	wg.Go(func() { half(a, b) })
	half(b, a)
	wg.Wait()
}

func half(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		// An error of either connection closes both; otherwise the other one would never end.
		to.Close()
		from.Close()
		return
	}
	_ = to.CloseWrite() // it may have closed already
}
