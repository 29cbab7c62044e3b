package netns

import (
	"errors"
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
