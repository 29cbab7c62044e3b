package serve

import "time"

// tolerance is how far two readings of one process's start may differ: the kernel counts it in ticks since the machine
// started, and that moment in seconds.
const tolerance = 2 * time.Second

// isProcess reports whether the process with an id is alive and began at a time that processStarted gave earlier. A
// process that got the same id later is another one.
func isProcess(pid int, started time.Time) bool {
	now, alive := processStarted(pid)
	return alive && now.Sub(started).Abs() <= tolerance
}

// processBefore reports whether the process with an id is alive and began before a time.
func processBefore(pid int, t time.Time) bool {
	started, alive := processStarted(pid)
	return alive && !started.After(t.Add(tolerance))
}
