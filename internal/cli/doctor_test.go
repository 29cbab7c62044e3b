package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/operation/doctor"
)

// wellWorld is a project and an environment in which the doctor asks nobody
// beyond this machine and finds nothing wrong: charts and providers are here, and
// a kubeconfig stands for the management cluster.
func wellWorld(t *testing.T) (*hetznertest.Server, string) {
	t.Helper()
	market := newMarket(t)
	market.Put("server_types", 1, schema.ServerType{Name: "cx33", Architecture: "x86",
		Prices:    []schema.PricingServerTypePrice{{Location: "nbg1"}},
		Locations: []schema.ServerTypeLocation{{Name: "nbg1", Available: true}}})
	market.Put("images", 99, schema.Image{Name: hcloud.Ptr("ubuntu-24.04"), Type: "system", Architecture: "x86",
		Status: "available"})
	market.Budget(3600, 3000)
	d := config.Defaults()
	charts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/readyz":
			fmt.Fprint(w, "ok")
			return
		case "/version":
			fmt.Fprint(w, `{"gitVersion": "v1.33.7"}`)
			return
		}
		fmt.Fprint(w, "apiVersion: v1\nentries:\n")
		for name, version := range map[string]string{"cilium": d.CiliumVersion,
			"hcloud-cloud-controller-manager": d.HCloudCCMVersion, "talos-cloud-controller-manager": d.TalosCCMVersion} {
			fmt.Fprintf(w, "  %s:\n  - {name: %s, version: %s}\n", name, name, version)
		}
	}))
	t.Cleanup(charts.Close)
	repository := t.TempDir()
	for label, version := range map[string]string{
		"cluster-api/core-components.yaml": d.CAPIVersion, "bootstrap-talos/bootstrap-components.yaml": d.CABPTVersion,
		"control-plane-talos/control-plane-components.yaml":     d.CACPPTVersion,
		"infrastructure-hetzner/infrastructure-components.yaml": d.CAPHVersion,
	} {
		name, file, _ := strings.Cut(label, "/")
		dir := filepath.Join(repository, name, version)
		series := strings.Split(version[1:], ".")
		metadata := fmt.Sprintf("releaseSeries: [{major: %s, minor: %s, contract: v1beta1}]\n", series[0], series[1])
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{file: "{}", "metadata.yaml": metadata} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: x, cluster: {server: %q}}]\ncontexts: [{name: "+
		"x, context: {cluster: x, user: x}}]\ncurrent-context: x\nusers: [{name: x, user: {}}]\n", charts.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return market, inProject(market) + " MANAGEMENT_KUBECONFIG=" + kubeconfig + " PROVIDER_REPOSITORY=" + repository +
		" CILIUM_REPOSITORY=" + charts.URL + " HCLOUD_CCM_REPOSITORY=" + charts.URL + " TALOS_CCM_REPOSITORY=" + charts.URL +
		" NETWORK_CIDR=10.213.0.0/16 CONTROL_PLANE_CIDR=10.213.64.0/25 SERVICE_CIDR=10.213.96.0/20 POD_CIDR=10.213.128.0/17"
}

func TestDoctorByCommand(t *testing.T) {
	market, environment := wellWorld(t)
	dir := t.TempDir()
	t.Chdir(dir)
	r := execute(t, t.Context(), dir, environment, "doctor", "--output", "json")
	var report struct {
		Checks []doctor.Finding
		Failed int
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.code != ExitDone || report.Failed != 0 ||
		len(report.Checks) < 15 {
		t.Fatalf("%v, %+v", err, r)
	}
	all, ok := len(report.Checks), doctor.Count(report.Checks, doctor.OK)
	for _, says := range []string{"hetzner-budget", "→ compare with the project's Limits",
		fmt.Sprintf("%d checks: %d ok, 0 failed, %d unknown", all, ok, all-ok)} {
		if r := execute(t, t.Context(), dir, environment, "doctor"); r.code != ExitDone || !strings.Contains(r.stdout, says) {
			t.Errorf("exit %d; it does not say %q:\n%s", r.code, says, r.stdout)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("it made %v, %v", entries, err)
	}
	market.ReadOnly()
	market.Budget(120, 30)
	r = execute(t, t.Context(), dir, environment, "doctor")
	if r.code != ExitFailed || !strings.Contains(r.stderr, "2 checks of the doctor failed") ||
		!strings.Contains(r.stdout, "reading only") {
		t.Errorf("with two failures: %+v", r)
	}
	for line := range strings.Lines(at(t, dir, environment, "", "doctor").stdout) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n >= 100 {
			t.Errorf("%d columns in a terminal of 100: %q", n, line)
		}
	}
}

// A run that makes what costs money is preceded by the doctor, who stops it; one
// that does not is not kept waiting.
func TestTheDoctorComesBeforeASpendingRun(t *testing.T) {
	market, environment := wellWorld(t)
	dir := t.TempDir()
	t.Chdir(dir)
	market.Budget(120, 30)
	writes := func() int {
		n := 0
		for _, w := range market.Writes() {
			if w != "DELETE /placement_groups/0" { // the question whether the token may write
				n++
			}
		}
		return n
	}
	r := execute(t, t.Context(), dir, environment, "image")
	if r.code != ExitFailed || !strings.Contains(r.stderr,
		"1 check of the doctor failed: nothing was created; --skip-doctor") || !strings.Contains(r.stdout, "30 of 120") {
		t.Errorf("%+v", r)
	}
	if writes() > 0 || strings.Contains(r.stdout, "preflight") {
		t.Errorf("it wrote %v: %+v", market.Writes(), r)
	}
	if r := execute(t, t.Context(), dir, environment, "image", "--skip-doctor",
		"IMAGE_TIMEOUT=1s"); !strings.Contains(r.stdout, "image: begins") || strings.Contains(r.stdout, "doctor") {
		t.Errorf("without the doctor: %+v", r)
	}
	if r := execute(t, t.Context(), dir, environment, "preflight"); r.code != ExitDone ||
		strings.Contains(r.stdout, "doctor") {
		t.Errorf("preflight spends nothing: %+v", r)
	}
	if r := execute(t, t.Context(), dir, environment, "status", "--skip-doctor"); r.code != ExitUsage {
		t.Errorf("status: %+v", r)
	}
}
