// Package gitclonetest serves a Git repository over HTTP, for tests.
package gitclonetest

import (
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// User and Token open the repository.
const (
	User  = "git"
	Token = "planted-git-token"
)

// Repository is an empty bare repository with the branch main.
type Repository struct {
	URL string // over HTTP
	dir string
	t   *testing.T
}

// New serves a repository until the end of the test, and keeps the Git configuration of who runs the tests out of it.
// The test is skipped on a machine without git.
func New(t *testing.T) Repository {
	t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("this machine has no git")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	root := t.TempDir()
	r := Repository{dir: filepath.Join(root, "fleet.git"), t: t}
	r.command(root, "init", "--quiet", "--bare", "--initial-branch", "main", r.dir)
	r.Git("config", "http.receivepack", "true")
	backend := &cgi.Handler{Path: git, Args: []string{"http-backend"}, Env: []string{"GIT_PROJECT_ROOT=" + root,
		"GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=" + User}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if user, password, _ := request.BasicAuth(); user != User || password != Token {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, request)
	}))
	t.Cleanup(server.Close)
	r.URL = server.URL + "/fleet.git"
	return r
}

// Git runs git in the repository and returns what it prints.
func (r Repository) Git(words ...string) string {
	r.t.Helper()
	return r.command(r.dir, words...)
}

func (r Repository) command(dir string, words ...string) string {
	r.t.Helper()
	command := exec.Command("git", words...)
	command.Dir = dir
	out, err := command.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", words, err, out)
	}
	return strings.TrimSpace(string(out))
}
