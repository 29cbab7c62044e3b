package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/steps"
)

// Where the Hetzner token comes from: the environment, or a file or a command
// (a password manager) that bootstrap.yaml names.
const (
	tokenVariable   = "HCLOUD_TOKEN"
	tokenFileKey    = "hcloudTokenFile"
	tokenCommandKey = "hcloudTokenCommand"
)

// tokenWithin bounds the command: it may have to ask for a fingerprint.
const tokenWithin = 2 * time.Minute

// errNoToken has two lines: what is missing, and how to do without.
var errNoToken = errors.New("HCLOUD_TOKEN is not set: export a Hetzner Cloud API token (read and write), or name hcloudTokenFile or hcloudTokenCommand in bootstrap.yaml\n" +
	"to rehearse without an account, on this machine only: go run ./cmd/bootstrap --lab")

// token reads the Hetzner token. It is held in memory only. Its errors never
// contain what was read.
func (c configuration) token(ctx context.Context, environment map[string]string) (steps.Secret, error) {
	switch {
	case environment[tokenVariable] != "":
		return oneWord(environment[tokenVariable], "the environment variable "+tokenVariable)
	case c.tokenFile != "":
		data, err := os.ReadFile(atHome(c.tokenFile, environment["HOME"]))
		if err != nil {
			return steps.Secret{}, usagef("read the Hetzner token (%s): %w", tokenFileKey, err)
		}
		return oneWord(string(data), "the file "+c.tokenFile+" ("+tokenFileKey+")")
	case c.tokenCommand != "":
		ctx, cancel := context.WithTimeout(ctx, tokenWithin)
		defer cancel()
		command := exec.CommandContext(ctx, "/bin/sh", "-c", c.tokenCommand)
		var stderr bytes.Buffer
		command.Stdin, command.Stderr = os.Stdin, &stderr
		command.WaitDelay = time.Second
		out, err := command.Output()
		if err != nil {
			return steps.Secret{}, usagef("run %s for the Hetzner token: %w: %s", tokenCommandKey, err, lastLine(stderr.String()))
		}
		return oneWord(string(out), "the command of "+tokenCommandKey)
	default:
		return steps.Secret{}, &usageError{errNoToken}
	}
}

// atHome is a path with the home folder in place of a leading "~", as a shell
// has it.
func atHome(path, home string) string {
	if rest, found := strings.CutPrefix(path, "~/"); found && home != "" {
		return filepath.Join(home, rest)
	}
	return path
}

// oneWord checks that a token looks like one, so that an error page or a prompt
// is not sent as a password.
func oneWord(text, source string) (steps.Secret, error) {
	words := strings.Fields(text)
	switch len(words) {
	case 0:
		return steps.Secret{}, usagef("%s gives no Hetzner token: it is empty", source)
	case 1:
		return steps.NewSecret(words[0]), nil
	default:
		return steps.Secret{}, usagef("%s gives no Hetzner token: it has %d words instead of one", source, len(words))
	}
}
