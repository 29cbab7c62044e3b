package sandbox

import "golang.org/x/sys/unix"

// auditArch is how a seccomp filter sees this architecture.
const auditArch = unix.AUDIT_ARCH_AARCH64

var deniedHere []uint32
