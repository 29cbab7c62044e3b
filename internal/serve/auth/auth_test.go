package auth

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

func TestTokenFiles(t *testing.T) {
	dir := t.TempDir()
	made := filepath.Join(dir, "below", "token")
	token, plain, err := EnsureToken(made)
	if err != nil || len(plain) < 40 || !token.is(plain) || token.is(plain+"x") || token.is("") {
		t.Fatalf("%d characters, %v", len(plain), err)
	}
	if info, err := os.Stat(made); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if _, again, err := EnsureToken(made); err != nil || again != plain {
		t.Errorf("it is made a second time: %v", err)
	}
	if _, other, err := EnsureToken(filepath.Join(dir, "other")); err != nil || other == plain {
		t.Errorf("two are the same: %v", err)
	}
	for name, text := range map[string]string{"empty": "\n", "short": "password", "words": "a token with many words in it"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ReadToken(path); err == nil || strings.Contains(err.Error(), "password") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := ReadToken(filepath.Join(dir, "missing")); err == nil {
		t.Error("a missing file is a token")
	}
}

func request(bearer string) *http.Request {
	r := httptest.NewRequest("GET", "http://localhost/", nil)
	r.Header.Set("Authorization", "Bearer "+bearer)
	return r
}

func TestSessions(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	token, plain, err := EnsureToken(filepath.Join(t.TempDir(), "token"))
	if err != nil {
		t.Fatal(err)
	}
	a := New(Options{Token: &token, TLS: true, Now: func() time.Time { return now }})
	login := func() (*http.Cookie, string) {
		w := httptest.NewRecorder()
		_, csrf, err := a.Login(w, request(""), plain)
		if err != nil {
			t.Fatal(err)
		}
		return w.Result().Cookies()[0], csrf
	}
	c, csrf := login()
	if !c.Secure || !c.HttpOnly || !strings.HasPrefix(c.Name, "__Host-") || c.SameSite != http.SameSiteStrictMode {
		t.Errorf("over TLS the cookie is %v", c)
	}
	check := func(method, csrf string) error {
		r := httptest.NewRequest(method, "https://localhost/", nil)
		r.AddCookie(c)
		r.Header.Set(CSRFHeader, csrf)
		_, err := a.Check(r)
		return err
	}
	other, otherCSRF := login()
	if other.Value == c.Value || otherCSRF == csrf {
		t.Error("two sessions have the same secret")
	}
	for name, tc := range map[string]struct {
		method, csrf string
		want         error
	}{
		"reads": {"GET", "", nil}, "changes": {"POST", csrf, nil}, "forged": {"POST", "", ErrForged}, "of another session": {"DELETE", otherCSRF, ErrForged},
	} {
		if err := check(tc.method, tc.csrf); !errors.Is(err, tc.want) || tc.want == nil && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	now = now.Add(sessionLasts + time.Second)
	if err := check("GET", ""); !errors.Is(err, ErrMissing) {
		t.Errorf("after its time: %v", err)
	}
	for range 2 * sessionsMost {
		login()
	}
	if n := len(a.sessions.all); n > sessionsMost {
		t.Errorf("%d sessions are kept", n)
	}
}

// issuer is an OpenID Connect issuer with one key.
type issuer struct {
	*httptest.Server
	key   *rsa.PrivateKey
	id    string // of the key
	away  bool
	asked atomic.Int64                  // for its keys
	hold  atomic.Pointer[chan struct{}] // keys are answered with once it is closed
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key, id: "one"}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i.away {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys",
				"authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
				"id_token_signing_alg_values_supported": []string{"RS256"}})
		case "/keys":
			i.asked.Add(1)
			if held := i.hold.Load(); held != nil {
				<-*held
			}
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: i.id, Algorithm: "RS256", Use: "sig"}}})
		}
	}))
	t.Cleanup(i.Close)
	return i
}

