package gitea

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/slipway-k8s/slipway/internal/client/gitea/giteatest"
)

var tree = []File{{"clusters/k8s/kustomization.yaml", "resources: [apps.yaml]\n"}, {"clusters/k8s/apps.yaml", "kind: A\n"}}

// fleet is the repository that the tests want, with a count of how often its files were made.
func fleet(made *int) WantedRepository {
	return WantedRepository{Name: "fleet", Branch: "main", Folder: "clusters/k8s", Message: "Add it",
		First: func(context.Context) ([]File, error) {
			if made != nil {
				*made++
			}
			return tree, nil
		}}
}

// filled fails unless the repository has the tree, and that many commits.
func filled(t *testing.T, s *giteatest.Server, commits int) {
	t.Helper()
	is := s.Repository("fleet")
	if is == nil || len(is.Branches["main"]) != commits {
		t.Fatalf("%+v; want %d commits", is, commits)
	}
	for _, f := range tree {
		if is.Files("main")[f.Path] != f.Content {
			t.Errorf("%s is %q", f.Path, is.Files("main")[f.Path])
		}
	}
}

// A private repository is created once, and filled once.
func TestEnsureRepository(t *testing.T) {
	s, made := giteatest.New(), 0
	c := client(t, s)
	for i := range 2 {
		is, did, err := EnsureRepository(t.Context(), c, fleet(&made))
		if err != nil || is.ID != 1 || is.Owner.Login != giteatest.User || did != (Made{i == 0, i == 0}) || made != 1 {
			t.Fatalf("%+v, %+v, %v; the files were made %d times", is, did, err, made)
		}
	}
	filled(t, s, 1)
	if is := s.Repository("fleet"); !is.Private || is.Default != "main" {
		t.Errorf("%+v", is)
	}
}

// What is there is adopted: an empty repository, one with other folders, one with a folder that is not ours.
func TestAdoptedRepository(t *testing.T) {
	other := map[string][]giteatest.Commit{"main": {{Message: "other", Files: map[string]string{"clusters/k8s/own.yaml": "mine"}}}}
	beside := map[string][]giteatest.Commit{"main": {{Message: "other", Files: map[string]string{"clusters/k8s-2/a": "a"}}}}
	for name, tt := range map[string]struct {
		is      giteatest.Repository
		folder  string
		commits int
		filled  bool
		refused string
	}{
		"empty":             {is: giteatest.Repository{}, commits: 1, filled: true},
		"another cluster":   {is: giteatest.Repository{Branches: beside}, commits: 2, filled: true},
		"of the operator":   {is: giteatest.Repository{Branches: other}, commits: 1},
		"the root":          {is: giteatest.Repository{Branches: other}, folder: ".", commits: 1},
		"the empty root":    {is: giteatest.Repository{}, folder: ".", commits: 1, filled: true},
		"no such branch":    {is: giteatest.Repository{Branches: map[string][]giteatest.Commit{"prod": other["main"]}}, refused: "has no branch main"},
		"a file in its way": {is: giteatest.Repository{Branches: map[string][]giteatest.Commit{"main": {{Files: map[string]string{"clusters/k8s": "x"}}}}}, commits: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := giteatest.New()
			c := client(t, s)
			tt.is.Name, tt.is.ID = "fleet", 7
			tt.is.Branches = maps.Clone(tt.is.Branches)
			s.PutRepository(tt.is)
			want := fleet(nil)
			if tt.folder != "" {
				want.Folder = tt.folder
			}
			is, did, err := EnsureRepository(t.Context(), c, want)
			if tt.refused != "" {
				if err == nil || !Final(err) || !strings.Contains(err.Error(), tt.refused) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || is.ID != 7 || did != (Made{false, tt.filled}) {
				t.Fatalf("%+v, %+v, %v", is, did, err)
			}
			if tt.filled {
				filled(t, s, tt.commits)
			} else if len(s.Repository("fleet").Branches["main"]) != tt.commits {
				t.Errorf("%+v", s.Repository("fleet"))
			}
		})
	}
}

// A root folder counts as empty that has a README.md alone.
func TestRootOfANewRepository(t *testing.T) {
	s := giteatest.New()
	c := client(t, s)
	s.PutRepository(giteatest.Repository{Name: "fleet", Branches: map[string][]giteatest.Commit{"main": {{Message: "Initial " +
		"commit", Files: map[string]string{"README.md": "x"}}}}})
	want := fleet(nil)
	want.Folder = "."
	for i := range 2 {
		if _, did, err := EnsureRepository(t.Context(), c, want); err != nil || did.Committed != (i == 0) {
			t.Fatalf("%+v, %v", did, err)
		}
	}
	filled(t, s, 2)
}

