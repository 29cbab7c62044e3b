package cloud

import (
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// call is one request while it is served, under the Cloud's lock.
type call struct {
	*Cloud
	r     *http.Request
	query url.Values
	body  []byte
	note  func(FaultKind) // puts a fault that hits within the call into the request's line of the log

	created bool // a DELETE is answered with 201
}

// largestBody bounds a request's body; user data is at most 32 KiB.
const largestBody = 1 << 20

// handler serves one call. A nil reply is 204; POST replies 201 and all else 200.
type handler func(q *call) (any, error)

// handle adds the pattern ("METHOD /path", without /v1) to the API.
func (c *Cloud) handle(pattern string, serve handler) {
	c.routes[pattern] = serve
	c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, serve) })
}

// Handler serves the API under /v1.
func (c *Cloud) Handler() http.Handler {
	return c.logged(correlated(http.StripPrefix("/v1", c.mux)))
}

// correlated gives every answer a number of its own, as Hetzner does. hcloud-go puts it into the texts of errors:
// "unable to authenticate (unauthorized, 15184c16fb506e24)".
func correlated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Correlation-Id", fmt.Sprintf("%016x", rand.Uint64()))
		next.ServeHTTP(w, r)
	})
}

// serve answers one request, with the faults that hit it.
func (c *Cloud) serve(w http.ResponseWriter, r *http.Request, serve handler) {
	hit := c.faults.request(r, c.lists[r.Pattern])
	if hit != nil {
		noteFault(w, hit.Kind)
		if hit.before(w, r) {
			return
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largestBody))
	if err != nil {
		writeError(w, refuse("json_error", "the request's body cannot be read: %v", err))
		return
	}
	q := &call{Cloud: c, r: r, query: r.URL.Query(), body: body, note: func(kind FaultKind) { noteFault(w, kind) }}
	reply, err := q.answer(w.Header(), serve, hit)
	if hit != nil && hit.Kind == FaultLostReply {
		w = lostReply{w}
	}
	switch {
	case err != nil:
		writeError(w, err)
	case reply == nil:
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPost || r.Method == http.MethodDelete && q.created:
		writeJSON(w, http.StatusCreated, reply)
	default:
		writeJSON(w, http.StatusOK, reply)
	}
}

// answer runs the handler with the lock held and saves its changes.
func (q *call) answer(header http.Header, serve handler, hit *strike) (any, error) {
	c := q.Cloud
	c.mu.Lock()
	defer c.mu.Unlock()
	token, _ := strings.CutPrefix(q.r.Header.Get("Authorization"), "Bearer ")
	switch {
	case subtle.ConstantTimeCompare([]byte(token), []byte(c.config.Token)) == 1:
	case c.config.ReadOnlyToken == "" || subtle.ConstantTimeCompare([]byte(token), []byte(c.config.ReadOnlyToken)) != 1:
		return nil, refuse("unauthorized", "unable to authenticate")
	case q.r.Method != http.MethodGet && c.since(APINovember2026):
		return nil, refuse("forbidden", "the token has insufficient permissions")
	case q.r.Method != http.MethodGet:
		return nil, refuse("token_readonly", "the token is only allowed to perform GET requests")
	}
	limited := !c.bucket.take(now(), header)
	switch {
	case hit == nil:
	case hit.Kind == FaultRateLimit:
		limited = true
		header.Set("RateLimit-Remaining", "0")
		if hit.Delay > 0 {
			header.Set("RateLimit-Reset", strconv.FormatInt(now().Add(time.Duration(hit.Delay)).Unix(), 10))
		}
	case hit.Kind == FaultStaleLists:
		then := c.asOf(now().Add(-time.Duration(hit.Delay)))
		q.Cloud, serve = then, then.routes[q.r.Pattern]
	}
	if limited {
		return nil, refuse("rate_limit_exceeded", "limit of %d requests per %v reached", c.bucket.limit.Limit,
			c.bucket.limit.Per)
	}
	reply, err := serve(q)
	if q.r.Method != http.MethodGet {
		c.keep()
	}
	return reply, err
}

// id is the path's id; 0, which no record has, where it is not a number.
func (q *call) id() int64 {
	id, _ := strconv.ParseInt(q.r.PathValue("id"), 10, 64)
	return id
}

// decode reads the request's JSON. A body is optional where nothing in it is required.
func (q *call) decode(into any) error {
	if len(bytes.TrimSpace(q.body)) == 0 {
		return nil
	}
	err := json.Unmarshal(q.body, into)
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		return invalid(wrongType.Field, "must not be a %s", wrongType.Value)
	}
	if err != nil {
		return refuse("json_error", "the request's body is not valid JSON")
	}
	return nil
}

// decoded serves calls whose body is a B.
func decoded[B any](serve func(q *call, wanted B) (any, error)) handler {
	return func(q *call) (any, error) {
		var wanted B
		if err := q.decode(&wanted); err != nil {
			return nil, err
		}
		return serve(q, wanted)
	}
}

// writeError answers with an error in the API's form. The content type matters: hcloud-go reads the
// code only out of application/json.
func writeError(w http.ResponseWriter, err error) {
	var known *apiError
	if !errors.As(err, &known) {
		known = refuse("server_error", "%v", err)
	}
	writeJSON(w, known.httpStatus(), map[string]*apiError{"error": known})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil { // cannot happen with the types of this package
		status, data = http.StatusInternalServerError,
			[]byte(`{"error":{"code":"server_error","message":"the reply cannot be encoded"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // the client may have left
}
