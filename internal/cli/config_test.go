package cli

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// configFile writes a bootstrap.yaml and returns its path.
func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bootstrap.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// load loads a configuration from a file, an environment ("A=1 B=2") and
// arguments of the same form.
func load(t *testing.T, file, environment, args string) (settings.Configuration, error) {
	t.Helper()
	a, err := parseArguments(append(strings.Fields(args), "--config", configFile(t, file)))
	if err != nil {
		t.Fatal(err)
	}
	return loadConfig(a, settings.Environ(strings.Fields(environment)))
}

func TestPrecedence(t *testing.T) {
	const file = "location: fsn1\nserverType: cx43\nloadBalancerType: lb21\nnodesTimeout: 7m # a comment\n"
	c, err := load(t, file, "SERVER_TYPE=cx53 LOAD_BALANCER_TYPE=lb31 UNRELATED=x IMAGE_NAME=", "LOAD_BALANCER_TYPE=lb11")
	if err != nil {
		t.Fatal(err)
	}
	if c.Location != "fsn1" || c.ServerType != "cx53" || c.LoadBalancerType != "lb11" || c.NodesTimeout.String() != "7m" ||
		c.ClusterName != "k8s" {
		t.Errorf("got %+v", c.Config)
	}
	for field, want := range map[string]string{
		"location": "bootstrap.yaml:1:11", "serverType": "environment variable SERVER_TYPE",
		"loadBalancerType": "argument LOAD_BALANCER_TYPE=lb11", "clusterName": "default",
	} {
		if got := c.Place(field); !strings.HasSuffix(got, want) {
			t.Errorf("%s comes from %q, want %q", field, got, want)
		}
	}
}

func TestFileForms(t *testing.T) {
	for name, file := range map[string]string{
		"empty": "", "comment": "# nothing\n", "null": "~\n", "empty value": "location:\n", "quotes": `location: "nbg1"`,
		"anchors": "location: &here nbg1\nclusterName: k8s\n", "marker": "---\nlocation: nbg1\n",
		"json": `{"location": "nbg1"}`,
	} {
		c, err := load(t, file, "", "")
		if err != nil || !reflect.DeepEqual(c.Config, config.Defaults()) {
			t.Errorf("%s: %+v, %v", name, c.Config, err)
		}
	}
	// A manifest has the name without quotes, so that YAML would read another value there.
	if _, err := load(t, "clusterName: no\n", "", ""); err == nil || !strings.Contains(err.Error(), "choose another name") {
		t.Errorf("a name that YAML reads as false: %v", err)
	}
}

func TestEveryVariableIsReadFromEverywhere(t *testing.T) {
	for _, v := range config.Variables() {
		value := v.Default
		if value == "" {
			continue
		}
		if c, err := load(t, v.Field+": "+value+"\n", "", ""); err != nil || v.Get(c.Config) != value {
			t.Errorf("%s in the file: %q, %v", v.Field, v.Get(c.Config), err)
		}
		if c, err := load(t, "", v.Name+"="+value, ""); err != nil || c.Places[v.Field] == "" {
			t.Errorf("%s in the environment: %v, %v", v.Name, c.Places, err)
		}
	}
}

func TestBadConfigurationNamesItsPlace(t *testing.T) {
	for name, tc := range map[string]struct{ file, env, args, says string }{
		"unknown key": {file: "location: nbg1\nserverTyp: cx33\n",
			says: `bootstrap.yaml:2:1: there is no key "serverTyp"; did you mean serverType?`},
		"key in capitals": {file: "LOCATION: nbg1\n",
			says: `bootstrap.yaml:1:1: there is no key "LOCATION"; did you mean location?`},
		"a variable's name": {file: "SERVER_TYPE: cx33\n",
			says: `bootstrap.yaml:1:1: there is no key "SERVER_TYPE"; did you mean serverType?`},
		"words with dashes": {file: "control-plane-cidr: 10.10.64.0/25\n", says: "did you mean controlPlaneCidr?"},
		"two fields": {file: "podCidr: 10.10.64.0/18\n",
			says: "bootstrap.yaml:1:10: serviceCidr: \"10.10.96.0/20\" overlaps podCidr 10.10.64.0/18"},
		"the other's default": {file: "podCidr: 10.10.64.0/18\n", says: "ranges of their own (serviceCidr has its default)"},
		"two written fields": {file: "podCidr: 10.10.128.0/17\nserviceCidr: 10.10.128.0/20\n",
			says: "bootstrap.yaml:1:10: serviceCidr"},
		"versions": {args: "TALOS_VERSION=v1.7.0", says: "argument TALOS_VERSION=v1.7.0: kubernetesVersion"},
		"indented key": {file: "location:\n  name: nbg1\n",
			says: "bootstrap.yaml:2:3: location takes one plain value"},
		"list": {file: "clusterName: [k8s]\n", says: "bootstrap.yaml:1:14: clusterName takes one plain value"},
		"wrong type": {file: "controlPlaneReplicas: three\n",
			says: `bootstrap.yaml:1:23: CONTROL_PLANE_REPLICAS: "three"`},
		"invalid value": {file: "\n\ncontrolPlaneReplicas: 2\n", says: "bootstrap.yaml:3:23: controlPlaneReplicas"},
		"twice": {file: "location: fsn1\nlocation: nbg1\n",
			says: "bootstrap.yaml:2:1: location is given a second time (first in line 1)"},
		"second document": {file: "location: fsn1\n---\nlocation: nbg1\n", says: "bootstrap.yaml:2:1: a second document"},
		"no mapping":      {file: "- location\n", says: "bootstrap.yaml:1:1: the configuration is a mapping"},
		"broken":          {file: "location: nbg1\nserverType: [\n", says: "bootstrap.yaml: yaml: line 2"},
		"two tokens": {file: "hcloudTokenFile: a\nhcloudTokenCommand: b\n",
			says: "bootstrap.yaml:2:1: hcloudTokenFile and hcloudTokenCommand are both given"},
		"environment":        {env: "LOCATION=mars", says: "environment variable LOCATION: location"},
		"environment's type": {env: "NODES_TIMEOUT=soon", says: "environment variable NODES_TIMEOUT: NODES_TIMEOUT"},
		"argument": {args: "CONTROL_PLANE_CIDR=10.11.0.0/25",
			says: "argument CONTROL_PLANE_CIDR=10.11.0.0/25: controlPlaneCidr"},
		"default made bad": {file: "networkCidr: 10.20.0.0/16\n",
			says: "bootstrap.yaml:1:14: controlPlaneCidr: \"10.10.64.0/25\" is not inside networkCidr 10.20.0.0/16"},
		"even from two sides": {env: "LOCATION=mars", args: "SERVER_TYPE=", says: "argument SERVER_TYPE=: serverType"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, tc.file, tc.env, tc.args)
			if _, ok := errors.AsType[*usage.Error](err); !ok {
				t.Fatalf("error is %v (%T)", err, err)
			}
			if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %q does not say %q", err, tc.says)
			}
		})
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	_, err := load(t, "lokation: x\nserverTyp: y\n", "", "")
	for _, says := range []string{":1:1:", ":2:1:"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("error %q does not say %q", err, says)
		}
	}
}

