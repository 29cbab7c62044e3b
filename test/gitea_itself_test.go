package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// TestGiteaItself bootstraps a cluster of one server with the unmodified Gitea: the token in its Secret may do what
// its scopes say and no more, and it is the same, and valid, after another run, after Gitea's process was killed, and
// after the lab has been down. Gitea's program takes minutes to build and is in no plain `lab build`: the test is
// skipped where it is not there.
func TestGiteaItself(t *testing.T) {
	root := repositoryRoot(t)
	check := exec.Command(buildCommand(t), "lab", "build", "--check", "GITEA=true")
	check.Dir = root
	if out, err := check.CombinedOutput(); err != nil {
		t.Skipf("%s", out)
	}
	c := newCommand(t)
	args := []string{"bootstrap", "--lab", "GITEA=true", "CONTROL_PLANE_REPLICAS=1"}
	if first := c.run(nil, args...); first.exit != 0 {
		t.Fatalf("exit %d\n%s", first.exit, first.output)
	}
	var info struct {
		Gitea struct{ Fidelity, Version string }
	}
	c.labGet("/v1/info", &info)
	if info.Gitea.Fidelity != "real" || info.Gitea.Version != "1.26.0" {
		t.Fatalf("the lab runs %+v", info.Gitea)
	}
	g := giteaItself{t: t, c: c}
	token, password := g.secret(config.GiteaTokenSecret, "token"), g.secret(config.GiteaAdminSecret, "password")
	for list := range c.args {
		if strings.Contains(list, password) || strings.Contains(list, token) {
			t.Errorf("a secret of Gitea is among the arguments of %s", strings.Split(list, "\x00")[0])
		}
	}
	admin := func(r *http.Request) { r.SetBasicAuth("gitea_admin", password) }
	as := func(r *http.Request) { r.Header.Set("Authorization", "token "+token) }
	g.answers(http.StatusCreated, http.MethodPost, "/api/v1/user/repos", admin,
		map[string]any{"name": "fleet", "auto_init": true, "private": true})
	valid := func(after string) {
		t.Helper()
		eventually(t, "Gitea answers "+after, 2*time.Minute, func(ctx context.Context) string {
			status, said := g.ask(ctx, http.MethodGet, "/api/v1/repos/gitea_admin/fleet/contents/README.md", as, nil)
			if status != http.StatusOK {
				return fmt.Sprintf("it answers %d: %s", status, said)
			}
			return ""
		})
		if got := g.secret(config.GiteaTokenSecret, "token"); got != token {
			t.Errorf("the token is another one %s", after)
		}
	}
	valid("a first run")
	g.answers(http.StatusForbidden, http.MethodPost, "/api/v1/user/repos", as, map[string]any{"name": "other"})
	g.answers(http.StatusForbidden, http.MethodPost, "/api/v1/repos/gitea_admin/fleet/contents/new", as,
		map[string]any{"content": "", "message": "new"})
	wrong := func(r *http.Request) { r.SetBasicAuth("gitea_admin", "x") }
	g.answers(http.StatusUnauthorized, http.MethodGet, "/api/v1/user", wrong, nil)
	g.answers(http.StatusForbidden, http.MethodGet, "/api/v1/version", func(*http.Request) {}, nil) // REQUIRE_SIGNIN_VIEW

	second := c.run(nil, args...)
	if again := second.steps("step-started"); second.exit != 0 || slices.ContainsFunc(again, func(step string) bool {
		return strings.Contains(step, "gitea")
	}) {
		t.Errorf("a second run: exit %d, it has run %v\n%s", second.exit, again, second.output)
	}
	valid("a second run")

	if err := syscall.Kill(g.process(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the kubelet has started Gitea again", time.Minute, func(ctx context.Context) string {
		list, err := workload(t, c).CoreV1().Pods(config.GiteaNamespace).List(ctx, metav1.ListOptions{})
		switch {
		case err != nil:
			return err.Error()
		case len(list.Items) != 1 || len(list.Items[0].Status.ContainerStatuses) != 1:
			return fmt.Sprintf("there are %d Pods", len(list.Items))
		case list.Items[0].Status.ContainerStatuses[0].RestartCount != 1:
			return fmt.Sprintf("it was restarted %d times", list.Items[0].Status.ContainerStatuses[0].RestartCount)
		}
		return ""
	})
	valid("the process was killed")

	if out, err := c.exec(t.Context(), "lab", "down"); err != nil {
		t.Fatalf("lab down: %v\n%s", err, out)
	}
	if third := c.run(nil, args...); third.exit != 0 {
		t.Fatalf("after the lab was down: exit %d\n%s", third.exit, third.output)
	}
	valid("the lab was down")
}

// giteaItself is Gitea in a lab's cluster.
type giteaItself struct {
	t *testing.T
	c *command
}

func (g giteaItself) secret(name, key string) string {
	g.t.Helper()
	o, err := workload(g.t, g.c).CoreV1().Secrets(config.GiteaNamespace).Get(g.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	return string(o.Data[key])
}

// process is the id of Gitea's process.
func (g giteaItself) process() int {
	g.t.Helper()
	var status struct {
		Parts     []struct{ Name, Fidelity, Detail string }
		Processes []struct {
			Pod string
			PID int
		}
	}
	g.c.labGet("/v1/status", &status)
	if !slices.ContainsFunc(status.Parts, func(p struct{ Name, Fidelity, Detail string }) bool {
		return p.Name == "gitea" && p.Fidelity == "real" && strings.Contains(p.Detail, "gitea v1.26.0")
	}) {
		g.t.Errorf("the lab's status does not say that Gitea is real: %v", status.Parts)
	}
	for _, p := range status.Processes {
		if strings.HasPrefix(p.Pod, config.GiteaNamespace+"/") {
			return p.PID
		}
	}
	g.t.Fatalf("no process of Gitea's Pod among %v", status.Processes)
	return 0
}

// answers asserts the status of an answer.
func (g giteaItself) answers(want int, method, path string, allow func(*http.Request), body any) {
	g.t.Helper()
	if got, said := g.ask(g.t.Context(), method, path, allow, body); got != want {
		g.t.Errorf("%s %s: %d, want %d: %s", method, path, got, want, said)
	}
}

// ask sends a request to Gitea as the step gitea-token does, through the API server and the kubelet. The status is 0
// where it was not answered.
func (g giteaItself) ask(ctx context.Context, method, path string, allow func(*http.Request), body any) (int, string) {
	g.t.Helper()
	kubeconfig, err := os.ReadFile(filepath.Join(g.c.state, "kubeconfig"))
	if err != nil {
		g.t.Fatal(err)
	}
	cluster, err := kube.Connect(kubeconfig)
	if err != nil {
		g.t.Fatal(err)
	}
	list, err := workload(g.t, g.c).CoreV1().Pods(config.GiteaNamespace).List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		return 0, fmt.Sprintf("%d Pods, %v", len(list.Items), err)
	}
	sent, err := json.Marshal(body)
	if err != nil {
		g.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://gitea"+path, bytes.NewReader(sent))
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	allow(r)
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return cluster.DialPod(ctx, config.GiteaNamespace, list.Items[0].Name, config.GiteaPort)
		}}}
	answer, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	var refusal struct{ Message string }
	_ = json.NewDecoder(answer.Body).Decode(&refusal) // of success there is no message
	return answer.StatusCode, refusal.Message
}
