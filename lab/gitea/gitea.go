// Package gitea is the lab's stand-in for Gitea: its API of a user's access tokens, under basic auth, with the
// original's answers. It keeps the tokens in a file and has no repositories.
package gitea

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/lab/standin"
)

// Version is the release that the answers are those of.
const Version = "1.27.0"

// Run serves the API until ctx is done. The administrator is in GITEA_ADMIN_USERNAME and GITEA_ADMIN_PASSWORD.
func Run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("gitea", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:3000", "address to listen on")
	data := flags.String("data", "", "folder for the tokens")
	if err := flags.Parse(args); err != nil {
		return err
	}
	address, err := standin.Loopback(*listen)
	if err != nil {
		return err
	}
	s, err := New(*data, os.Getenv("GITEA_ADMIN_USERNAME"), os.Getenv("GITEA_ADMIN_PASSWORD"))
	if err != nil {
		return err
	}
	server := &http.Server{Addr: address, Handler: s.Handler(), ReadHeaderTimeout: readWithin}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve Gitea's API: %w", err)
	}
	return nil
}

// readWithin is how long the header of a request may take to arrive.
const readWithin = 10 * time.Second

// Server is the API of one user.
type Server struct {
	file, user, password string

	mu    sync.Mutex
	state state
}

// state is what the file holds. Of a token it has the hash, as the original's database.
type state struct {
	Last   int64   `json:"last"` // ID
	Tokens []token `json:"tokens"`
}

type token struct {
	ID     int64    `json:"id"`
	Name   string   `json:"name"`
	Hash   string   `json:"hash"`
	Ends   string   `json:"ends"`
	Scopes []string `json:"scopes"`
}

// New reads the tokens in a folder.
func New(dir, user, password string) (*Server, error) {
	if dir == "" || user == "" || password == "" {
		return nil, errors.New("give --data, GITEA_ADMIN_USERNAME and GITEA_ADMIN_PASSWORD")
	}
	s := &Server{file: filepath.Join(dir, "tokens.json"), user: user, password: password}
	data, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &s.state)
	}
	if err != nil {
		return nil, fmt.Errorf("read the tokens: %w", err)
	}
	return s, nil
}

// Handler serves the API.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "pass"})
	})
	mux.HandleFunc("GET /api/v1/version", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"version": Version})
	})
	mux.HandleFunc("GET /api/v1/repos/search", s.search)
	const tokens = "/api/v1/users/{user}/tokens"
	mux.HandleFunc("GET "+tokens, s.asUser(s.list))
	mux.HandleFunc("POST "+tokens, s.asUser(s.create))
	mux.HandleFunc("DELETE "+tokens+"/{id}", s.asUser(s.remove))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, fmt.Sprintf("the lab's stand-in for Gitea has no %s %s: it has access tokens only. Gitea "+
			"itself runs where it is built when a lab begins: lab build GITEA=true",
			r.Method, r.URL.Path))
	})
	return mux
}

// asUser lets the user in, by the password: the original's API of tokens takes no token.
func (s *Server) asUser(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		right := subtle.ConstantTimeCompare([]byte(user), []byte(s.user)) &
			subtle.ConstantTimeCompare([]byte(password), []byte(s.password))
		switch {
		case right != 1:
			refuse(w, http.StatusUnauthorized, "user does not exist or its password is another")
		case r.PathValue("user") != s.user:
			refuse(w, http.StatusNotFound, "user does not exist")
		default:
			next(w, r)
		}
	}
}

// pageSize is the original's longest page, and its default.
const (
	pageSize    = 50
	defaultPage = 30
)

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	limit, page := positive(r, "limit", defaultPage), positive(r, "page", 1)
	limit = min(limit, pageSize)
	s.mu.Lock()
	defer s.mu.Unlock()
	some := []map[string]any{}
	for i := (page - 1) * limit; i < len(s.state.Tokens) && len(some) < limit; i++ {
		some = append(some, s.state.Tokens[i].described(""))
	}
	w.Header().Set("X-Total-Count", strconv.Itoa(len(s.state.Tokens)))
	answer(w, http.StatusOK, some)
}

