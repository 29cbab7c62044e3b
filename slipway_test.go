package slipway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

const token = hetznertest.Token

// offline are options of a session at a simulated Hetzner project, in whose management cluster nothing can be made.
func offline(t *testing.T, h *hetznertest.Server) slipway.Options {
	t.Helper()
	return slipway.Options{StateDir: filepath.Join(t.TempDir(), "state"), Token: platform.NewSecret(token),
		Hetzner: h.Client(nil), Management: noCluster{}, SkipDoctor: true}
}

func fakeHetzner(t *testing.T) *hetznertest.Server {
	t.Helper()
	h := hetznertest.New()
	t.Cleanup(h.Close)
	return h
}

// noCluster is a provider that makes no management cluster.
type noCluster struct{}

func (noCluster) Name() string { return "none" }
func (noCluster) Ensure(context.Context, string, flow.Say) ([]byte, error) {
	return nil, errors.New("no cluster is made here")
}
func (noCluster) Exists(context.Context, string) (bool, error) { return false, nil }
func (noCluster) Delete(context.Context, string) error         { return nil }

// A session runs a step of the program's own after one of the bootstrap's, gives its output, and is resumed by the same
// calls: what is done is not run again.
func TestSession(t *testing.T) {
	h := fakeHetzner(t)
	cfg, o := config.Defaults(), offline(t, h)
	cfg.FirewallAllow = "127.0.0.0/8"
	var events []string
	o.Observe = func(e flow.Event) { events = append(events, fmt.Sprint(e.Kind, " ", e.Step, " ", e.Message)) }
	ran := 0
	var progress strings.Builder
	o.Progress = &progress
	for range 2 {
		s, err := slipway.Open(t.Context(), cfg, o)
		if err != nil {
			t.Fatal(err)
		}
		report := flow.Add(s.Plan.Graph, flow.Task[int64]{Name: "report",
			Run: flow.With1(func(_ context.Context, say flow.Say, f steps.Firewall) (int64, error) {
				ran++
				say("the token is %s", token)
				return f.ID, nil
			}, s.Plan.Firewall)})
		result, err := s.Run(t.Context(), "report")
		if err != nil {
			t.Fatal(err)
		}
		id, err := slipway.Output(t.Context(), result, report)
		if err != nil || id == 0 {
			t.Errorf("output %d, %v", id, err)
		}
		if _, err := slipway.Output(t.Context(), result, s.Plan.Nodes); err == nil || !strings.Contains(err.Error(), "wait-nodes") {
			t.Errorf("the output of a step that is not done: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if ran != 1 || len(h.Firewalls()) != 1 {
		t.Errorf("the step ran %d times, and there are %d firewalls", ran, len(h.Firewalls()))
	}
	if lines := progress.String(); !strings.Contains(lines, " firewall: done in ") || strings.Contains(lines, token) {
		t.Errorf("the progress:\n%s", lines)
	}
	if all := strings.Join(events, "\n"); strings.Contains(all, token) || !strings.Contains(all, "step-reused report") {
		t.Errorf("the events:\n%s", all)
	}
}

// Bad input is refused before anything is created.
func TestOpenRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*config.Config, *slipway.Options)
		says   string
	}{
		"a configuration":     {func(c *config.Config, _ *slipway.Options) { c.ControlPlaneReplicas = 2 }, "controlPlaneReplicas"},
		"no token":            {func(_ *config.Config, o *slipway.Options) { o.Token = platform.Secret{} }, "Token is empty"},
		"a lab with a client": {func(_ *config.Config, o *slipway.Options) { o.Lab = true }, "not allowed with Lab"},
		"a file": {func(_ *config.Config, o *slipway.Options) {
			o.Dir = filepath.Join(filepath.Dir(o.StateDir), "own")
			write(t, filepath.Join(o.Dir, "manifests", "cluster.yaml"), "kind: [")
		}, "cluster.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, o := config.Defaults(), offline(t, fakeHetzner(t))
			tc.change(&cfg, &o)
			if _, err := slipway.Open(t.Context(), cfg, o); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("it says %v, want %s", err, tc.says)
			}
			if _, err := os.Stat(o.StateDir); err == nil {
				t.Errorf("there is %s", o.StateDir)
			}
		})
	}
}