// Runs at once end with one repository and one commit of the tree.
func TestRepositoryOfRunsAtOnce(t *testing.T) {
	const runs = 6
	for _, at := range []string{"/user/repos", "/contents"} { // where all of them are at the same time
		s := giteatest.New()
		var here sync.WaitGroup
		here.Add(runs)
		s.Before = func(r *http.Request) (int, string) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, at) {
				here.Done()
				here.Wait()
			}
			return 0, ""
		}
		c := client(t, s)
		did, errs := make([]Made, runs), make([]error, runs)
		var all sync.WaitGroup
		for i := range runs {
			all.Go(func() { _, did[i], errs[i] = EnsureRepository(t.Context(), c, fleet(nil)) })
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		committed := slices.DeleteFunc(slices.Clone(did), func(m Made) bool { return !m.Committed })
		if len(committed) != 1 {
			t.Errorf("%s: %d runs have committed", at, len(committed))
		}
		filled(t, s, 1)
	}
}

// A run may end at every request: after the next one there is one repository with one commit of the tree, never half of
// it.
func TestRepositoryEndedAtEveryRequest(t *testing.T) {
	for after := range 10 {
		for _, done := range []bool{false, true} { // the request did not arrive, or its answer did not
			s := giteatest.New()
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
			_, _, err := EnsureRepository(ctx, c, fleet(nil))
			end()
			if err == nil && ended {
				t.Errorf("%d: the request failed, and the run did not", after)
			}
			if is := s.Repository("fleet"); is != nil && len(is.Files("main")) != 0 && len(is.Files("main")) != len(tree) {
				t.Errorf("%d: half a tree: %v", after, is.Files("main"))
			}
			mu.Lock()
			count, ended = -1000, false
			mu.Unlock()
			if _, _, err := EnsureRepository(t.Context(), c, fleet(nil)); err != nil {
				t.Errorf("ended at request %d (%v): %v", after, done, err)
			}
			filled(t, s, 1)
		}
	}
}

// Before its start has ended, Gitea says of everything that there is none: nothing is created then.
func TestNothingIsCreatedBeforeGiteaAnswers(t *testing.T) {
	s := giteatest.New()
	s.Before = func(*http.Request) (int, string) { return http.StatusNotFound, "404 page not found" }
	_, _, err := EnsureRepository(t.Context(), client(t, s), fleet(nil))
	if err == nil || Final(err) || slices.ContainsFunc(s.Asked(), func(asked string) bool {
		return strings.HasPrefix(asked, "POST")
	}) {
		t.Errorf("%v; asked %v", err, s.Asked())
	}
}

// A commit that is refused is an error with Gitea's answer, and so are files that cannot be made.
func TestRepositoryErrors(t *testing.T) {
	s := giteatest.New()
	s.Before = func(r *http.Request) (int, string) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/contents") {
			return http.StatusForbidden, "user should have a permission to write to the target branch"
		}
		return 0, ""
	}
	c := client(t, s)
	_, _, err := EnsureRepository(t.Context(), c, fleet(nil))
	if err == nil || !Final(err) || !strings.Contains(err.Error(), "permission to write") ||
		!strings.HasPrefix(err.Error(), "POST /api/v1/repos/gitea_admin/fleet/contents at Gitea of the test: 403") {
		t.Errorf("%v", err)
	}
	want := fleet(nil)
	want.First = func(context.Context) ([]File, error) { return nil, errBroken }
	if _, _, err := EnsureRepository(t.Context(), c, want); !errors.Is(err, errBroken) || Final(err) {
		t.Errorf("%v", err)
	}
}

// While another commit is made, Gitea refuses this one, and does not tell of the other one yet: both pass.
func TestCommitBesideAnother(t *testing.T) {
	s := giteatest.New()
	refused := 0
	s.Before = func(r *http.Request) (int, string) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/contents") && refused == 0 {
			refused++
			return http.StatusForbidden, "cannot lock ref 'refs/heads/main': reference already exists"
		}
		return 0, ""
	}
	c := client(t, s)
	_, _, err := EnsureRepository(t.Context(), c, fleet(nil))
	if err == nil || Final(err) || !strings.Contains(err.Error(), "another commit to branch main") {
		t.Errorf("%v", err)
	}
	if _, did, err := EnsureRepository(t.Context(), c, fleet(nil)); err != nil || !did.Committed {
		t.Errorf("%+v, %v", did, err)
	}
}

// A token reads the repository where its scopes allow it.
func TestReads(t *testing.T) {
	s := giteatest.New()
	c := client(t, s)
	if _, _, err := EnsureRepository(t.Context(), c, fleet(nil)); err != nil {
		t.Fatal(err)
	}
	may, not := s.Add("a", "read:repository"), s.Add("b", "read:user")
	for token, status := range map[string]int{may.Value: 0, not.Value: http.StatusForbidden, "x": http.StatusUnauthorized} {
		err := c.Reads(t.Context(), token, "fleet")
		refused := (*Refused)(nil)
		if errors.As(err, &refused); (err == nil) != (status == 0) || err != nil && refused.Status != status {
			t.Errorf("%v; want %d", err, status)
		}
	}
}
