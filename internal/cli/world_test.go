package cli

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/provider/lab/labtest"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

func TestInLab(t *testing.T) {
	f := labtest.NewFakeLab(t)
	cfg, err := load(t, "networkCidr: 10.10.0.0/16\nciliumVersion: 1.18.9\n", "", "CAPI_VERSION=v1.13.9 CACPPT_VERSION=v0.5.12")
	if err != nil {
		t.Fatal(err)
	}
	was := cfg.Config
	got, notes, err := lab.Configure(cfg, f.Info)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"NETWORK_CIDR": "127.64.0.0/16", "CONTROL_PLANE_CIDR": "127.64.64.0/25", "POD_CIDR": "127.64.128.0/17",
		"SERVICE_CIDR":        "127.64.96.0/20",
		"PROVIDER_REPOSITORY": "/repository", "CERT_MANAGER_URL": "/repository/cert-manager.yaml",
		"CERT_MANAGER_VERSION": "v1.21.1",
		"CILIUM_REPOSITORY":    "http://127.65.0.2:8081", "TALOS_CCM_REPOSITORY": "http://127.65.0.2:8081",
		"CAPI_VERSION": "v1.13.6", "CACPPT_VERSION": "v0.5.13", "CABPT_VERSION": was.CABPTVersion,
		"CILIUM_VERSION": "1.18.9", // the lab names none, so it is for its repository to say
		"CLUSTER_NAME":   was.ClusterName,
	} {
		if v := settings.Variable(name).Get(got.Config); v != want {
			t.Errorf("%s is %q, want %q", name, v, want)
		}
	}
	want := []string{
		"CACPPT_VERSION is v0.5.13 in the lab, in place of v0.5.12 (argument CACPPT_VERSION=v0.5.12)",
		"CAPI_VERSION is v1.13.6 in the lab, in place of v1.13.9 (argument CAPI_VERSION=v1.13.9)",
		"NETWORK_CIDR is 127.64.0.0/16 in the lab, in place of 10.10.0.0/16 (",
		"known of the configured CACPPT_VERSION, which the lab does not run: Cluster API control plane provider Talos v0.5.12",
	}
	if len(notes) != len(want) {
		t.Fatalf("notes are %q", notes)
	}
	for i := range want {
		if !strings.HasPrefix(notes[i], want[i]) {
			t.Errorf("note %q does not begin with %q", notes[i], want[i])
		}
	}
	if !reflect.DeepEqual(cfg.Config, was) || cfg.Place("podCidr") != "default" {
		t.Error("the configuration of outside was changed")
	}
}

// Who has repositories of his own keeps them, with their versions.
func TestInLabWithOwnRepositories(t *testing.T) {
	f := labtest.NewFakeLab(t)
	cfg, err := load(t, "", "PROVIDER_REPOSITORY=/mine",
		"CILIUM_REPOSITORY=http://127.0.0.1:1 CERT_MANAGER_URL=/c.yaml CERT_MANAGER_VERSION=v1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	got, notes, err := lab.Configure(cfg, f.Info)
	if err != nil || len(notes) != 0 {
		t.Fatalf("notes %q, %v", notes, err)
	}
	if got.ProviderRepository != "/mine" || got.CACPPTVersion != cfg.CACPPTVersion ||
		got.CiliumRepository != "http://127.0.0.1:1" || got.CertManagerURL != "/c.yaml" {
		t.Errorf("got %+v", got.Config)
	}
}

// A backup's configuration names the repositories of the lab, or of the machine, that its cluster was installed from: they
// are not those of this lab. Those that are configured now are.
func TestInLabWithABackupOfAnotherLab(t *testing.T) {
	f := labtest.NewFakeLab(t)
	const backup = "providerRepository: /gone/repository\nciliumRepository: http://127.0.0.9:8081\n" +
		"certManagerUrl: /gone/cert-manager.yaml\ncertManagerVersion: v1.0.0\ncontrolPlaneReplicas: 5\n"
	cfg, err := settings.Load(settings.Sources{Base: []byte(backup), WorkDir: t.TempDir(),
		Values: []settings.Assignment{settings.Assign("TALOS_CCM_REPOSITORY", "http://127.0.0.1:1")}})
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := lab.Configure(cfg, f.Info)
	if err != nil {
		t.Fatal(err)
	}
	if got.ProviderRepository != "/repository" || got.CiliumRepository != "http://127.65.0.2:8081" ||
		got.CertManagerURL != "/repository/cert-manager.yaml" || got.TalosCCMRepository != "http://127.0.0.1:1" ||
		got.ControlPlaneReplicas != 5 {
		t.Errorf("got %+v", got.Config)
	}
}

// TestInLabWithOneOfSeveralVersions: of what a lab offers several versions of, the configured one runs.
func TestInLabWithOneOfSeveralVersions(t *testing.T) {
	f := labtest.NewFakeLab(t)
	f.Info.Versions["CAPH"], f.Info.Offers = "v1.0.7", map[string][]string{"CAPH": {"v1.0.7", "v1.0.12"}}
	for configured, want := range map[string]string{"v1.0.7": "v1.0.7", "v1.0.12": "v1.0.12", "v1.0.9": "v1.0.12", "v1.2.0": "v1.0.7"} {
		cfg := settings.Configuration{Config: config.Defaults()}
		cfg.CAPHVersion = configured
		got, notes, err := lab.Configure(cfg, f.Info)
		told := slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, "CAPH_VERSION") })
		if err != nil || got.CAPHVersion != want || told != (configured != want) {
			t.Errorf("for %s it is %s: notes %q, %v", configured, got.CAPHVersion, notes, err)
		}
	}
}

