package serve

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/slipway-k8s/slipway/internal/serve/auth"
)

// policy is what the page may load: nothing but what this server has.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// bound bounds what one request can cost, and adds the headers that every answer has.
func (s *server) bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A client that does not read its answer does not keep a connection for ever.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeWithin))
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if s.TLS != nil && auth.Loopback().Check(r) != nil { // at "localhost" there may be other programs, without TLS
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		if r.ContentLength > bodyMost {
			h.Set("Connection", "close")
			s.fail(w, r, tooLarge)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, bodyMost)
		next.ServeHTTP(w, r)
	})
}

// errReader is about what readers may not do.
var errReader = refuse(http.StatusForbidden, "this is for operators: a reader sees clusters and their runs, and "+
	"cannot start, cancel or resume one")

var tooLarge = refuse(http.StatusRequestEntityTooLarge, "the request is larger than 1 MiB")

// guard lets through who may ask for a route.
func (s *server) guard(access access, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if access == probe {
			next(w, r)
			return
		}
		if err := s.Hosts.Check(r); err != nil {
			s.fail(w, r, refuse(http.StatusMisdirectedRequest, "%v", err))
			return
		}
		// The page itself can be opened from a link anywhere; it has nothing of a cluster in it.
		if page := access == open && r.Method == http.MethodGet; !page {
			if err := auth.CheckOrigin(r); err != nil {
				s.fail(w, r, refuse(http.StatusForbidden, "%v", err))
				return
			}
		}
		s.Learn()
		if access == open {
			next(w, r)
			return
		}
		who, err := s.Auth.Check(r)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		authenticated(r.Context())
		limits := s.looks
		if changes := r.Method != http.MethodGet && r.Method != http.MethodHead; changes || access == operators {
			limits = s.changes
		} else if access != readersNow {
			limits = nil
		}
		if limits != nil && !limits.Allow(who.Name) {
			w.Header().Set("Retry-After", "2")
			s.fail(w, r, refuse(http.StatusTooManyRequests, "too many requests: wait a little"))
			return
		}
		if access == operators && who.Role != auth.Operator {
			s.Log.Warn("request refused", "client", auth.Client(r), "path", r.URL.Path, "user", who.Name, "error", errReader)
			s.fail(w, r, errReader)
			return
		}
		next(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, who)))
	})
}

// refuse answers who has not proven who they are.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusUnauthorized
	said := auth.ErrWrong
	for _, known := range []error{auth.ErrMissing, auth.ErrTooOften, auth.ErrForged, auth.ErrIssuer} {
		if errors.Is(err, known) {
			said = known
		}
	}
	switch said {
	case auth.ErrTooOften:
		status = http.StatusTooManyRequests
		w.Header().Set("Retry-After", "20")
	case auth.ErrForged:
		status = http.StatusForbidden
	case auth.ErrIssuer:
		status = http.StatusServiceUnavailable
	default:
		w.Header().Set("WWW-Authenticate", `Bearer realm="slipway"`)
	}
	if said != auth.ErrMissing && s.refused.Allow(auth.Client(r)) {
		s.Log.Warn("request refused", "client", auth.Client(r), "path", r.URL.Path, "error", s.Hide.Text(err.Error()))
	}
	s.fail(w, r, refuse(status, "%v", said))
}
