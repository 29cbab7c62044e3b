package sandbox

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// denied are the system calls that the default seccomp profiles of Docker and containerd refuse to a container without
// added capabilities, on every architecture; those of one architecture are in deniedHere. Besides, ptrace, which those
// profiles permit on recent kernels.
var denied = []uint32{
	unix.SYS_ACCT, unix.SYS_ADD_KEY, unix.SYS_BPF, unix.SYS_CHROOT, unix.SYS_CLOCK_ADJTIME, unix.SYS_CLOCK_SETTIME,
	unix.SYS_DELETE_MODULE, unix.SYS_FANOTIFY_INIT, unix.SYS_FINIT_MODULE, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT,
	unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_GET_MEMPOLICY, unix.SYS_INIT_MODULE, unix.SYS_IO_URING_ENTER,
	unix.SYS_IO_URING_REGISTER, unix.SYS_IO_URING_SETUP, unix.SYS_KCMP, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_KEXEC_LOAD,
	unix.SYS_KEYCTL, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_MBIND, unix.SYS_MIGRATE_PAGES, unix.SYS_MOUNT,
	unix.SYS_MOUNT_SETATTR, unix.SYS_MOVE_MOUNT, unix.SYS_MOVE_PAGES, unix.SYS_NFSSERVCTL, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_OPEN_TREE, unix.SYS_PERF_EVENT_OPEN, unix.SYS_PERSONALITY, unix.SYS_PIDFD_GETFD, unix.SYS_PIVOT_ROOT,
	unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PTRACE, unix.SYS_QUOTACTL,
	unix.SYS_QUOTACTL_FD, unix.SYS_REBOOT, unix.SYS_REQUEST_KEY, unix.SYS_SET_MEMPOLICY,
	unix.SYS_SET_MEMPOLICY_HOME_NODE, unix.SYS_SETDOMAINNAME, unix.SYS_SETHOSTNAME, unix.SYS_SETNS,
	unix.SYS_SETTIMEOFDAY, unix.SYS_SWAPOFF, unix.SYS_SWAPON, unix.SYS_SYSLOG, unix.SYS_UMOUNT2, unix.SYS_UNSHARE,
	unix.SYS_USERFAULTFD, unix.SYS_VHANGUP,
}

// lastSyscall is the last system call that denied was compared with (Linux 6.16). Later ones do not exist for a
// program, as a profile that lists what it permits has it; nor do those of the x32 ABI, whose numbers are higher.
const lastSyscall = unix.SYS_FILE_SETATTR

// newNamespaces are the flags by which clone creates namespaces.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Offsets in struct seccomp_data. Of an argument it is the lower half, on the architectures that have a profile.
const (
	offNumber   = 0
	offArch     = 4
	offArgument = 16
)

// filter is the program that decides on each system call.
func filter() []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	// unless skips so many instructions where the comparison of what was loaded with k does not hold.
	unless := func(comparison uint16, k uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | comparison | unix.BPF_K, K: k, Jf: skip}
	}
	answer := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	allow := answer(unix.SECCOMP_RET_ALLOW)
	refuse := answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	absent := answer(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS))

	program := []unix.SockFilter{
		load(offArch),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: auditArch, Jt: 1},
		answer(unix.SECCOMP_RET_KILL_PROCESS), // numbers of another architecture mean other system calls
		load(offNumber),
		unless(unix.BPF_JGT, lastSyscall, 1), absent,
		// Its flags are in memory, where a filter cannot read them; libraries use clone in its place.
		unless(unix.BPF_JEQ, unix.SYS_CLONE3, 1), absent,
	}
	for _, number := range append(denied, deniedHere...) {
		program = append(program, unless(unix.BPF_JEQ, number, 1), refuse)
	}
	program = append(program, unless(unix.BPF_JEQ, unix.SYS_CLONE, 4),
		load(offArgument), unless(unix.BPF_JSET, newNamespaces, 1), refuse, allow)
	// Families of sockets that network namespaces do not separate.
	return append(program, unless(unix.BPF_JEQ, unix.SYS_SOCKET, 5), load(offArgument),
		unless(unix.BPF_JEQ, unix.AF_VSOCK, 1), refuse, unless(unix.BPF_JEQ, unix.AF_ALG, 1), refuse, allow)
}

// installFilter applies the filter to the calling thread and to what it starts. It takes no_new_privs.
func installFilter() error {
	if auditArch == 0 || binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return nil
	}
	program := filter()
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&p)), 0, 0)
	runtime.KeepAlive(program)
	if err != nil {
		return fmt.Errorf("install the seccomp filter: %w", err)
	}
	return nil
}
