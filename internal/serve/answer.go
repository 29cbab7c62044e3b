package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
)

// problem is an error that a client can do something about.
type problem struct {
	status  int
	message string
	exit    int // of the command that was run for it; 0: none was
}

func (p *problem) Error() string { return p.message }

func refuse(status int, format string, args ...any) error {
	return &problem{status: status, message: fmt.Sprintf(format, args...)}
}

// Failure is the answer to a request that failed.
type Failure struct {
	Error string `json:"error"`
	Exit  int    `json:"exit,omitempty"` // of the command that was run for it
}

// fail answers with an error.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	answer, status := Failure{Error: err.Error()}, http.StatusInternalServerError
	var known *problem
	switch {
	case errors.As(err, &known):
		status, answer.Exit = known.status, known.exit
	case r.Context().Err() != nil: // the client is gone
		return
	default:
		s.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", s.Hide.Text(err.Error()))
	}
	s.answer(w, status, answer)
}

// answer answers with JSON, without secrets.
func (s *server) answer(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		s.Log.Error("an answer cannot be written as JSON", "error", err)
		status, data = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, s.Hide.Text(string(data))+"\n") // a client that is gone needs no answer
}

// result is the end of a handler: it answers with what was asked for, but where that went wrong.
func (s *server) result(w http.ResponseWriter, status int, v any, err error) error {
	if err == nil {
		s.answer(w, status, v)
	}
	return err
}

// read reads the JSON of a request.
func read(r *http.Request, into any) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		// A form of another site cannot send this type.
		return refuse(http.StatusUnsupportedMediaType, "the request needs Content-Type: application/json")
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
	return refuse(http.StatusBadRequest, "the request's JSON cannot be read: %v", err)
}
