// Package process tells whether a process of this machine is still the one that was seen before.
package process

import "time"

// tolerance is how far two readings of one process's start may differ: the kernel counts it in ticks since the machine
// started, and that moment in seconds.
const tolerance = 2 * time.Second

// Is reports whether the process with an id is alive and began at a time that Started gave earlier. A process that got
// the same id later is another one.
func Is(pid int, started time.Time) bool {
	now, alive := Started(pid)
	return alive && now.Sub(started).Abs() <= tolerance
}

// Before reports whether the process with an id is alive and began before a time.
func Before(pid int, t time.Time) bool {
	started, alive := Started(pid)
	return alive && !started.After(t.Add(tolerance))
}
