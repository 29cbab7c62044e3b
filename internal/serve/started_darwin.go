package serve

import (
	"time"

	"golang.org/x/sys/unix"
)

// zombie is the state of a process that has ended and is not waited for yet (SZOMB).
const zombie = 5

// processStarted is when the process with an id began; alive is false where there is none, or one that has ended and is
// not waited for yet.
func processStarted(pid int) (began time.Time, alive bool) {
	if pid <= 0 {
		return time.Time{}, false
	}
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || info.Proc.P_pid != int32(pid) || info.Proc.P_stat == zombie {
		return time.Time{}, false
	}
	start := info.Proc.P_starttime
	return time.Unix(start.Sec, int64(start.Usec)*1000), true
}
