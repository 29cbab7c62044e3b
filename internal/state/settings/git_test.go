package settings

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
)

func TestGitAccess(t *testing.T) {
	home := t.TempDir()
	for name, content := range map[string]string{"token": " of-the-file\n", "page": "<html> no token",
		"key": "PRIVATE KEY\n", "hosts": "example.com ssh-ed25519 AAAA\n"} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		change     func(*config.Config)
		token, key string
		says       string // of the error; empty: there is none
	}{
		"file": {change: func(c *config.Config) { c.GitTokenFile = "~/token" }, token: "of-the-file"},
		"command": {change: func(c *config.Config) { c.GitTokenCommand = "echo of-the-command" },
			token: "of-the-command"},
		"environment": {change: func(*config.Config) {}, token: "of-the-environment"},
		"key": {change: func(c *config.Config) {
			c.GitURL, c.GitKeyFile, c.GitKnownHostsFile = "ssh://git@example.com/a.git", "~/key", "~/hosts"
		}, key: "PRIVATE KEY\n"},
		"missing":  {change: func(c *config.Config) { c.GitTokenFile = "~/gone" }, says: "gitTokenFile"},
		"no token": {change: func(c *config.Config) { c.GitTokenFile = "~/page" }, says: "it has 3 words instead of one"},
		"failing":  {change: func(c *config.Config) { c.GitTokenCommand = "echo locked >&2; false" }, says: "locked"},
		"in Gitea": {change: func(c *config.Config) { c.GitURL, c.Gitea, c.GitTokenFile = "", "true", "~/gone" }},
		"off":      {change: func(c *config.Config) { c.GitOps, c.GitTokenFile = "", "~/gone" }},
	} {
		t.Run(name, func(t *testing.T) {
			c := Configuration{Config: config.Defaults()}
			c.GitOps, c.GitURL = config.GitOpsFlux, "https://example.com/a.git"
			tt.change(&c.Config)
			access, err := c.GitAccess(t.Context(), map[string]string{"HOME": home, GitTokenVariable: "of-the-environment"})
			if tt.says != "" {
				if _, is := errors.AsType[*usage.Error](err); !is || !strings.Contains(err.Error(), tt.says) ||
					strings.Contains(err.Error(), "html") {
					t.Errorf("got %v; want a mistake of the operator with %q", err, tt.says)
				}
				return
			}
			if err != nil || access.Token.Reveal() != tt.token || access.Key.Reveal() != tt.key ||
				tt.key != "" && !strings.HasPrefix(access.KnownHosts, "example.com") {
				t.Errorf("token %q, key %q, hosts %q, %v", access.Token.Reveal(), access.Key.Reveal(), access.KnownHosts, err)
			}
		})
	}
}

// A machine without a shell, as the container image is one, says what else can be done.
func TestNoShell(t *testing.T) {
	was := shellProgram
	shellProgram = filepath.Join(t.TempDir(), "sh")
	defer func() { shellProgram = was }()
	_, err := OutputOf(t.Context(), "echo word")
	if err == nil || !strings.Contains(err.Error(), "needs /bin/sh") || !strings.Contains(err.Error(), "name a file") {
		t.Errorf("it says %v", err)
	}
}
