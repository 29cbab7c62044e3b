package netns

import (
	"errors"
	"io"
	"net"
	"sync"
)

// merged accepts from two listeners of one address, one on each side.
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

// relay passes connections of the host to the same address inside, until the listener is closed.
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
				return // nobody listens inside: the caller sees its connection closed
			}
			defer to.Close()
			pipe(c.(*net.TCPConn), to.(*net.TCPConn))
		}()
	}
}

// pipe copies both ways and passes on that one side has finished sending.
func pipe(a, b *net.TCPConn) {
	var wg sync.WaitGroup
	wg.Go(func() { half(a, b) })
	half(b, a)
	wg.Wait()
}

func half(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		// A broken side ends both, or the other would wait for ever.
		to.Close()
		from.Close()
		return
	}
	_ = to.CloseWrite() // it may have closed already
}
