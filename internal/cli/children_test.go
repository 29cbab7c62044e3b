package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/child"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/client/gitclone"
	"github.com/slipway-k8s/slipway/internal/provider/kind"
	"github.com/slipway-k8s/slipway/internal/state/backupfile"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/platform"
)

// The programs that the command starts write down what they see of its environment: no secret but one that is meant
// for them. Those of the lab are in internal/provider/lab, those of serve get the environment of serve.
func TestChildProcessesSeeNoSecrets(t *testing.T) {
	const fake = `#!/bin/sh
env >>"$SEEN"
case "$0 $*" in
*"docker -v") echo "Docker version 28.0.1" ;;
*"docker info"*) echo '{"ServerVersion":"28.0.1"}' ;;
esac
`
	bin, seen := t.TempDir(), filepath.Join(t.TempDir(), "seen")
	for _, name := range []string{"git", "docker"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(fake), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	t.Setenv("SEEN", seen)
	command := "env >>\"$SEEN\"; echo word"
	cfg := settings.Configuration{Config: config.Defaults()}
	cfg.GitOps, cfg.GitURL = config.GitOpsFlux, "https://git.invalid/a"
	cfg.TokenCommand, cfg.GitTokenCommand, cfg.BackupPassphraseCommand = command, command, command
	nothing := map[string]string{"HOME": t.TempDir()}
	for name, start := range map[string]func() error{
		"the command of the token": func() error { _, err := cfg.Token(t.Context(), nothing); return err },
		"the command of Git's token": func() error {
			_, err := cfg.GitAccess(t.Context(), nothing)
			return err
		},
		"the command of a passphrase": func() error {
			_, err := backupfile.Access{Config: cfg.Config, Environment: nothing,
				Hide: &redact.Redactor{}}.Seal(t.Context(), false)
			return err
		},
		"git": func() error {
			clone, err := gitclone.Open(t.Context(), gitclone.Options{URL: "https://git.invalid/a", Branch: "main",
				Access: gitclone.Access{User: "u", Token: "its-own"}})
			if err == nil {
				err = clone.Close()
			}
			return err
		},
		"a container engine": func() error {
			made := kind.NewProvider(config.Defaults(), platform.Files{}, false, io.Discard, nil)
			_, err := made.(platform.EngineUser).Engine(t.Context())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range child.SecretVariables() {
				t.Setenv(variable, secret)
			}
			if err := os.WriteFile(seen, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := start(); err != nil {
				t.Fatal(err)
			}
			checkSeen(t, seen)
		})
	}
	t.Run("the library of kind", func(t *testing.T) {
		t.Setenv("HCLOUD_TOKEN", secret)
		t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
		if err := os.WriteFile(seen, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer nowhere.Close()
		dir := t.TempDir()
		Main(t.Context(), Streams{Out: nowhere, Err: nowhere}, nil, dir, []string{"--help"}) // what every command begins with
		provider := kind.NewProvider(config.Defaults(), platform.FilesIn(dir), false, io.Discard, nil)
		if exists, err := provider.(*kind.Provider).Exists(t.Context(), "k8s"); err != nil || exists {
			t.Fatalf("%t, %v", exists, err)
		}
		checkSeen(t, seen)
	})
}

// checkSeen fails where no program was started, or one has seen a secret.
func checkSeen(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(data), "PATH=") {
		t.Fatalf("no program was started: %q, %v", data, err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, secret) {
			t.Errorf("a program sees %s", line)
		}
	}
}
