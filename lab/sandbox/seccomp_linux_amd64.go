package sandbox

import "golang.org/x/sys/unix"

// auditArch is how a seccomp filter sees this architecture.
const auditArch = unix.AUDIT_ARCH_X86_64

var deniedHere = []uint32{unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_IOPERM, unix.SYS_IOPL,
	unix.SYS_QUERY_MODULE, unix.SYS_SYSFS, unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS__SYSCTL}
