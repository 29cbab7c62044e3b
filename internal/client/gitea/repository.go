package gitea

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Repository is a Git repository of the user, as the API describes it.
type Repository struct {
	ID      int64  `json:"id"`
	Name    string `json:"name"`
	Empty   bool   `json:"empty"` // it has no commit
	Private bool   `json:"private"`
	Owner   struct {
		Login string `json:"login"`
	} `json:"owner"`
}

// File is a file of a commit.
type File struct {
	Path, Content string
}

// Unusable is an error of a repository that is there and cannot be used as it is. Nothing was changed in it.
type Unusable struct {
	Repository, Why string
}

// Error implements error.
func (e *Unusable) Error() string {
	return fmt.Sprintf("repository %s of Gitea %s", e.Repository, e.Why)
}

func (c *Client) repository(name string) string {
	return "/repos/" + url.PathEscape(c.user) + "/" + url.PathEscape(name)
}

// notFound says whether an answer is that there is none.
func notFound(err error) bool {
	refused := (*Refused)(nil)
	return errors.As(err, &refused) && refused.Status == http.StatusNotFound
}

// Repository reads a repository of the user; nil: there is none.
func (c *Client) Repository(ctx context.Context, name string) (*Repository, error) {
	var is Repository
	err := c.ask(ctx, http.MethodGet, c.repository(name), "", nil, &is)
	if notFound(err) {
		return nil, nil
	}
	return &is, err
}

// Reads is nil if a token reads a repository.
func (c *Client) Reads(ctx context.Context, token, name string) error {
	return c.ask(ctx, http.MethodGet, c.repository(name), token, nil, nil)
}

// create creates a private repository, an empty one: while Gitea makes the first commit of another one, and for good
// where it ends meanwhile, that is neither empty nor has a branch.
func (c *Client) create(ctx context.Context, name, branch string) error {
	return c.ask(ctx, http.MethodPost, "/user/repos", "", map[string]any{"name": name, "private": true,
		"default_branch": branch}, nil)
}

// exists says whether the user has what is at a path.
func (c *Client) exists(ctx context.Context, path string) (bool, error) {
	err := c.ask(ctx, http.MethodGet, path, "", nil, nil)
	if notFound(err) {
		return false, nil
	}
	return err == nil, err
}

// Has says whether a folder of a repository has something on a branch. The root folder has what is more than the
// README.md that Gitea may begin a repository with.
func (c *Client) Has(ctx context.Context, name, branch, folder string) (bool, error) {
	at, query := c.repository(name)+"/contents", "?ref="+url.QueryEscape(branch)
	if folder != "." {
		return c.exists(ctx, at+"/"+escaped(folder)+query)
	}
	type entry struct {
		Name string `json:"name"`
	}
	var entries []entry
	err := c.ask(ctx, http.MethodGet, at+query, "", nil, &entries)
	if notFound(err) {
		return false, nil
	}
	return slices.ContainsFunc(entries, func(e entry) bool { return e.Name != "README.md" }), err
}

// commit adds files to a branch in one commit. Gitea refuses it where one of them is there.
func (c *Client) commit(ctx context.Context, name, branch, message string, files []File) error {
	var operations []map[string]string
	for _, f := range files {
		operations = append(operations, map[string]string{"operation": "create", "path": f.Path,
			"content": base64.StdEncoding.EncodeToString([]byte(f.Content))})
	}
	err := c.ask(ctx, http.MethodPost, c.repository(name)+"/contents", "", map[string]any{"branch": branch,
		"message": message, "files": operations}, nil)
	if refused := (*Refused)(nil); errors.As(err, &refused) && strings.Contains(refused.Message, "cannot lock ref") {
		return fmt.Errorf("another commit to branch %s is being made: %v", branch, err) // and so no Refused, which is final
	}
	return err
}

// escaped is a path with slashes as a part of an address.
func escaped(path string) string {
	words := strings.Split(path, "/")
	for i, word := range words {
		words[i] = url.PathEscape(word)
	}
	return strings.Join(words, "/")
}

// WantedRepository says which repository there is to be, and what it begins with.
type WantedRepository struct {
	Name, Branch string
	Folder       string // the one that First fills; "." is the root
	Message      string // of the commit
	// First makes the files that the folder begins with. It is called where the folder has nothing.
	First func(context.Context) ([]File, error)
}

// Made says what EnsureRepository did.
type Made struct {
	Created   bool // the repository
	Committed bool // the files
}

// EnsureRepository returns the repository of a name. Where there is none it creates a private one. Where the folder has
// nothing on the branch, it adds the first files in one commit; what is there is never changed.
//
// It may be ended anywhere and be called again, and several may run at once: Gitea creates one repository of a name,
// and refuses a commit with files that are there by then.
func EnsureRepository(ctx context.Context, c *Client, want WantedRepository) (is Repository, did Made, err error) {
	if err := c.Ready(ctx); err != nil { // before its start has ended Gitea says of everything that there is none
		return is, did, err
	}
	found, err := c.Repository(ctx, want.Name)
	if err != nil {
		return is, did, err
	}
	if found == nil {
		failed := c.create(ctx, want.Name, want.Branch)
		// A parallel run may have been faster, and the answer may be lost: what is there counts.
		if found, err = c.Repository(ctx, want.Name); err != nil || found == nil {
			return is, did, errors.Join(failed, err)
		}
		did.Created = failed == nil
	}
	is = *found
	did.Committed, err = c.fill(ctx, is, want)
	return is, did, err
}

// fill commits the first files where the folder has nothing.
func (c *Client) fill(ctx context.Context, is Repository, want WantedRepository) (done bool, err error) {
	has, err := c.Has(ctx, want.Name, want.Branch, want.Folder)
	if err != nil || has {
		return false, err
	}
	if !is.Empty { // Gitea creates the branch in an empty one only
		there, err := c.exists(ctx, c.repository(want.Name)+"/branches/"+escaped(want.Branch))
		if err == nil && !there {
			err = &Unusable{c.user + "/" + want.Name, fmt.Sprintf("has no branch %s", want.Branch)}
		}
		if err != nil {
			return false, err
		}
	}
	files, err := want.First(ctx)
	if err != nil {
		return false, err
	}
	failed := c.commit(ctx, want.Name, want.Branch, want.Message, files)
	if failed == nil {
		return true, nil
	}
	if has, err = c.Has(ctx, want.Name, want.Branch, want.Folder); err == nil && has {
		return false, nil // a parallel run was faster, or the answer was lost
	}
	return false, errors.Join(failed, err)
}
