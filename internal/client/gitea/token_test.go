package gitea

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/client/gitea/giteatest"
)

const prefix = "slipway.k8s."

var wanted = Wanted{Prefix: prefix, Scopes: []string{"read:repository"}}

// memory is a Store that takes one token.
type memory struct {
	mu     sync.Mutex
	token  string
	asked  int
	before func(asked int) // before an answer, without the lock
	fail   error           // of Keep, which does nothing then
	lost   error           // of Keep, which has kept the token
	unread error           // of Token after Keep has failed
	failed bool
}

func (m *memory) Token(context.Context) (string, error) {
	m.mu.Lock()
	m.asked++
	asked := m.asked
	m.mu.Unlock()
	if m.before != nil {
		m.before(asked)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed && m.unread != nil {
		return "", m.unread
	}
	return m.token, nil
}

func (m *memory) Keep(_ context.Context, token string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.fail != nil:
		m.failed = true
		return m.fail
	case m.token != "":
		return ErrKept
	}
	m.token = token
	m.failed = m.lost != nil
	return m.lost
}

// to leads to a server.
func to(s *giteatest.Server) http.RoundTripper {
	return &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", s.Listener.Addr().String())
	}}
}

func client(t *testing.T, s *giteatest.Server) *Client {
	t.Helper()
	t.Cleanup(s.Close)
	return New(to(s), "Gitea of the test", giteatest.User, giteatest.Password)
}

// only is the one token that there is, but for those of others.
func only(t *testing.T, s *giteatest.Server) giteatest.Token {
	t.Helper()
	all := slices.DeleteFunc(s.Tokens(), func(one giteatest.Token) bool { return !strings.HasPrefix(one.Name, prefix) })
	if len(all) != 1 {
		t.Fatalf("tokens %v; want one of %s", all, prefix)
	}
	return all[0]
}

// A token is minted with the scopes and a name of its own, and kept; again nothing changes.
func TestEnsure(t *testing.T) {
	s, store := giteatest.New(), &memory{}
	c := client(t, s)
	s.Add("someone-else", "all")
	for range 2 {
		token, err := Ensure(t.Context(), c, store, wanted)
		is := only(t, s)
		if err != nil || token != is.Value || store.token != token || !slices.Equal(is.Scopes, wanted.Scopes) ||
			len(is.Name) < len(prefix)+20 {
			t.Fatalf("%v, %q of %v", err, token, is)
		}
	}
	if len(s.Tokens()) != 2 {
		t.Errorf("the token of someone else is gone: %v", s.Tokens())
	}
}

// A token in the store wins, whatever it is, and what earlier runs left is deleted, however much it is.
func TestKeptTokenWins(t *testing.T) {
	s, store := giteatest.New(), &memory{token: "of the operator"}
	c := client(t, s)
	s.PageSize = 3
	for i := range 10 {
		s.Add(fmt.Sprintf("%sleft-%d", prefix, i), "read:repository")
		s.Add(fmt.Sprintf("other-%d", i), "read:repository")
	}
	token, err := Ensure(t.Context(), c, store, wanted)
	if err != nil || token != "of the operator" || len(s.Tokens()) != 10 || store.token != token {
		t.Errorf("%q, %v; %v", token, err, s.Tokens())
	}
	if slices.ContainsFunc(s.Asked(), func(asked string) bool { return strings.HasPrefix(asked, "POST") }) {
		t.Errorf("it minted: %v", s.Asked())
	}
}

// The store is asked again right before minting: a run that was faster has its token, and nothing is minted.
func TestAskedAgainBeforeMinting(t *testing.T) {
	s, store := giteatest.New(), &memory{}
	c := client(t, s)
	store.before = func(asked int) {
		if asked == 2 {
			store.mu.Lock()
			defer store.mu.Unlock()
			store.token = "of another run"
		}
	}
	token, err := Ensure(t.Context(), c, store, wanted)
	if err != nil || token != "of another run" || len(s.Tokens()) != 0 || slices.ContainsFunc(s.Asked(),
		func(asked string) bool { return strings.HasPrefix(asked, "POST") }) {
		t.Errorf("%q, %v; %v", token, err, s.Asked())
	}
}

// Runs that mint at the same moment end with one token, which all of them return.
func TestRunsAtOnce(t *testing.T) {
	s, store := giteatest.New(), &memory{}
	const runs = 8
	var here sync.WaitGroup // no run goes on to mint before all have seen that there is no token
	here.Add(runs)
	s.Before = func(r *http.Request) (int, string) {
		if r.Method == http.MethodPost {
			here.Done()
			here.Wait()
		}
		return 0, ""
	}
	c := client(t, s)
	tokens, errs := make([]string, runs), make([]error, runs)
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() { tokens[i], errs[i] = Ensure(t.Context(), c, store, wanted) })
	}
	all.Wait()
	is := only(t, s)
	for i := range runs {
		if errs[i] != nil || tokens[i] != is.Value {
			t.Errorf("run %d: %q, %v; the token is %q", i, tokens[i], errs[i], is.Value)
		}
	}
}