// A run asks for consent before it changes anything, and a no ends it.
func TestConsent(t *testing.T) {
	h := fakeHetzner(t)
	o := offline(t, h)
	no := errors.New("not today")
	var asked string
	o.Consent = func(_ context.Context, forecast string) error { asked = forecast; return no }
	cfg := config.Defaults()
	cfg.FirewallAllow = "127.0.0.0/8"
	s, err := slipway.Open(t.Context(), cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context(), "firewall"); !errors.Is(err, no) {
		t.Errorf("the run ended with %v", err)
	}
	if err := s.Close(); err != nil || !strings.Contains(asked, "firewall") || len(h.Writes()) > 0 {
		t.Errorf("asked %q; Close: %v; changed %q", asked, err, h.Writes())
	}
}

// An operation that deletes asks for the word that agrees to it, and is refused if no answer is possible, and by a no.
func TestDestroy(t *testing.T) {
	h := fakeHetzner(t)
	cfg := config.Defaults()
	cfg.FirewallAllow = "127.0.0.0/8"
	made, o := false, offline(t, h)
	destroy := func(confirm func(context.Context, string, string) error) error {
		t.Helper()
		o.Confirm = confirm
		s, err := slipway.Open(t.Context(), cfg, o)
		if err != nil {
			t.Fatal(err)
		}
		if !made {
			if _, err := s.Run(t.Context(), "firewall"); err != nil {
				t.Fatal(err)
			}
			made = true
		}
		err = s.Destroy(t.Context(), slipway.DestroyOptions{})
		if closed := s.Close(); closed != nil {
			t.Errorf("Destroy: %v; Close: %v", err, closed)
		}
		return err
	}
	if err := destroy(nil); err == nil || !strings.Contains(err.Error(), "destroy asks") || len(h.Firewalls()) != 1 {
		t.Errorf("without a callback: %v, %d firewalls", err, len(h.Firewalls()))
	}
	var wanted string
	no := errors.New("not today")
	if err := destroy(func(_ context.Context, _, want string) error { wanted = want; return no }); !errors.Is(err, no) ||
		wanted != cfg.ClusterName || len(h.Firewalls()) != 1 {
		t.Errorf("asked for %q: %v, %d firewalls", wanted, err, len(h.Firewalls()))
	}
}

// A session has several runs and operations: each is seen, and returns its own error. A step that is not done has no
// output, also where no step was run. A closed session runs nothing.
func TestSeveralRuns(t *testing.T) {
	h := fakeHetzner(t)
	cfg, o := config.Defaults(), offline(t, h)
	cfg.FirewallAllow = "127.0.0.0/8"
	seen := 0
	o.Observe = func(flow.Event) { seen++ }
	s, err := slipway.Open(t.Context(), cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		before := seen
		if _, err := s.Run(t.Context(), "firewall"); err != nil || seen == before {
			t.Errorf("%v, %d events", err, seen-before)
		}
	}
	none, err := s.Run(t.Context(), "nonsense")
	if err == nil || none != nil {
		t.Errorf("an unknown target: %v, %v", none, err)
	}
	if _, outputErr := slipway.Output(t.Context(), none, s.Plan.Firewall); outputErr == nil {
		t.Error("a run that was refused has an output")
	}
	if err := s.ScalePool(t.Context(), "", 2); err == nil {
		t.Error("a pool without a name is scaled")
	}
	if _, err := s.Run(t.Context(), "firewall"); err != nil {
		t.Error(err)
	}
	for range 2 {
		if closed := s.Close(); closed != nil {
			t.Errorf("Close: %v", closed)
		}
	}
	if _, err := s.Run(t.Context(), "firewall"); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("a run in a closed session: %v", err)
	}
	if err := s.ScalePool(t.Context(), "workers", 2); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("an operation in a closed session: %v", err)
	}
}

