package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// logCluster is a cluster whose Pods have logs: the time of each line in seconds, and the line.
func logCluster(t *testing.T, name string, logs map[string][]string) *kubetest.Server {
	t.Helper()
	s := kubetest.New(name)
	s.Logs = func(w http.ResponseWriter, r *http.Request) {
		words := strings.Split(r.URL.Path, "/")
		for _, line := range logs[words[len(words)-4]+"/"+words[len(words)-2]] {
			at, text, _ := strings.Cut(line, " ")
			fmt.Fprintf(w, "2026-01-02T03:04:%sZ %s\n", at, text)
		}
		if r.URL.Query().Get("follow") == "true" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}
	s.Put(kubetest.Object("v1", "Namespace", "", "kube-system",
		map[string]any{"metadata": map[string]any{"uid": "uid of " + name}}))
	for place := range logs {
		namespace, pod, _ := strings.Cut(place, "/")
		s.Put(kubetest.Object("v1", "Pod", namespace, pod, map[string]any{
			"metadata": map[string]any{"uid": name + pod},
			"status": map[string]any{"containerStatuses": []any{map[string]any{
				"name": "manager", "containerID": "1",
				"state": map[string]any{"running": map[string]any{"startedAt": "2026-01-02T03:04:00Z"}},
			}}},
		}))
	}
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// controllersInTwoClusters is a state folder whose two clusters run controllers, and which knows no token.
func controllersInTwoClusters(t *testing.T) (dir string, planted string) {
	t.Helper()
	planted = "planted-token-of-the-cluster"
	mgmt := logCluster(t, "mgmt", map[string][]string{
		"capi-system/capi-controller-manager-a": {"01 first", "05 with " + planted + " in it",
			"09 \x1b[31mred\x1b[0m\tand\x07 more"},
		"caph-system/caph-controller-manager-b": {"02 second"},
		"default/somebody-else":                 {"03 nobody asked"},
	})
	mgmt.Put(kubetest.Object("v1", "Secret", "default", "hetzner",
		map[string]any{"data": map[string]any{"hcloud": []byte(planted)}}))
	workload := logCluster(t, "workload", map[string][]string{
		"kube-system/hcloud-cloud-controller-manager-c": {"03 third"},
		"kube-system/cilium-d":                          {"04 fourth"},
		"kube-system/coredns-e":                         {"04 nobody asked"},
	})
	dir = t.TempDir()
	t.Chdir(dir)
	files := statedir.Dir(filepath.Join(dir, "state")).Files()
	for name, s := range map[string]*kubetest.Server{"management.kubeconfig": mgmt, "kubeconfig": workload} {
		if err := files.Write(name, s.Kubeconfig()); err != nil {
			t.Fatal(err)
		}
	}
	return dir, planted
}

func TestLogsUntilNow(t *testing.T) {
	dir, planted := controllersInTwoClusters(t)
	r := execute(t, t.Context(), dir, "", "logs", "--no-follow", "--state-dir", "state")
	want := `management/capi-controller-manager-a | first
management/caph-controller-manager-b | second
k8s/hcloud-cloud-controller-manager-c | third
k8s/cilium-d | fourth
management/capi-controller-manager-a | with [hidden] in it
management/capi-controller-manager-a | [31mred[0m	and more
`
	if r.code != ExitDone || r.stdout != want || r.stderr != "" {
		t.Errorf("%d\n%s%s\nwant\n%s", r.code, r.stdout, r.stderr, want)
	}
	r = execute(t, t.Context(), dir, "", "logs", "caph", "cilium", "--no-follow", "--output", "json", "--state-dir",
		"state")
	var controllers []string
	for line := range strings.Lines(r.stdout) {
		var l jsonLogLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		controllers = append(controllers, l.Cluster+" "+l.Controller+" "+l.Text+" "+l.Time.Format(time.TimeOnly))
	}
	if !slices.Equal(controllers, []string{"management caph second 03:04:02", "k8s cilium fourth 03:04:04"}) {
		t.Errorf("%q", controllers)
	}
	if strings.Contains(r.stdout+r.stderr, planted) {
		t.Error("a secret is in the output")
	}
}

func TestLogsMistakes(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	r := execute(t, t.Context(), dir, "", "logs", "capx", "--state-dir", "state")
	if r.code != ExitUsage || !strings.Contains(r.stderr, "did you mean capi?") ||
		!strings.Contains(r.stderr, "capi, caph, cabpt, cacppt, hcloud-ccm, talos-ccm, cilium") {
		t.Errorf("an unknown controller: %+v", r)
	}
	r = execute(t, t.Context(), dir, "", "logs", "--no-follow", "--state-dir", "state")
	if r.code != ExitFailed || !strings.Contains(r.stderr, "the state folder has no management.kubeconfig") {
		t.Errorf("without a cluster: %+v", r)
	}
	r = execute(t, t.Context(), dir, "", "bootstrap", "--tail", "3", "--state-dir", "state")
	if r.code != ExitUsage {
		t.Errorf("a flag of logs with another target: %+v", r)
	}
}

// untilLines is an output that calls done once it has so many lines.
type untilLines struct {
	mu   sync.Mutex
	b    bytes.Buffer
	left int
	done func()
}

func (u *untilLines) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.left -= bytes.Count(p, []byte("\n")); u.left == 0 {
		u.done()
	}
	return u.b.Write(p)
}

// TestLogsFollow follows until it is interrupted, which is no failure, with a colour for each Pod on a terminal.
func TestLogsFollow(t *testing.T) {
	dir, planted := controllersInTwoClusters(t)
	ctx, interrupt := contextWithCause(t)
	ctx, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	out := &untilLines{left: 6, done: func() { interrupt(&interruption{}) }}
	var stderr bytes.Buffer
	c := &console{
		stdout: out, stderr: &stderr, environment: map[string]string{}, workDir: dir,
		size: func() (int, int) { return 80, 24 }, hide: &redact.Redactor{},
	}
	if code := c.execute(ctx, []string{"logs", "--state-dir", "state"}); code != ExitDone {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
	got := out.b.String()
	if !strings.Contains(got, "management/capi-controller-manager-a"+ui.StyleReset+" | with [hidden] in it\n") ||
		strings.Contains(got, planted) {
		t.Errorf("%q", got)
	}
	colours := map[string]bool{}
	for line := range strings.Lines(got) {
		colour, _, _ := strings.Cut(line, "m")
		colours[colour] = true
	}
	if len(colours) != 4 {
		t.Errorf("%d colours for 4 Pods: %q", len(colours), got)
	}
	if cause := context.Cause(ctx); !errors.Is(cause, flow.ErrInterrupted) {
		t.Errorf("it ended by itself, not by the interruption: %v", cause)
	}
}
