package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/provider/kind"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

func TestParseArguments(t *testing.T) {
	a, err := parseArguments(strings.Fields("image --lab TALOS_VERSION=v1.12.3 --parallel=2 cilium CLUSTER_NAME=a " +
		"CLUSTER_NAME=b --output json --state-dir x"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.Targets, []string{"image", "cilium"}) {
		t.Errorf("targets are %q", a.Targets)
	}
	o := a
	if !o.Lab || o.Parallel != 2 || o.Output != "json" || o.StateDir != "x" || o.LabLatency != "fast" {
		t.Errorf("options are %+v", o)
	}
	var values []string
	for _, v := range a.Values {
		values = append(values, v.Variable.Name+"="+v.Value)
	}
	if !slices.Equal(values, []string{"TALOS_VERSION=v1.12.3", "CLUSTER_NAME=a", "CLUSTER_NAME=b"}) {
		t.Errorf("values are %q", values)
	}
	a, err = parseArguments([]string{"OIDC_ISSUER_URL=https://a/?b=c", "IMAGE_NAME="})
	if err != nil || a.Values[0].Value != "https://a/?b=c" || a.Values[1].Value != "" {
		t.Errorf("got %+v, %v", a.Values, err)
	}
}

func TestParseArgumentsRefuses(t *testing.T) {
	for args, says := range map[string]string{
		"--labb":              "no flag --labb; did you mean --lab?",
		"image --paralell 2":  "did you mean --parallel?",
		"--parallel":          "flag needs an argument: --parallel",
		"--parallel many":     "--parallel",
		"--parallel -1":       "negative",
		"--output yaml":       `"yaml" is neither text nor json`,
		"--lab-latency slow":  "neither fast nor real",
		"--lab-api 2025-01":   "none of 2026-02, 2026-11",
		"--lab LOCATION":      "write LOCATION=value",
		"=x":                  `"=x" is not KEY=VALUE`,
		"talos_version=v1":    "did you mean TALOS_VERSION?",
		"talos-version=v1":    "did you mean TALOS_VERSION?",
		"1=2":                 "is not KEY=VALUE",
		"SERVERTYPE=cx33":     "no variable SERVERTYPE; did you mean SERVER_TYPE?",
		"CLUSTER=k8s":         "did you mean CLUSTER_NAME?",
		"ZEBRA=1":             "no variable ZEBRA: bootstrap help variables lists them all",
		"image --images":      "--images goes with the target destroy, and no other",
		"status -n":           "goes with the target adopt or destroy",
		"image -n --prune":    "does not go with --prune",
		"image pivot --prune": "--prune goes with the target image or lab build, and no other",
		"--abort":             "--abort goes with the target pivot or upgrade, and no other",
		"lab up --check":      "--check goes with the target lab build, and no other",
		"lab":                 "lab takes one of: up, status, down, build, save, load, fault",
		"lab dwon":            `lab cannot "dwon"; did you mean down?`,
		"lab up now":          `lab up cannot be combined with "now"`,
		"status image":        `status cannot be combined with "image"`,
		"replace-machine":     "replace-machine needs NAME: write replace-machine NAME",
		"rotate":              "rotate takes one of: ca",
		"rotate ca now":       `rotate ca cannot be combined with "now"`,
		"replace-machine a b": `cannot be combined with "b"`,
		"HCLOUD_TOKEN=hunter": "HCLOUD_TOKEN is not taken as an argument",
	} {
		_, err := parseArguments(strings.Fields(args))
		if _, ok := errors.AsType[*usage.Error](err); !ok {
			t.Errorf("%s: error is %v (%T)", args, err, err)
			continue
		}
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %q does not say %q", args, err, says)
		}
		if strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: the value is repeated in %q", args, err)
		}
	}
}

func offlinePlan(t *testing.T) *steps.Plan {
	t.Helper()
	plan, err := steps.New(config.Defaults(), platform.Tools{Management: &kind.Provider{}})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestResolveTargets(t *testing.T) {
	plan := offlinePlan(t)
	for _, targets := range [][]string{nil, {"bootstrap"}} {
		got, err := session.ResolveTargets(targets, plan, false, commands()...)
		if err != nil || !slices.Equal(got, plan.Bootstrap) {
			t.Errorf("%v: %v, %v", targets, got, err)
		}
	}
	if got, err := session.ResolveTargets([]string{"all"}, plan, false, commands()...); err != nil || !slices.Equal(got, plan.All) {
		t.Errorf("all: %v, %v", got, err)
	}
	if got, err := session.ResolveTargets([]string{"image", "cilium"}, plan, false, commands()...); err != nil ||
		!slices.Equal(got, []string{"image", "cilium"}) {
		t.Errorf("got %v, %v", got, err)
	}
	for target, says := range map[string]string{
		"wait-node": "did you mean wait-nodes?",
		"boostrap":  "did you mean bootstrap?",
		"stauts":    "did you mean status?",
		"xylophone": "there are bootstrap, all, adopt, destroy",
		"wat":       "there are bootstrap, all, adopt, destroy",
		"destroy":   "cannot be combined",
		"status":    "cannot be combined",
	} {
		_, err := session.ResolveTargets([]string{"image", target}, plan, false, commands()...)
		if _, ok := errors.AsType[*usage.Error](err); !ok || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v does not say %q", target, err, says)
		}
	}
}

func TestHelpNamesEverything(t *testing.T) {
	screen := []string{"--lab", "--state-dir", "130 interrupted", "help variables"}
	flags := []string{"--lab-until-gone", "--parallel", "--skip-doctor"}
	var docs, variables []string
	walk(newRoot(&call{only: true}, offlinePlan(t)), func(cmd *cobra.Command) {
		if cmd.HasParent() && !cmd.Parent().HasParent() {
			screen = append(screen, cmd.Name())
		}
	})
	for _, s := range offlinePlan(t).Graph.Steps() {
		docs = append(docs, s.Name+" ", s.Doc)
	}
	for _, v := range config.Variables() {
		variables = append(variables, v.Name+" ")
	}
	for args, want := range map[string][]string{"--help": screen, "help flags": flags, "help steps": docs,
		"help variables": append(variables, "HCLOUD_TOKEN ")} {
		r := execute(t, t.Context(), t.TempDir(), "", strings.Fields(args)...)
		for _, w := range want {
			if r.code != ExitDone || !strings.Contains(r.stdout, w) {
				t.Errorf("%s does not name %q: %+v", args, w, r)
			}
		}
	}
}
