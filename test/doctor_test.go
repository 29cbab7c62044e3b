package test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// doctorLab is the environment in which the doctor examines the lab's project as a real one: without --lab, so that
// every check sends the requests that it sends to Hetzner. Providers and charts are the lab's, the container engine is
// a script, GitHub a server of the test.
type doctorLab struct {
	*command
	project
	labState string // state folder of the lab; the doctorLab has another
	folder   string // working directory, whose manifests/ and bootstrap/ take precedence
	vars     map[string]string
	engine   string // the engine's answer to info

	took   time.Duration // the last result
	failed bool          // its exit code was 1, or 2
}

// defect is a configuration or an environment that one check must fail.
type defect struct {
	name, check string
	says        string
	arrange     func(*testing.T, *doctorLab) // reverted at the end of the test
}

const wellEngine = `{"host":{"cgroupVersion":"v2","cgroupControllers":["cpu","memory","pids"],"memTotal":17179869184,"security":{"rootless":true}},` +
	`"store":{"graphRoot":"/data","graphRootAllocated":107374182400,"graphRootUsed":10737418240},"version":{"Version":"5.4.0"}}`

// enginePodman simulates the commands of podman that kind and the doctor use.
const enginePodman = `#!/bin/sh
case "$1" in
-v) echo "podman version 5.4.0" ;;
info) cat "$ENGINE_INFO" ;;
*) if [ -n "$ENGINE_SILENT" ]; then echo "cannot connect to Podman" >&2; exit 125; fi ;;
esac
`

// neverPasses are checks of what cannot be observed: their verdict is always unknown.
var neverPasses = []string{"limits"}

// TestDoctor makes each check of the doctor fail against the lab, and pass. A check without a defect fails the test.
func TestDoctor(t *testing.T) {
	t.Parallel()
	lab := newCommand(t)
	lab.lab("up")
	c := newDoctorLab(t, lab)
	well := c.examine(t)
	for check, f := range well {
		want := "ok"
		if slices.Contains(neverPasses, check) {
			want = "unknown"
		}
		if f.Verdict != want {
			t.Errorf("in an environment without defects %s is %s: %s", check, f.Verdict, f.Reason)
		}
	}
	covered := append(slices.Clone(neverPasses), "hetzner-budget") // by fewRequests
	quickest := c.took
	for _, ill := range defects() {
		covered = append(covered, ill.check)
		t.Run(ill.name, func(t *testing.T) {
			sick := newDoctorLab(t, lab)
			ill.arrange(t, sick)
			f := sick.examine(t)[ill.check]
			if f.Verdict != "failed" || !strings.Contains(f.Reason, ill.says) || f.WayOut == "" {
				t.Errorf("%s: %+v; want it failed, saying %q, with a way out", ill.check, f, ill.says)
			}
			if !sick.failed {
				t.Error("its exit code is neither 1 nor 2")
			}
			quickest = min(quickest, sick.took)
		})
	}
	for check := range well {
		if !slices.Contains(covered, check) {
			t.Errorf("nothing here makes the check %s fail", check)
		}
	}
	t.Run("a person is asked", operatorIsAsked(lab))
	t.Run("all is well again", func(t *testing.T) {
		again := newDoctorLab(t, lab).examine(t)
		for check, f := range again {
			if f.Verdict != well[check].Verdict {
				t.Errorf("%s is %+v, and was %+v", check, f, well[check])
			}
		}
	})
	t.Run("few requests are left at Hetzner", fewRequests(lab))
	t.Run("Hetzner refuses every request", refusedByRateLimit(lab))
	t.Logf("%d checks, the quickest of %d looks in %s", len(well), len(covered), quickest)
	if quickest > 5*time.Second {
		t.Errorf("the doctor takes %s", quickest)
	}
}

func newDoctorLab(t *testing.T, lab *command) *doctorLab {
	t.Helper()
	inner := *lab
	inner.t = t
	var info struct {
		HetznerEndpoint, Token, ProviderRepository string
		ChartRepositories                          map[string]string
	}
	inner.labGet("/v1/info", &info)
	dir := t.TempDir()
	c := &doctorLab{command: &inner, project: inner.project(), labState: lab.state, folder: filepath.Join(dir, "work"),
		engine: wellEngine}
	charts := info.ChartRepositories["talos-cloud-controller-manager"]
	c.vars = map[string]string{
		"HCLOUD_ENDPOINT": info.HetznerEndpoint, "HCLOUD_TOKEN": info.Token, "PROVIDER_REPOSITORY": info.ProviderRepository,
		"CILIUM_REPOSITORY":     info.ChartRepositories["cilium"],
		"HCLOUD_CCM_REPOSITORY": info.ChartRepositories["hcloud-cloud-controller-manager"],
		"TALOS_CCM_REPOSITORY":  strings.Replace(charts, "http://", "oci://", 1) + "/siderolabs/charts",
		"PATH":                  dir + ":/usr/bin:/bin", "ENGINE_INFO": filepath.Join(dir, "engine.json"),
	}
	maps.Copy(c.vars, within("10.213")) // nothing is dialled there: no server exists
	inner.state = filepath.Join(dir, "state")
	programs := map[string]string{"podman": enginePodman, "docker": "#!/bin/sh\nexit 127\n",
		"nerdctl": "#!/bin/sh\nexit 127\n"}
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(c.folder, 0o700); err != nil {
		t.Fatal(err)
	}
	inner.dir = c.folder
	return c
}

// withVars returns the command in the doctorLab's environment.
func (c *doctorLab) withVars(ctx context.Context, args ...string) *exec.Cmd {
	if err := os.WriteFile(c.vars["ENGINE_INFO"], []byte(c.engine), 0o600); err != nil {
		c.t.Fatal(err)
	}
	cmd := c.cmd(ctx, args...)
	for key, value := range c.vars {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	return cmd
}

// within are the four ranges in a /16.
func within(first string) map[string]string {
	return map[string]string{
		"NETWORK_CIDR": first + ".0.0/16", "CONTROL_PLANE_CIDR": first + ".64.0/25", "SERVICE_CIDR": first + ".96.0/20",
		"POD_CIDR": first + ".128.0/17",
	}
}

type finding struct{ Check, Verdict, Reason, WayOut string }

// examine runs the doctor and returns its findings.
func (c *doctorLab) examine(t *testing.T) map[string]finding {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := c.withVars(ctx, "doctor", "--output", "json")
	began := time.Now()
	out, err := cmd.Output()
	c.took = time.Since(began)
	// Values that a chart refuses are wrong input.
	c.failed = cmd.ProcessState.ExitCode() == 1 || cmd.ProcessState.ExitCode() == 2
	var report struct{ Checks []finding }
	if jsonErr := json.Unmarshal(out, &report); jsonErr != nil {
		t.Fatalf("doctor: %v\n%s", err, out)
	}
	found := map[string]finding{}
	for _, f := range report.Checks {
		found[f.Check] = f
	}
	return found
}
