package gitserver

import (
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// client calls git as a user of the server does.
func client(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=t",
		"-c", "user.email=t@localhost"}, args...)...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_GLOBAL="+os.DevNull)
	out, err := command.CombinedOutput()
	return string(out), err
}

func TestCloneAndPush(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "repository")
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	s, err := New(t.Context(), dir, "sesame", log)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	address := func(password string) string {
		return strings.Replace(server.URL, "//", "//"+User+":"+password+"@", 1) + Path
	}
	work := t.TempDir()
	if out, err := client(t, work, "clone", address("wrong"), "refused"); err == nil {
		t.Errorf("a wrong token reads the repository: %s", out)
	}
	if out, err := client(t, work, "clone", "--depth", "1", "--branch", Branch, address("sesame"), "one"); err != nil {
		t.Fatalf("clone: %v: %s", err, out)
	}
	one := filepath.Join(work, "one")
	if err := os.WriteFile(filepath.Join(one, "new.yaml"), []byte("a: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"add", "."}, {"commit", "-q", "-m", "new"}, {"push", "-q", "origin", Branch}} {
		if out, err := client(t, one, args...); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}

	// A file that is there stays as it is, a folder that is missing comes to be, on top of what was pushed.
	for _, e := range []struct{ at, file string }{{"new.yaml", "new.yaml"}, {"clusters/k8s", "clusters/k8s/first.yaml"},
		{"clusters/k8s", "clusters/k8s/second.yaml"}} {
		if err := s.Ensure(t.Context(), e.at, e.file, "b: 2\n"); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := client(t, work, "clone", address("sesame"), "two"); err != nil {
		t.Fatalf("clone: %v: %s", err, out)
	}
	for file, want := range map[string]string{"README.md": "Git repository", "new.yaml": "a: 1",
		"clusters/k8s/first.yaml": "b: 2"} {
		if is, err := os.ReadFile(filepath.Join(work, "two", file)); err != nil || !strings.Contains(string(is), want) {
			t.Errorf("%s: %q, %v; want %q", file, is, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(work, "two", "clusters/k8s/second.yaml")); err == nil {
		t.Error("a folder that exists got another file")
	}
	for _, bad := range []string{"", "/etc/x", "../x", "a/../../x"} {
		if err := s.Ensure(t.Context(), bad, bad, ""); err == nil {
			t.Errorf("path %q was taken", bad)
		}
	}

	// A push that would lose commits is refused, and a second start leaves the repository as it is.
	if out, err := client(t, one, "commit", "-q", "--amend", "-m", "other"); err != nil {
		t.Fatal(out)
	}
	if out, err := client(t, one, "push", "-q", "origin", Branch); err == nil {
		t.Errorf("a push without the newest commit was taken: %s", out)
	}
	head, err := s.run(t.Context(), nil, nil, "rev-parse", Branch)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), dir, "sesame", log); err != nil {
		t.Fatal(err)
	}
	if is, err := s.run(t.Context(), nil, nil, "rev-parse", Branch); err != nil || is != head {
		t.Errorf("after a second start %s is %s, before %s (%v)", Branch, is, head, err)
	}
}
