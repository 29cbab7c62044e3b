package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xeipuuv/gojsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/provider/lab/labtest"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

func TestConfigShowNamesEverySource(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	file := "# ours\nlocation: fsn1\nserverType: cx43\nhcloudTokenCommand: pass show \"planted-secret\"\n"
	if err := os.WriteFile("bootstrap.yaml", []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	environment := "SERVER_TYPE=cx53 GITHUB_TOKEN=github-planted-secret " +
		"CILIUM_REPOSITORY=https://me:planted-secret@charts.example.com"
	r := execute(t, t.Context(), dir, environment, "config", "show", "--output", "json", "CONTROL_PLANE_REPLICAS=5")
	var answer struct{ Settings []settings.Setting }
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil || r.code != ExitDone {
		t.Fatalf("%v, %+v", err, r)
	}
	got := map[string]settings.Setting{}
	for _, s := range answer.Settings {
		got[s.Variable+s.Field] = s
	}
	for key, want := range map[string][2]string{
		"LOCATIONlocation":                           {"fsn1", "bootstrap.yaml:2:11"},
		"SERVER_TYPEserverType":                      {"cx53", "environment variable SERVER_TYPE"},
		"CONTROL_PLANE_REPLICAScontrolPlaneReplicas": {"5", "argument CONTROL_PLANE_REPLICAS"},
		"CLUSTER_NAMEclusterName":                    {"k8s", "default"},
		"HCLOUD_TOKEN":                               {"[hidden]", "hcloudTokenCommand"},
		"GITHUB_TOKEN":                               {"[hidden]", "environment variable GITHUB_TOKEN"},
		"hcloudTokenCommand":                         {"[hidden]", "bootstrap.yaml:4:21"},
		"hcloudTokenFile":                            {"", "default"},
	} {
		if s := got[key]; s.Value != want[0] || s.Source != want[1] {
			t.Errorf("%s is %q from %q, want %q from %q", key, s.Value, s.Source, want[0], want[1])
		}
	}
	if s := got["SERVER_TYPEserverType"]; s.Default != "cx33" {
		t.Errorf("the default of SERVER_TYPE is %q", s.Default)
	}
	for _, v := range config.Variables() {
		if _, ok := got[v.Name+v.Field]; !ok {
			t.Errorf("%s is missing", v.Name)
		}
	}
	text := execute(t, t.Context(), dir, environment, "config", "show")
	if text.code != ExitDone || !strings.Contains(text.stdout, "bootstrap.yaml:2:11 (default nbg1)") {
		t.Errorf("%+v", text)
	}
	for _, r := range []ran{r, text} {
		if strings.Contains(r.stdout+r.stderr, "planted-secret") {
			t.Errorf("a secret is in %s", r.stdout)
		}
	}
	if r := execute(t, t.Context(), dir, "", "config", "show", "LOCATION=mars"); r.code != ExitUsage ||
		!strings.Contains(r.stderr, "argument LOCATION=mars") {
		t.Errorf("what is wrong: %+v", r)
	}
}

// configured is what config show prints, by variable.
func configured(t *testing.T, dir string, args ...string) map[string]settings.Setting {
	t.Helper()
	r := execute(t, t.Context(), dir, "", append([]string{"config", "show", "--output", "json"}, args...)...)
	var answer struct{ Settings []settings.Setting }
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil || r.code != ExitDone {
		t.Fatalf("%v, %+v", err, r)
	}
	got := map[string]settings.Setting{}
	for _, s := range answer.Settings {
		got[s.Variable] = s
	}
	return got
}

// In the lab a run has other values. The working directory is in no clone here.
func TestConfigShowTellsWhatARunInTheLabUses(t *testing.T) {
	f, dir := labtest.NewFakeLab(t), t.TempDir()
	state := filepath.Dir(f.Dir)
	got := configured(t, dir, "--lab", "--state-dir", state, "SERVICE_CIDR=10.10.112.0/20",
		"CILIUM_REPOSITORY=https://charts.example.com", "LOCATION=fsn1")
	for name, want := range map[string][2]string{
		"NETWORK_CIDR":         {"127.64.0.0/16", "the lab"},
		"SERVICE_CIDR":         {"127.64.96.0/20", "the lab, in place of 10.10.112.0/20 from argument SERVICE_CIDR"},
		"CILIUM_REPOSITORY":    {"https://charts.example.com", "argument CILIUM_REPOSITORY"},
		"TALOS_CCM_REPOSITORY": {"http://127.65.0.2:8081", "the lab"},
		"LOCATION":             {"fsn1", "argument LOCATION"},
		"CERT_MANAGER_VERSION": {"v1.21.1", "the lab"},
	} {
		if s := got[name]; s.Value != want[0] || s.Source != want[1] || s.Unknown {
			t.Errorf("%s is %+v, want %q from %q", name, s, want[0], want[1])
		}
	}
	if s := configured(t, dir, "--state-dir", state)["NETWORK_CIDR"]; s.Value != "10.10.0.0/16" {
		t.Errorf("without --lab: %+v", s)
	}

	down := configured(t, dir, "--lab", "CILIUM_REPOSITORY=https://charts.example.com")
	for name, unknown := range map[string]bool{"NETWORK_CIDR": true, "CAPI_VERSION": true, "CILIUM_REPOSITORY": false,
		"CILIUM_VERSION": false, "LOCATION": false} {
		if s := down[name]; s.Unknown != unknown || unknown && (s.Value != "" || s.Source != "the lab, which is down") {
			t.Errorf("while it is down %s is %+v", name, s)
		}
	}
	text := execute(t, t.Context(), dir, "", "config", "show", "--lab")
	if says := "bootstrap lab up --state-dir " + filepath.Join(dir, ".slipway/k8s"); text.code != ExitDone ||
		!strings.Contains(text.stdout, says) || strings.Contains(text.stdout, "10.10.") {
		t.Errorf("while it is down: %+v", text)
	}
}

const schemaFile = "../../schemas/bootstrap.schema.json"

func schemaText(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := ui.PrintJSON(&b, settings.Schema()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The schema that editors read is that of the code.
func TestSchemaInRepository(t *testing.T) {
	now := schemaText(t)
	was, err := os.ReadFile(schemaFile)
	if err == nil && bytes.Equal(was, now) {
		return
	}
	if !*update {
		t.Fatalf("%s is not the schema of the code (%v); -update writes it", schemaFile, err)
	}
	if err := os.MkdirAll(filepath.Dir(schemaFile), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(schemaFile, now, 0o644); err != nil {
		t.Fatal(err)
	}
}

// The schema takes what the command takes, and refuses what the command refuses.
func TestSchemaAgreesWithTheCommand(t *testing.T) {
	schema, err := gojsonschema.NewSchema(gojsonschema.NewBytesLoader(schemaText(t)))
	if err != nil {
		t.Fatal(err)
	}
	var defaults strings.Builder
	for _, v := range config.Variables() {
		if v.Default != "" {
			defaults.WriteString(v.Field + ": " + v.Default + "\n")
		}
	}
	for text, good := range map[string]bool{
		"":                                      true,
		defaults.String():                       true,
		"location: hel1\nnodesTimeout: 1h30m\n": true,
		"location:\ncontrolPlaneReplicas:\n":    true, // the defaults
		"controlPlaneReplicas: 5\nhcloudTokenFile: /run/token\n": true,
		"location: mars\n":                            false,
		"locaton: hel1\n":                             false,
		"controlPlaneReplicas: 2\n":                   false,
		"controlPlaneReplicas: many\n":                false,
		"nodesTimeout: soon\n":                        false,
		"talosVersion: 1.12.3\n":                      false,
		"ciliumVersion: v1.18.6\n":                    false,
		"podCidr: everything\n":                       false,
		"clusterName: K8s\n":                          false,
		"hcloudTokenFile: a\nhcloudTokenCommand: b\n": false,
	} {
		path := filepath.Join(t.TempDir(), "bootstrap.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := loadConfig(arguments{Request: session.Request{Options: session.Options{Config: path}}}, nil); (err == nil) != good {
			t.Errorf("%q: the command says %v", text, err)
		}
		var content any = map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &content); err != nil {
			t.Fatal(err)
		}
		result, err := schema.Validate(gojsonschema.NewGoLoader(content))
		if err != nil {
			t.Fatal(err)
		}
		if result.Valid() != good {
			t.Errorf("%q: the schema says %v", text, result.Errors())
		}
	}
}
