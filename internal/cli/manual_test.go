package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Help has something to say of every target and step, and what it says is true: its example can be typed, its page
// exists.
func TestEveryTargetHasAManual(t *testing.T) {
	all := manuals()
	check := func(name string, words []string, arguments []string) {
		m, has := all[name]
		if !has {
			t.Errorf("%s has no manual", name)
			return
		}
		delete(all, name)
		if m.changes == "" {
			t.Errorf("%s: what does it change?", name)
		}
		var explainedNames []string
		for _, a := range m.arguments {
			explainedNames = append(explainedNames, a.name)
		}
		if !slices.Equal(explainedNames, arguments) {
			t.Errorf("%s explains %v, and takes %v", name, explainedNames, arguments)
		}
		example, err := parseArguments(strings.Fields(m.example))
		if err != nil || name != targetBootstrap && (len(example.Targets) < len(words) ||
			!slices.Equal(example.Targets[:len(words)], words)) {
			t.Errorf("%s: the example %q asks for %v, %v", name, m.example, example.Targets, err)
		}
		if m.page != "" {
			checkPage(t, name, m.page)
		}
		r := execute(t, t.Context(), t.TempDir(), "", append([]string{"help"}, words...)...)
		for _, want := range []string{"changes: " + m.changes, "Examples:\n  bootstrap " + m.example} {
			if r.code != ExitDone || !strings.Contains(r.stdout, want) {
				t.Errorf("help %s does not say %q: %+v", name, want, r)
			}
		}
	}
	for _, target := range targets(t) {
		arguments, optional := argumentsOf(target)
		if optional != "" && alone(target) {
			arguments = append(arguments, optional)
		}
		check(pathOf(target), strings.Fields(pathOf(target)), arguments)
		if alone(target) && manuals()[pathOf(target)].needs == "" {
			t.Errorf("%s: what does it need?", pathOf(target))
		}
	}
	for _, s := range offlinePlan(t).Graph.Steps() {
		check(s.Name, []string{s.Name}, nil)
	}
	for name := range all {
		if slices.Contains(configuredSteps, name) {
			continue
		}
		t.Errorf("there is a manual of %s, and no such target or step", name)
	}
}

// checkPage finds a page of the documentation, and the heading that it is about.
func checkPage(t *testing.T, name, page string) {
	t.Helper()
	file, anchor, anchored := strings.Cut(page, "#")
	data, err := os.ReadFile(filepath.Join("../../docs", file))
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	if !anchored {
		return
	}
	for line := range strings.Lines(string(data)) {
		if heading, is := strings.CutPrefix(line, "#"); is && headingAnchor(strings.TrimLeft(heading, "#")) == anchor {
			return
		}
	}
	t.Errorf("%s: %s has no heading %s", name, file, anchor)
}

// headingAnchor is the anchor that GitHub makes of a heading.
func headingAnchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return -1
	}, strings.ToLower(strings.TrimSpace(heading)))
}

func TestHelpOnTargetsOfSeveralWords(t *testing.T) {
	for args, says := range map[string][]string{
		"help lab fault": {"have the lab produce a fault", "list the faults of the lab that are in effect",
			"undo a fault"},
		"help lab fault remove": {"bootstrap lab fault remove ID"},
		"help lab fault add": {"KIND", "out-of-stock", "expired-kubeconfig",
			"docs/rehearse.md#faults-on-demand", "bootstrap lab fault add out-of-stock skip=1"},
		"help lab fault add expired-kubeconfig": {"file=", "in the state folder", "(needed)"},
		"help backup verify": {"FILE: a backup", "--identity", "changes: nothing",
			"bootstrap backup verify FILE --identity key.txt"},
		"help image":           {"--packer", "--dry-run", "--skip-doctor"},
		"backup verify --help": {"FILE: a backup", "--identity"},
		"lab fault add slow-boot delay=10s --help": {"delay=", "(needed)"},
		"--help":               {"bootstrap help TARGET"},
		"help steps":           {"Targets that are one step"},
		"apply image --help":   {"bootstrap apply [TARGET…]"},
		"help replace-machine": {"NAME: of a control plane Machine", "needs: ", "Global Flags:"},
	} {
		r := execute(t, t.Context(), t.TempDir(), "", strings.Fields(args)...)
		for _, want := range says {
			if r.code != ExitDone || !strings.Contains(r.stdout, want) {
				t.Errorf("%s does not say %q: %+v", args, want, r)
			}
		}
	}
	r := execute(t, t.Context(), t.TempDir(), "", "help", "lab", "fault", "add", "slow-boot")
	if strings.Contains(r.stdout, "serverType") || strings.Contains(r.stdout, "out-of-stock") {
		t.Errorf("help of one kind names what others take: %s", r.stdout)
	}
	for _, args := range []string{"help lab fault ad", "help lab fault add gremlins", "help backup verifi"} {
		if r := execute(t, t.Context(), t.TempDir(), "", strings.Fields(args)...); r.code != ExitUsage ||
			!strings.Contains(r.stderr, "; did you mean") && !strings.Contains(args, "gremlins") {
			t.Errorf("%s: %+v", args, r)
		}
	}
}
