package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/serve"
)

// serveCommand makes the command of a test binary, which serve starts again for runs.
const serveCommand = "SLIPWAY_TEST_SERVE"

// beServe is main.
func beServe() int {
	workDir, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return ExitFailed
	}
	ctx, stop := UntilSignal(os.Stderr)
	defer stop()
	return Main(ctx, Streams{Out: os.Stdout, Err: os.Stderr}, os.Environ(), workDir, os.Args[1:])
}

// Serve refuses flags that do not protect it, before it listens or writes anything.
func TestServeRefusesToBeOpen(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{"short", "empty"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(map[string]string{"short": "password"}[file]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"open": 0o644, "good": 0o600} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat("t", 40)), mode); err != nil {
			t.Fatal(err)
		}
	}
	before := treeDigest(t, dir)
	for args, says := range map[string]string{
		"--listen 0.0.0.0:0":                                                     "--tls-cert and --tls-key",
		"--listen :0":                                                            "--tls-cert and --tls-key",
		"--listen 192.0.2.1:0 --token-file t":                                    "--tls-cert and --tls-key",
		"--listen 0.0.0.0:0 --tls-cert c --tls-key k":                            "name who may use it",
		"--listen example.com:0 --tls-cert c --tls-key k":                        "name who may use it",
		"--listen nowhere":                                                       "no address",
		"--tls-cert c":                                                           "go together",
		"--listen 127.0.0.1:0 --tls-cert c --tls-key k":                          "read the certificate",
		"--oidc-issuer https://issuer.example":                                   "go together",
		"--oidc-issuer https://i.example --oidc-client-id c":                     "--oidc-allow",
		"--oidc-allow ann@example.com":                                           "go with --oidc-issuer",
		"--oidc-reader ann@example.com":                                          "go with --oidc-issuer",
		"--oidc-reader-group x":                                                  "go with --oidc-issuer",
		"--oidc-issuer http://i.example --oidc-client-id c --oidc-allow-group x": "without TLS",
		"--listen-probes nowhere":                                                "no address",
		"--reader-token-file missing":                                            "no such file",
		"--token-file open --listen 127.0.0.1:0":                                 "chmod 600",
		"--reader-token-file open --listen 127.0.0.1:0":                          "chmod 600",
		"--token-file good --reader-token-file good --listen 127.0.0.1:0":        "replace one",
		"nowhere":                                      "is of no cluster",
		"--config bootstrap.yaml folder":               "does not go with folders",
		"--state-dir s one two":                        "is the folder of one cluster",
		"CLUSTER_NAME=Wrong_Name --listen 127.0.0.1:0": "CLUSTER_NAME",
	} {
		r := execute(t, t.Context(), dir, "", append([]string{"serve"}, strings.Fields(args)...)...)
		if r.code != ExitUsage || !strings.Contains(r.stderr, says) {
			t.Errorf("serve %s: %+v", args, r)
		}
	}
	for _, file := range []string{"short", "empty", "missing"} {
		r := execute(t, t.Context(), dir, "", "serve", "--listen", "127.0.0.1:0", "--token-file", file)
		if r.code != ExitUsage || strings.Contains(r.stderr, "password") {
			t.Errorf("token file %s: %+v", file, r)
		}
	}
	if treeDigest(t, dir) != before {
		t.Error("something was written")
	}
}

// Two folders with a bootstrap.yaml are two clusters; plans and runs are those of the command itself.
func TestServeTwoFolders(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "bootstrap.yaml"), []byte("clusterName: "+name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r := execute(t, t.Context(), dir, "CLUSTER_NAME=same", "serve", "one", "two"); r.code != ExitUsage || !strings.Contains(r.stderr, "both of cluster same") {
		t.Errorf("two folders of one cluster: %+v", r)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "serve", "one", "two", "--listen", "127.0.0.1:0", "--output", "json", "LOCATION=fsn1")
	cmd.Dir = dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "HCLOUD_") }), serveCommand+"=1")
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var at serve.Serving
	if err == nil {
		err = json.Unmarshal([]byte(line), &at)
	}
	if err != nil || !slices.Equal(at.Clusters, []string{"one", "two"}) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("%q: %v\n%s", line, err, log.String())
	}
	token, err := os.ReadFile(at.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, body string, into any) int {
		r, err := http.NewRequestWithContext(t.Context(), method, at.Address+"/api/v1"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		data, err := io.ReadAll(response.Body)
		if err == nil {
			err = json.Unmarshal(data, into)
		}
		if err != nil {
			t.Fatalf("%s %s: %s: %v", method, path, data, err)
		}
		return response.StatusCode
	}
	var plan struct {
		Kind, Cluster, State string
		Steps                []struct{ Step, Would string }
	}
	if status := ask("GET", "/clusters/two/plan?target=preflight", "", &plan); status != 200 || plan.Kind != "plan" || plan.Cluster != "two" ||
		len(plan.Steps) == 0 || plan.State != filepath.Join(dir, "two", ".slipway", "two") {
		t.Errorf("%d %+v", status, plan)
	}
	var run serve.Run
	if status := ask("POST", "/clusters/one/runs", `{"targets":["preflight"]}`, &run); status != http.StatusAccepted {
		t.Fatalf("%d", status)
	}
	for deadline := time.Now().Add(time.Minute); !run.State.Ended() && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ask("GET", "/clusters/one/runs/"+run.ID, "", &run)
	}
	if run.State != serve.Failed || !strings.Contains(run.Message, "HCLOUD_TOKEN is not set") || run.Environment != "hetzner" {
		t.Errorf("%+v", run)
	}
	var clusters struct{ Items []serve.Cluster }
	if ask("GET", "/clusters", "", &clusters); len(clusters.Items) != 2 || clusters.Items[0].Last == nil || clusters.Items[1].Last != nil {
		t.Errorf("%+v", clusters)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("serve ended with %v\n%s", err, log.String())
	}
	if text := line + log.String(); strings.Contains(text, strings.TrimSpace(string(token))) {
		t.Errorf("serve prints its token: %s", text)
	}
}
