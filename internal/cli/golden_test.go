package cli

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/restore"
	"github.com/slipway-k8s/slipway/internal/state/backupfile"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// goldenFolder has what commit 5f923a4f of November 2026, which recorded no version set in state folders, left of a
// cluster in the lab: the state folder after bootstrap, with a backup of then, and after a run of all in the same
// folder. Keys and tokens in the backup are the lab's.
const goldenFolder = "testdata/golden"

// goldenBackup is the backup, read to its end.
func goldenBackup(t *testing.T) *backup.Contents {
	t.Helper()
	packed, err := os.Open(filepath.Join(goldenFolder, "k8s.slipway.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	r, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "k8s.slipway"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	contents, _, err := backupfile.Access{Config: config.Defaults(), Environment: map[string]string{}, WorkDir: dir,
		Hide: &redact.Redactor{}}.File("k8s.slipway", backupfile.Accept{Acts: true, Unencrypted: true}).Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return contents
}

// goldenWork is a folder to work in with the files of the cluster and its configuration but for the versions, which a
// set gives: those of the lab's stand-ins alone are its own.
func goldenWork(t *testing.T, of *backup.Contents) string {
	t.Helper()
	dir := t.TempDir()
	var values map[string]any
	if err := yaml.Unmarshal(of.Config, &values); err != nil {
		t.Fatal(err)
	}
	delete(values, settings.Variable("VERSIONS").Field)
	set, _ := config.Shipped().Set("guide")
	for name := range set.Versions {
		if field := settings.Variable(name).Field; of.Header.Versions[name] == set.Versions[name] {
			delete(values, field)
		}
	}
	written, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(of.Files, backup.File{Name: "bootstrap.yaml", Data: written}) {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestGoldenState: while new clusters get the set 2026-11, a state folder of an older release keeps the set guide, none
// of the steps that it records is done again but hcloud-ccm, whose built-in values were changed since, and those are left
// that it has not come to. The lab's own management cluster is kind's outside of it.
func TestGoldenState(t *testing.T) {
	dir := goldenWork(t, goldenBackup(t))
	for name, left := range map[string][]string{
		"before-pivot": {"kind-create", "hcloud-ccm", "wait-machines", "providers", "pivot", "access", "token", "firewall", "firewall-apply",
			"clean"},
		"after-pivot": {"hcloud-ccm"},
	} {
		folder := statedir.Dir(filepath.Join(dir, name))
		if err := os.CopyFS(string(folder), os.DirFS(filepath.Join(goldenFolder, name))); err != nil {
			t.Fatal(err)
		}
		of := statedir.Owner{Cluster: "k8s", Versions: "2026-11"}
		if set, made := folder.VersionSet(t.Context(), of); set != "" || !made {
			t.Errorf("%s: the set is %q of a cluster: %t", name, set, made)
		}
		plan := func() ran {
			return execute(t, t.Context(), dir, "", "plan", "all", "--state-dir", string(folder),
				"--output", "json")
		}
		if r := plan(); r.code != ExitUsage || !strings.Contains(r.stderr, "lab") {
			t.Errorf("%s: a plan for Hetzner of a cluster in the lab: %+v", name, r)
		}
		if err := os.Remove(folder.Path("world")); err != nil { // the lab itself is not there to be asked
			t.Fatal(err)
		}
		r := plan()
		var f forecast.Forecast
		if err := json.Unmarshal([]byte(r.stdout), &f); err != nil || r.code != ExitDone {
			t.Fatalf("%s: %v, %+v", name, err, r)
		}
		var runs []string
		for _, s := range f.Steps {
			if s.Would == flow.ActionRun {
				runs = append(runs, s.Step)
			}
			if s.Step == "kind-create" && s.Would == flow.ActionRun && (s.BuiltIn || s.Expected == 0) {
				t.Errorf("%s: %s is not expected to take as long as in the run of then: %+v", name, s.Step, s)
			}
			for _, c := range s.Changes {
				if (c.Field != "provider" || c.Was != "lab") && s.Step != "hcloud-ccm" {
					t.Errorf("%s: step %s has changed: %+v", name, s.Step, c)
				}
			}
		}
		if !slices.Equal(runs, left) {
			t.Errorf("%s: %v would run, want %v", name, runs, left)
		}
		var said []string
		for _, remark := range f.Remarks {
			said = append(said, remark.String())
		}
		if text := strings.Join(said, "\n"); !strings.Contains(text, "Kubernetes 1.32 gets no fixes") ||
			!strings.Contains(text, "Cluster API 1.10 gets no fixes") {
			t.Errorf("%s: the versions are not those of guide: %s", name, text)
		}
	}
}

// TestGoldenBackup: a backup of an older release opens, says its versions, and is restored with the providers of its
// Cluster API, v1.10, whatever new clusters get.
func TestGoldenBackup(t *testing.T) {
	contents := goldenBackup(t)
	set, _ := config.Shipped().Set("guide")
	for name, want := range set.Versions {
		switch name {
		case "CABPT_VERSION":
			want = "v0.6.12" // as the lab has it
		case "CACPPT_VERSION":
			want = "v0.5.13"
		}
		if is := contents.Header.Versions[name]; is != want {
			t.Errorf("the backup has %s %q, want %s", name, is, want)
		}
	}
	for _, named := range []string{"", "current"} {
		from := settings.Sources{Base: contents.Config, WorkDir: t.TempDir(), Table: withDefault("2026-11")}
		if named != "" {
			from.Values = []settings.Assignment{settings.Assign("VERSIONS", named)}
		}
		cfg, err := settings.Load(from)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Versions != "guide" || capi.ContractOfCore(cfg.CAPIVersion) != capi.ContractV1Beta1 {
			t.Errorf("with VERSIONS=%s it gets the set %s and Cluster API %s", named, cfg.Versions, cfg.CAPIVersion)
		}
		want := map[string]string{"cluster-api": "v1.10.10", "bootstrap-talos": "v0.6.12", "control-plane-talos": "v0.5.13",
			"infrastructure-hetzner": "v1.0.7"}
		if is := capi.ProviderVersions(cfg.Config); !maps.Equal(is, want) {
			t.Errorf("with VERSIONS=%s it gets the providers %v", named, is)
		}
		tools := platform.Tools{Management: noManagement{}}
		if _, err := restore.New(cfg.Config, tools, backup.Cluster{Contents: contents}); err != nil {
			t.Errorf("with VERSIONS=%s: %v", named, err)
		}
	}
}
