package cli

import (
	"flag"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/lab"
	"github.com/slipway-k8s/slipway/internal/settings"
	"github.com/slipway-k8s/slipway/steps"
)

// completed asks bash what it offers after some words.
func completed(t *testing.T, script, line string) []string {
	t.Helper()
	words := strings.Split(line, " ")
	quotedWords := make([]string, len(words))
	for i, w := range words {
		quotedWords[i] = quoted(w)
	}
	cmd := exec.Command("bash", "--norc", "-c", script+"\nCOMP_WORDS=("+strings.Join(quotedWords, " ")+`)
COMP_CWORD=$((${#COMP_WORDS[@]}-1))
_bootstrap
echo "${COMPREPLY[@]}"`)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", line, err, out)
	}
	return strings.Fields(string(out))
}

func TestBashCompletes(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	script := execute(t, t.Context(), t.TempDir(), "", "completion", "bash").stdout
	for line, want := range map[string]string{
		"bootstrap hclo":                                  "hcloud-ccm",
		"bootstrap wait-":                                 "wait-cp wait-nodes",
		"bootstrap lab ":                                  "up status down build save load fault",
		"bootstrap lab fault ":                            "add list remove",
		"bootstrap completion ":                           "bash zsh fish",
		"bootstrap lab fault add ma":                      "management-away",
		"bootstrap lab fault add ":                        strings.Join(lab.FaultKindNames(), " "),
		"bootstrap lab fault add slow-boot ":              "delay= server= skip= times= probability= seed= for=",
		"bootstrap lab fault add slow-boot delay = 10s s": "server= skip= seed=",
		"bootstrap lab fault add slow-boot --lab-lat":     "--lab-latency",
		"bootstrap lab fault add error --output ":         "text json mermaid dot svg",
		"bootstrap --lab lab fault add vanish-server ":    "server= seed= for=",
		"bootstrap config s":                              "show schema",
		"bootstrap help talosc":                           "talosconfig",
		"bootstrap graph --output ":                       "text json mermaid dot svg",
		"bootstrap image --lab-lat":                       "--lab-latency",
		"bootstrap LOC":                                   "LOCATION=",
		"bootstrap LOCATION = n":                          "nbg1",
		"bootstrap LOCATION =":                            strings.Join(choicesOf("LOCATION"), " "),
	} {
		if got := strings.Join(completed(t, script, line), " "); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func choicesOf(name string) []string { return settings.Variable(name).Choices() }

// No word of the command is missing from any of the scripts, and each is one that a shell can read.
func TestCompletionKnowsEveryWord(t *testing.T) {
	var words []string
	for _, s := range paperPlan(t).Graph.Steps() {
		words = append(words, s.Name)
	}
	for _, target := range targets() {
		words = append(words, target.words()...)
	}
	for _, v := range steps.Variables() {
		words = append(words, v.Name+"=")
	}
	var flagNames []string
	var o options
	flags(&o).VisitAll(func(f *flag.Flag) {
		if len(f.Name) > 1 {
			flagNames = append(flagNames, f.Name)
		}
	})
	for _, shell := range []string{"bash", "zsh", "fish"} {
		r := execute(t, t.Context(), t.TempDir(), "", "completion", shell)
		if r.code != ExitDone {
			t.Fatalf("%s: %+v", shell, r)
		}
		for _, w := range words {
			if !strings.Contains(r.stdout, w) {
				t.Errorf("%s does not complete %s", shell, w)
			}
		}
		for _, k := range lab.FaultKinds() {
			if !strings.Contains(r.stdout, k.Name) {
				t.Errorf("%s does not complete the fault %s", shell, k.Name)
			}
		}
		for _, k := range lab.FaultKinds() { // and of each kind the keys, somewhere after its name
			_, after, _ := strings.Cut(r.stdout, k.Name)
			for _, key := range k.Keys() {
				if !strings.Contains(after, key+"=") {
					t.Errorf("%s does not complete %s= of the fault %s", shell, key, k.Name)
				}
			}
		}
		for _, name := range flagNames {
			if !strings.Contains(r.stdout, "--"+name) && !strings.Contains(r.stdout, "-l "+name+" ") {
				t.Errorf("%s does not complete --%s", shell, name)
			}
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
		"help":         {"Targets", "KEY=VALUE"},
		"help apply":   {"brings and comes after: kind-create, image, preflight", "is brought by: wait-cp, kubeconfig, talosconfig, wait-nodes", "is part of: all, bootstrap", "fails after: 23m"},
		"help pivot":   {"point of no return", "--abort", "is part of: all\n"},
		"help clean":   {"comes after, where they are asked for too: access, firewall-apply"},
		"help destroy": {"--dry-run", "--volumes", "delete the cluster"},
		"help lab":     {"bootstrap lab up", "bootstrap lab build", "--check"},
		"help lab up":  {"start the lab"},
		"help graph":   {"--output also: mermaid, dot, svg"},
		"help all":     {"is: access, firewall-apply, clean"},
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
	for _, s := range paperPlan(t).Graph.Steps() {
		if r := execute(t, t.Context(), t.TempDir(), "", "help", s.Name); r.code != ExitDone || !strings.Contains(r.stdout, s.Doc) {
			t.Errorf("help %s: %+v", s.Name, r)
		}
	}
	for _, target := range targets() {
		r := execute(t, t.Context(), t.TempDir(), "", slices.Concat([]string{"help"}, target.words())...)
		if r.code != ExitDone || !strings.Contains(r.stdout, target.doc) {
			t.Errorf("help %s: %+v", target.name, r)
		}
	}
}
