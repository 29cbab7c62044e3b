package talos

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"
)

// listenFunc opens a listening socket on "address:port".
type listenFunc func(ctx context.Context, addr string) (net.Listener, error)

// listenPause is the time between two tries to listen on an address.
const listenPause = 500 * time.Millisecond

// serveOnAddresses listens on a port of each of the server's addresses, also of those that it gets
// later, and closes what it has lost, until ctx is done. It tries again where that fails and tells
// problem about it: nil once it listens everywhere.
func serveOnAddresses(ctx context.Context, addresses *watched[[]netip.Addr], port int, listen listenFunc,
	serve func(net.Listener), problem func(error)) {
	open := map[netip.Addr]net.Listener{}
	var serving sync.WaitGroup
	defer func() {
		for _, l := range open {
			l.Close()
		}
		serving.Wait()
	}()
	for {
		addrs, changed := addresses.get()
		for addr, l := range open {
			if !slices.Contains(addrs, addr) {
				l.Close()
				delete(open, addr)
			}
		}
		var failed error
		for _, addr := range addrs {
			if open[addr] != nil {
				continue
			}
			l, err := listen(ctx, withPort(addr, port))
			if err != nil {
				failed = fmt.Errorf("listen on %s: %w", withPort(addr, port), err)
				continue
			}
			open[addr] = l
			serving.Go(func() { serve(l) })
		}
		problem(failed)
		var again <-chan time.Time
		if failed != nil {
			again = time.After(listenPause)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		}
	}
}

func withPort(addr netip.Addr, port int) string {
	return net.JoinHostPort(addr.String(), strconv.Itoa(port))
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
