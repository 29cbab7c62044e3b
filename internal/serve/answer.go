package serve

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/slipway-k8s/slipway/internal/serve/work"
)

// problem is an error that a client can do something about.
type problem struct {
	status  int
	message string
}

func (p *problem) Error() string { return p.message }

// Failure is the answer to a request that failed.
type Failure struct {
	Error string `json:"error"`
	Exit  int    `json:"exit,omitempty"` // of the command that was run for it
}

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	answer, status := Failure{Error: err.Error()}, http.StatusInternalServerError
	var known *problem
	var asked *work.AskError
	switch {
	case errors.As(err, &known):
		status = known.status
	case errors.As(err, &asked):
		status, answer.Exit = http.StatusUnprocessableEntity, asked.Exit
	case errors.Is(err, work.ErrUnknown):
		status = http.StatusNotFound
	case errors.Is(err, work.ErrInvalid):
		status = http.StatusBadRequest
	case errors.Is(err, work.ErrBusy):
		status = http.StatusConflict
	case errors.Is(err, work.ErrTimeout):
		status = http.StatusGatewayTimeout
	case r.Context().Err() != nil: // the client is gone
		return
	default:
		s.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", s.Hide.Text(err.Error()))
	}
	s.answer(w, status, answer)
}

// answer answers with JSON, without secrets.
func (s *Server) answer(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		s.Log.Error("an answer cannot be written as JSON", "error", err)
		status, data = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, s.Hide.Text(string(data))+"\n") // a client that is gone needs no answer
}

// read reads the JSON of a request.
func read(r *http.Request, into any) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		// A form of another site cannot send this type.
		return &problem{http.StatusUnsupportedMediaType, "the request needs Content-Type: application/json"}
	}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err = decoder.Decode(into)
	if err == nil {
		_, err = decoder.Token() // nothing may follow
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = errors.New("there is more behind the first value")
		}
	}
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return tooLarge
	}
	return &problem{http.StatusBadRequest, "the request's JSON cannot be read: " + err.Error()}
}