func positive(r *http.Request, name string, otherwise int) int {
	if n, err := strconv.Atoi(r.URL.Query().Get(name)); err == nil && n > 0 && n < 1<<20 {
		return n
	}
	return otherwise
}

func (t token) described(value string) map[string]any {
	return map[string]any{"id": t.ID, "name": t.Name, "sha1": value, "token_last_eight": t.Ends, "scopes": t.Scopes}
}

// scope is one of an access token.
var scope = regexp.MustCompile(`^(all|public-only|(read|write):(activitypub|admin|issue|misc|notification|` +
	`organization|package|repository|user))$`)

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	var want struct {
		Name   string   `json:"name"`
		Scopes []string `json:"scopes"`
	}
	if err := json.NewDecoder(r.Body).Decode(&want); err != nil || want.Name == "" {
		refuse(w, http.StatusUnprocessableEntity, "[Name]: Required")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch i := slices.IndexFunc(want.Scopes, func(one string) bool { return !scope.MatchString(one) }); {
	case slices.ContainsFunc(s.state.Tokens, func(t token) bool { return t.Name == want.Name }):
		refuse(w, http.StatusBadRequest, "access token name has been used already")
		return
	case i >= 0:
		refuse(w, http.StatusBadRequest, "invalid access token scope provided: "+want.Scopes[i])
		return
	case len(want.Scopes) == 0:
		refuse(w, http.StatusBadRequest, "access token must have a scope")
		return
	}
	var random [20]byte
	_, _ = rand.Read(random[:]) // it never fails
	value := hex.EncodeToString(random[:])
	t := token{ID: s.state.Last + 1, Name: want.Name, Hash: hashOf(value), Ends: value[len(value)-8:], Scopes: want.Scopes}
	if err := s.save(state{Last: t.ID, Tokens: append(slices.Clone(s.state.Tokens), t)}); err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	answer(w, http.StatusCreated, t.described(value))
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.state.Tokens, func(t token) bool {
		return strconv.FormatInt(t.ID, 10) == r.PathValue("id") || t.Name == r.PathValue("id")
	})
	if i < 0 {
		refuse(w, http.StatusNotFound, "the token does not exist")
		return
	}
	if err := s.save(state{Last: s.state.Last, Tokens: slices.Delete(slices.Clone(s.state.Tokens), i, i+1)}); err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// search answers that there are no repositories, to who has a token.
func (s *Server) search(w http.ResponseWriter, r *http.Request) {
	value, _ := strings.CutPrefix(r.Header.Get("Authorization"), "token ")
	hash := hashOf(value)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.state.Tokens, func(t token) bool { return t.Hash == hash })
	switch {
	case i < 0:
		refuse(w, http.StatusUnauthorized, "invalid username, password or token")
	case !slices.ContainsFunc(s.state.Tokens[i].Scopes, func(one string) bool {
		return one == "all" || strings.HasSuffix(one, ":repository")
	}):
		refuse(w, http.StatusForbidden, "token does not have at least one of required scope(s)")
	default:
		answer(w, http.StatusOK, map[string]any{"ok": true, "data": []any{}})
	}
}

func hashOf(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:])
}

// save writes the tokens down and has them from then on. It is called with s.mu held.
func (s *Server) save(next state) error {
	data, err := json.Marshal(next)
	if err != nil {
		return err
	}
	temporary := s.file + ".new"
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return fmt.Errorf("write the tokens: %w", err)
	}
	if err := os.Rename(temporary, s.file); err != nil {
		return fmt.Errorf("write the tokens: %w", err)
	}
	s.state = next
	return nil
}

func refuse(w http.ResponseWriter, status int, message string) {
	answer(w, status, map[string]string{"message": message, "url": ""})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
