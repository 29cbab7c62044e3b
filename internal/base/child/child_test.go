package child_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/base/child"
)

const secret = "a-secret-of-the-environment"

func withSecrets(t *testing.T) {
	t.Helper()
	for _, name := range append(child.SecretVariables(), "AWS_ACCESS_KEY_ID") {
		t.Setenv(name, secret)
	}
	t.Setenv("CHILD_TEST_STAYS", "stays")
}

func TestAChildInheritsNoSecret(t *testing.T) {
	withSecrets(t)
	out, err := child.Command(t.Context(), "/bin/sh", "-c", "env").Output()
	if err != nil || strings.Contains(string(out), secret) || !strings.Contains(string(out), "CHILD_TEST_STAYS=stays\n") {
		t.Errorf("%v, it sees\n%s", err, out)
	}
	left := child.Environment([]string{"A=1", "HCLOUD_TOKEN=" + secret, "HCLOUD_TOKEN_FILE=x", "STATE_IDENTITY", "B="})
	if !slices.Equal(left, []string{"A=1", "HCLOUD_TOKEN_FILE=x", "B="}) {
		t.Errorf("left are %q", left)
	}
}

func TestWithdraw(t *testing.T) {
	withSecrets(t)
	t.Setenv("TEAM_A_TOKEN", secret)
	child.Withdraw("TEAM_A_TOKEN")
	for _, entry := range os.Environ() {
		if strings.Contains(entry, secret) {
			t.Errorf("the environment has %s", entry)
		}
	}
	if os.Getenv("CHILD_TEST_STAYS") != "stays" {
		t.Error("a variable without a secret is removed")
	}
}

// A program ends with its context, as with exec.CommandContext.
func TestCommandEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cmd := child.Command(ctx, "/bin/sh", "-c", "read line")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := cmd.Wait(); err == nil {
		t.Error("it ended by itself")
	}
}
