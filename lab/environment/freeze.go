package environment

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/lab/control"
)

// freezeLimit bounds how long the lab stays frozen for one client: copying it takes a few seconds.
const freezeLimit = 2 * time.Minute

// freeze freezes the lab until thaw is called: no process runs, the simulated cloud answers no request, and no
// cluster is created or removed. The files on disk are then in the state that a lab which is killed leaves, and starts
// again from.
func (lab *Lab) freeze() (thaw func()) {
	letChange := lab.managements.Hold()
	// The processes first: the cloud answers their pending requests before it stops, or not at all.
	resume := lab.processes.Freeze()
	release := lab.cloud.Freeze()
	return func() {
		release()
		resume()
		letChange()
	}
}

// serveFreeze freezes the lab, sends the first part of the response, and unfreezes it at the end of the request's body,
// which the client keeps open. The second part says whether the lab was frozen until then: {"stood": true}.
func (lab *Lab) serveFreeze(rw http.ResponseWriter, r *http.Request) {
	connection := http.NewResponseController(rw)
	if err := connection.EnableFullDuplex(); err != nil {
		control.Reply(rw, nil, err)
		return
	}
	thaw := sync.OnceFunc(lab.freeze())
	defer thaw()
	began := time.Now()
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(http.StatusOK)
	if err := connection.Flush(); err != nil {
		return // the client has closed the connection
	}
	closed := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, r.Body)
		closed <- err
	}()
	timer := time.NewTimer(freezeLimit)
	defer timer.Stop()
	stood := false
	select {
	case err := <-closed:
		stood = err == nil
	case <-lab.stopping:
	case <-timer.C:
	}
	thaw()
	lab.cfg.Log.Info("the lab was frozen and continues", "time", time.Since(began).Round(time.Millisecond), "as asked",
		stood)
	_ = json.NewEncoder(rw).Encode(map[string]bool{"stood": stood}) // fails only if the client has closed the connection
}
