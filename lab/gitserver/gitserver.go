// Package gitserver serves one Git repository over HTTP, for reading and for writing, with the git of this machine.
// Every request needs the repository's token as the password of the user git.
package gitserver

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
)

const (
	// User is the name that goes with the token.
	User = "git"
	// Branch is the one that the repository begins with.
	Branch = "main"
	// Path is the repository's, below the server's address.
	Path = "/slipway.git"
)

// Server serves the repository in a folder.
type Server struct {
	git, dir, token string
	log             *slog.Logger

	committing sync.Mutex
}

// New ensures that the folder is a repository whose branch main has a commit.
func New(ctx context.Context, dir, token string, log *slog.Logger) (*Server, error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("git is needed to serve a Git repository: %w", err)
	}
	s := &Server{git: git, dir: dir, token: token, log: log}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the folder of the Git repository: %w", err)
	}
	if _, err := s.run(ctx, nil, nil, "init", "--quiet", "--bare", "--initial-branch="+Branch, dir); err != nil {
		return nil, err
	}
	return s, s.Ensure(ctx, "README.md", "README.md", "Git repository of the lab: what a cluster's Flux applies.\n")
}

// Handler serves the repository at Path.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path+"/info/refs", s.refs)
	for _, service := range services {
		mux.HandleFunc("POST "+Path+"/"+service, func(w http.ResponseWriter, r *http.Request) { s.exchange(w, r, service) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(password), []byte(s.token)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="Git repository of the lab"`)
			http.Error(w, "the password is not the repository's token", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// services are the two programs of Git's protocol: for a client that reads, and for one that writes.
var services = []string{"git-upload-pack", "git-receive-pack"}

// refs answers what references there are, as Git's HTTP protocol says: https://git-scm.com/docs/http-protocol.
func (s *Server) refs(w http.ResponseWriter, r *http.Request) {
	service := r.URL.Query().Get("service")
	if service != services[0] && service != services[1] {
		http.Error(w, "this server speaks Git's smart protocol only", http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "application/x-"+service+"-advertisement")
	w.Header().Set("Cache-Control", "no-cache")
	announced := "# service=" + service + "\n"
	fmt.Fprintf(w, "%04x%s0000", len(announced)+4, announced)
	s.serve(w, r, nil, strings.TrimPrefix(service, "git-"), "--stateless-rpc", "--advertise-refs", s.dir)
}

// exchange gives a request's body to git and answers with what it says.
func (s *Server) exchange(w http.ResponseWriter, r *http.Request, service string) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unpacked
	}
	w.Header().Set("Content-Type", "application/x-"+service+"-result")
	w.Header().Set("Cache-Control", "no-cache")
	s.serve(w, r, body, strings.TrimPrefix(service, "git-"), "--stateless-rpc", s.dir)
}

// serve runs git for a request. The answer has begun when git fails, so that only the log can say why.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, body io.Reader, args ...string) {
	command := s.command(r.Context(), args...)
	command.Env = append(command.Env, "GIT_PROTOCOL="+r.Header.Get("Git-Protocol"))
	var stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = body, w, &stderr
	if err := command.Run(); err != nil && r.Context().Err() == nil {
		s.log.Warn("git failed over a request", "command", args[0], "reason", err, "stderr", stderr.String())
	}
}

// Ensure commits a file, unless the branch has something at at, which is the file or a folder above it.
func (s *Server) Ensure(ctx context.Context, at, file, content string) error {
	for _, p := range []string{at, file} {
		if p == "" || path.IsAbs(p) || path.Clean(p) != p || strings.HasPrefix(p, "..") {
			return fmt.Errorf("commit %q to the Git repository of the lab: want a path inside the repository", p)
		}
	}
	s.committing.Lock()
	defer s.committing.Unlock()
	head, err := s.run(ctx, nil, nil, "rev-parse", "--verify", "--quiet", "refs/heads/"+Branch)
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return err
	}
	if head != "" {
		if found, err := s.run(ctx, nil, nil, "ls-tree", "--name-only", head, at); err != nil || found != "" {
			return err
		}
	}
	if err := s.commit(ctx, head, file, content); err != nil {
		return fmt.Errorf("commit %s to the Git repository of the lab: %w", file, err)
	}
	return nil
}

// commit adds a file to the branch whose newest commit is head; empty: it has none.
func (s *Server) commit(ctx context.Context, head, file, content string) error {
	temporary, err := os.MkdirTemp("", "slipway-lab-git")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	index := []string{"GIT_INDEX_FILE=" + filepath.Join(temporary, "index")}
	if head != "" {
		if _, err := s.run(ctx, index, nil, "read-tree", head); err != nil {
			return err
		}
	}
	blob, err := s.run(ctx, nil, strings.NewReader(content), "hash-object", "-w", "--stdin")
	if err != nil {
		return err
	}
	if _, err := s.run(ctx, index, nil, "update-index", "--add", "--cacheinfo", "100644,"+blob+","+file); err != nil {
		return err
	}
	tree, err := s.run(ctx, index, nil, "write-tree")
	if err != nil {
		return err
	}
	args, old := []string{"commit-tree", tree, "-m", "Add " + file}, strings.Repeat("0", len(tree))
	if head != "" {
		args, old = append(args, "-p", head), head
	}
	commit, err := s.run(ctx, nil, nil, args...)
	if err != nil {
		return err
	}
	_, err = s.run(ctx, nil, nil, "update-ref", "refs/heads/"+Branch, commit, old) // refused if a push was faster
	return err
}

// run runs git in the repository and returns what it says, without the end of the line.
func (s *Server) run(ctx context.Context, env []string, in io.Reader, args ...string) (string, error) {
	command := s.command(ctx, args...)
	command.Env = append(command.Env, env...)
	var stderr bytes.Buffer
	command.Stdin, command.Stderr = in, &stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s in %s: %w: %s", args[0], s.dir, err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// command is git in the repository, without the configuration of the machine and of its user. The repository is the
// lab's, whoever its folder seems to belong to in a user namespace.
func (s *Server) command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, s.git, append([]string{"-c", "safe.directory=*"}, args...)...)
	command.Dir = s.dir
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "GIT_DIR=" + s.dir,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_AUTHOR_NAME=Slipway lab",
		"GIT_AUTHOR_EMAIL=lab@localhost", "GIT_COMMITTER_NAME=Slipway lab", "GIT_COMMITTER_EMAIL=lab@localhost"}
	return command
}

// Version is that of git.
func (s *Server) Version(ctx context.Context) string {
	said, err := s.run(ctx, nil, nil, "version")
	if err != nil {
		return "git"
	}
	return said
}
