package cli

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// completed asks the command, as a shell's script does, what it offers after some words.
func completed(t *testing.T, line string) string {
	t.Helper()
	r := execute(t, t.Context(), t.TempDir(), "", append([]string{"__complete"}, strings.Split(line, " ")...)...)
	if r.code != ExitDone {
		t.Fatalf("%q: %+v", line, r)
	}
	var words []string
	for offer := range strings.Lines(r.stdout) {
		if word, _, _ := strings.Cut(strings.TrimSpace(offer), "\t"); word != "" && !strings.HasPrefix(word, ":") {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

func TestCompletes(t *testing.T) {
	for line, want := range map[string]string{
		"hclo":                                "hcloud-ccm",
		"wait-":                               "wait-cp wait-nodes wait-workers wait-machines wait-releases",
		"lab ":                                "up status down build save load fault",
		"lab fault ":                          "add list remove",
		"completion ":                         "bash zsh fish powershell",
		"lab fault add ma":                    "management-away",
		"lab fault add ":                      strings.Join(lab.FaultKindNames(), " "),
		"lab fault add slow-boot ":            "delay= server= skip= times= probability= seed= for=",
		"lab fault add slow-boot delay=10s s": "server= skip= seed=",
		"lab fault add slow-boot --lab-lat":   "--lab-latency",
		"lab fault add error --output ":       "text json",
		"--lab lab fault add vanish-server ":  "server= seed= for=",
		"config s":                            "show schema",
		"help talosc":                         "talosconfig",
		"help lab fault a":                    "add",
		"graph --output ":                     "text json mermaid dot svg",
		"--lab-latency ":                      "fast real",
		"image --lab-lat":                     "--lab-latency",
		"image ap":                            "apply",
		"plan wait-":                          "wait-cp wait-nodes wait-workers wait-machines wait-releases",
		"LOC":                                 "LOCATION=",
		"destroy LOC":                         "LOCATION=",
		"LOCATION=n":                          "LOCATION=nbg1",
		"LOCATION=":                           strings.Join(choicesOf("LOCATION"), " "),
		"LOCATION=fsn1 lab u":                 "up",
		"--state-dir some lab dow":            "down",
		"destroy --im":                        "--images",
		"logs caph":                           "caph",
	} {
		if got := completed(t, line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func choicesOf(name string) (all []string) {
	for _, choice := range settings.Variable(name).Choices() {
		all = append(all, name+"="+choice)
	}
	return all
}

// No word of the command is missing, and each script is one that a shell can read.
func TestCompletionKnowsEveryWord(t *testing.T) {
	first := strings.Fields(completed(t, ""))
	for _, s := range offlinePlan(t).Graph.Steps() {
		if !slices.Contains(first, s.Name) {
			t.Errorf("%s is not offered", s.Name)
		}
	}
	for _, target := range targets(t) {
		words := strings.Fields(pathOf(target))
		last := len(words) - 1
		if offered := strings.Fields(completed(t, strings.Join(append(slices.Clone(words[:last]), ""),
			" "))); !slices.Contains(offered, words[last]) {
			t.Errorf("%s is not offered: %q", pathOf(target), offered)
		}
		target.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if got := completed(t, pathOf(target)+" --"+f.Name); !slices.Contains(strings.Fields(got), "--"+f.Name) {
				t.Errorf("%s: --%s is not offered: %q", pathOf(target), f.Name, got)
			}
		})
	}
	for _, v := range config.Variables() {
		if got := completed(t, v.Name); !slices.Contains(strings.Fields(got), v.Name+"=") {
			t.Errorf("%s= is not offered: %q", v.Name, got)
		}
	}
	for _, kind := range lab.FaultKinds() {
		for _, key := range kind.Keys() {
			if got := completed(t, targetFaultAdd+" "+kind.Name+" "+key); !slices.Contains(strings.Fields(got), key+"=") {
				t.Errorf("%s= is not offered for the fault %s: %q", key, kind.Name, got)
			}
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		r := execute(t, t.Context(), t.TempDir(), "", "completion", shell)
		if r.code != ExitDone || !strings.Contains(r.stdout, "__complete") {
			t.Fatalf("%s: %+v", shell, r)
		}
		if _, err := exec.LookPath(shell); err != nil {
			t.Logf("%s is not here to read its script", shell)
			continue
		}
		check := exec.Command(shell, "-n")
		check.Stdin = strings.NewReader(r.stdout)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s cannot read its script: %v\n%s", shell, err, out)
		}
	}
	if r := execute(t, t.Context(), t.TempDir(), "", "completion", "tcsh"); r.code != ExitUsage {
		t.Errorf("tcsh: %+v", r)
	}
}

func TestHelpOnATarget(t *testing.T) {
	for args, says := range map[string][]string{
		"help":         {"Usage: bootstrap", "KEY=VALUE"},
		"help version": {"the version"},
		"help apply": {"depends on: kind-create, image, preflight",
			"is needed by: wait-cp, kubeconfig, talosconfig, wait-nodes", "is part of: all, bootstrap", "fails after: 23m"},
		"help pivot":     {"point of no return", "--abort", "is part of: all\n"},
		"help clean":     {"runs after, if they are part of the run: access, firewall-apply"},
		"help destroy":   {"--dry-run", "--volumes", "delete the cluster"},
		"help lab":       {"start the lab without a run", "build the lab's programs"},
		"help lab build": {"bootstrap lab build", "--check"},
		"help lab up":    {"start the lab"},
		"help graph":     {"--output also: mermaid, dot, svg"},
		"help all":       {"is: endpoint, wait-workers, access, token, firewall-apply, clean"},
	} {
		r := execute(t, t.Context(), t.TempDir(), "", strings.Fields(args)...)
		for _, want := range says {
			if r.code != ExitDone || !strings.Contains(r.stdout, want) {
				t.Errorf("%s does not say %q: %+v", args, want, r)
			}
		}
	}
	for _, args := range []string{"help aply", "help apply image"} {
		if r := execute(t, t.Context(), t.TempDir(), "", strings.Fields(args)...); r.code != ExitUsage {
			t.Errorf("%s: %+v", args, r)
		}
	}
	for _, s := range offlinePlan(t).Graph.Steps() {
		if r := execute(t, t.Context(), t.TempDir(), "", "help", s.Name); r.code != ExitDone ||
			!strings.Contains(r.stdout, s.Doc) {
			t.Errorf("help %s: %+v", s.Name, r)
		}
	}
	for _, target := range targets(t) {
		r := execute(t, t.Context(), t.TempDir(), "", slices.Concat([]string{"help"}, strings.Fields(pathOf(target)))...)
		if r.code != ExitDone || !strings.Contains(r.stdout, target.Short) {
			t.Errorf("help %s: %+v", pathOf(target), r)
		}
	}
}
