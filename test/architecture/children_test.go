package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestChildrenAreStartedWithoutSecrets holds that the command starts other programs with internal/base/child alone, which
// keeps secrets out of their environment, and that nothing in the lab hands on more than the lab has: its own
// environment is a list of names (internal/provider/lab).
func TestChildrenAreStartedWithoutSecrets(t *testing.T) {
	starts := []string{"exec.Command", "exec.CommandContext", "exec.Cmd{}", "os.StartProcess", "syscall.ForkExec",
		"syscall.Exec", "syscall.StartProcess"}
	may := map[string][]string{
		"internal/base/child":                   {"exec.CommandContext"},
		"internal/client/gitclone/gitclonetest": {"exec.Command"}, // of tests
		"hack/release":                          {"exec.Command", "exec.CommandContext"},
		"lab/proc":                              {"exec.Command"}, // with the whole environment given
		"lab/gitserver":                         {"exec.CommandContext"},
		"lab/giteaserver":                       {"exec.Command", "exec.CommandContext", "syscall.Exec"},
		"lab/netns":                             {"exec.Command"}, // the lab itself
		"lab/repository":                        {"exec.CommandContext"},
		"lab/standin/standintest":               {"exec.Command", "exec.CommandContext"},
	}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel("../..", path)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "dist", "test", ".slipway"}, name):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool {
			path, _ := strconv.Unquote(i.Path.Value)
			return slices.Contains([]string{"os/exec", "os", "syscall"}, path)
		}) {
			return nil
		}
		ast.Inspect(file, func(n ast.Node) bool {
			used := startOf(n)
			if slices.Contains(starts, used) && !slices.Contains(may[filepath.ToSlash(filepath.Dir(name))], used) {
				t.Errorf("%s uses %s: start programs with internal/base/child, which keeps secrets from them", name, used)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// startOf is what of another package a node uses, as it is written: "exec.Command", or "exec.Cmd{}" for a literal.
func startOf(n ast.Node) string {
	literal := ""
	if l, is := n.(*ast.CompositeLit); is && l.Type != nil {
		n, literal = l.Type, "{}"
	}
	selector, is := n.(*ast.SelectorExpr)
	if !is {
		return ""
	}
	of, is := selector.X.(*ast.Ident)
	if !is {
		return ""
	}
	return of.Name + "." + selector.Sel.Name + literal
}
