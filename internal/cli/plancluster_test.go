//go:build unix

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/steps"
)

// inQuick runs the command in this process in a cluster of the fake environment: at a terminal, where a person gives an
// answer, or in a pipe where the answer is empty.
func inQuick(t *testing.T, q *quick, answer string, args ...string) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c := &console{
		charts: loopbackCharts,
		stdin:  strings.NewReader(answer), stdout: &stdout, stderr: &stderr, workDir: q.dir, hide: &redact.Redactor{},
		equip: equipQuickly,
		environment: settings.Environ([]string{settings.TokenVariable + "=" + hetznertest.Token, settings.EndpointVariable +
			"=" + q.Hetzner.URL}),
	}
	c.size = func() (int, int) {
		if answer == "" {
			return 0, 0
		}
		return 400, 30
	}
	code := c.execute(t.Context(), append(args, "--state-dir", string(q.state()), "FIREWALL_ALLOW=203.0.113.0/24",
		"CILIUM_REPOSITORY="+q.charts, "HCLOUD_CCM_REPOSITORY="+q.charts, "TALOS_CCM_REPOSITORY="+q.charts,
		"MANAGEMENT_KUBECONFIG="+filepath.Join(q.dir, "kubeconfig")))
	return ran{code, stdout.String(), stderr.String()}
}

// A change of the server type is planned as what it is, refused, planned again as before, and done with --yes.
func TestADestructiveChangeIsPlannedRefusedAndAgreedTo(t *testing.T) {
	q := newQuick(t, quickCharts(t))
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("exit %d: %s", code, q.stderr)
	}
	const change = "SERVER_TYPE=cx43"
	const summary = "replaces all 3 servers of TalosControlPlane k8s-control-plane one after another: server type cx33 " +
		"→ cx43"
	const details = " (k8s-control-plane-0, k8s-control-plane-1, k8s-control-plane-2; new: k8s-control-plane-225d7-…; " +
		"12.00 EUR a month more; about 13m30s)"

	planned := func() {
		t.Helper()
		writes := len(q.Management.Writes()) + len(q.Hetzner.Writes())
		r := inQuick(t, q, "", "plan", "bootstrap", change)
		for _, want := range []string{"! " + summary + details, "done with consent only",
			"the changes to the cluster: 12.00 EUR a month more", "cluster.variables.SERVER_TYPE: cx33 → cx43"} {
			if r.code != ExitDone || !strings.Contains(r.stdout, want) {
				t.Errorf("plan does not say %q: %+v", want, r)
			}
		}
		r = inQuick(t, q, "", "-n", "bootstrap", change, "--output", "json")
		var f forecast.Forecast
		if err := json.Unmarshal([]byte(r.stdout), &f); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		if !f.NeedsConsent || f.Refused || len(f.Consequences) != 1 || !strings.HasPrefix(f.Consequences[0].Text, summary+details) ||
			f.Consequences[0].Effect != changes.EffectReplaces ||
			f.Consequences[0].Count != 3 || f.Consequences[0].Monthly.Monthly != 12 {
			t.Errorf("as JSON: %+v", f.Consequences)
		}
		if f.Expected < f.Consequences[0].Expected ||
			!slices.ContainsFunc(f.CriticalPath, func(s string) bool { return slices.Contains(steps.WaitForServers(), s) }) {
			t.Errorf("three servers are replaced within %s, along %v", f.Expected, f.CriticalPath)
		}
		if now := len(q.Management.Writes()) + len(q.Hetzner.Writes()); now != writes {
			t.Errorf("planning wrote %d times", now-writes)
		}
	}
	template := func() string {
		o := q.Management.Get("controlplane.cluster.x-k8s.io/v1alpha3", "TalosControlPlane", config.DefaultNamespace,
			"k8s-control-plane")
		return o.Object["spec"].(map[string]any)["infrastructureTemplate"].(map[string]any)["name"].(string)
	}
	was := template()
	planned()
	for range 2 {
		if r := inQuick(t, q, "", "apply", change); r.code != ExitUsage || !strings.Contains(r.stderr, summary+details) ||
			!strings.Contains(r.stderr, "--yes") || template() != was {
			t.Fatalf("without consent: %+v", r)
		}
		planned()
	}
	if r := inQuick(t, q, "no\n", "apply", change); r.code != ExitFailed || !strings.Contains(r.stdout, summary) ||
		template() != was {
		t.Fatalf("after a no: %+v", r)
	}
	if r := inQuick(t, q, "yes\n", "apply", change); r.code != ExitDone || template() != "k8s-control-plane-225d7" {
		t.Fatalf("after a yes: %+v", r)
	}
	if said := q.files(t, statedir.EventsFile); !bytes.Contains(said[len(said)-1], []byte("as agreed, this "+summary)) {
		t.Errorf("the run does not say what was agreed to: %s", said[len(said)-1])
	}
	r := inQuick(t, q, "", "plan", "apply", change, "--output", "json")
	var f forecast.Forecast
	if err := json.Unmarshal([]byte(r.stdout), &f); err != nil || len(f.Consequences) > 0 ||
		slices.ContainsFunc(f.Steps, func(s forecast.Step) bool { return s.Would == flow.ActionRun }) {
		t.Errorf("once it is done: %+v", r)
	}
}

// An immutable value is called immutable by the plan, and refused by the run even with consent.
func TestAnImmutableChangeIsRefused(t *testing.T) {
	q := newQuick(t, quickCharts(t))
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("exit %d: %s", code, q.stderr)
	}
	const told = "cannot change HetznerCluster k8s: spec.hcloudNetwork.subnetCidrBlock 10.10.64.0/25 → 10.10.65.0/25"
	if r := inQuick(t, q, "", "plan", "CONTROL_PLANE_CIDR=10.10.65.0/25"); r.code != ExitDone ||
		!strings.Contains(r.stdout, "! "+told) || !strings.Contains(r.stdout, "the run refuses") {
		t.Errorf("%+v", r)
	}
	if r := inQuick(t, q, "", "apply", "--yes", "CONTROL_PLANE_CIDR=10.10.65.0/25"); r.code != ExitUsage ||
		!strings.Contains(r.stderr, told+": the field is immutable") {
		t.Errorf("%+v", r)
	}
}

// A run that only looked at the servers says nothing of how long they take to come up.
func TestHowLongAServerTakes(t *testing.T) {
	state := statedir.Dir(t.TempDir())
	ran := func(run string, took time.Duration) {
		t.Helper()
		dir := state.Path(filepath.Join(statedir.RunsFolder, run))
		line, err := json.Marshal(flow.Event{Kind: flow.StepDone, Step: "wait-cp", Elapsed: took})
		line = append(line, '\n')
		if err := errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, statedir.EventsFile), line,
			0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		took, want time.Duration
	}{{0, 270 * time.Second}, {100 * time.Millisecond, 270 * time.Second}, {100 * time.Second, 130 * time.Second},
		{200 * time.Millisecond, 130 * time.Second}} {
		if tt.took > 0 {
			ran(tt.took.String(), tt.took)
		}
		if is := runs.ReadDurations(state, statedir.EnvironmentHetzner).Server(); is != tt.want {
			t.Errorf("after a run with %s: %s, want %s", tt.took, is, tt.want)
		}
	}
}
