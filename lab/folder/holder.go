package folder

import (
	"encoding/json"
	"net/http"
)

// Holder is the daemon that uses a part of 127.0.0.0/8.
type Holder struct {
	Dir string `json:"dir"`
	PID int    `json:"pid"` // the process to signal
}

// HolderHandler tells who uses a part of 127.0.0.0/8, for another daemon that needs its addresses.
func HolderHandler(dir string, pid int) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(Holder{Dir: dir, PID: pid}) // fails only if the client has closed the connection
	})
}
