// Package gitclone clones a branch of a Git repository into a temporary folder and pushes a commit to it, with the git
// of this machine.
package gitclone

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/child"
	"github.com/slipway-k8s/slipway/internal/base/text"
)

// Access is what a repository is read and written with besides what git itself has configured: its credential helpers,
// an SSH agent.
type Access struct {
	User, Token string // for http and https
	// KeyFile is a private key for SSH, KnownHosts a file with the hosts' keys; empty: as SSH is configured.
	KeyFile, KnownHosts string
}

// Options say what is cloned.
type Options struct {
	URL    string
	Branch string
	Access Access
	// Author is who a commit is by where git has no user configured.
	Author, Email string
}

// Clone is a working copy of a branch.
type Clone struct {
	Dir     string
	options Options
	env     []string
}

// endWithin bounds the end of a git that was told to stop.
const endWithin = 10 * time.Second

// ErrNoGit says that this machine has no git.
var ErrNoGit = errors.New("git is not installed: install it, or clone the repository elsewhere and name the folder")

// Open clones the newest commit of a branch. In a repository without any commit the branch begins with the first push;
// in another one it has to exist.
func Open(ctx context.Context, o Options) (*Clone, error) {
	if _, err := exec.LookPath("git"); err != nil {
		return nil, ErrNoGit
	}
	dir, err := os.MkdirTemp("", "slipway-git-")
	if err != nil {
		return nil, err
	}
	c := &Clone{Dir: dir, options: o, env: environment(o)}
	if err := c.clone(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// environment is git's: credentials are no arguments, which others on the machine can read.
func environment(o Options) []string {
	env := append(child.Environment(os.Environ()), "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
	if o.Access.Token != "" {
		pair := base64.StdEncoding.EncodeToString([]byte(o.Access.User + ":" + o.Access.Token))
		env = append(env, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=http."+o.URL+".extraHeader",
			"GIT_CONFIG_VALUE_0=Authorization: Basic "+pair)
	}
	if o.Access.KeyFile != "" {
		words := []string{"ssh", "-o", "IdentitiesOnly=yes", "-i", o.Access.KeyFile}
		if o.Access.KnownHosts != "" {
			words = append(words, "-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile="+o.Access.KnownHosts)
		}
		env = append(env, "GIT_SSH_COMMAND="+text.ShellLine(words...))
	}
	return env
}

func (c *Clone) clone(ctx context.Context) error {
	heads, err := c.git(ctx, "ls-remote", "--heads", c.options.URL)
	if err != nil {
		return fmt.Errorf("read the repository %s: %w", c.options.URL, err)
	}
	if heads == "" {
		_, err := c.git(ctx, "init", "--quiet", "--initial-branch", c.options.Branch, ".")
		return err
	}
	var names []string
	for line := range strings.Lines(heads) {
		if _, ref, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			names = append(names, strings.TrimPrefix(ref, "refs/heads/"))
		}
	}
	if !slices.Contains(names, c.options.Branch) {
		return fmt.Errorf("the repository %s has no branch %s (it has %s): create it there, or name another "+
			"one with GIT_BRANCH",
			c.options.URL, c.options.Branch, strings.Join(names, ", "))
	}
	if _, err := c.git(ctx, "clone", "--quiet", "--depth", "1", "--single-branch", "--branch", c.options.Branch,
		c.options.URL, "."); err != nil {
		return fmt.Errorf("clone the repository %s: %w", c.options.URL, err)
	}
	return nil
}

// Push commits everything below a path, and pushes the commit. Where nothing has changed it does neither, and commit is
// empty. A branch that got another commit meanwhile refuses it: nothing is overwritten.
func (c *Clone) Push(ctx context.Context, path, message string) (commit string, err error) {
	if _, err := c.git(ctx, "add", "--", path); err != nil {
		return "", fmt.Errorf("add %s to a commit: %w", path, err)
	}
	changed, err := c.git(ctx, "status", "--porcelain", "--", path)
	if err != nil || changed == "" {
		return "", err
	}
	words := []string{"commit", "--quiet", "--message", message, "--", path}
	if _, err := c.git(ctx, "config", "user.email"); err != nil { // without one git refuses to commit
		words = append([]string{"-c", "user.name=" + c.options.Author, "-c", "user.email=" + c.options.Email}, words...)
	}
	if _, err := c.git(ctx, words...); err != nil {
		return "", fmt.Errorf("commit %s: %w", path, err)
	}
	if commit, err = c.git(ctx, "rev-parse", "HEAD"); err != nil {
		return "", err
	}
	if _, err := c.git(ctx, "push", "--quiet", c.options.URL, "HEAD:refs/heads/"+c.options.Branch); err != nil {
		return "", fmt.Errorf("push to branch %s of %s: %w; nothing was changed there: where another commit came first, run "+
			"the same command again", c.options.Branch, c.options.URL, err)
	}
	return commit, nil
}

// Close removes the folder.
func (c *Clone) Close() error { return os.RemoveAll(c.Dir) }

// git runs git in the folder and returns what it prints. Its error has the last line that git wrote besides.
func (c *Clone) git(ctx context.Context, words ...string) (string, error) {
	command := child.Command(ctx, "git", words...)
	command.Dir, command.Env, command.WaitDelay = c.Dir, c.env, endWithin
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return "", cause
		}
		if line := text.LastLine(stderr.String()); line != "" {
			return "", fmt.Errorf("git %s: %s", words[0], line)
		}
		return "", fmt.Errorf("git %s: %w", words[0], err)
	}
	return strings.TrimSpace(stdout.String()), nil
}
