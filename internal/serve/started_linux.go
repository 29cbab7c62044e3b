package serve

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// ticks are those of a second in /proc, on every architecture.
const ticks = 100

// processStarted is when the process with an id began; alive is false where there is none, or one that has ended and is
// not waited for yet.
func processStarted(pid int) (began time.Time, alive bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if pid <= 0 || err != nil {
		return time.Time{}, false
	}
	// The program's name, in parentheses, can have spaces and parentheses itself.
	_, rest, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
	fields := strings.Fields(rest)
	const state, start = 0, 19
	if len(fields) <= start || fields[state] == "Z" || fields[state] == "X" {
		return time.Time{}, false
	}
	since, err := strconv.ParseInt(fields[start], 10, 64)
	if err != nil {
		return time.Time{}, false
	}
	boot, ok := bootTime()
	return boot.Add(time.Duration(since) * time.Second / ticks), ok
}

// bootTime is when the machine started.
func bootTime() (time.Time, bool) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}, false
	}
	for line := range strings.Lines(string(data)) {
		if rest, is := strings.CutPrefix(line, "btime "); is {
			seconds, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return time.Unix(seconds, 0), err == nil
		}
	}
	return time.Time{}, false
}
