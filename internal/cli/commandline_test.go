package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// A printed command leads to the same cluster, and its target takes every flag in it.
func TestACommandLineRepeatsWhatWasGiven(t *testing.T) {
	for _, c := range []struct {
		given, environment string
		target             []string
		want               string
	}{
		{"restore --diagnose", "", []string{"restore", "FILE"}, "bootstrap restore FILE"},
		{"restore --diagnose --identity key --lab --config c.yaml --dir files --state-dir d", "", []string{"restore",
			"FILE"},
			"bootstrap restore FILE --lab --config c.yaml --dir files --state-dir d --identity key"},
		{"restore --diagnose --identity key", "", []string{"recover-quorum"}, "bootstrap recover-quorum"},
		// which does not take it
		{"restore --diagnose LOCATION=hel1 CLUSTER_NAME=a CLUSTER_NAME=b", "", []string{"readopt", "FILE"},
			"bootstrap readopt FILE LOCATION=hel1 CLUSTER_NAME=b"},
		{"bootstrap SERVER_TYPE=cx43 CLUSTER_NAME=b --yes --parallel 3", "", []string{"report"},
			"bootstrap report CLUSTER_NAME=b"},
		{"bootstrap", "CLUSTER_NAME=e LOCATION=hel1", []string{"status"}, "bootstrap status CLUSTER_NAME=e"},
		{"bootstrap CLUSTER_NAME=b", "CLUSTER_NAME=e", []string{"status"}, "bootstrap status CLUSTER_NAME=b"},
		{"bootstrap --lab --lab-dir l --state-dir d", "", []string{"lab", "down"}, "bootstrap lab down --lab-dir l --state-dir d"},
		{"bootstrap --lab --lab-dir l", "", []string{"status"}, "bootstrap status --lab --lab-dir l"},
		{"bootstrap --lab --lab-images i --state-dir d", "", []string{"lab", "up"},
			"bootstrap lab up --lab-images i --state-dir d"},
		{"bootstrap CILIUM_REPOSITORY=https://me:secret@example.org", "", []string{"all"},
			"bootstrap all 'CILIUM_REPOSITORY=…'"},
		{"bootstrap BACKUP_RECIPIENTS=AGE-SECRET-KEY-1", "", []string{"all"}, "bootstrap all 'BACKUP_RECIPIENTS=…'"},
		{"restore --diagnose --identity key", "", []string{"restore", "FILE", "--identity", "other"},
			"bootstrap restore FILE --identity other"},
	} {
		a, err := parseArguments(strings.Fields(c.given))
		if err != nil {
			t.Fatalf("%s: %v", c.given, err)
		}
		line := composeCommandLine(a, settings.Environ(strings.Fields(c.environment)), c.target)
		if line != c.want {
			t.Errorf("after %s: %s\nwant %s", c.given, line, c.want)
		}
		if !strings.Contains(line, "'") {
			if _, err := parseArguments(strings.Fields(line)[1:]); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
}

// A shell takes a printed command apart into what was meant, also where a path has a space or a quote in it.
func TestAPrintedCommandIsQuoted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's a folder")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	_, environment := smallProject(t)
	identity := filepath.Join(dir, `my "key" $HOME`)
	r := execute(t, t.Context(), dir, environment, "restore", "--diagnose", "--identity", identity, "--state-dir", dir)
	_, typed, found := strings.Cut(r.stdout, "type:\n  ")
	typed, _, _ = strings.Cut(typed, "\n")
	if r.code != ExitDone || !found {
		t.Fatalf("%+v", r)
	}
	out, err := exec.Command("/bin/sh", "-c", `bootstrap() { printf '%s\0' "$@"; }; `+typed).Output()
	if err != nil {
		t.Fatalf("%s: %v", typed, err)
	}
	want := []string{"restore", "FILE", "--state-dir", dir, "--identity", identity}
	if words := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(words, want) {
		t.Errorf("%s\nis read as %q\nwant       %q", typed, words, want)
	}
}

// Commands to be typed are composed in one place: a text that has one of its own would lose --lab, --state-dir and
// what else leads to
// the cluster.
func TestCommandsAreComposedInOnePlace(t *testing.T) {
	own := regexp.MustCompile(`\bbootstrap (--|lab|all|pivot|restore|readopt|recover-quorum|destroy|replace-machine|report|status|backup|image|access|clean)\b` +
		`|--(state-dir|identity) %s|\((pivot --abort|image --(prune|packer)|lab up|lab down)\)`)
	allowed := map[string]string{
		"args.go": "flags about each other", "assignment.go": "where variables are listed",
		"token.go": "of a checkout, before anything was given",
	}
	for _, folder := range []string{".", "../../steps", "../../internal/client/hetzner", "../../internal/cli/ui",
		"../../internal/operation/forecast", "../../internal/operation/status",
		"../../internal/provider/kind", "../../internal/provider/lab", "../../internal/report",
		"../../internal/serve", "../../internal/session", "../../internal/session/operations",
		"../../internal/fleet", "../../internal/fleet/operations",
		"../../internal/state/runs", "../../internal/state/settings",
		"../../internal/state/statedir", "../../internal/base/text", "../../internal/base/usage"} {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", folder, files, err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") || allowed[filepath.Base(path)] != "" {
				continue
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if text, is := n.(*ast.BasicLit); is && text.Kind == token.STRING && own.MatchString(text.Value) {
					t.Errorf("%s: %s", set.Position(text.Pos()), text.Value)
				}
				return true
			})
		}
	}
}
