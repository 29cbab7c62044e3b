package auth

import (
	"crypto/hmac"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Role is what an identity may do. The empty one may do nothing.
type Role string

const (
	// Operator starts, cancels and resumes runs, and may do what a Reader may.
	Operator Role = "operator"
	// Reader sees clusters, runs, plans and metrics.
	Reader Role = "reader"
)

// Identity is who sends a request.
type Identity struct {
	Name  string // "token", "reader-token", an e-mail address or a subject
	Role  Role
	Until time.Time // zero: for as long as the token is the configured one
}

// Names of who has a configured token.
const (
	byToken       = "token"
	byReaderToken = "reader-token"
)

// CSRFHeader is the header in which the page of a session sends its token.
const CSRFHeader = "X-CSRF-Token"

// Options are how users prove who they are.
type Options struct {
	Token       *Token // of operators; nil: there is none
	ReaderToken *Token // nil: there is none
	OIDC        *OIDC  // nil: there is none
	TLS         bool   // cookies are sent over TLS alone
	Now         func() time.Time
}

// Auth knows who a request is of.
type Auth struct {
	Options
	sessions *sessions
	failures *Limits
	// limited has room for one ID token of those that are verified for addresses that sent too many wrong ones.
	limited chan struct{}
}

// New makes an Auth.
func New(o Options) *Auth {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Auth{Options: o, sessions: newSessions(), failures: NewLimits(0.5, 10), limited: make(chan struct{}, 1)}
}

// Errors of a request.
var (
	ErrMissing  = errors.New("this needs a token: send it as Authorization: Bearer TOKEN, or log in on the page")
	ErrWrong    = errors.New("the token is not right, or not right any more")
	ErrTooOften = errors.New("the token is not right, and too many wrong tokens came from this address: wait a little")
	ErrForged   = errors.New("a request of a session that changes something needs the header " + CSRFHeader +
		", with the value that its login (POST /api/v1/session) gave")
)

// Check finds out who sent a request. One of a session that changes something has to prove that the page sent it.
func (a *Auth) Check(r *http.Request) (Identity, error) {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, presented, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "bearer") {
			presented = ""
		}
		return a.verify(r, strings.TrimSpace(presented))
	}
	secret, ok := a.cookie(r)
	if !ok {
		return Identity{}, ErrMissing
	}
	who, ok := a.sessions.find(secret, a.Now())
	if !ok {
		return Identity{}, ErrMissing
	}
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead
	if !safe && !a.proven(r, secret) {
		return Identity{}, ErrForged
	}
	return who, nil
}

// Holds reports whether what Check found out about a request still holds: its token has not expired, and its session
// has neither ended nor expired.
func (a *Auth) Holds(r *http.Request, who Identity) bool {
	now := a.Now()
	if !who.Until.IsZero() && !now.Before(who.Until) {
		return false
	}
	if r.Header.Get("Authorization") != "" {
		return true
	}
	secret, ok := a.cookie(r)
	if ok {
		_, ok = a.sessions.find(secret, now)
	}
	return ok
}

// verify finds out whose token one is. Wrong tokens are counted by the address that they come from. A token is looked
// at before that count is, since others share the address, behind a proxy for example: the right one is never
// refused. The count decides how much work wrong ones make: beyond the limit, all addresses together get one
// signature verified at a time.
func (a *Auth) verify(r *http.Request, presented string) (Identity, error) {
	if a.Token != nil && a.Token.is(presented) {
		return Identity{Name: byToken, Role: Operator}, nil
	}
	if a.ReaderToken != nil && a.ReaderToken.is(presented) {
		return Identity{Name: byReaderToken, Role: Reader}, nil
	}
	client := Client(r)
	failed := ErrWrong
	if a.OIDC != nil && looksLikeOne(presented) {
		var turn chan struct{}
		if !a.failures.Left(client) {
			turn = a.limited
		}
		who, err := a.OIDC.verify(r.Context(), presented, turn)
		if err == nil || errors.Is(err, ErrIssuer) {
			return who, err
		}
		failed = errors.Join(ErrWrong, err)
	}
	if !a.failures.Allow(client) {
		return Identity{}, ErrTooOften
	}
	return Identity{}, failed
}

// Login begins a session for a browser that presents a token.
func (a *Auth) Login(w http.ResponseWriter, r *http.Request, presented string) (who Identity, csrf string, err error) {
	if who, err = a.verify(r, strings.TrimSpace(presented)); err != nil {
		return who, "", err
	}
	secret, who := a.sessions.begin(who, a.Now())
	c := a.blank(r)
	c.Value, c.Expires = secret, who.Until
	http.SetCookie(w, c)
	return who, a.sessions.csrf(secret), nil
}

// Logout ends the session of a browser.
func (a *Auth) Logout(w http.ResponseWriter, r *http.Request) {
	if secret, ok := a.cookie(r); ok {
		a.sessions.end(secret)
	}
	c := a.blank(r)
	c.MaxAge = -1
	http.SetCookie(w, c)
}

// CSRF is the token of the session that a request is of, where the request has it; else empty. The cookie alone does
// not get it: a browser sends that to servers of others at other ports of the host, too.
func (a *Auth) CSRF(r *http.Request) string {
	if secret, ok := a.cookie(r); ok && r.Header.Get("Authorization") == "" && a.proven(r, secret) {
		return a.sessions.csrf(secret)
	}
	return ""
}

// proven reports whether a request has the token that only the page of its session knows.
func (a *Auth) proven(r *http.Request, secret string) bool {
	return hmac.Equal([]byte(r.Header.Get(CSRFHeader)), []byte(a.sessions.csrf(secret)))
}

// blank is the cookie of a session, without its secret. Its name has the port, because cookies of one host overwrite
// each other whatever their ports are.
func (a *Auth) blank(r *http.Request) *http.Cookie {
	name := "slipway-session"
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			name += "-" + strconv.FormatUint(n, 10)
		}
	}
	if a.Options.TLS {
		name = "__Host-" + name // a browser takes it from this host alone, and over TLS
	}
	return &http.Cookie{Name: name, Path: "/", HttpOnly: true, Secure: a.Options.TLS, SameSite: http.SameSiteStrictMode}
}

func (a *Auth) cookie(r *http.Request) (secret string, ok bool) {
	c, err := r.Cookie(a.blank(r).Name)
	if err != nil || c.Value == "" {
		return "", false
	}
	return c.Value, true
}
