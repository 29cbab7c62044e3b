package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/child"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/operation/status"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/provider/lab/labtest"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// ran is what a run of the command came to.
type ran struct {
	code           int
	stdout, stderr string
}

// execute runs the command in a folder, with an environment of its own.
func execute(t *testing.T, ctx context.Context, dir, environment string, args ...string) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c := &console{
		stdout: &stdout, stderr: &stderr, environment: settings.Environ(strings.Fields(environment)), workDir: dir,
		size: func() (int, int) { return 0, 0 }, hide: &redact.Redactor{}, readFaults: faultReader(),
		charts: loopbackCharts,
	}
	code := c.execute(ctx, args)
	return ran{code, stdout.String(), stderr.String()}
}

func TestExitCodes(t *testing.T) {
	for err, want := range map[error]int{
		nil:                      ExitDone,
		errors.New("no"):         ExitFailed,
		usage.Errorf("no"):       ExitUsage,
		&flow.InvalidError{}:     ExitUsage,
		&flow.UnknownStepError{}: ExitUsage,
		&flow.SealedError{Step: "image", By: "pivot"}: ExitUsage,
		&flow.SealedError{Step: "pivot", By: "pivot"}: ExitFailed,
		&flow.LockedError{}:                           ExitFailed,
		&flow.StepError{}:                             ExitFailed,
		&flow.UnverifiableError{}:                     ExitFailed,
		flow.ErrInterrupted:                           ExitInterrupted,
		&interruption{os.Interrupt}:                   ExitInterrupted,
		errors.Join(&flow.StepError{Err: errors.New("no")}, fmt.Errorf("%w", flow.ErrInterrupted)): ExitInterrupted,
	} {
		if err != nil && want != ExitDone {
			err = fmt.Errorf("in context: %w", err)
		}
		if got := exitCode(err); got != want {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
	}
}

// What is wrong is found before anything is created, in the lab and at Hetzner.
func TestBadUsageMakesNothing(t *testing.T) {
	for _, args := range []string{
		"--lab CONTROL_PLANE_REPLICAS=2", "--lab bootstrapp", "--lab WAIT=1", "--lab --config nowhere.yaml", "", "image",
		"lab", "lab upp", "lab up down", "--lab NODES_TIMEOUT=0s", "status image",
		"--lab --lab-images nowhere.yaml", "--lab --lab-images .", "lab up --lab-images nowhere.yaml",
		"destroy --yes --lab --lab-images nowhere.yaml",
	} {
		dir := t.TempDir()
		t.Chdir(dir)
		r := execute(t, t.Context(), dir, "", strings.Fields(args)...)
		if r.code != ExitUsage || !strings.HasPrefix(r.stderr, "error: ") || r.stdout != "" {
			t.Errorf("%q: %+v", args, r)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("%q: it made %v, %v", args, entries, err)
		}
	}
}

func TestWithoutToken(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	r := execute(t, t.Context(), dir, "")
	if lines := strings.Split(strings.TrimSpace(r.stderr), "\n"); len(lines) != 2 {
		t.Errorf("it says %q", r.stderr)
	}
}

func TestHelp(t *testing.T) {
	for _, arg := range []string{"--help", "-h"} {
		if r := execute(t, t.Context(), t.TempDir(), "", arg); r.code != ExitDone || !strings.Contains(r.stdout, "Usage: bootstrap") {
			t.Errorf("%s: %+v", arg, r)
		}
	}
}

func TestHelpNamesTheEnvironment(t *testing.T) {
	r := execute(t, t.Context(), t.TempDir(), "", "help", "variables")
	for _, name := range append(child.SecretVariables(), settings.EndpointVariable) {
		if !regexp.MustCompile(`\W` + name + `\W`).MatchString(r.stdout) {
			t.Errorf("help variables does not name %s", name)
		}
	}
}

func TestTokensOfTheEnvironmentAreHidden(t *testing.T) {
	for _, name := range child.SecretVariables() {
		r := execute(t, t.Context(), t.TempDir(), name+"="+secret, "lab", secret)
		if r.code != ExitUsage || strings.Contains(r.stderr, secret) || !strings.Contains(r.stderr, "[hidden]") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// deaf is a Hetzner API that takes no token.
func deaf(t *testing.T, seen *[]string) string {
	t.Helper()
	var mu sync.Mutex
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		*seen = append(*seen, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error":{"code":"unauthorized","message":"unable to authenticate %s"}}`,
			r.Header.Get("Authorization"))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

// stateWithFakeLab is a state folder in whose lab a fake one is up.
func stateWithFakeLab(t *testing.T) (statedir.Dir, *labtest.FakeLab) {
	t.Helper()
	f := labtest.NewFakeLab(t)
	s := statedir.Dir(filepath.Join(t.TempDir(), "state"))
	if err := os.MkdirAll(s.Lab(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.Lab(), "lab.sock.path"), []byte(filepath.Join(f.Dir, "lab.sock")),
		0o600); err != nil {
		t.Fatal(err)
	}
	return s, f
}

// A wrong token is for the cloud to know: exit code 1, the reason, no secret,
// and nothing made.
func TestWrongToken(t *testing.T) {
	var seen []string
	endpoint := deaf(t, &seen)
	s, f := stateWithFakeLab(t)
	f.Info.HetznerEndpoint = endpoint
	for name, tc := range map[string]struct {
		state statedir.Dir
		args  string
		token string // that arrives
	}{
		"lab":     {s, "--lab", "wrong-wrong-wrong"},
		"hetzner": {statedir.Dir(t.TempDir()), "", "a-real-looking-token"},
	} {
		for _, output := range []string{"text", "json"} {
			t.Run(name+" "+output, func(t *testing.T) {
				seen = nil
				dir := t.TempDir()
				t.Chdir(dir)
				environment := "HCLOUD_TOKEN=a-real-looking-token LAB_HCLOUD_TOKEN=wrong-wrong-wrong HCLOUD_ENDPOINT=" + endpoint
				r := execute(t, t.Context(), dir, environment, append(strings.Fields(tc.args), "--state-dir", string(tc.state),
					"--output", output, "--skip-doctor", "PREFLIGHT_TIMEOUT=20s")...)
				if r.code != ExitFailed || !strings.Contains(r.stderr, "step preflight failed") ||
					!strings.Contains(r.stderr, "unauthorized") {
					t.Fatalf("%+v", r)
				}
				if len(seen) == 0 {
					t.Fatal("no question was asked")
				}
				for _, request := range seen {
					if !strings.HasPrefix(request, "GET ") || !strings.HasSuffix(request, "Bearer "+tc.token) {
						t.Errorf("request %s", request)
					}
				}
				if got := f.Managements; len(got) != 0 {
					t.Errorf("made %v", got)
				}
				noSecrets(t, r, tc.state, "a-real-looking-token", "wrong-wrong-wrong", f.Info.Token)
				if output == "json" {
					for line := range strings.Lines(r.stdout) {
						if !json.Valid([]byte(line)) {
							t.Errorf("not JSON: %s", line)
						}
					}
				}
			})
		}
	}
}

// noSecrets looks for secrets in everything that a run printed or wrote.
func noSecrets(t *testing.T, r ran, state statedir.Dir, secrets ...string) {
	t.Helper()
	texts := map[string]string{"stdout": r.stdout, "stderr": r.stderr}
	files := 0
	err := filepath.WalkDir(string(state), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		texts[path] = string(data)
		files++
		return err
	})
	if err != nil || files < 3 { // the journal, events, the log
		t.Errorf("looked through %d files, %v", files, err)
	}
	for where, text := range texts {
		for _, s := range secrets {
			if strings.Contains(text, s) {
				t.Errorf("the secret %q is in %s", s, where)
			}
		}
	}
}

func TestInterruptedRun(t *testing.T) {
	s, f := stateWithFakeLab(t)
	ctx, cancel := contextWithCause(t)
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel(&interruption{os.Interrupt})
		<-r.Context().Done()
	}))
	defer slow.Close()
	f.Info.HetznerEndpoint = slow.URL
	dir := t.TempDir()
	t.Chdir(dir)
	r := execute(t, ctx, dir, "", "--lab", "--state-dir", string(s))
	if r.code != ExitInterrupted || !strings.Contains(r.stderr, "interrupted: what is done is kept in "+string(s)) ||
		!strings.Contains(r.stderr, "lab down --state-dir "+string(s)) {
		t.Errorf("%+v", r)
	}
	snapshot, err := s.Journal().Load(t.Context())
	if err != nil || snapshot.Steps["preflight"].State != flow.StateInterrupted {
		t.Errorf("the journal says %+v, %v", snapshot.Steps, err)
	}
	events, err := os.ReadFile(s.Path(statedir.EventsFile))
	if err != nil || !strings.Contains(string(events), `"kind":"step-interrupted"`) {
		t.Errorf("the events: %v\n%s", err, events)
	}
}

