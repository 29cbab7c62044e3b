package gitclone

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/client/gitclone/gitclonetest"
)

func options(url string) Options {
	return Options{URL: url, Branch: "main", Access: Access{User: gitclonetest.User, Token: gitclonetest.Token}, Author: "Slipway",
		Email: "slipway@k8s"}
}

func write(t *testing.T, c *Clone, name, content string) {
	t.Helper()
	path := filepath.Join(c.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPush(t *testing.T) {
	repository := gitclonetest.New(t)
	url := repository.URL
	for i, content := range []string{"one", "two"} { // the first into an empty repository
		c, err := Open(t.Context(), options(url))
		if err != nil {
			t.Fatal(err)
		}
		write(t, c, "clusters/k8s/a.yaml", content)
		write(t, c, "elsewhere", "not of the path")
		commit, err := c.Push(t.Context(), "clusters/k8s", "The message")
		if err != nil || commit != repository.Git("rev-parse", "main") {
			t.Fatalf("push %d: commit %q, %v", i, commit, err)
		}
		if again, err := c.Push(t.Context(), "clusters/k8s", "Nothing"); err != nil || again != "" {
			t.Errorf("pushed nothing: commit %q, %v", again, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(c.Dir); err == nil {
			t.Error("the clone stays")
		}
		if is := repository.Git("show", "main:clusters/k8s/a.yaml"); is != content {
			t.Errorf("the repository has %q", is)
		}
	}
	if is := repository.Git("log", "-1", "--format=%an <%ae>: %s: %D", "main"); !strings.HasPrefix(is,
		"Slipway <slipway@k8s>: The message") {
		t.Errorf("the commit is %s", is)
	}
	if files := repository.Git("ls-tree", "-r", "--name-only", "main"); files != "clusters/k8s/a.yaml" {
		t.Errorf("the repository has %s", files)
	}
}

func TestAnotherCommitCameFirst(t *testing.T) {
	repository := gitclonetest.New(t)
	url := repository.URL
	first, err := Open(t.Context(), options(url))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	write(t, first, "a", "zero")
	if _, err := first.Push(t.Context(), "a", "Zero"); err != nil {
		t.Fatal(err)
	}
	second, err := Open(t.Context(), options(url))
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	write(t, first, "a", "one")
	if _, err := first.Push(t.Context(), "a", "One"); err != nil {
		t.Fatal(err)
	}
	write(t, second, "a", "two")
	if _, err := second.Push(t.Context(), "a", "Two"); err == nil || !strings.Contains(err.Error(), "again") {
		t.Errorf("%v", err)
	}
	if is := repository.Git("show", "main:a"); is != "one" {
		t.Errorf("the repository has %q", is)
	}
}

func TestOpenRefuses(t *testing.T) {
	url := gitclonetest.New(t).URL
	c, err := Open(t.Context(), options(url))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	write(t, c, "a", "x")
	if _, err := c.Push(t.Context(), "a", "First"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		says   string
		change func(*Options)
	}{
		{"has no branch prod (it has main)", func(o *Options) { o.Branch = "prod" }},
		{"read the repository", func(o *Options) { o.Access.Token = "planted-wrong" }},
		{"read the repository", func(o *Options) { o.URL += "x" }},
	} {
		o := options(url)
		tt.change(&o)
		if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), tt.says) ||
			strings.Contains(err.Error(), "planted") {
			t.Errorf("%s at %s: %v", o.Branch, o.URL, err)
		}
	}
}

func TestCredentialsOfSSH(t *testing.T) {
	env := environment(Options{URL: "ssh://git@host/fleet.git", Access: Access{KeyFile: "/a key", KnownHosts: "/hosts"}})
	want := `GIT_SSH_COMMAND=ssh -o IdentitiesOnly=yes -i '/a key' -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/hosts`
	if is := env[len(env)-1]; is != want {
		t.Errorf("%s, not %s", is, want)
	}
}
