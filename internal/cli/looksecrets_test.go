//go:build unix

package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// The password in a chart repository's address opens the repository, and nothing that a run leaves or prints contains
// it.
func TestThePasswordOfARepositoryIsNotTold(t *testing.T) {
	q := newQuick(t, strings.Replace(quickCharts(t), "http://", "http://me:planted-secret@", 1))
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("it ends with %d: %s", code, q.stderr)
	}
	noSecrets(t, ran{stderr: q.stderr}, q.state(), "planted-secret")
}

// Nor is it shown where it is wrong, or where another program repeats it.
func TestPasswordsOfTheConfigurationAreHidden(t *testing.T) {
	gossip := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error":{"code":"unauthorized","message":"planted-secret is no token"}}`)
	}))
	defer gossip.Close()
	dir := t.TempDir()
	t.Chdir(dir)
	environment := "HCLOUD_TOKEN=a-real-looking-token HCLOUD_ENDPOINT=" + gossip.URL
	const address = "CERT_MANAGER_URL=https://me:planted-secret@127.0.0.1:1/cert-manager.yaml"
	r := execute(t, t.Context(), dir, environment, "preflight", "--skip-doctor", "PREFLIGHT_TIMEOUT=20s", address,
		"CERT_MANAGER_VERSION=v1.17.2")
	if r.code != ExitFailed || !strings.Contains(r.stderr, "[hidden] is no token") {
		t.Errorf("%+v", r)
	}
	noSecrets(t, r, statedir.Dir(filepath.Join(dir, ".slipway", "k8s")), "planted-secret")
	for _, wrong := range []string{address, "CILIUM_REPOSITORY=oci://me:planted-secret@127.0.0.1:1/charts",
		"CILIUM_REPOSITORY=https://me:planted-secret%@127.0.0.1:1"} {
		if r := execute(t, t.Context(), dir, environment, "preflight", wrong); r.code != ExitUsage ||
			strings.Contains(r.stderr, "planted-secret") {
			t.Errorf("%s: %+v", wrong, r)
		}
	}
}

// A server may repeat the token in its complaint. Who only looks does not pass that on.
func TestLooksDoNotTellTheToken(t *testing.T) {
	var seen []string
	environment := "HCLOUD_TOKEN=a-real-looking-token HCLOUD_ENDPOINT=" + deaf(t, &seen)
	dir := t.TempDir()
	t.Chdir(dir)
	for _, target := range []string{"plan", "status"} {
		if target == "status" {
			recordStep(t, statedir.Dir(filepath.Join(dir, ".slipway", "k8s")), "preflight")
		}
		for _, output := range []string{"text", "json"} {
			r := execute(t, t.Context(), dir, environment, target, "--output", output)
			if r.code != ExitDone || strings.Contains(r.stdout+r.stderr, "a-real-looking-token") ||
				!strings.Contains(r.stdout, "[hidden]") {
				t.Errorf("%s in %s: %+v", target, output, r)
			}
		}
	}
	if len(seen) == 0 {
		t.Error("no question was asked")
	}
}

// Who looks again and again runs the command behind the token once; where it fails, there is the journal to be looked
// at.
func TestLooksRunTheTokenCommandOnce(t *testing.T) {
	var seen []string
	dir := t.TempDir()
	t.Chdir(dir)
	recordStep(t, statedir.Dir(filepath.Join(dir, ".slipway", "k8s")), "preflight")
	environment := "HCLOUD_ENDPOINT=" + deaf(t, &seen) + " PATH=" + os.Getenv("PATH")
	write := func(command string) {
		t.Helper()
		if err := os.WriteFile(settings.DefaultConfigFile, []byte("hcloudTokenCommand: echo x >> count; "+command+"\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll("count"); err != nil {
			t.Fatal(err)
		}
	}
	once := func(what string) {
		t.Helper()
		if count, err := os.ReadFile("count"); err != nil || string(count) != "x\n" {
			t.Errorf("%s: it was run like %q, %v", what, count, err)
		}
	}
	write("echo a-real-looking-token")
	c := &console{environment: settings.Environ(strings.Fields(environment)), workDir: dir, hide: &redact.Redactor{},
		size: sized(0, 0)}
	a, err := parseArguments([]string{"status"})
	a.WorkDir = c.workDir
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if text, err := statusText(t.Context(), &call{console: c, arguments: a}); err != nil || !strings.Contains(text, "preflight") {
			t.Errorf("%v:\n%s", err, text)
		}
	}
	once("two looks")
	if len(seen) == 0 || !strings.HasSuffix(seen[0], "Bearer a-real-looking-token") {
		t.Errorf("asked was %q", seen)
	}

	write("exit 1")
	if r := execute(t, t.Context(), dir, environment, "status"); r.code != ExitDone ||
		!strings.Contains(r.stdout, "preflight") ||
		!strings.Contains(r.stdout, "Hetzner and the clusters were not asked: run hcloudTokenCommand") {
		t.Errorf("status without a token: %+v", r)
	}
	if r := execute(t, t.Context(), dir, environment, "logs", "--no-follow"); r.code == ExitUsage ||
		strings.Contains(r.stderr, "hcloudTokenCommand") {
		t.Errorf("logs without a token: %+v", r)
	}
	write("exit 1")
	if r := execute(t, t.Context(), dir, environment, "plan"); r.code != ExitUsage ||
		!strings.Contains(r.stderr, "hcloudTokenCommand") {
		t.Errorf("plan without a token: %+v", r)
	}
	once("a plan")
}