var errBroken = errors.New("broken")

// A token that could not be kept is deleted, unless it may have been kept.
func TestTokenThatWasNotKept(t *testing.T) {
	for name, tt := range map[string]struct {
		store *memory
		left  int
		token bool
	}{
		"not kept":           {store: &memory{fail: errBroken}},
		"the answer is lost": {store: &memory{lost: errBroken}, left: 1, token: true},
		"nobody knows":       {store: &memory{fail: errBroken, unread: errors.New("silent")}, left: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := giteatest.New()
			c := client(t, s)
			token, err := Ensure(t.Context(), c, tt.store, wanted)
			if (err == nil) != tt.token || (token != "") != tt.token || len(s.Tokens()) != tt.left ||
				err != nil && !errors.Is(err, errBroken) {
				t.Errorf("%q, %v; left: %v", token, err, s.Tokens())
			}
			tt.store.fail, tt.store.lost, tt.store.unread = nil, nil, nil
			if token, err = Ensure(t.Context(), c, tt.store, wanted); err != nil || only(t, s).Value != token {
				t.Errorf("again: %q, %v; left: %v", token, err, s.Tokens())
			}
		})
	}
}

// A run may end at every request: after the next one there is one token, and it is the kept one.
func TestEndedAtEveryRequest(t *testing.T) {
	for after := range 8 {
		for _, done := range []bool{false, true} { // the request did not arrive, or its answer did not
			s, store := giteatest.New(), &memory{}
			ctx, end := context.WithCancel(t.Context())
			var mu sync.Mutex
			count, ended := 0, false
			ends := func() bool {
				mu.Lock()
				defer mu.Unlock()
				if count++; count-1 == after {
					ended = true
					end()
				}
				return ended
			}
			if done {
				s.After = func(*http.Request) bool { return !ends() }
			} else {
				s.Before = func(*http.Request) (int, string) {
					if ends() {
						panic(http.ErrAbortHandler)
					}
					return 0, ""
				}
			}
			c := client(t, s)
			_, err := Ensure(ctx, c, store, wanted)
			end()
			if err == nil && ended {
				t.Errorf("%d: the request failed, and the run did not", after)
			}
			kept := store.token
			mu.Lock()
			count, ended = -1000, false
			mu.Unlock()
			token, err := Ensure(t.Context(), c, store, wanted)
			if err != nil || only(t, s).Value != token || store.token != token || kept != "" && kept != token {
				t.Errorf("ended at request %d (%v): %q after %q, %v; %v", after, done, token, kept, err, s.Tokens())
			}
		}
	}
}

// Names that are taken are not used, and who is refused is told what was asked, where, and what the answer was.
func TestErrors(t *testing.T) {
	s := giteatest.New()
	refusals := 2
	s.Before = func(r *http.Request) (int, string) {
		if r.Method == http.MethodPost && refusals > 0 {
			refusals--
			return http.StatusBadRequest, "access token name has been used already"
		}
		return 0, ""
	}
	c := client(t, s)
	if token, err := Ensure(t.Context(), c, &memory{}, wanted); err != nil || only(t, s).Value != token {
		t.Errorf("%q, %v", token, err)
	}
	wrong := New(to(s), "Gitea of the test", giteatest.User, "another-password")
	_, err := Ensure(t.Context(), wrong, &memory{}, wanted)
	if err == nil || !Final(err) || strings.Contains(err.Error(), "another-password") ||
		!strings.HasPrefix(err.Error(), "POST /api/v1/users/gitea_admin/tokens at Gitea of the test: 401") {
		t.Errorf("with another password: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	slow := giteatest.New()
	slow.Before = func(r *http.Request) (int, string) {
		<-r.Context().Done()
		return http.StatusServiceUnavailable, ""
	}
	_, err = Ensure(ctx, client(t, slow), &memory{}, wanted)
	if !errors.Is(err, context.DeadlineExceeded) || Final(err) ||
		!strings.HasPrefix(err.Error(), "GET /api/v1/version at Gitea of the test: ") {
		t.Errorf("a Gitea that does not answer: %v", err)
	}
}

func TestKnows(t *testing.T) {
	s := giteatest.New()
	c := client(t, s)
	is := s.Add("x", "read:repository")
	for token, want := range map[string]bool{is.Value: true, "of-before": false} {
		if known, err := c.Knows(t.Context(), token); known != want || err != nil {
			t.Errorf("%v, %v; want %v", known, err, want)
		}
	}
}
