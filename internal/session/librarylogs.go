package session

import (
	"io"
	"sync"

	"github.com/slipway-k8s/slipway/platform"
)

// libraryLogs counts the open sessions: the loggers of Kubernetes' libraries belong to the process, and write to the
// log of the session that was opened last.
var libraryLogs struct {
	sync.Mutex
	sessions int
}

// redirectLibraries sends what the libraries log to the log of a session, until releaseLibraries.
func redirectLibraries(log io.Writer) {
	libraryLogs.Lock()
	defer libraryLogs.Unlock()
	libraryLogs.sessions++
	platform.RedirectLibraryLogs(log)
}

func releaseLibraries() {
	libraryLogs.Lock()
	defer libraryLogs.Unlock()
	if libraryLogs.sessions--; libraryLogs.sessions == 0 {
		platform.RedirectLibraryLogs(io.Discard)
	}
}

// SilenceLibraries discards what the libraries log during an inspection, unless a session is open, whose log has it.
func SilenceLibraries() {
	libraryLogs.Lock()
	defer libraryLogs.Unlock()
	if libraryLogs.sessions == 0 {
		platform.RedirectLibraryLogs(io.Discard)
	}
}
