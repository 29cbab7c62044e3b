package statedir

import (
	"encoding/json"
	"fmt"
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
	if host, err := os.Hostname(); err == nil && host == holder.Host { // of a killed run the name stays
		process, err := os.FindProcess(holder.PID)
		if err != nil || process.Signal(syscall.Signal(0)) != nil {
			return ""
		}
	}
	return fmt.Sprintf("process %d on %s", holder.PID, holder.Host)
}
