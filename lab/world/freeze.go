package world

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"
)

// stillFor bounds how long the lab stands still for one caller: a copy of it takes a second or a few.
const stillFor = 2 * time.Minute

// standStill has nothing of the world change until goOn is called: no process runs, the simulated cloud answers
// nobody, and no cluster is made or removed. What is on disk then is what a lab that was killed in this moment
// would have left, and starts again from.
func (w *World) standStill() (goOn func()) {
	w.managements.changing.Lock()
	// The processes first: what they ask the cloud for is answered before, or not at all.
	thaw := w.processes.Freeze()
	release := w.cloud.Still()
	return func() {
		release()
		thaw()
		w.managements.changing.Unlock()
	}
}

// serveStill begins to answer when the world stands still, and lets it go on at the end of the request's body, which
// the caller keeps open. The rest of the answer says whether the world stood still until then: {"stood": true}.
func (w *World) serveStill(rw http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(rw)
	if err := control.EnableFullDuplex(); err != nil {
		reply(rw, nil, err)
		return
	}
	goOn := sync.OnceFunc(w.standStill())
	defer goOn()
	began := time.Now()
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(http.StatusOK)
	if err := control.Flush(); err != nil {
		return // the caller is gone
	}
	told := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, r.Body)
		told <- err
	}()
	timer := time.NewTimer(stillFor)
	defer timer.Stop()
	stood := false
	select {
	case err := <-told:
		stood = err == nil
	case <-w.stopping:
	case <-timer.C:
	}
	goOn()
	w.cfg.Log.Info("the lab stood still and goes on", "time", time.Since(began).Round(time.Millisecond), "as asked", stood)
	_ = json.NewEncoder(rw).Encode(map[string]bool{"stood": stood}) // a caller that is gone needs no answer
}
