package serve

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"
)

const (
	// lookEvery is how often the events of a run are looked at.
	lookEvery = 250 * time.Millisecond
	// stateEvery is how often, without new events, it is looked what has become of the run.
	stateEvery = time.Second
	// beatEvery is how often a stream without events says that it is there.
	beatEvery = 15 * time.Second
)

// events streams the events of a run (server-sent events), from the beginning or from behind the one that Last-Event-ID
// names, until the run has ended, or the client may not read it any more. The id of an event is the position behind
// it in the file of the run. Besides, the stream has the run as it is whenever that changes ("run"), and one event at
// the end ("end").
func (s *server) events(w http.ResponseWriter, r *http.Request, c *cluster, run Run) error {
	streams := s.streams[caller(r.Context()).Role]
	select {
	case streams <- struct{}{}:
		defer func() { <-streams }()
	default:
		w.Header().Set("Retry-After", "10")
		return refuse(http.StatusServiceUnavailable, "%d streams of events are open already: close one", streamsMost)
	}
	var at int64
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		var err error
		if at, err = strconv.ParseInt(last, 10, 64); err != nil || at < 0 {
			return refuse(http.StatusBadRequest, "Last-Event-ID is no id of an event of this API")
		}
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // of a proxy
	w.WriteHeader(http.StatusOK)
	out := &stream{w: w, control: http.NewResponseController(w), hide: s.Hide.Text}
	s.follow(r, c, run, at, out)
	return nil
}

// follow writes what is new until the run or the stream ends.
func (s *server) follow(r *http.Request, c *cluster, run Run, at int64, out *stream) {
	over := time.After(s.StreamLasts)
	beat := time.Now()
	who := caller(r.Context())
	var shown []byte
	var looked time.Time
	now := run
	for news := false; ; {
		s.Learn()
		if news || now.Run == "" || time.Since(looked) > stateEvery {
			var err error
			if now, err = c.Find(run.ID); err != nil { // before the events are read: when it has ended, those are all
				return // it is not kept any more
			}
			looked, news = time.Now(), false
			if !s.Auth.Holds(r, who) {
				return
			}
		}
		if state, err := json.Marshal(now); err == nil && !slices.Equal(state, shown) {
			shown = state
			out.event("run", "", state)
		}
		for path, ok := c.Events(now); ok; {
			lines, next, err := tail(path, at)
			if err != nil || len(lines) == 0 && next == at {
				break
			}
			if len(lines) > 0 {
				news = true
				first := next
				for _, l := range lines {
					first -= int64(len(l))
				}
				for _, l := range lines {
					first += int64(len(l))
					out.event("event", strconv.FormatInt(first, 10), l)
				}
			}
			at = next
			if out.failed != nil {
				return
			}
		}
		if now.State.Ended() {
			out.event("end", "", []byte(`{}`))
			return
		}
		if time.Since(beat) > beatEvery {
			beat = time.Now()
			out.write(": \n\n")
		}
		if out.failed != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.ending.Done():
			return
		case <-over:
			return
		case <-time.After(lookEvery):
		}
	}
}

// stream writes server-sent events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	hide    func(string) string
	failed  error
}

// event writes one, whose data is one line of JSON.
func (o *stream) event(name, id string, data []byte) {
	text := "event: " + name + "\n"
	if id != "" {
		text += "id: " + id + "\n"
	}
	for len(data) > 0 && (data[len(data)-1] == '\n' || data[len(data)-1] == '\r') {
		data = data[:len(data)-1]
	}
	o.write(text + "data: " + o.hide(string(data)) + "\n\n")
}

func (o *stream) write(text string) {
	if o.failed != nil {
		return
	}
	_ = o.control.SetWriteDeadline(time.Now().Add(writeWithin))
	if _, o.failed = o.w.Write([]byte(text)); o.failed == nil {
		o.failed = o.control.Flush()
	}
}
