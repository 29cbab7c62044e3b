// Package control carries a daemon's control API: JSON over a Unix socket that only the user can open.
package control

import (
	"encoding/json"
	"errors"
	"net/http"
)

// RequestError is an error that the client caused: 400.
type RequestError struct{ error }

// BadRequest makes a RequestError of an error.
func BadRequest(err error) error { return RequestError{err} }

// Unwrap returns the cause.
func (e RequestError) Unwrap() error { return e.error }

// ErrNotFound means that what the request names does not exist: 404. NotFound makes such errors.
var ErrNotFound = errors.New("not found")

// notFound is an error with a text of its own that is ErrNotFound.
type notFound struct{ text string }

func (e notFound) Error() string      { return e.text }
func (notFound) Is(target error) bool { return target == ErrNotFound }

// NotFound makes an error that is ErrNotFound.
func NotFound(text string) error { return notFound{text} }

// ErrStopping means that the daemon is stopping: 503.
var ErrStopping = errors.New("the daemon is stopping")

// Handle answers a pattern of a mux with what do returns.
func Handle(mux *http.ServeMux, pattern string, do func(*http.Request) (any, error)) {
	mux.HandleFunc(pattern, func(rw http.ResponseWriter, r *http.Request) {
		answer, err := do(r)
		Reply(rw, answer, err)
	})
}

// Reply writes a result or {"error": …}.
func Reply(rw http.ResponseWriter, answer any, err error) {
	status := http.StatusOK
	if err != nil {
		status = http.StatusInternalServerError
		var request RequestError
		switch {
		case errors.Is(err, ErrNotFound):
			status = http.StatusNotFound
		case errors.As(err, &request):
			status = http.StatusBadRequest
		case errors.Is(err, ErrStopping):
			status = http.StatusServiceUnavailable
		}
		answer = map[string]string{"error": err.Error()}
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(answer) // fails only if the client has closed the connection
}
