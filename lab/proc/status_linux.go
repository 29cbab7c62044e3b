package proc

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// pidMap maps the daemon's view of process ids to the one of the mounted /proc, which is the host's: the
// daemon may be in a PID namespace of its own.
type pidMap map[int]int

func (m pidMap) of(pid int) int {
	if h, ok := m[pid]; ok {
		return h
	}
	return pid
}

// hostPIDs reads the map, nil where both views are one.
func hostPIDs() pidMap {
	self, err := os.Readlink("/proc/self")
	if err != nil || self == strconv.Itoa(os.Getpid()) {
		return nil
	}
	m := pidMap{}
	// Every thread lists the children that it started.
	files, _ := filepath.Glob("/proc/self/task/*/children")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for _, child := range strings.Fields(string(b)) {
			host, err := strconv.Atoi(child)
			if err != nil {
				continue
			}
			if inner := namespacePID(host); inner != 0 {
				m[inner] = host
			}
		}
	}
	return m
}

// namespacePID reads the id of a process in its innermost PID namespace; 0 where it is gone.
func namespacePID(host int) int {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(host) + "/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if ids, ok := bytes.CutPrefix(line, []byte("NSpid:")); ok {
			fields := strings.Fields(string(ids))
			pid, _ := strconv.Atoi(fields[len(fields)-1])
			return pid
		}
	}
	return 0
}

// rss returns the resident memory in bytes of a process of the mounted /proc.
func rss(pid int) int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}