// token is an ID token with claims, signed by a key.
func (i *issuer) token(t *testing.T, key any, algorithm jose.SignatureAlgorithm, change map[string]any) string {
	t.Helper()
	claims := map[string]any{"iss": i.URL, "aud": "slipway", "sub": "1234", "email": "ann@example.com", "email_verified": true,
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	for name, value := range change {
		claims[name] = value
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", i.id))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestOIDC(t *testing.T) {
	i := newIssuer(t)
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	a := New(Options{OIDC: &OIDC{Issuer: i.URL, ClientID: "slipway",
		Operators: Members{Users: []string{"ann@example.com", "5678", "eve@example.com"}}}})
	a.failures = NewLimits(1000, 1000)
	for name, tc := range map[string]struct {
		token string
		who   string // empty: refused
	}{
		"an allowed address":        {i.token(t, i.key, jose.RS256, nil), "ann@example.com"},
		"an allowed subject":        {i.token(t, i.key, jose.RS256, map[string]any{"email": "bob@example.com", "sub": "5678"}), "5678"},
		"another user":              {i.token(t, i.key, jose.RS256, map[string]any{"email": "bob@example.com"}), ""},
		"an unverified address":     {i.token(t, i.key, jose.RS256, map[string]any{"email_verified": false}), ""},
		"a subject like an address": {i.token(t, i.key, jose.RS256, map[string]any{"email": "", "sub": "eve@example.com"}), ""},
		"another audience":          {i.token(t, i.key, jose.RS256, map[string]any{"aud": "other"}), ""},
		"another issuer":            {i.token(t, i.key, jose.RS256, map[string]any{"iss": "https://issuer.example"}), ""},
		"one that is too old":       {i.token(t, i.key, jose.RS256, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}), ""},
		"another key":               {i.token(t, stranger, jose.RS256, nil), ""},
		"the key as a password":     {i.token(t, i.key.N.Bytes(), jose.HS256, nil), ""},
		"no signature":              {"eyJhbGciOiJub25lIn0." + strings.Split(i.token(t, i.key, jose.RS256, nil), ".")[1] + ".", ""},
		"no ID token":               {"something", ""},
	} {
		who, err := a.Check(request(tc.token))
		if who.Name != tc.who || (err == nil) != (tc.who != "") || err != nil && !errors.Is(err, ErrWrong) {
			t.Errorf("%s: %q, %v", name, who.Name, err)
		}
	}
	// A session of a browser ends with the token.
	soon := time.Now().Add(time.Minute).Truncate(time.Second)
	who, _, err := a.Login(httptest.NewRecorder(), request(""), i.token(t, i.key, jose.RS256, map[string]any{"exp": soon.Unix()}))
	if err != nil || !who.Until.Equal(soon) {
		t.Errorf("%v, %v", who.Until, err)
	}
}

// An issuer that is away when it is asked first is asked again.
func TestAnIssuerThatComesBack(t *testing.T) {
	i := newIssuer(t)
	i.away = true
	o := &OIDC{Issuer: i.URL, ClientID: "slipway", Operators: Members{Users: []string{"ann@example.com"}}}
	a := New(Options{OIDC: o})
	token := i.token(t, i.key, jose.RS256, nil)
	if _, err := a.Check(request(token)); !errors.Is(err, ErrIssuer) {
		t.Errorf("%v", err)
	}
	i.away, o.tried = false, time.Time{}
	if who, err := a.Check(request(token)); err != nil || who.Name != "ann@example.com" {
		t.Errorf("%q, %v", who.Name, err)
	}
}

func TestLimitsAreBounded(t *testing.T) {
	l := NewLimits(0.001, 2)
	for i := range 2 * clientsMost {
		l.Allow(fmt.Sprint(i))
	}
	if n := len(l.all); n > clientsMost+1 {
		t.Errorf("%d clients are remembered", n)
	}
	if l.Allow("0") != true || l.Allow("0") != false {
		t.Error("a client's limit is not kept")
	}
	r := httptest.NewRequest("GET", "/", nil)
	for address, want := range map[string]string{"192.0.2.1:5": "192.0.2.1", "[2001:db8::1]:5": "2001:db8::", "odd": "odd"} {
		if r.RemoteAddr = address; Client(r) != want {
			t.Errorf("%s: %s", address, Client(r))
		}
	}
}

func TestHosts(t *testing.T) {
	h := append(Loopback(), "serve.example")
	for host, good := range map[string]bool{"localhost:8087": true, "LOCALHOST": true, "127.0.0.1:1": true, "[::1]:8087": true, "serve.example": true,
		"serve.example.evil.example": false, "evil.example:8087": false, "": false, "127.0.0.2:8087": false} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		if err := h.Check(r); (err == nil) != good {
			t.Errorf("%q: %v", host, err)
		}
	}
}
