package effect

import (
	"bytes"
	"errors"
	"io"
	"net/http"
)

// Naming names a request; ok is false for one that changes nothing.
type Naming func(*http.Request) (verb, object string, ok bool)

// Transport is next with every request written down that naming names. With a nil Recorder it is next itself.
func (r *Recorder) Transport(next http.RoundTripper, system System, naming Naming) http.RoundTripper {
	if r == nil {
		return next
	}
	return &transport{next: next, recorder: r, system: system, naming: naming}
}

type transport struct {
	next     http.RoundTripper
	recorder *Recorder
	system   System
	naming   Naming
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	var err error
	if !reads(request.Method) {
		if request, err = rereadable(request); err != nil {
			return nil, err
		}
	}
	ended := t.watchRequest(request)
	response, err := t.record(request)
	status := 0
	if err == nil {
		status = response.StatusCode
	}
	ended(status, err)
	return response, err
}

// record makes the call, and writes it down where it changes something.
func (t *transport) record(request *http.Request) (*http.Response, error) {
	if reads(request.Method) {
		return t.next.RoundTrip(request)
	}
	verb, object, ok := t.naming(request)
	if !ok {
		return t.next.RoundTrip(request)
	}
	if err := t.recorder.guard(t.system); err != nil {
		if request.Body != nil {
			err = errors.Join(err, request.Body.Close())
		}
		return nil, err
	}
	call := t.recorder.Begin(request.Context(), t.system, verb, object)
	response, err := t.next.RoundTrip(request)
	switch {
	case err == nil && response.StatusCode >= http.StatusBadRequest:
		call.End(errors.New(response.Status))
	default:
		call.End(err)
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the transport below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// CloseIdleConnections is what http.Client asks of its transport.
func (t *transport) CloseIdleConnections() {
	if closer, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

func reads(method string) bool {
	return method == "" || method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// rereadable is a request whose body can be read for its name and sent afterwards.
func rereadable(request *http.Request) (*http.Request, error) {
	if request.Body == nil || request.Body == http.NoBody || request.GetBody != nil {
		return request, nil
	}
	data, err := io.ReadAll(request.Body)
	if err = errors.Join(err, request.Body.Close()); err != nil {
		return nil, err
	}
	request = request.Clone(request.Context())
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	request.Body, err = request.GetBody()
	return request, err
}

// body is what a request will send; nil where that is unknown.
func body(request *http.Request) []byte {
	if request.GetBody == nil {
		return nil
	}
	reader, err := request.GetBody()
	if err != nil {
		return nil
	}
	defer reader.Close()
	data, err := io.ReadAll(reader)
	if err != nil {
		return nil
	}
	return data
}
