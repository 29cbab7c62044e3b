package sandbox

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"
)

// The functions below act in the network namespace of the calling thread.

// onInterface calls do with a connection to the kernel and an interface's number.
func onInterface(name string, do func(conn *rtnetlink.Conn, index uint32) error) error {
	conn, err := rtnetlink.Dial(nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	links, err := conn.Link.List()
	if err != nil {
		return fmt.Errorf("list the network interfaces: %w", err)
	}
	for _, link := range links {
		if link.Attributes != nil && link.Attributes.Name == name {
			return do(conn, link.Index)
		}
	}
	return fmt.Errorf("there is no network interface %s", name)
}

func setUp(name string) error {
	return onInterface(name, func(conn *rtnetlink.Conn, index uint32) error {
		err := conn.Link.Set(&rtnetlink.LinkMessage{Index: index, Flags: unix.IFF_UP, Change: unix.IFF_UP})
		if err != nil {
			return fmt.Errorf("set %s up: %w", name, err)
		}
		return nil
	})
}

func deleteLink(name string) error {
	return onInterface(name, func(conn *rtnetlink.Conn, index uint32) error {
		if err := conn.Link.Delete(index); err != nil {
			return fmt.Errorf("delete the network interface %s: %w", name, err)
		}
		return nil
	})
}

// addAddress succeeds if the interface has the address.
func addAddress(name string, address netip.Prefix) error {
	return onInterface(name, func(conn *rtnetlink.Conn, index uint32) error {
		err := conn.Address.New(addressMessage(index, address))
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("give %s the address %s: %w", name, address, err)
		}
		return nil
	})
}

func deleteAddress(name string, address netip.Prefix) error {
	return onInterface(name, func(conn *rtnetlink.Conn, index uint32) error {
		if err := conn.Address.Delete(addressMessage(index, address)); err != nil {
			return fmt.Errorf("take the address %s from %s: %w", address, name, err)
		}
		return nil
	})
}

func addressMessage(index uint32, address netip.Prefix) *rtnetlink.AddressMessage {
	scope := uint8(unix.RT_SCOPE_UNIVERSE)
	if address.Addr().IsLoopback() {
		scope = unix.RT_SCOPE_HOST
	}
	ip := net.IP(address.Addr().AsSlice())
	return &rtnetlink.AddressMessage{Family: unix.AF_INET, PrefixLength: uint8(address.Bits()), Scope: scope, Index: index,
		Attributes: &rtnetlink.AddressAttributes{Address: ip, Local: ip}}
}

// addRoute adds a route over an interface; an invalid via or source is none.
func addRoute(name string, to netip.Prefix, via, source netip.Addr) error {
	return onInterface(name, func(conn *rtnetlink.Conn, index uint32) error {
		message := &rtnetlink.RouteMessage{Family: unix.AF_INET, DstLength: uint8(to.Bits()), Table: unix.RT_TABLE_MAIN,
			Protocol: unix.RTPROT_STATIC, Scope: unix.RT_SCOPE_LINK, Type: unix.RTN_UNICAST,
			Attributes: rtnetlink.RouteAttributes{Dst: net.IP(to.Addr().AsSlice()), OutIface: index}}
		if via.IsValid() {
			message.Scope, message.Attributes.Gateway = unix.RT_SCOPE_UNIVERSE, net.IP(via.AsSlice())
		}
		if source.IsValid() {
			message.Attributes.Src = net.IP(source.AsSlice())
		}
		if err := conn.Route.Add(message); err != nil {
			return fmt.Errorf("route %s over %s: %w", to, name, err)
		}
		return nil
	})
}
