//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// Runtime creates the networks of Pods.
type Runtime struct{}

// New returns an error: only Linux has namespaces.
func New() (*Runtime, error) { return nil, errors.New("only Linux has namespaces") }

// Network is the network namespace of a Pod.
type Network struct{}

// NewNetwork is not called: there is no Runtime.
func (*Runtime) NewNetwork() (*Network, error) { return nil, errors.ErrUnsupported }

// Address is not called: there is no Network.
func (*Network) Address() netip.Addr { return netip.Addr{} }

// Listen is not called: there is no Network.
func (*Network) Listen(netip.AddrPort) (net.Listener, error) { return nil, errors.ErrUnsupported }

// DialContext is not called: there is no Network.
func (*Network) DialContext(context.Context, string, string) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}

// Close is not called: there is no Network.
func (*Network) Close() error { return nil }

// Enter is not called: there is no Network.
func (Container) Enter() error { return errors.ErrUnsupported }

// Confine does nothing: it is Linux's no_new_privs, capabilities, seccomp and Landlock.
func Confine() error { return nil }
