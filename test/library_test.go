package test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/slipway-k8s/slipway"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
)

// TestLibrary builds the program of docs/library.md, in its own module, and has it bootstrap a cluster in a lab.
func TestLibrary(t *testing.T) {
	c := newCommand(t)
	program := filepath.Join(t.TempDir(), "library")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = filepath.Join(c.dir, "test", "library")
	build.Env = append(os.Environ(), "GOFLAGS=-mod=readonly -tags=kustomize_disable_go_plugin_support",
		"GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build test/library: %v\n%s", err, out)
	}
	if out, err := c.exec(t.Context(), "lab", "up"); err != nil {
		t.Fatalf("lab up: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	output, err := exec.CommandContext(ctx, program, c.state).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}

	// The program prints a line for each event: its kind, its step, and what the step says.
	events := string(output)
	at := func(event string) int {
		i := strings.Index(events, "\n"+event+" ")
		if i < 0 {
			t.Fatalf("there is no event %q\n%s", event, events)
		}
		return i
	}
	if at("step-done wait-nodes") > at("step-started argo-cd") || at("step-done argo-cd") > at("step-started pivot") {
		t.Errorf("argo-cd did not run between wait-nodes and pivot\n%s", events)
	}
	i := at("step-done clean")
	if !strings.HasPrefix(events[i:], "\nstep-done clean keeping management cluster shop-mgmt ") {
		t.Errorf("clean is not the program's\n%s", events[i:])
	}
	if err := c.labCall(http.MethodGet, "/v1/management/shop-mgmt", nil); err != nil {
		t.Errorf("the management cluster that the program keeps: %v", err)
	}
	if _, err := workload(t, c).CoreV1().Namespaces().Get(t.Context(), "argocd", metav1.GetOptions{}); err != nil {
		t.Errorf("what argo-cd creates: %v", err)
	}
	// The program prints what it has read of the output of access.
	if i := at("output"); !strings.HasSuffix(events[i:], ":6443 kubeconfig\n") {
		t.Errorf("the output of access: %s", events[i:])
	}
	// A backup is made by a Go program as by the command, which verifies it.
	cfg, key := config.Defaults(), filepath.Join(t.TempDir(), "passphrase")
	if err := os.WriteFile(key, []byte("correct-horse-battery-staple\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.ClusterName, cfg.BackupTo, cfg.BackupPassphraseFile = "shop", t.TempDir(), key
	saved, err := slipway.Backup(ctx, cfg, slipway.Options{StateDir: c.state, Lab: true})
	if err != nil || saved.Bytes == 0 {
		t.Fatalf("the backup: %+v, %v", saved, err)
	}
	if out, err := c.exec(ctx, "backup", "verify", filepath.Join(cfg.BackupTo, saved.Name),
		"BACKUP_PASSPHRASE_FILE="+key); err != nil || !strings.Contains(out, "etcd restores from it") {
		t.Errorf("verify of %s: %v\n%s", saved.Name, err, out)
	}
	// With a second argument it upgrades the cluster, which has every version that is configured.
	if output, err = exec.CommandContext(ctx, program, c.state, "upgrade").CombinedOutput(); err != nil ||
		!strings.Contains(string(output), "there is nothing to upgrade") {
		t.Errorf("the upgrade: %v\n%s", err, output)
	}
	restoredByProgram(t, c, cfg, slipway.BackupFile{Name: filepath.Join(cfg.BackupTo, saved.Name)})
}

// restoredByProgram loses the servers of the cluster shop, and has a Go program restore it.
func restoredByProgram(t *testing.T, c *command, cfg config.Config, file slipway.BackupFile) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	var events []string
	options := slipway.Options{StateDir: c.state, Lab: true, Observe: func(e flow.Event) {
		events = append(events, fmt.Sprintln(e.Kind, e.Step, e.Message, e.Err))
	}}
	if _, err := slipway.Restore(ctx, cfg, options, file); err == nil || !strings.Contains(err.Error(), "is not lost") {
		t.Errorf("a restore of a cluster that lives: %v", err)
	}
	client := c.project()
	for _, server := range must(hetzner.Servers(ctx, client.Client, cfg.ClusterName))(t) {
		if _, _, err := client.Server.DeleteWithResult(ctx, &hcloud.Server{ID: server.ID}); err != nil {
			t.Fatal(err)
		}
	}
	result, err := slipway.Restore(ctx, cfg, options, file)
	if err != nil || result == nil {
		t.Fatalf("the restore: %v\n%s", err, strings.Join(events, ""))
	}
	if _, err := workload(t, c).CoreV1().Namespaces().Get(ctx, "argocd", metav1.GetOptions{}); err != nil {
		t.Errorf("what argo-cd created is not in the restored cluster: %v", err)
	}
}
