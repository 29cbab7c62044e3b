package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// newMarket is an empty project at a Hetzner that has what the defaults ask for.
func newMarket(t *testing.T) *hetznertest.Server {
	t.Helper()
	s := hetznertest.NewEmpty()
	t.Cleanup(s.Close)
	s.Put("locations", 1, schema.Location{Name: "nbg1", NetworkZone: "eu-central"})
	s.Put("server_types", 1, schema.ServerType{Name: "cx33", Architecture: "x86",
		Prices: []schema.PricingServerTypePrice{{Location: "nbg1"}}})
	s.Put("load_balancer_types", 1, schema.LoadBalancerType{Name: "lb11", MaxTargets: 25, MaxServices: 5})
	return s
}

func inProject(s *hetznertest.Server) string {
	return "HCLOUD_TOKEN=a-real-looking-token HCLOUD_ENDPOINT=" + s.URL
}

func TestPlanOfAFirstRun(t *testing.T) {
	market := newMarket(t)
	dir := t.TempDir()
	t.Chdir(dir)
	for _, args := range []string{"plan all", "-n all", "--dry-run all"} {
		r := execute(t, t.Context(), dir, inProject(market), strings.Fields(args)...)
		if r.code != ExitDone {
			t.Fatalf("%s: %+v", args, r)
		}
		for _, want := range []string{
			"plan for cluster k8s at Hetzner Cloud", "it has not run yet", "3 server", "15.00 EUR", "1 load balancer",
			"6.00 EUR", "3 primary IP",
			"1 primary IP", "together 25.00 EUR a month more",
			"a built-in figure", "along preflight, reserve, image, apply, wait-cp, cilium, wait-nodes, wait-machines, pivot",
		} {
			if !strings.Contains(r.stdout, want) {
				t.Errorf("%s does not say %q:\n%s", args, want, r.stdout)
			}
		}
	}
	if w := market.Writes(); len(w) > 0 {
		t.Errorf("planning wrote %v", w)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("planning made %v, %v", entries, err)
	}
	if r := execute(t, t.Context(), dir, "", "plan"); r.code != ExitDone ||
		!strings.Contains(r.stdout, "Hetzner and the clusters were not asked: HCLOUD_TOKEN is not set") {
		t.Errorf("without a token: %+v", r)
	}
	for _, args := range []string{"plan nonsense", "plan status", "plan --lab POD_CIDR=x"} {
		if r := execute(t, t.Context(), dir, inProject(market), strings.Fields(args)...); r.code != ExitUsage {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

// A change of preflight's spec is shown with both values; the record says how long it took.
func TestPlanAfterAChange(t *testing.T) {
	market := newMarket(t)
	market.Put("locations", 1, schema.Location{Name: "fsn1", NetworkZone: "eu-central"})
	dir := t.TempDir()
	t.Chdir(dir)
	if r := execute(t, t.Context(), dir, inProject(market), "preflight", "LOCATION=fsn1"); r.code != ExitFailed {
		t.Fatalf("cx33 is sold in fsn1: %+v", r)
	}
	market.Put("server_types", 1, schema.ServerType{Name: "cx33", Architecture: "x86"})
	if r := execute(t, t.Context(), dir, inProject(market), "preflight", "LOCATION=fsn1"); r.code != ExitDone {
		t.Fatalf("%+v", r)
	}
	market.Put("locations", 1, schema.Location{Name: "nbg1", NetworkZone: "eu-central"})
	before := folderContents(t, dir)
	r := execute(t, t.Context(), dir, inProject(market), "plan", "preflight", "--output", "json")
	var f forecast.Forecast
	if err := json.Unmarshal([]byte(r.stdout), &f); err != nil || r.code != ExitDone || len(f.Steps) != 1 {
		t.Fatalf("%v, %+v", err, r)
	}
	s := f.Steps[0]
	if s.Would != flow.ActionRun || s.BuiltIn || len(s.Changes) != 1 || s.Changes[0].Field != "location" ||
		s.Changes[0].Was != "fsn1" || s.Changes[0].Is != "nbg1" {
		t.Errorf("preflight: %+v", s)
	}
	if r := execute(t, t.Context(), dir, inProject(market), "plan", "preflight"); !strings.Contains(r.stdout,
		"changed: location: fsn1 → nbg1") {
		t.Errorf("%+v", r)
	}
	if after := folderContents(t, dir); after != before {
		t.Errorf("planning changed the state folder: before\n%s\nafter\n%s", before, after)
	}
	if r := execute(t, t.Context(), dir, inProject(market), "plan", "preflight", "--lab"); r.code != ExitUsage ||
		!strings.Contains(r.stderr, "state of a real cluster") {
		t.Errorf("in the lab: %+v", r)
	}
}

// at runs the command at a terminal, where a person gives an answer.
func at(t *testing.T, dir, environment, answer string, args ...string) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c := &console{
		charts: loopbackCharts,
		stdin:  strings.NewReader(answer), stdout: &stdout, stderr: &stderr,
		environment: settings.Environ(strings.Fields(environment)), workDir: dir,
		size: func() (int, int) { return 100, 30 }, hide: &redact.Redactor{},
	}
	code := c.execute(t.Context(), args)
	return ran{code, stdout.String(), stderr.String()}
}

func TestARealRunAtATerminalAsksOnce(t *testing.T) {
	market := newMarket(t)
	dir := t.TempDir()
	t.Chdir(dir)
	const question = "Go ahead? [yes/no]"
	for _, answer := range []string{"no\n", "", "y\n"} {
		r := at(t, dir, inProject(market), answer, "firewall")
		if r.code != ExitFailed || strings.Count(r.stderr, question) != 1 || !strings.Contains(r.stderr, "not confirmed") ||
			!strings.Contains(r.stdout, "1 firewall") {
			t.Errorf("%q: %+v", answer, r)
		}
	}
	probe := func(request string) bool { return request == "DELETE /placement_groups/0" } // whether the token may write
	if w := slices.DeleteFunc(market.Writes(), probe); len(w) > 0 {
		t.Errorf("without a yes it wrote %v", w)
	}
	if r := at(t, dir, inProject(market), "yes\n", "firewall"); strings.Count(r.stderr, question) != 1 ||
		len(slices.DeleteFunc(market.Writes(), probe)) == 0 {
		t.Errorf("after a yes it wrote %v: %+v", market.Writes(), r)
	}
	for name, r := range map[string]ran{
		"--yes":         at(t, dir, inProject(market), "", "firewall", "--yes"),
		"a pipe":        execute(t, t.Context(), dir, inProject(market), "firewall"),
		"--output json": at(t, dir, inProject(market), "", "firewall", "--output", "json"),
		"only looks":    at(t, dir, inProject(market), "", "preflight"),
	} {
		if strings.Contains(r.stderr, question) {
			t.Errorf("%s: it asks: %+v", name, r)
		}
	}
}

func TestDurationsAreRead(t *testing.T) {
	s := statedir.Dir(t.TempDir())
	write := func(run string, events ...flow.Event) {
		t.Helper()
		dir := s.Path(filepath.Join(statedir.RunsFolder, run))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		var lines bytes.Buffer
		for _, e := range events {
			if err := json.NewEncoder(&lines).Encode(e); err != nil {
				t.Fatal(err)
			}
		}
		lines.WriteString(`{"kind":"step-done","step":"apply","elap`) // torn by a crash
		if err := os.WriteFile(filepath.Join(dir, statedir.EventsFile), lines.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	done := func(step string, took time.Duration) flow.Event {
		return flow.Event{Kind: flow.StepDone, Step: step, Elapsed: took}
	}
	write("2020", done("image", time.Hour)) // too long ago to count
	for i := range runs.RunsRemembered {
		write(fmt.Sprintf("3%03d", i), done("image", time.Duration(i+1)*time.Second),
			flow.Event{Kind: flow.StepFailed, Step: "apply", Elapsed: time.Hour})
	}
	d := runs.ReadDurations(s, statedir.EnvironmentHetzner)
	if took, recorded := d.Of("image"); !recorded || took != 6*time.Second {
		t.Errorf("image: %s, %v; the middle one of ten is 6s", took, recorded)
	}
	if took, recorded := d.Of("apply"); recorded || took == 0 {
		t.Errorf("apply, which never came to its end: %s, %v", took, recorded)
	}
}

// configuredSteps are those of GITOPS and GITEA, which the plan of the default configuration does not have.
var configuredSteps = []string{"flux", "flux-sync", "flux-releases", "gitea-token", "gitea-repository"}

func TestEveryStepHasABuiltInDuration(t *testing.T) {
	steps := offlinePlan(t).Graph.Steps()
	for _, environment := range []string{statedir.EnvironmentLab, statedir.EnvironmentHetzner} {
		table := runs.BuiltInDurations(environment)
		for _, s := range steps {
			if table[s.Name] <= 0 {
				t.Errorf("%s: step %s has none", environment, s.Name)
			}
		}
		for _, name := range configuredSteps {
			if table[name] <= 0 {
				t.Errorf("%s: step %s has none", environment, name)
			}
		}
		if want := len(steps) + len(configuredSteps); len(table) != want {
			t.Errorf("%s: %d figures for %d steps", environment, len(table), want)
		}
	}
}

func TestCriticalPath(t *testing.T) {
	after := func(name string, behind ...string) flow.Info {
		info := flow.Info{Name: name}
		for _, b := range behind {
			info.Behind = append(info.Behind, flow.Link{Step: b})
		}
		return info
	}
	graph := []flow.Info{after("a"), after("b", "a"), after("c", "a"), after("d", "b", "c"), after("unwanted", "d"),
		after("e")}
	takes := map[string]time.Duration{"a": 1, "b": 5, "c": 3, "d": 0, "e": 5}
	if path, whole := runs.CriticalPath(graph, takes); !slices.Equal(path, []string{"a", "b"}) || whole != 6 {
		t.Errorf("%v, %d", path, whole)
	}
	takes["c"], takes["d"] = 7, 1
	if path, whole := runs.CriticalPath(graph, takes); !slices.Equal(path, []string{"a", "c", "d"}) || whole != 9 {
		t.Errorf("%v, %d", path, whole)
	}
	if path, whole := runs.CriticalPath(graph, nil); len(path) != 0 || whole != 0 {
		t.Errorf("of nothing: %v, %d", path, whole)
	}
}
