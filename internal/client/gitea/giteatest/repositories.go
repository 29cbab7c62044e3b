package giteatest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Repository is a Git repository of the user.
type Repository struct {
	ID      int64
	Name    string
	Private bool
	Default string // branch
	// Branches have the commits of each, the oldest first.
	Branches map[string][]Commit
}

// Commit is a commit, with all files that there are after it.
type Commit struct {
	Message string
	Files   map[string]string
}

// Files are those of a branch.
func (r Repository) Files(branch string) map[string]string {
	if commits := r.Branches[branch]; len(commits) > 0 {
		return commits[len(commits)-1].Files
	}
	return nil
}

// repositories adds the part of the API that is about repositories.
func (s *Server) repositories(mux *http.ServeMux) {
	mux.HandleFunc("POST /api/v1/user/repos", allowed(authorized, s.createRepository))
	mux.HandleFunc("GET /api/v1/repos/{user}/{repo}", allowed(s.reads, s.repository))
	mux.HandleFunc("GET /api/v1/repos/{user}/{repo}/branches/{branch}", allowed(s.reads, s.branch))
	mux.HandleFunc("GET /api/v1/repos/{user}/{repo}/contents", allowed(s.reads, s.contents))
	mux.HandleFunc("GET /api/v1/repos/{user}/{repo}/contents/{path...}", allowed(s.reads, s.contents))
	mux.HandleFunc("POST /api/v1/repos/{user}/{repo}/contents", allowed(authorized, s.commit))
}

// Repository is one of the user's, as it is; nil: there is none of this name.
func (s *Server) Repository(name string) *Repository {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := s.repos[name]
	if is == nil {
		return nil
	}
	is = &Repository{is.ID, is.Name, is.Private, is.Default, maps.Clone(is.Branches)}
	return is
}

// PutRepository creates a repository, or replaces it.
func (s *Server) PutRepository(r Repository) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(&r)
}

// RemoveRepository deletes a repository.
func (s *Server) RemoveRepository(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.repos, name)
}

func (s *Server) put(r *Repository) {
	if s.repos == nil {
		s.repos = map[string]*Repository{}
	}
	if s.made++; r.ID == 0 {
		r.ID = int64(s.made)
	}
	if r.Branches == nil {
		r.Branches = map[string][]Commit{}
	}
	s.repos[r.Name] = r
}

// reads says whether a request may read repositories: of the user, or with a token that has the scope.
func (s *Server) reads(w http.ResponseWriter, r *http.Request) bool {
	value, is := strings.CutPrefix(r.Header.Get("Authorization"), "token ")
	if !is {
		return authorized(w, r)
	}
	s.mu.Lock()
	i := slices.IndexFunc(s.tokens, func(t Token) bool { return t.Value == value })
	may := i >= 0 && slices.ContainsFunc(s.tokens[i].Scopes, func(scope string) bool {
		return scope == "all" || scope == "read:repository" || scope == "write:repository"
	})
	s.mu.Unlock()
	switch {
	case i < 0:
		refuse(w, http.StatusUnauthorized, "invalid token")
	case !may:
		refuse(w, http.StatusForbidden, "token does not have at least one of required scope(s)")
	}
	return may
}

func (s *Server) createRepository(w http.ResponseWriter, r *http.Request) {
	var want struct {
		Name    string
		Private bool
		Branch  string `json:"default_branch"`
	}
	if err := json.NewDecoder(r.Body).Decode(&want); err != nil || want.Name == "" {
		refuse(w, http.StatusUnprocessableEntity, fmt.Sprint(err))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.repos[want.Name] != nil {
		refuse(w, http.StatusConflict, "The repository with the same name already exists.")
		return
	}
	is := &Repository{Name: want.Name, Private: want.Private, Default: want.Branch}
	s.put(is)
	reply(w, http.StatusCreated, s.described(is))
}

func (s *Server) described(r *Repository) map[string]any {
	return map[string]any{"id": r.ID, "name": r.Name, "private": r.Private, "empty": len(r.Branches) == 0,
		"default_branch": r.Default, "owner": map[string]any{"login": User}}
}

// of is the repository that a request is about, locked until done is called; nil: it was refused.
func (s *Server) of(w http.ResponseWriter, r *http.Request) (is *Repository, done func()) {
	s.mu.Lock()
	if is = s.repos[r.PathValue("repo")]; is == nil {
		refuse(w, http.StatusNotFound, "The target couldn't be found.")
	}
	return is, s.mu.Unlock
}

func (s *Server) repository(w http.ResponseWriter, r *http.Request) {
	is, done := s.of(w, r)
	defer done()
	if is != nil {
		reply(w, http.StatusOK, s.described(is))
	}
}

func (s *Server) branch(w http.ResponseWriter, r *http.Request) {
	is, done := s.of(w, r)
	defer done()
	name, _ := url.PathUnescape(r.PathValue("branch"))
	switch {
	case is == nil:
	case is.Branches[name] == nil:
		refuse(w, http.StatusNotFound, "branch does not exist")
	default:
		reply(w, http.StatusOK, map[string]any{"name": name})
	}
}

// contents lists a folder, or describes a file.
func (s *Server) contents(w http.ResponseWriter, r *http.Request) {
	is, done := s.of(w, r)
	defer done()
	if is == nil {
		return
	}
	path, names := r.PathValue("path"), map[string]bool{}
	for file := range is.Files(r.URL.Query().Get("ref")) {
		below, in := strings.CutPrefix(file, path+"/")
		if path == "" {
			below, in = file, true
		}
		if in {
			name, _, _ := strings.Cut(below, "/")
			names[name] = true
		}
		if file == path {
			reply(w, http.StatusOK, map[string]any{"name": path, "type": "file"})
			return
		}
	}
	if len(names) == 0 {
		refuse(w, http.StatusNotFound, "object does not exist")
		return
	}
	all := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all = append(all, map[string]any{"name": name})
	}
	reply(w, http.StatusOK, all)
}

// commit adds files to a branch: all of them, or none where one is there.
func (s *Server) commit(w http.ResponseWriter, r *http.Request) {
	var want struct {
		Branch, Message string
		Files           []struct{ Operation, Path, Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&want); err != nil || len(want.Files) == 0 {
		refuse(w, http.StatusUnprocessableEntity, fmt.Sprint(err))
		return
	}
	is, done := s.of(w, r)
	defer done()
	if is == nil {
		return
	}
	if is.Branches[want.Branch] == nil && len(is.Branches) > 0 {
		refuse(w, http.StatusNotFound, "branch does not exist [name: "+want.Branch+"]")
		return
	}
	files := maps.Clone(is.Files(want.Branch))
	if files == nil {
		files = map[string]string{}
	}
	for _, f := range want.Files {
		content, err := base64.StdEncoding.DecodeString(f.Content)
		if _, there := files[f.Path]; err != nil || f.Operation != "create" || there {
			refuse(w, http.StatusUnprocessableEntity, "repository file already exists [path: "+f.Path+"]")
			return
		}
		files[f.Path] = string(content)
	}
	is.Branches[want.Branch] = append(slices.Clone(is.Branches[want.Branch]), Commit{want.Message, files})
	reply(w, http.StatusCreated, map[string]any{"commit": map[string]any{"sha": fmt.Sprint(len(is.Branches[want.Branch]))}})
}
