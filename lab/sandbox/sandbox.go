// Package sandbox gives the lab's Pods what a container runtime gives them: a network namespace with an address and
// ports of its own, and for each container a mount namespace with its volumes at their paths, a /tmp, /run and /proc of
// its own, and the Pod's host name. So a program runs as it is, with fixed ports and fixed paths.
//
// It works in the lab's own user and network namespace (package netns), without privileges. A Pod's network is a veth
// pair; the addresses of the lab, 127.64.0.0 to 127.127.255.255, are reached through it, those below are the Pod's own
// loopback. There is no way to other Pods or out of the lab.
//
// A container's other files are those of the machine: it has no image. Users, process ids and resources are not
// separated.
package sandbox

import (
	"net/netip"
)

// Mount puts a folder or file of the machine at a path of a container.
type Mount struct {
	Source   string // on the machine, absolute
	Target   string // in the container, absolute
	ReadOnly bool
}

// Container is a container's view of the machine.
type Container struct {
	Network  *Network
	Hostname string
	// Root is an empty folder, under which the container's root is built. Only the container sees what is in it.
	Root   string
	Mounts []Mount
	// Visible are folders and files of the machine that the container has to see at their own paths, also below those
	// that it has of its own.
	Visible []string
}

// The addresses of Pods, and the one of the lab that their routes lead through. They belong to networks that no host
// has (benchmarks, link-local), and are used in the lab's network namespace only.
var (
	podAddresses = netip.MustParsePrefix("198.18.0.0/15")
	gateway      = netip.MustParseAddr("169.254.1.1")
	labAddresses = netip.MustParsePrefix("127.64.0.0/10")
	loopback     = netip.MustParsePrefix("127.0.0.1/10")
)
