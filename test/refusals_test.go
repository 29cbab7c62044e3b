package test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRefusals runs the command with invalid input: each time a clear error, exit code 2, nothing created.
func TestRefusals(t *testing.T) {
	bin := buildCommand(t)
	for _, tc := range []struct {
		name string
		file string // bootstrap.yaml
		env  []string
		args []string
		exit int
		says []string
	}{
		{name: "an unknown key", file: "clusterName: k8s\nserverTyp: cx33\n", args: []string{"--lab"}, exit: 2,
			says: []string{"bootstrap.yaml:2:1", "serverTyp", "serverType"}},
		{name: "no YAML at all", file: "clusterName: [\n", args: []string{"--lab"}, exit: 2,
			says: []string{"bootstrap.yaml:"}},
		{name: "an even number of replicas", file: "controlPlaneReplicas: 2\n", args: []string{"--lab"}, exit: 2,
			says: []string{"bootstrap.yaml:1:", "even"}},
		{name: "replicas that are no number", args: []string{"--lab", "CONTROL_PLANE_REPLICAS=three"}, exit: 2,
			says: []string{"CONTROL_PLANE_REPLICAS", "three"}},
		{name: "a subnet outside the network", file: "controlPlaneCidr: 10.11.0.0/25\n", env: []string{"HCLOUD_TOKEN=x"},
			exit: 2, says: []string{"controlPlaneCidr", "10.10.0.0/16"}},
		{name: "an unknown location", env: []string{"LOCATION=mars1"}, args: []string{"--lab"}, exit: 2,
			says: []string{"LOCATION", "mars1", "nbg1"}},
		{name: "a malformed KEY=VALUE", args: []string{"--lab", "=x"}, exit: 2, says: []string{"=x"}},
		{name: "a KEY that is not ours", args: []string{"--lab", "SERVERTYPE=cx33"}, exit: 2,
			says: []string{"SERVERTYPE", "SERVER_TYPE"}},
		{name: "an unknown target", args: []string{"--lab", "wait-node"}, exit: 2, says: []string{"wait-node", "wait-nodes"}},
		{name: "an unknown flag", args: []string{"--labb"}, exit: 2, says: []string{"labb"}},
		{name: "a file that is not there", args: []string{"--lab", "--config", "nowhere.yaml"}, exit: 2,
			says: []string{"nowhere.yaml"}},
		{name: "a token as an argument", args: []string{"HCLOUD_TOKEN=abc"}, exit: 2, says: []string{"HCLOUD_TOKEN"}},
		{name: "a crash at no point", args: []string{"--lab"},
			env: []string{"SLIPWAY_CRASH=after hetzner create firewalls/k8s#1"}, exit: 2,
			says: []string{"SLIPWAY_CRASH", "before, applied, replied, torn, saved"}},
		{name: "a crash at no call", args: []string{"status"}, env: []string{"SLIPWAY_CRASH=before firewalls/k8s"}, exit: 2,
			says: []string{"SLIPWAY_CRASH", "<system> <verb> <object>#<nth>"}},
		{name: "no token", args: nil, exit: 2, says: []string{"HCLOUD_TOKEN", "--lab"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.file != "" {
				if err := os.WriteFile(filepath.Join(dir, "bootstrap.yaml"), []byte(tc.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(bin, tc.args...)
			cmd.Dir = dir
			cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, tc.env...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			err := cmd.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != tc.exit {
				t.Fatalf("ended with %v, not with %d\n%s", err, tc.exit, stderr.String())
			}
			for _, word := range tc.says {
				if !strings.Contains(stderr.String(), word) {
					t.Errorf("does not say %q:\n%s", word, stderr.String())
				}
			}
			if strings.Contains(stderr.String(), "HCLOUD_TOKEN=abc") || strings.Contains(stderr.String(), "goroutine") {
				t.Errorf("says what it must not:\n%s", stderr.String())
			}
			if _, err := os.Stat(filepath.Join(dir, ".slipway")); err == nil {
				t.Error("it made its state folder")
			}
		})
	}
}
