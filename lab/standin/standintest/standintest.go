// Package standintest tests stand-ins as separate programs, with only arguments, an environment and the permissions
// that they declare.
package standintest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience bounds every wait. A wait takes seconds; longer on a busy machine.
const patience = time.Minute

// asProgram, in the environment, turns a test's executable into the program.
const asProgram = "SLIPWAY_TEST_AS_PROGRAM"

// Main is a TestMain: it runs the tests, or, where Start has started the executable, the program.
func Main(m *testing.M, run func(context.Context, []string) error) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Program is a program under test.
type Program struct {
	Args []string
	Env  []string // all of it
	// Its output must not contain secrets.
	Secrets []string
}

// Start runs the program until the test ends, and then checks that it ends successfully when asked to.
func Start(t *testing.T, p Program) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program.log")
	log, err := os.Create(path)
	Must(t, err)
	defer log.Close()
	program := exec.Command(os.Args[0], p.Args...)
	program.Env = append(p.Env, asProgram+"=yes")
	program.Stdout, program.Stderr = log, log
	Must(t, program.Start())
	t.Cleanup(func() {
		_ = program.Process.Signal(syscall.SIGTERM) // fails if it has ended, which Wait reports
		if err := program.Wait(); err != nil {
			t.Errorf("the program ended with: %v", err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		for _, secret := range p.Secrets {
			if strings.Contains(string(text), secret) {
				t.Error("a secret is in the program's output")
			}
		}
		if t.Failed() {
			t.Logf("the program's output:\n%s", text)
		}
	})
}

// Run runs the program until it ends, and returns its output and how it ended.
func Run(t *testing.T, p Program) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	program := exec.CommandContext(ctx, os.Args[0], p.Args...)
	program.Env = append(p.Env, asProgram+"=yes")
	output, err := program.CombinedOutput()
	return string(output), err
}

// Allow grants a user these rules in the whole cluster.
func Allow(t *testing.T, c client.Client, user string, rules []rbacv1.PolicyRule) {
	t.Helper()
	Must(t, c.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}))
	Must(t, c.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}))
}

// Eventually polls until try succeeds, and fails the test with its last error.
func Eventually(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited %s for %s: %v", patience, what, last)
		case <-tick.C:
		}
	}
}

// Healthy waits until a URL answers 200.
func Healthy(t *testing.T, c *http.Client, url string) {
	t.Helper()
	Eventually(t, url, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := c.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(response.Body) // the status is enough
			return fmt.Errorf("%s: %s", response.Status, text)
		}
		return nil
	})
}

// FreePort returns a port of 127.0.0.1 on which no process listens.
func FreePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	Must(t, err)
	return port
}

// WriteFile writes a file of the test and returns its path.
func WriteFile(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	Must(t, os.WriteFile(path, data, 0o600))
	return path
}

// Must fails the test on an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Granted returns the rules of a kind of role in a file of manifests.
func Granted(t *testing.T, path, kind string) (rules []rbacv1.PolicyRule) {
	t.Helper()
	data, err := os.ReadFile(path)
	Must(t, err)
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var role struct {
			Kind  string              `json:"kind"`
			Rules []rbacv1.PolicyRule `json:"rules"`
		}
		err := documents.Decode(&role)
		if errors.Is(err, io.EOF) {
			return rules
		}
		Must(t, err)
		if role.Kind == kind {
			rules = append(rules, role.Rules...)
		}
	}
}

// Covers checks that the granted rules cover the requested ones.
func Covers(t *testing.T, granted, wanted []rbacv1.PolicyRule) {
	t.Helper()
	if covered, missing := validation.Covers(granted, wanted); !covered {
		for _, rule := range missing {
			t.Errorf("not granted: %v", rule)
		}
	}
}
