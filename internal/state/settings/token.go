package settings

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/child"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/platform"
)

// Where the Hetzner token comes from: the environment, or a file or a command
// (a password manager) that bootstrap.yaml names.
const (
	TokenVariable   = "HCLOUD_TOKEN"
	TokenFileKey    = "hcloudTokenFile"
	TokenCommandKey = "hcloudTokenCommand"
)

// TokenWithin bounds the command: it may have to ask for a fingerprint.
const TokenWithin = 2 * time.Minute

// ErrNoToken has two lines: what is missing, and how to do without.
var ErrNoToken = errors.New("HCLOUD_TOKEN is not set: export a Hetzner Cloud API token (read and write), or name " +
	"hcloudTokenFile or hcloudTokenCommand in bootstrap.yaml\n" +
	"to rehearse without an account, on this machine only: go run ./cmd/bootstrap --lab")

// Token reads the Hetzner token. It is held in memory only. Its errors never
// contain what was read.
func (c Configuration) Token(ctx context.Context, environment map[string]string) (platform.Secret, error) {
	switch {
	case environment[TokenVariable] != "":
		return oneWord(environment[TokenVariable], "Hetzner token", "the environment variable "+TokenVariable)
	case c.TokenFile != "":
		data, err := os.ReadFile(AtHome(c.TokenFile, environment["HOME"]))
		if err != nil {
			return platform.Secret{}, usage.Errorf("read the Hetzner token (%s): %w", TokenFileKey, err)
		}
		return oneWord(string(data), "Hetzner token", "the file "+c.TokenFile+" ("+TokenFileKey+")")
	case c.TokenCommand != "":
		out, err := OutputOf(ctx, c.TokenCommand)
		if err != nil {
			return platform.Secret{}, usage.Errorf("run %s for the Hetzner token: %w", TokenCommandKey, err)
		}
		return oneWord(out, "Hetzner token", "the command of "+TokenCommandKey)
	default:
		return platform.Secret{}, &usage.Error{Err: ErrNoToken}
	}
}

// shellProgram runs commands that print a secret. It is a variable for tests.
var shellProgram = "/bin/sh"

// errNoShell is about the container image, above all.
var errNoShell = errors.New("it needs /bin/sh, which is not there: name a file instead of a command, or set the " +
	"environment variable")

// OutputOf runs a command that prints a secret, with none in its environment. Its error has the last line that the
// command wrote besides.
func OutputOf(ctx context.Context, line string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, TokenWithin)
	defer cancel()
	command := child.Command(ctx, shellProgram, "-c", line)
	var stderr bytes.Buffer
	command.Stdin, command.Stderr = os.Stdin, &stderr
	command.WaitDelay = time.Second
	out, err := command.Output()
	if errors.Is(err, fs.ErrNotExist) {
		return "", errNoShell
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, text.LastLine(stderr.String()))
	}
	return string(out), nil
}

// AtHome is a path with the home folder in place of a leading "~", as a shell
// has it.
func AtHome(path, home string) string {
	if rest, found := strings.CutPrefix(path, "~/"); found && home != "" {
		return filepath.Join(home, rest)
	}
	return path
}

// ParseToken is a Hetzner token that was read from a source. Its errors never contain what was read.
func ParseToken(text, source string) (platform.Secret, error) {
	return oneWord(text, "Hetzner token", source)
}

// oneWord checks that a token looks like one, so that an error page or a prompt
// is not sent as a password.
func oneWord(text, what, source string) (platform.Secret, error) {
	words := strings.Fields(text)
	switch len(words) {
	case 0:
		return platform.Secret{}, usage.Errorf("%s gives no %s: it is empty", source, what)
	case 1:
		return platform.NewSecret(words[0]), nil
	default:
		return platform.Secret{}, usage.Errorf("%s gives no %s: it has %d words instead of one",
			source, what, len(words))
	}
}