// A token under a wrong key must not be repeated on the screen.
func TestValuesOfUnknownKeysAreNotRepeated(t *testing.T) {
	_, err := load(t, "hcloudToken: hunter2hunter2\n", "", "")
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "hcloudTokenFile") {
		t.Errorf("error is %v", err)
	}
}

func TestMissingFile(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := loadConfig(arguments{}, nil); err != nil {
		t.Errorf("without a file the defaults count, but: %v", err)
	}
	_, err := loadConfig(arguments{Request: session.Request{Options: session.Options{Config: "nowhere.yaml"}}}, nil)
	if _, ok := errors.AsType[*usage.Error](err); !ok || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
	if err := os.WriteFile(settings.DefaultConfigFile, []byte("location: hel1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := loadConfig(arguments{}, nil); err != nil || c.Location != "hel1" {
		t.Errorf("%s is not read: %q, %v", settings.DefaultConfigFile, c.Location, err)
	}
}

func TestToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("  from-a-file \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	many := filepath.Join(t.TempDir(), "page")
	if err := os.WriteFile(many, []byte("<html>secret page</html>"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		config      settings.Configuration
		environment string
		want, says  string
	}{
		"environment": {environment: "HCLOUD_TOKEN=from-the-environment", want: "from-the-environment"},
		"file":        {config: settings.Configuration{TokenFile: file}, want: "from-a-file"},
		"file at home": {config: settings.Configuration{TokenFile: "~/" + filepath.Base(file)}, environment: "HOME=" +
			filepath.Dir(file), want: "from-a-file"},
		"command":         {config: settings.Configuration{TokenCommand: "echo from-a-command"}, want: "from-a-command"},
		"environment won": {config: settings.Configuration{TokenFile: file}, environment: "HCLOUD_TOKEN=env", want: "env"},
		"none":            {says: "HCLOUD_TOKEN is not set"},
		"no file":         {config: settings.Configuration{TokenFile: file + "x"}, says: "no such file"},
		"command failed": {config: settings.Configuration{TokenCommand: "echo hidden; echo locked >&2; exit 3"},
			says: "exit status 3: locked"},
		"command silent": {config: settings.Configuration{TokenCommand: "true"}, says: "it is empty"},
		"several words":  {config: settings.Configuration{TokenFile: many}, says: "2 words instead of one"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.config.Token(t.Context(), settings.Environ(strings.Fields(tc.environment)))
			if tc.says == "" {
				if err != nil || got.Reveal() != tc.want {
					t.Fatalf("got %q, %v", got.Reveal(), err)
				}
				return
			}
			if _, ok := errors.AsType[*usage.Error](err); !ok || !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("error %v does not say %q", err, tc.says)
			}
			if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "hidden") {
				t.Errorf("what was read is repeated in %q", err)
			}
		})
	}
}

func TestNoTokenSaysTwoLines(t *testing.T) {
	lines := strings.Split(settings.ErrNoToken.Error(), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "HCLOUD_TOKEN") || !strings.Contains(lines[1], "--lab") {
		t.Errorf("it says %q", lines)
	}
}

// A token may be the user name of an address, and is hidden as a password is.
func TestATokenAsAUserNameIsHidden(t *testing.T) {
	const token = "ghp_planted0123456789"
	for _, user := range []string{token + "@", token + ":x-oauth-basic@", "me:" + token + "@"} {
		dir := t.TempDir()
		t.Chdir(dir)
		repository := "CILIUM_REPOSITORY=https://" + user + "charts.example.com"
		for _, args := range [][]string{{"config", "show"}, {"config", "show", "LOCATION=nowhere"}, {"restore", "missing"},
			{"all", "LOCATION=nowhere"}} {
			r := execute(t, t.Context(), dir, "", append(args, repository)...)
			if strings.Contains(r.stdout+r.stderr, "planted") {
				t.Errorf("%v: %+v", args, r)
			}
		}
		a, err := parseArguments([]string{repository})
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := loadConfig(a, nil)
		if err != nil {
			t.Fatal(err)
		}
		if passwords := cfg.Passwords(); !slices.Contains(passwords, token) {
			t.Errorf("of %s it learns %v", user, passwords)
		}
	}
}
