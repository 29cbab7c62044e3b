package lab_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/provider/lab/labtest"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

func TestLabClient(t *testing.T) {
	f := labtest.NewFakeLab(t)
	c := lab.NewClient(f.Dir)
	info, err := c.Info(t.Context())
	if err != nil || info.Token != f.Info.Token || info.Versions["CACPPT"] != "v0.5.13" {
		t.Errorf("got %+v, %v", info, err)
	}
	if err := c.EnsureImage(t.Context(), "talos-amd64-v1.12.2"); err != nil {
		t.Error(err)
	}
	if !slices.Contains(f.Asked, "PUT /v1/images/talos-amd64-v1.12.2") {
		t.Errorf("asked: %q", f.Asked)
	}
}

// A lab that is up is given programs only for a minor that it has none of.
func TestKubernetesForALabThatIsUp(t *testing.T) {
	f := labtest.NewFakeLab(t)
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	environment := settings.Environ(os.Environ())
	l := &lab.Lab{Dir: f.Dir, Client: lab.NewClient(f.Dir), WorkDir: dir, Environment: environment,
		Programs: lab.Programs{Config: config.Config{LabPrograms: config.LabProgramsSource}}}
	var said []string
	add := func(version string) {
		t.Helper()
		say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
		if _, err := l.Add(t.Context(), lab.Kubernetes(), version, say); err != nil {
			t.Fatal(err)
		}
	}
	add("v1.31.5") // an older lab runs one version
	f.Info.KubernetesSets = []lab.ProgramSet{{For: "v1.32.3", Runs: "v1.32.3"}}
	add("v1.32.2")
	if len(f.Kubernetes) != 0 || len(said) != 0 {
		t.Errorf("it was given %v, and the command said %q", f.Kubernetes, said)
	}
	add("v1.31.5")
	recorded, err := os.ReadFile(filepath.Join(f.Dir, "kubernetes"))
	if err != nil || string(recorded) != "v1.31.5\n" || !filepath.IsAbs(f.Kubernetes["v1.31.5"]) {
		t.Errorf("it was given %v, recorded is %q, %v", f.Kubernetes, recorded, err)
	}
	if len(said) != 1 || said[0] != "servers of Kubernetes v1.31.5 run v1.32.3 in this lab: its source has no v1.31" {
		t.Errorf("it said %q", said)
	}
}

func TestLabManagement(t *testing.T) {
	f := labtest.NewFakeLab(t)
	m := lab.Management{Client: lab.NewClient(f.Dir), Kubernetes: "v1.35.4"}
	if there, err := m.Exists(t.Context(), "k8s-mgmt"); there || err != nil {
		t.Errorf("before: %v, %v", there, err)
	}
	if kubeconfig, err := m.Ensure(t.Context(), "k8s-mgmt", func(string, ...any) {}); err != nil ||
		!strings.Contains(string(kubeconfig), "k8s-mgmt") || f.Created != "v1.35.4" {
		t.Errorf("ensure: %s of %s, %v", kubeconfig, f.Created, err)
	}
	if there, err := m.Exists(t.Context(), "k8s-mgmt"); !there || err != nil {
		t.Errorf("then: %v, %v", there, err)
	}
	// An error is not an answer.
	if there, err := m.Exists(t.Context(), "broken"); there || err == nil ||
		!strings.Contains(err.Error(), "etcd is on fire") {
		t.Errorf("broken: %v, %v", there, err)
	}
	if err := m.Delete(t.Context(), "k8s-mgmt"); err != nil || f.Managements["k8s-mgmt"] {
		t.Errorf("delete: %v", err)
	}
	f.Server.Close()
	if _, err := m.Exists(t.Context(), "k8s-mgmt"); !errors.Is(err, lab.ErrDown) {
		t.Errorf("of a lab that is down: %v", err)
	}
}

func TestLabDown(t *testing.T) {
	f := labtest.NewFakeLab(t)
	l := &lab.Lab{Dir: f.Dir, Client: lab.NewClient(f.Dir)}
	if was, err := l.Down(t.Context()); !was || err != nil {
		t.Errorf("down: %v, %v", was, err)
	}
	if was, err := l.Down(t.Context()); was || err != nil {
		t.Errorf("a second time: %v, %v", was, err)
	}
	if _, err := l.Answering(t.Context()); !errors.Is(err, lab.ErrDown) {
		t.Errorf("it answers: %v", err)
	}
}

// Where a folder's path is too long for a socket, a file names another one.
func TestLabSocketElsewhere(t *testing.T) {
	f := labtest.NewFakeLab(t)
	deep := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30))
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(deep, "lab.sock.path"), []byte(filepath.Join(f.Dir, "lab.sock")+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := lab.NewClient(deep).Info(t.Context()); err != nil {
		t.Error(err)
	}
}

// A lab that is up is used, whatever the sources say.
func TestLabUpUsesWhatIsUp(t *testing.T) {
	f := labtest.NewFakeLab(t)
	l := &lab.Lab{Dir: f.Dir, Client: lab.NewClient(f.Dir), WorkDir: t.TempDir()}
	if info, err := l.Up(t.Context(), func(string, ...any) {}); err != nil || info.Token != f.Info.Token {
		t.Errorf("got %+v, %v", info, err)
	}
	f.Server.Close()
	if _, err := l.Up(t.Context(), func(string, ...any) {}); err == nil ||
		!strings.Contains(err.Error(), "in no clone of Slipway") ||
		!strings.Contains(err.Error(), "can be used from any folder: in the clone, run bootstrap lab up --state-dir "+
			filepath.Dir(f.Dir)) {
		t.Errorf("without sources: %v", err)
	}
}

// The lab's charts are on offer as the configured versions; an older lab keeps its own.
func TestOfferCharts(t *testing.T) {
	f := labtest.NewFakeLab(t)
	c := lab.NewClient(f.Dir)
	cfg := config.Config{CiliumVersion: "1.19.5", TalosCCMVersion: "0.5.6"}
	if info, err := c.OfferCharts(t.Context(), cfg); err != nil || info.Offers != nil {
		t.Errorf("an older lab offers %v, %v", info.Offers, err)
	}
	f.Info.Offers = map[string][]string{"CILIUM": {"1.18.6"}, "TALOS_CCM": {"0.5.6"}}
	f.Asked = nil
	for range 2 {
		info, err := c.OfferCharts(t.Context(), cfg)
		if err != nil || !slices.Equal(info.Offers["CILIUM"], []string{"1.18.6", "1.19.5"}) || len(info.Offers["TALOS_CCM"]) != 1 {
			t.Errorf("it offers %v, %v", info.Offers, err)
		}
	}
	if n := strings.Count(strings.Join(f.Asked, "\n"), "PUT /v1/charts"); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
}
