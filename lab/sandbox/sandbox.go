// Package sandbox gives the lab's Pods what a container runtime gives them: a network namespace with an address and
// ports of its own, and for each container a mount namespace with its volumes at their paths, and the Pod's host name.
// So a program runs as it is, with fixed ports and fixed paths, and sees none of the machine's files but those that it
// needs.
//
// It works in the lab's own user and network namespace (package netns), without privileges. A Pod's network is a veth
// pair; the addresses of the lab, 127.64.0.0 to 127.127.255.255, are reached through it, those below are the Pod's own
// loopback. There is no way to other Pods or out of the lab.
//
// A container has no image. Its root is read-only and empty but for a /tmp, /run, /dev and /proc of its own, its
// mounts, the program, and for a program that is linked dynamically the machine's libraries. Confine takes privileges
// and system calls from a process. Users and process ids are those of the lab, and resources are not limited.
package sandbox

import (
	"net/netip"
)

// Mount puts a folder or file of the machine at a path of a container.
type Mount struct {
	Source   string // on the machine, absolute
	SubPath  string // below Source, which no symbolic link in it leads out of; empty: Source itself
	Target   string // in the container, absolute
	ReadOnly bool
}

// Container is a container's view of the machine.
type Container struct {
	Network  *Network // nil: the lab's
	Hostname string
	// Root is an empty folder, over which the container's root is mounted. Only the container sees what is in it.
	Root   string
	Mounts []Mount
	// Visible are folders and files of the machine that the container reads at their own paths.
	Visible []string
	// Program is the executable, which is one of Visible, or below one: it decides whether the machine's libraries and,
	// for a script, its programs are visible. Empty: they are not.
	Program string
	// Tools has the container see the machine's programs (/usr, /bin).
	Tools bool
}

// The addresses of Pods, and the one of the lab that their routes lead through. They belong to networks that no host
// has (benchmarks, link-local), and are used in the lab's network namespace only.
var (
	podAddresses = netip.MustParsePrefix("198.18.0.0/15")
	gateway      = netip.MustParseAddr("169.254.1.1")
	labAddresses = netip.MustParsePrefix("127.64.0.0/10")
	loopback     = netip.MustParsePrefix("127.0.0.1/10")
)
