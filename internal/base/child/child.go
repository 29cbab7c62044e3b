// Package child starts other programs, which inherit the environment without the secrets in it.
package child

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// SecretVariables are the variables of the environment that hold secrets. What they say is hidden wherever it would be
// written, and no child process inherits them.
func SecretVariables() []string {
	return []string{"HCLOUD_TOKEN", "LAB_HCLOUD_TOKEN", "GITHUB_TOKEN", "GIT_TOKEN", "BACKUP_PASSPHRASE",
		"BACKUP_AUTHENTICATION_KEY", "STATE_IDENTITY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
}

// withdrawn are those, and what has no use without one of them: with a part of its keys a client of S3 ends with an
// error instead of looking for others.
func withdrawn() []string { return append(SecretVariables(), "AWS_ACCESS_KEY_ID") }

// Environment is an environment, as os.Environ has it, without secrets.
func Environment(environ []string) []string {
	secret := withdrawn()
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(secret, name)
	})
}

// Withdraw removes the secrets, and further variables, from the environment of this process: also libraries start
// programs. The system shows the environment with which a process began to its own user and root only.
func Withdraw(more ...string) {
	for _, name := range append(withdrawn(), more...) {
		os.Unsetenv(name)
	}
}

// Command is exec.CommandContext for a program that inherits the environment without secrets. Where the program needs
// one of them, the caller adds it to Env.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = Environment(os.Environ())
	return cmd
}
