package sandbox

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Confine takes from the calling thread, and from the programs that it starts, what a container without added
// capabilities does not have: it can gain no privileges (no_new_privs), has no capability but to listen on ports below
// 1024, and is refused the system calls of denied. Where the kernel has Landlock, it does not reach the files, the
// memory and the environment of other processes by /proc either, with a recent one nor signal them.
//
// The goroutine must be locked to its thread and end with it. It is to be called after Enter.
func Confine() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := separate(); err != nil {
		return fmt.Errorf("separate the process from others with Landlock: %w", err)
	}
	if err := dropCapabilities(); err != nil {
		return fmt.Errorf("drop the capabilities: %w", err)
	}
	return installFilter()
}

// keptCapability is the one of a container's usual capabilities that programs of a lab need.
const keptCapability = unix.CAP_NET_BIND_SERVICE

func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for c := uintptr(0); ; c++ {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) { // beyond the last one
			break
		}
		if err != nil {
			return err
		}
		if has == 0 || c == keptCapability {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EPERM) {
			return err // EPERM: one without privileges, which cannot gain any by no_new_privs
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	const kept = 1 << keptCapability
	only := [2]unix.CapUserData{{Effective: data[0].Permitted & kept, Permitted: data[0].Permitted & kept}}
	return unix.Capset(&header, &only[0])
}

const (
	// landlockRefer is the version of Landlock since which files can be moved between folders (Linux 5.19).
	landlockRefer = 2
	// signalsFixed is the erratum without which a thread with restricted signals cannot signal its own process's other
	// threads, which Go's runtime does. A kernel that knows it can restrict signals and abstract sockets.
	signalsFixed = 1 << 1
)

// separate puts the calling thread into a Landlock domain of its own. A process in one has no access to a process
// outside of it, whoever's it is. Nothing happens where the kernel has no Landlock, or one that would keep programs
// from moving files.
func separate() error {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || version < landlockRefer {
		return nil
	}
	// A ruleset has to restrict something: devices, which the lack of capabilities restricts as well.
	attr := unix.LandlockRulesetAttr{Access_fs: unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_REFER}
	size := unsafe.Offsetof(attr.Access_net)
	errata, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_ERRATA)
	if errno == 0 && errata&signalsFixed != 0 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
		size = unsafe.Sizeof(attr)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return errno
	}
	ruleset := os.NewFile(fd, "ruleset")
	defer ruleset.Close()
	root, err := os.Open("/")
	if err != nil {
		return err
	}
	defer root.Close()
	// Moving files is restricted unless a rule permits it.
	rule := unix.LandlockPathBeneathAttr{Allowed_access: unix.LANDLOCK_ACCESS_FS_REFER, Parent_fd: int32(root.Fd())}
	_, _, errno = unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, ruleset.Fd(), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	if _, _, errno = unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset.Fd(), 0, 0); errno != 0 {
		return errno
	}
	return nil
}
