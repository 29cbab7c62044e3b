package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/jsimonetti/rtnetlink/v2/driver"
	"golang.org/x/sys/unix"
)

// podInterface is the name of the interface in a Pod, as with most container networks.
const podInterface = "eth0"

// Network is the network namespace of a Pod, or of all Pods of a Node that are on the host's network.
type Network struct {
	runtime *Runtime
	address netip.Addr
	file    *os.File // keeps the namespace
	// connected says whether the veth pair exists.
	connected bool

	closing sync.Once
	closed  error
}

// NewNetwork creates a network with an address of its own.
func (r *Runtime) NewNetwork() (_ *Network, err error) {
	address, err := r.allot()
	if err != nil {
		return nil, err
	}
	n := &Network{runtime: r, address: address}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("create a Pod's network: %w", err), n.Close())
		}
	}()
	if n.file, err = newNamespace(); err != nil {
		return nil, err
	}
	if err := n.connect(); err != nil {
		return nil, err
	}
	return n, inNamespace(n.file, n.configure)
}

// newNamespace returns a new network namespace.
func newNamespace() (*os.File, error) {
	type result struct {
		file *os.File
		err  error
	}
	made := make(chan result)
	OnThread(func() {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- result{err: refused("a network namespace", "max_net_namespaces", err)}
			return
		}
		file, err := os.Open("/proc/thread-self/ns/net")
		made <- result{file, err}
	})
	r := <-made
	return r.file, r.err
}

// link is the name of the lab's end of the veth pair.
func (n *Network) link() string {
	b := n.address.As4()
	return fmt.Sprintf("pod%02x%02x%02x", b[1], b[2], b[3])
}

// connect creates the veth pair, and the route to the Pod.
func (n *Network) connect() error {
	name := n.link()
	conn, err := rtnetlink.Dial(nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = conn.Link.New(&rtnetlink.LinkMessage{
		Flags: unix.IFF_UP, Change: unix.IFF_UP,
		Attributes: &rtnetlink.LinkAttributes{Name: name, Info: &rtnetlink.LinkInfo{Kind: "veth",
			Data: &driver.Veth{PeerInfo: &rtnetlink.LinkMessage{
				Attributes: &rtnetlink.LinkAttributes{Name: podInterface,
					NetNS: rtnetlink.NetNSForFD(uint32(n.file.Fd()))},
			}}}},
	})
	if err != nil {
		return fmt.Errorf("a veth pair, for which the kernel needs the module veth: %w", err)
	}
	n.connected = true
	if err := routeLoopback(name); err != nil {
		return err
	}
	return addRoute(name, netip.PrefixFrom(n.address, 32), netip.Addr{}, netip.Addr{})
}

// configure runs in the Pod's namespace.
func (n *Network) configure() error {
	if err := setUp("lo"); err != nil {
		return err
	}
	// The kernel has given lo all of 127.0.0.0/8, of which the lab's part is not the Pod's.
	if err := addAddress("lo", loopback); err != nil {
		return err
	}
	if err := deleteAddress("lo", netip.PrefixFrom(loopback.Addr(), 8)); err != nil {
		return err
	}
	if err := setUp(podInterface); err != nil {
		return err
	}
	if err := addAddress(podInterface, netip.PrefixFrom(n.address, 32)); err != nil {
		return err
	}
	if err := routeLoopback(podInterface); err != nil {
		return err
	}
	if err := addRoute(podInterface, netip.PrefixFrom(gateway, 32), netip.Addr{}, n.address); err != nil {
		return err
	}
	return addRoute(podInterface, labAddresses, gateway, n.address)
}

// Address is the Pod's address, which the lab's processes reach.
func (n *Network) Address() netip.Addr { return n.address }

// Listen returns a listener of the calling process in the Pod's network. An address that the Pod does not have is added
// to its loopback interface.
func (n *Network) Listen(address netip.AddrPort) (l net.Listener, err error) {
	err = inNamespace(n.file, func() error {
		if !address.Addr().IsLoopback() && address.Addr() != n.address {
			if err := addAddress("lo", netip.PrefixFrom(address.Addr(), 32)); err != nil {
				return err
			}
		}
		var lc net.ListenConfig
		l, err = lc.Listen(context.Background(), "tcp4", address.String())
		return err
	})
	return l, err
}

// DialContext connects to an address as the Pod sees it: its own loopback, for example.
func (n *Network) DialContext(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = inNamespace(n.file, func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Close disconnects the network and gives its address back. The namespace ends with the last process and the last
// socket in it.
func (n *Network) Close() error {
	n.closing.Do(func() {
		if n.connected {
			n.closed = deleteLink(n.link())
		}
		if n.file != nil {
			n.closed = errors.Join(n.closed, n.file.Close())
		}
		n.runtime.free(n.address)
	})
	return n.closed
}

// routeLoopback has an interface accept and send packets with addresses in 127.0.0.0/8, which are the lab's.
func routeLoopback(name string) error {
	file := filepath.Join("/proc/sys/net/ipv4/conf", name, "route_localnet")
	if err := os.WriteFile(file, []byte("1"), 0); err != nil {
		return fmt.Errorf("route the lab's addresses: %w", err)
	}
	return nil
}
