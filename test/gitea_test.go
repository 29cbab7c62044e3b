package test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/config"
)

// TestGitea bootstraps a cluster of one server with Gitea and an add-on that is installed after it. The token is there
// before the add-on, and it stays the same; where its Secret is gone there is another, and no container was restarted.
func TestGitea(t *testing.T) {
	c := newCommand(t)
	file := filepath.Join(t.TempDir(), "bootstrap.yaml")
	if err := os.WriteFile(file, []byte("gitea: true\naddons:\n  - name: metrics-server\n    after: [gitea]\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"bootstrap", "--lab", "--config", file, "CONTROL_PLANE_REPLICAS=1"}
	first := c.run(nil, args...)
	if first.exit != 0 {
		t.Fatalf("exit %d\n%s", first.exit, first.output)
	}
	done := first.steps("step-done")
	order := []string{"wait-nodes", "addon-gitea", "gitea-token", "addon-metrics-server", "addons"}
	for i := 1; i < len(order); i++ {
		if a, b := slices.Index(done, order[i-1]), slices.Index(done, order[i]); a < 0 || b < a {
			t.Errorf("%s is not done after %s: %v", order[i], order[i-1], done)
		}
	}
	client := workload(t, c)
	secret := func(name, key string) string {
		t.Helper()
		o, err := client.CoreV1().Secrets(config.GiteaNamespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return string(o.Data[key])
	}
	token, password := secret(config.GiteaTokenSecret, "token"), secret(config.GiteaAdminSecret, "password")
	if len(token) != 40 || secret(config.GiteaTokenSecret, "url") != "http://gitea-http.gitea.svc.cluster.local:3000" {
		t.Errorf("the token has %d characters, the address is %q", len(token), secret(config.GiteaTokenSecret, "url"))
	}
	journal, err := os.ReadFile(filepath.Join(c.state, "journal.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, hidden := range []string{token, password} {
		if strings.Contains(first.output, hidden) || strings.Contains(string(journal), hidden) {
			t.Error("a secret of Gitea is in the output or in the journal")
		}
	}

	second := c.run(nil, args...)
	if again := second.steps("step-started"); second.exit != 0 || slices.ContainsFunc(again, func(step string) bool {
		return strings.Contains(step, "gitea")
	}) {
		t.Errorf("a second run: exit %d, it has run %v\n%s", second.exit, again, second.output)
	}
	if secret(config.GiteaTokenSecret, "token") != token || secret(config.GiteaAdminSecret, "password") != password {
		t.Error("a second run has made another token or password")
	}

	if err := client.CoreV1().Secrets(config.GiteaNamespace).Delete(t.Context(), config.GiteaTokenSecret,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if third := c.run(nil, args...); third.exit != 0 || !slices.Contains(third.steps("step-done"), "gitea-token") {
		t.Fatalf("without the Secret: exit %d\n%s", third.exit, third.output)
	}
	if now := secret(config.GiteaTokenSecret, "token"); now == token || len(now) != 40 {
		t.Error("the token that is deleted with its Secret is there again, or there is none")
	}

	pods, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		for _, s := range p.Status.ContainerStatuses {
			if s.RestartCount > 0 {
				t.Errorf("container %s of Pod %s/%s was restarted %d times", s.Name, p.Namespace, p.Name, s.RestartCount)
			}
		}
	}
}
