// Package giteatest is a part of Gitea's API in memory, for tests.
package giteatest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The user of a Server.
const (
	User     = "gitea_admin"
	Password = "password-of-the-admin"
)

// Token is an access token.
type Token struct {
	ID     int64
	Name   string
	Value  string
	Scopes []string
}

// Server is the API: a user's tokens and repositories under basic auth.
type Server struct {
	*httptest.Server
	// Before answers a request in the API's place: a status other than 0, and a message. It is set before the server is
	// used.
	Before func(*http.Request) (status int, message string)
	// After is asked when a request was done and is about to be answered: false cuts the answer off. It is set before the
	// server is used.
	After func(*http.Request) bool
	// PageSize is the longest page of a list.
	PageSize int

	mu     sync.Mutex
	tokens []Token
	minted int
	asked  []string
	repos  map[string]*Repository // by name
	made   int                    // how many there were
}

// New starts a server on loopback.
func New() *Server {
	s := &Server{PageSize: 50}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/version", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"version": "1.27.0"})
	})
	mux.HandleFunc("GET /api/v1/users/{user}/tokens", allowed(authorized, s.list))
	mux.HandleFunc("POST /api/v1/users/{user}/tokens", allowed(authorized, s.mint))
	mux.HandleFunc("DELETE /api/v1/users/{user}/tokens/{id}", allowed(authorized, s.delete))
	mux.HandleFunc("GET /api/v1/repos/search", s.search)
	s.repositories(mux)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		if s.Before != nil {
			if status, message := s.Before(r); status != 0 {
				refuse(w, status, message)
				return
			}
		}
		if s.After == nil {
			mux.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, r)
		if !s.After(r) {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}))
	return s
}

// Tokens are those that exist.
func (s *Server) Tokens() []Token {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tokens)
}

// Asked are the requests, as "GET /api/v1/version".
func (s *Server) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// Add creates a token.
func (s *Server) Add(name string, scopes ...string) Token {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(name, scopes)
}

// Remove deletes a token.
func (s *Server) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = slices.DeleteFunc(s.tokens, func(t Token) bool { return t.Name == name })
}

func (s *Server) add(name string, scopes []string) Token {
	s.minted++
	t := Token{ID: int64(s.minted), Name: name, Value: fmt.Sprintf("%032x%08x", 0xfeed, s.minted), Scopes: scopes}
	s.tokens = append(s.tokens, t)
	return t
}

// allowed answers a request that passes a check, which refuses the others.
func allowed(check func(http.ResponseWriter, *http.Request) bool, answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if check(w, r) {
			answer(w, r)
		}
	}
}

func authorized(w http.ResponseWriter, r *http.Request) bool {
	if user, password, ok := r.BasicAuth(); !ok || user != User || password != Password {
		refuse(w, http.StatusUnauthorized, "user does not exist or the password is wrong")
		return false
	}
	if user := r.PathValue("user"); user != "" && user != User {
		refuse(w, http.StatusNotFound, "no such user")
		return false
	}
	return true
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	page, _ := strconv.Atoi(r.URL.Query().Get("page"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	limit = min(max(limit, 1), s.PageSize)
	s.mu.Lock()
	defer s.mu.Unlock()
	some := []map[string]any{}
	for i := (max(page, 1) - 1) * limit; i < len(s.tokens) && len(some) < limit; i++ {
		t := s.tokens[i]
		some = append(some, map[string]any{"id": t.ID, "name": t.Name, "sha1": "",
			"token_last_eight": t.Value[len(t.Value)-8:], "scopes": t.Scopes})
	}
	reply(w, http.StatusOK, some)
}

func (s *Server) mint(w http.ResponseWriter, r *http.Request) {
	var want struct {
		Name   string
		Scopes []string
	}
	if err := json.NewDecoder(r.Body).Decode(&want); err != nil {
		refuse(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case slices.ContainsFunc(s.tokens, func(t Token) bool { return t.Name == want.Name }):
		refuse(w, http.StatusBadRequest, "access token name has been used already")
		return
	case len(want.Scopes) == 0:
		refuse(w, http.StatusBadRequest, "access token must have a scope")
		return
	}
	t := s.add(want.Name, want.Scopes)
	reply(w, http.StatusCreated, map[string]any{"id": t.ID, "name": t.Name, "sha1": t.Value,
		"token_last_eight": t.Value[len(t.Value)-8:], "scopes": t.Scopes})
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.tokens, func(t Token) bool {
		return strconv.FormatInt(t.ID, 10) == r.PathValue("id") || t.Name == r.PathValue("id")
	})
	if i < 0 {
		refuse(w, http.StatusNotFound, "no such token")
		return
	}
	s.tokens = slices.Delete(s.tokens, i, i+1)
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) search(w http.ResponseWriter, r *http.Request) {
	value, _ := strings.CutPrefix(r.Header.Get("Authorization"), "token ")
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(s.tokens, func(t Token) bool { return t.Value == value }) {
		refuse(w, http.StatusUnauthorized, "invalid token")
		return
	}
	reply(w, http.StatusOK, map[string]any{"ok": true, "data": []any{}})
}

func refuse(w http.ResponseWriter, status int, message string) {
	reply(w, status, map[string]string{"message": message})
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