func TestInterruptedTask(t *testing.T) {
	s, f := stateWithFakeLab(t)
	f.Server.Close()
	dir := t.TempDir()
	t.Chdir(dir)
	source := filepath.Join(dir, "lab")
	if err := os.MkdirAll(source, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(source, "go.mod"), []byte("module "+lab.Module+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := contextWithCause(t)
	cancel(&interruption{os.Interrupt})
	for _, args := range [][]string{{"lab", "up"}, {"--lab"}} {
		r := execute(t, ctx, dir, "PATH="+os.Getenv("PATH"), append(args, "--state-dir", string(s))...)
		if r.code != ExitInterrupted || !strings.HasPrefix(r.stderr, "interrupted: ") {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestSecondRunAtOnce(t *testing.T) {
	s, _ := stateWithFakeLab(t)
	unlock, err := s.Journal().Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	dir := t.TempDir()
	t.Chdir(dir)
	r := execute(t, t.Context(), dir, "", "--lab", "--state-dir", string(s))
	if r.code != ExitFailed || !strings.Contains(r.stderr, "another run is at work since") ||
		!strings.Contains(r.stderr, fmt.Sprint(os.Getpid())) {
		t.Errorf("%+v", r)
	}
}

func TestStatus(t *testing.T) {
	s, f := stateWithFakeLab(t)
	dir := t.TempDir()
	t.Chdir(dir)
	status := func() (rows map[string]status.Step, offline string) {
		t.Helper()
		r := execute(t, t.Context(), dir, "", "status", "--state-dir", string(s), "--output", "json")
		var answer struct {
			Offline string
			Steps   []status.Step
		}
		if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil || r.code != ExitDone {
			t.Fatalf("%v, %+v", err, r)
		}
		rows = map[string]status.Step{}
		for _, row := range answer.Steps {
			rows[row.Step] = row
		}
		return rows, answer.Offline
	}
	if rows, _ := status(); rows["apply"].State != "never" || len(rows) != len(offlinePlan(t).Graph.Steps()) {
		t.Errorf("of nothing: %+v", rows)
	}
	if lab.Exists(s.Path(statedir.EnvironmentFile)) || lab.Exists(s.Path("journal.json")) ||
		lab.Exists(s.Path(statedir.RunsFolder)) {
		t.Error("status wrote something")
	}

	var seen []string
	f.Info.HetznerEndpoint = deaf(t, &seen)
	if r := execute(t, t.Context(), dir, "", "--lab", "--state-dir", string(s)); r.code != ExitFailed {
		t.Fatalf("%+v", r)
	}
	rows, offline := status()
	if row := rows["preflight"]; row.State != "failed" || !strings.Contains(row.Error, "unauthorized") || offline != "" {
		t.Errorf("after a failure: %+v, %q", row, offline)
	}
	if r := execute(t, t.Context(), dir, "", "status", "--state-dir", string(s)); r.code != ExitDone ||
		!strings.Contains(r.stdout, "preflight") || !strings.Contains(r.stdout, "failed") {
		t.Errorf("the table: %+v", r)
	}

	// Of a lab that is down the journal is still to be read.
	f.Server.Close()
	if rows, offline := status(); rows["preflight"].State != "failed" || !strings.Contains(offline, "lab is down") {
		t.Errorf("offline: %+v, %q", rows["preflight"], offline)
	}
}

// Also without its mark a state folder is examined with the credentials that Hetzner needs.
func TestStatusOfTheRealWorld(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	s := statedir.Dir(filepath.Join(dir, ".slipway", "k8s"))
	recordStep(t, s, "image")
	if r := execute(t, t.Context(), dir, "", "status"); r.code != ExitDone ||
		!strings.Contains(r.stdout, "Hetzner and the clusters were not asked: HCLOUD_TOKEN is not set") {
		t.Errorf("without a token: %+v", r)
	}
	if err := os.WriteFile(s.Path("journal.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := execute(t, t.Context(), dir, "", "status"); r.code != ExitFailed ||
		!strings.Contains(r.stderr, "move it away") {
		t.Errorf("of a damaged journal: %+v", r)
	}
}

func TestLabCommands(t *testing.T) {
	s, f := stateWithFakeLab(t)
	dir := t.TempDir()
	t.Chdir(dir)
	do := func(args ...string) ran {
		return execute(t, t.Context(), dir, "", append(args, "--state-dir", string(s))...)
	}
	if r := do("lab", "up"); r.code != ExitDone {
		t.Errorf("up: %+v", r)
	}
	if r := do("lab", "status"); r.code != ExitDone || !strings.Contains(r.stdout, "network namespace") ||
		!strings.Contains(r.stdout, "cp-1") || !strings.Contains(r.stdout, "64") {
		t.Errorf("status: %+v", r)
	}
	balancer := regexp.MustCompile(`k8s-kube-apiserver +127\.65\.2\.1 +127\.64\.0\.2 +6443 to 6443 +2 of 3\nk8s-kube-apiserver .* 50000 to 50001 +0 of 3: refuses`)
	if r := do("lab", "status"); !balancer.MatchString(r.stdout) {
		t.Errorf("the load balancer is not in:\n%s", r.stdout)
	}
	if r := do("lab", "status", "--output", "json"); r.code != ExitDone || !strings.Contains(r.stdout, `"up": true`) {
		t.Errorf("status in JSON: %+v", r)
	}
	const charts = "https://charts.example.org"
	repository := regexp.MustCompile(`(?m)^HCLOUD_CCM_REPOSITORY +` + charts + `$`)
	if r := do("lab", "status"); strings.Contains(r.stdout, "CONFIGURED") {
		t.Errorf("status without own repositories:\n%s", r.stdout)
	}
	if r := do("lab", "status", "HCLOUD_CCM_REPOSITORY="+charts); !repository.MatchString(r.stdout) ||
		strings.Contains(r.stdout, "PROVIDER_REPOSITORY") {
		t.Errorf("status with an own chart repository:\n%s", r.stdout)
	}
	r := do("lab", "status", "HCLOUD_CCM_REPOSITORY="+charts, "--output", "json")
	if !regexp.MustCompile(`"configured": \{\s*"HCLOUD_CCM_REPOSITORY": "` + charts + `"\s*\}`).MatchString(r.stdout) {
		t.Errorf("status in JSON with an own chart repository:\n%s", r.stdout)
	}
	if r := do("lab", "down"); r.code != ExitDone || !strings.Contains(r.stdout, "is down") {
		t.Errorf("down: %+v", r)
	}
	for _, verb := range []string{"down", "status"} {
		if r := do("lab", verb); r.code != ExitDone || !strings.Contains(r.stdout, "no lab is up") {
			t.Errorf("%s of nothing: %+v", verb, r)
		}
	}
	if r := do("lab", "up"); r.code != ExitFailed || !strings.Contains(r.stderr, "in no clone of Slipway") {
		t.Errorf("up without sources: %+v", r)
	}
	if len(f.Managements) != 0 {
		t.Error("the lab's commands made a cluster")
	}
}

func TestStatusSaysWhatWouldRunAgain(t *testing.T) {
	for says, row := range map[string]status.Step{
		"would run again, changed: spec location, spec serverType": {State: "done",
			Changed: []string{"spec location", "spec serverType"}},
		"runs again if apply or image comes out differently": {State: "done", After: []string{"apply", "image"}},
	} {
		if got := row.Remarks(); got != says {
			t.Errorf("%q, want %q", got, says)
		}
	}
}

// The report fits a terminal, and loses nothing to it.
func TestLabReportFitsTheTerminal(t *testing.T) {
	var r labReport
	long := strings.Repeat("one of many words about fidelity ", 8)
	data := fmt.Sprintf(`{"isolation":%q,"parts":[{"name":"etcd","fidelity":"stand-in","detail":%q},{"name":"kube-controller-manager","fidelity":"real","detail":"v1"}],"notes":[%q],
		"servers":[{"name":"k8s-control-plane-3b431-lnbct","id":1000020,"status":"running","publicIPv4":"127.81.4.1","privateIPv4":"127.80.64.2","talos":"running","etcd":"Running: Health check successful","apiServer":"ready"}],
		"loadBalancers":[{"name":"k8s-kube-apiserver-jtyvw","publicIPv4":"127.81.2.1","privateIP":"127.80.64.1","services":[{"listenPort":50000,"destinationPort":50000,"healthy":3,"targets":3}]}],
		"processes":[{"name":"hcloud-cloud-controller-manager-7c69bf56f8-htjcz/hcloud-cloud-controller-manager","cluster":"k8s","server":"k8s-control-plane-3b431-wkbgz","pod":"kube-system/hcloud-cloud-controller-manager-7c69bf56f8-htjcz","pid":4898,"rssBytes":83000000}]}`, long, long, long)
	if err := json.Unmarshal([]byte(data), &r); err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{0, 80} {
		var out bytes.Buffer
		if err := r.print(&out, width); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(strings.Join(strings.Fields(out.String()), " "), "fidelity"); n != 3*8 {
			t.Errorf("width %d: %d of the words came through", width, n)
		}
		for line := range strings.Lines(out.String()) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); width > 0 && n >= width {
				t.Errorf("%d columns: %q", n, line)
			}
		}
	}
}
