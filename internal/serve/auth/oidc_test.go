package auth

import (
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/slipway-k8s/slipway/internal/base/usage"
)

func newKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Wrong ID tokens are limited, and the right one of another user behind the same address is accepted all the same, as a
// bearer token and at a login.
func TestWrongIDTokensLockNobodyOut(t *testing.T) {
	i := newIssuer(t)
	stranger := newKey(t)
	a := New(Options{OIDC: &OIDC{Issuer: i.URL, ClientID: "slipway",
		Operators: Members{Users: []string{"ann@example.com"}}}})
	right := i.token(t, i.key, jose.RS256, nil)
	for name, wrong := range map[string]string{
		"another key":  i.token(t, stranger, jose.RS256, nil),
		"another user": i.token(t, i.key, jose.RS256, map[string]any{"email": "bob@example.com"}),
		"no ID token":  "something",
		"no JSON":      "a.b.c",
		"a long one":   strings.Repeat("a", tokenMost) + ".b.c",
	} {
		limited := 0
		for range 50 {
			if _, err := a.Check(request(wrong)); errors.Is(err, ErrTooOften) {
				limited++
			} else if !errors.Is(err, ErrWrong) {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if limited < 10 {
			t.Errorf("%s: %d of 50 were limited", name, limited)
		}
		if who, err := a.Check(request(right)); err != nil || who.Name != "ann@example.com" || who.Role != Operator {
			t.Errorf("after %s the right token: %+v, %v", name, who, err)
		}
		if _, _, err := a.Login(httptest.NewRecorder(), request(""), right); err != nil {
			t.Errorf("after %s the login with the right token: %v", name, err)
		}
	}
	// The keys were asked for once: a signature that the known key did not make is no reason to ask again.
	if n := i.asked.Load(); n != 1 {
		t.Errorf("the issuer was asked for its keys %d times", n)
	}
}

// Tokens that name keys which the issuer does not have share its answers, and the right token does not wait for them.
func TestUnknownKeysAreAskedForTogether(t *testing.T) {
	i := newIssuer(t)
	a := New(Options{OIDC: &OIDC{Issuer: i.URL, ClientID: "slipway",
		Operators: Members{Users: []string{"ann@example.com"}}}})
	right := i.token(t, i.key, jose.RS256, nil)
	if _, err := a.Check(request(right)); err != nil {
		t.Fatal(err)
	}
	stranger := newKey(t)
	held := make(chan struct{})
	i.hold.Store(&held) // the issuer does not answer any more
	i.id = "strange"
	wrong := i.token(t, stranger, jose.RS256, nil)
	i.id = "one"
	var waiting sync.WaitGroup
	for range 40 {
		waiting.Go(func() {
			if _, err := a.Check(request(wrong)); !errors.Is(err, ErrWrong) && !errors.Is(err, ErrTooOften) {
				t.Errorf("an unknown key: %v", err)
			}
		})
	}
	for a.failures.Left("192.0.2.1") { // until it has failed too often, whatever the issuer does
		_, _ = a.Check(request("wrong"))
	}
	if who, err := a.Check(request(right)); err != nil || who.Name != "ann@example.com" {
		t.Errorf("the right token, while others wait for the issuer: %+v, %v", who, err)
	}
	began := time.Now()
	close(held)
	i.hold.Store(nil)
	waiting.Wait()
	// One at a time, and one a second: how many there were is bound by the time that passed.
	if n, most := i.asked.Load(), int64(3+time.Since(began)/keysOften); n > most {
		t.Errorf("the issuer was asked for its keys %d times, at most %d were expected", n, most)
	}
}

// A key that the issuer signs with from now on is asked for.
func TestTheIssuerChangesItsKey(t *testing.T) {
	i := newIssuer(t)
	a := New(Options{OIDC: &OIDC{Issuer: i.URL, ClientID: "slipway",
		Operators: Members{Users: []string{"ann@example.com"}}}})
	if _, err := a.Check(request(i.token(t, i.key, jose.RS256, nil))); err != nil {
		t.Fatal(err)
	}
	i.key, i.id = newKey(t), "two"
	if _, err := a.Check(request(i.token(t, i.key, jose.RS256, nil))); err != nil {
		t.Errorf("signed with another key: %v", err)
	}
	i.key = newKey(t) // under the same id
	token := i.token(t, i.key, jose.RS256, nil)
	if _, err := a.Check(request(token)); !errors.Is(err, ErrWrong) {
		t.Errorf("signed with a key of the same id: %v", err)
	}
	a.OIDC.keys.asked = time.Now().Add(-2 * keysOld)
	if _, err := a.Check(request(token)); err != nil {
		t.Errorf("signed with a key of the same id, later: %v", err)
	}
}

func TestRoles(t *testing.T) {
	i := newIssuer(t)
	dir := t.TempDir()
	token, plain, err := EnsureToken(filepath.Join(dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	readers, plainReaders, err := EnsureToken(filepath.Join(dir, "readers"))
	if err != nil {
		t.Fatal(err)
	}
	a := New(Options{Token: &token, ReaderToken: &readers, OIDC: &OIDC{Issuer: i.URL, ClientID: "slipway",
		Operators: Members{Users: []string{"ann@example.com"}, Groups: []string{"platform"}},
		Readers:   Members{Users: []string{"ann@example.com", "bob@example.com"}, Groups: []string{"developers", "platform"}}}})
	a.failures = NewLimits(1000, 1000)
	of := func(email string, groups any) string {
		return i.token(t, i.key, jose.RS256, map[string]any{"email": email, "groups": groups})
	}
	for name, tc := range map[string]struct {
		token string
		who   string
		role  Role
	}{
		"the token":             {plain, "token", Operator},
		"the readers' token":    {plainReaders, "reader-token", Reader},
		"both by name":          {of("ann@example.com", nil), "ann@example.com", Operator},
		"a reader by name":      {of("bob@example.com", nil), "bob@example.com", Reader},
		"one by name and group": {of("bob@example.com", []string{"platform"}), "bob@example.com", Operator},
		"a group":               {of("eve@example.com", []string{"x", "developers"}), "eve@example.com", Reader},
		"a group as a string":   {of("eve@example.com", "developers"), "eve@example.com", Reader},
		"both by group":         {of("eve@example.com", []string{"developers", "platform"}), "eve@example.com", Operator},
		"groups of other kinds": {of("eve@example.com", map[string]any{"platform": true}), "", ""},
		"mixed groups":          {of("eve@example.com", []any{1, "platform"}), "", ""},
		"another group":         {of("eve@example.com", []string{"platform-x", ""}), "", ""},
		"no group":              {of("eve@example.com", nil), "", ""},
	} {
		who, err := a.Check(request(tc.token))
		if who.Name != tc.who || who.Role != tc.role || (err == nil) != (tc.who != "") {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
	}
	// The sessions of readers do not end those of operators.
	w := httptest.NewRecorder()
	if _, _, err := a.Login(w, request(""), plain); err != nil {
		t.Fatal(err)
	}
	for range 2 * sessionsMost {
		if who, _, err := a.Login(httptest.NewRecorder(), request(""), plainReaders); err != nil || who.Role != Reader {
			t.Fatalf("%+v, %v", who, err)
		}
	}
	r := httptest.NewRequest("GET", "http://localhost/", nil)
	r.AddCookie(w.Result().Cookies()[0])
	if who, err := a.Check(r); err != nil || who.Role != Operator {
		t.Errorf("after many logins of readers, the operator's session: %+v, %v", who, err)
	}
}

// What authenticates others is asked for where nobody on the way can change it.
func TestAnIssuerNeedsTLS(t *testing.T) {
	for issuer, good := range map[string]bool{
		"https://issuer.example": true, "https://issuer.example/realms/x": true, "http://127.0.0.1:5556/dex": true,
		"http://localhost:5556": true, "http://[::1]:1": true,
		"http://issuer.example": false, "http://10.0.0.1": false, "http://localhost.example": false, "http://127.0.0.1.example": false,
		"issuer.example": false, "": false, "ftp://issuer.example": false, "https://": false, "https://user@issuer.example": false,
		"https://issuer.example?x=1": false, "HTTP://issuer.example": false, "://": false,
	} {
		err := CheckIssuer(issuer)
		if _, is := errors.AsType[*usage.Error](err); (err == nil) != good || err != nil && !is {
			t.Errorf("%q: %v", issuer, err)
		}
	}
	// An issuer's description may name keys, and its answers redirect, to addresses without TLS.
	for name, answer := range map[string]http.HandlerFunc{
		"keys": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"issuer":"http://` + r.Host + `","jwks_uri":"http://192.0.2.1/keys"}`))
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		},
	} {
		server := httptest.NewServer(answer)
		a := New(Options{OIDC: &OIDC{Issuer: server.URL, ClientID: "slipway",
			Operators: Members{Users: []string{"ann@example.com"}},
			Client:    &http.Client{Transport: onlyTo{t, strings.TrimPrefix(server.URL, "http://")}}}})
		i := newIssuer(t)
		if _, err := a.Check(request(i.token(t, i.key, jose.RS256, nil))); !errors.Is(err, ErrIssuer) || !strings.Contains(err.Error(), "without TLS") {
			t.Errorf("%s: %v", name, err)
		}
		server.Close()
	}
}

// onlyTo fails the test when a request leaves for another host.
type onlyTo struct {
	t    *testing.T
	host string
}

func (o onlyTo) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != o.host {
		o.t.Errorf("a request leaves for %s", r.URL)
		return nil, errors.New("not in this test")
	}
	return http.DefaultTransport.RoundTrip(r)
}

func TestPrivateFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	if err := os.WriteFile(path, []byte(strings.Repeat("t", 40)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, good := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o700: true,
		0o640: false, 0o620: false, 0o604: false, 0o602: false, 0o644: false, 0o666: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, _, err := ReadToken(path)
		if _, is := errors.AsType[*usage.Error](err); (err == nil) != good || err != nil && (!is || !strings.Contains(err.Error(), "chmod 600 "+path)) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for mode, good := range map[os.FileMode]bool{0o700: true, 0o755: true, 0o775: true, 0o777: false, 0o777 | os.ModeSticky: true} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{path, link} {
			if _, _, err := ReadToken(name); (err == nil) != good {
				t.Errorf("%s in a folder with mode %s: %v", name, mode, err)
			}
		}
	}
	if _, _, err := ReadToken(dir); err == nil {
		t.Error("a folder is a token")
	}
}

// A file belongs to the account of the process, or to root as one of a mounted Secret does, which a group may read.
func TestOwnersOfPrivateFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		owner, me uint32
		mode      os.FileMode
		good      bool
	}{
		"its own":             {65532, 65532, 0o600, true},
		"its own, for others": {65532, 65532, 0o640, false},
		"root's for a group":  {0, 65532, 0o440, true},
		"root's, changeable":  {0, 65532, 0o460, false},
		"root's for all":      {0, 65532, 0o444, false},
		"root's, to root":     {0, 0, 0o440, false},
		"another account's":   {1000, 65532, 0o600, false},
		"a user's, to root":   {1000, 0, 0o600, false},
	} {
		if err := checkPrivate("token", owned{tc.owner, tc.mode}, int(tc.me)); (err == nil) != tc.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// owned is a file of an account.
type owned struct {
	owner uint32
	mode  os.FileMode
}

func (o owned) Name() string       { return "token" }
func (o owned) Size() int64        { return 40 }
func (o owned) Mode() os.FileMode  { return o.mode }
func (o owned) ModTime() time.Time { return time.Time{} }
func (o owned) IsDir() bool        { return false }
func (o owned) Sys() any           { return &syscall.Stat_t{Uid: o.owner} }