// Two sessions at once on one state folder: the second run is refused.
func TestTwoSessions(t *testing.T) {
	h := fakeHetzner(t)
	o := offline(t, h)
	cfg := config.Defaults()
	cfg.FirewallAllow = "127.0.0.0/8"
	first, err := slipway.Open(t.Context(), cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	var second error
	flow.Add(first.Plan.Graph, flow.Task[int]{Name: "meanwhile", Run: flow.Do(func(ctx context.Context, _ flow.Say) (int, error) {
		other, err := slipway.Open(ctx, cfg, o)
		if err != nil {
			return 0, err
		}
		_, second = other.Run(ctx, "firewall")
		_ = other.Close()
		return 1, nil
	})})
	if _, err := first.Run(t.Context(), "meanwhile"); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if held := (*flow.LockedError)(nil); !errors.As(second, &held) {
		t.Errorf("the second run: %v", second)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A recovery that cannot succeed is refused before anything is created.
func TestRecoveriesRefuse(t *testing.T) {
	type program func(context.Context, config.Config, slipway.Options) error
	restores := func(file slipway.BackupFile) program {
		return func(ctx context.Context, cfg config.Config, o slipway.Options) error {
			_, err := slipway.Restore(ctx, cfg, o, file)
			return err
		}
	}
	text := filepath.Join(t.TempDir(), "text")
	write(t, text, "this is text")
	for name, tc := range map[string]struct {
		run  program
		says string
	}{
		"a restore without a file": {restores(slipway.BackupFile{}), "Name is empty"},
		"a restore of what is no backup": {restores(slipway.BackupFile{Name: text, Unencrypted: true, Unauthenticated: true}),
			"damaged"},
		"a readoption of a file that does not exist": {
			func(ctx context.Context, cfg config.Config, o slipway.Options) error {
				_, err := slipway.Readopt(ctx, cfg, o, slipway.ReadoptOptions{Backup: slipway.BackupFile{Name: text + ".gone"}})
				return err
			}, "no such file"},
		"a recovery in the state of a lab": {func(ctx context.Context, cfg config.Config, o slipway.Options) error {
			o.StateDir = filepath.Join(t.TempDir(), "lab")
			write(t, filepath.Join(o.StateDir, statedir.EnvironmentFile), statedir.EnvironmentLab)
			return slipway.RecoverQuorum(ctx, cfg, o)
		}, "rehearsal"},
	} {
		t.Run(name, func(t *testing.T) {
			o := offline(t, fakeHetzner(t))
			if err := tc.run(t.Context(), config.Defaults(), o); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("it says %v, want %s", err, tc.says)
			}
			if _, err := os.Stat(o.StateDir); err == nil {
				t.Errorf("there is %s", o.StateDir)
			}
		})
	}
}

// A session outlives the context that it was opened with. The end of a run's context is an interruption of the run,
// whose error says how to resume it; the commands in messages name the cluster; a secret of the environment is hidden.
func TestCancelledRun(t *testing.T) {
	const hidden = "github-token-of-the-environment"
	t.Setenv("GITHUB_TOKEN", hidden)
	o := offline(t, fakeHetzner(t))
	cfg := config.Defaults()
	cfg.FirewallAllow = "127.0.0.0/8"
	opening, opened := context.WithCancel(t.Context())
	s, err := slipway.Open(opening, cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	opened()
	if _, err := s.Run(t.Context(), "firewall"); err != nil {
		t.Errorf("a run after the end of the context of Open: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	flow.Add(s.Plan.Graph, flow.Task[int]{Name: "long", Run: flow.Do(func(ctx context.Context, _ flow.Say) (int, error) {
		cancel()
		<-ctx.Done()
		return 0, context.Cause(ctx)
	})})
	if _, err := s.Run(ctx, "long"); !errors.Is(err, flow.ErrInterrupted) || !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "make the same call again to resume") {
		t.Errorf("a cancelled run: %v", err)
	}
	if err := s.Destroy(ctx, slipway.DestroyOptions{}); !errors.Is(err, flow.ErrInterrupted) {
		t.Errorf("a cancelled operation: %v", err)
	}
	fails := func(context.Context, flow.Say) (int, error) { return 0, errors.New("it has seen " + hidden) }
	flow.Add(s.Plan.Graph, flow.Task[int]{Name: "talks", Run: flow.Do(fails)})
	if _, err := s.Run(t.Context(), "talks"); err == nil || strings.Contains(err.Error(), hidden) {
		t.Errorf("an error with a secret: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A number of servers that the configuration does not allow is refused before anything is asked.
func TestScaleRefuses(t *testing.T) {
	o := offline(t, fakeHetzner(t))
	o.Yes = true
	cfg := config.Defaults()
	cfg.FirewallAllow = "127.0.0.0/8"
	s, err := slipway.Open(t.Context(), cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, servers := range []int{0, 2, -1} {
		err := s.ScaleControlPlane(t.Context(), servers)
		if err == nil || !strings.Contains(err.Error(), "controlPlaneReplicas") {
			t.Errorf("%d servers of the control plane: %v", servers, err)
		}
	}
	if err := s.ScalePool(t.Context(), "workers", -1); err == nil || !strings.Contains(err.Error(), "replicas") {
		t.Errorf("-1 servers of a pool: %v", err)
	}
}

// Plan, Doctor and Status look, before a run and after one, and change nothing: there is no state folder before.
func TestInspection(t *testing.T) {
	h := fakeHetzner(t)
	cfg, o := config.Defaults(), offline(t, h)
	cfg.FirewallAllow = "127.0.0.0/8"
	f, err := slipway.Plan(t.Context(), cfg, o, "firewall")
	if err != nil || len(f.Steps) == 0 || f.Steps[len(f.Steps)-1].Name != "firewall" || f.Offline != "" {
		t.Errorf("the plan of a first run: %+v, %v", f.Steps, err)
	}
	if _, err := slipway.Plan(t.Context(), cfg, o, "firewal"); err == nil || !strings.Contains(err.Error(), "firewall") {
		t.Errorf("the plan of a step that does not exist: %v", err)
	}
	checks, err := slipway.Doctor(t.Context(), cfg, o)
	if len(checks) == 0 || checks[0].Name == "" || checks[0].Verdict == "" || checks[0].Reason == "" {
		t.Errorf("the doctor has found %+v, %v", checks, err)
	}
	before, err := slipway.Status(t.Context(), cfg, o)
	if err != nil || len(before.Steps) == 0 || before.Steps[0].State != "never" {
		t.Errorf("the status of nothing: %+v, %v", before.Steps, err)
	}
	if _, err := os.Stat(o.StateDir); err == nil {
		t.Fatalf("a look has made %s", o.StateDir)
	}
	s, err := slipway.Open(t.Context(), cfg, o)
	if err == nil {
		_, err = s.Run(t.Context(), "firewall")
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	after, err := slipway.Status(t.Context(), cfg, o)
	done := map[string]slipway.StepStatus{}
	for _, step := range after.Steps {
		done[step.Name] = step
	}
	if is := done["firewall"]; err != nil || is.State != "done" || is.Verified != "holds" {
		t.Errorf("the status after the run: %+v, %v", is, err)
	}
	document, err := json.Marshal(after)
	var told struct {
		Steps []struct{ Step, World string }
	}
	if err = errors.Join(err, json.Unmarshal(document, &told)); err != nil || len(told.Steps) != len(after.Steps) ||
		strings.Contains(string(document), token) {
		t.Errorf("as JSON it is %s, %v", document, err)
	}
	var text strings.Builder
	if err := after.Print(&text, 80); err != nil || !strings.Contains(text.String(), "firewall") {
		t.Errorf("printed it is\n%s%v", text.String(), err)
	}
}
