package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// AtWork names the run that is at work in a state folder; empty: none is. It reads
// the journal's lock and does not take it: that would refuse a run that begins at
// this moment.
func AtWork(state Dir) string {
	var holder struct {
		PID  int    `json:"pid"`
		Host string `json:"host"`
	}
	data, err := os.ReadFile(filepath.Join(string(state), JournalLock))
	if err != nil || json.Unmarshal(data, &holder) != nil || holder.PID <= 0 {
		return ""
	}
	if host, err := os.Hostname(); err == nil && host == holder.Host && !Lives(holder.PID) {
		return "" // of a killed run the name stays
	}
	return fmt.Sprintf("process %d on %s", holder.PID, holder.Host)
}

// Lives reports whether a process of this machine is there, whoever's it is.
func Lives(pid int) bool {
	process, err := os.FindProcess(pid)
	if err == nil {
		err = process.Signal(syscall.Signal(0))
	}
	return err == nil || errors.Is(err, fs.ErrPermission)
}