func TestTheLabSaysWhichKubernetesRuns(t *testing.T) {
	f := labtest.NewFakeLab(t)
	for configured, want := range map[string]bool{"v1.33.13": true, "v1.32.2": false, "v1.32.3": false} {
		cfg := settings.Configuration{Config: config.Defaults()}
		cfg.KubernetesVersion = configured
		f.Info.Kubernetes = "v1.32.3"
		_, notes, err := lab.Configure(cfg, f.Info)
		if says := slices.ContainsFunc(notes, func(n string) bool {
			return strings.Contains(n, "the lab runs Kubernetes v1.32.3 for the configured "+configured)
		}); err != nil || says != want {
			t.Errorf("%s: notes %q, %v", configured, notes, err)
		}
		f.Info.Kubernetes = "" // a lab of before it said so
		if _, notes, err = lab.Configure(cfg, f.Info); err != nil || slices.ContainsFunc(notes, func(n string) bool {
			return strings.Contains(n, "the lab runs Kubernetes")
		}) {
			t.Errorf("%s, of an older lab: notes %q, %v", configured, notes, err)
		}
	}
}

// Of several versions the one of the configured minor counts.
func TestTheLabSaysWhichKubernetesRunsForServers(t *testing.T) {
	f := labtest.NewFakeLab(t)
	f.Info.Kubernetes = "v1.32.3"
	f.Info.KubernetesSets = []lab.ProgramSet{{For: "v1.32.3", Runs: "v1.32.3"}, {For: "v1.33.5", Runs: "v1.33.13"},
		{For: "v1.31.5", Runs: "v1.32.3"}}
	for configured, want := range map[string]string{"v1.33.13": "", "v1.32.2": "", "v1.33.1": "",
		"v1.31.0": "the lab runs Kubernetes v1.32.3 for the configured v1.31.0: it has no source of that minor"} {
		cfg := settings.Configuration{Config: config.Defaults()}
		cfg.KubernetesVersion = configured
		_, notes, err := lab.Configure(cfg, f.Info)
		said := strings.Join(notes, "\n")
		if err != nil || strings.Contains(said, "the lab runs Kubernetes") != (want != "") || !strings.Contains(said, want) {
			t.Errorf("%s: notes %q, %v", configured, notes, err)
		}
	}
}

func TestPrepareImages(t *testing.T) {
	f := labtest.NewFakeLab(t)
	cfg := config.Defaults()
	if err := lab.NewClient(f.Dir).PrepareImages(t.Context(), cfg, quiet); err != nil {
		t.Fatal(err)
	}
	cfg.ImageName = "mine"
	if err := lab.NewClient(f.Dir).PrepareImages(t.Context(), cfg, quiet); err != nil {
		t.Fatal(err)
	}
	want := []string{"PUT /v1/images/talos-amd64-v1.13.9", "PUT /v1/images/talos-arm64-v1.13.9", "PUT /v1/images/mine"}
	if !slices.Equal(f.Asked, want) {
		t.Errorf("asked %q, want %q", f.Asked, want)
	}
}
