// Package architecture holds docs/architecture.md against the code: imports go down its layers, and every package is
// listed with its purpose.
package architecture

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the list of packages in docs/architecture.md anew")

const (
	module = "github.com/slipway-k8s/slipway"
	page   = "../../docs/architecture.md"
	// longestFile is the largest number of lines of a file that is not a test.
	longestFile = 500
)

// list is what `go list` says of a package.
type list struct {
	ImportPath string
	Dir        string
	Doc        string // the first sentence of its comment
	GoFiles    []string
	Imports    []string
}

// name is the package's path in the module; "slipway" for that at its root.
func (l list) name() string {
	if l.ImportPath == module {
		return path.Base(module)
	}
	return strings.TrimPrefix(l.ImportPath, module+"/")
}

// own are the packages of the module that it imports.
func (l list) own() (own []string) {
	for _, i := range l.Imports {
		if name, ours := strings.CutPrefix(i, module+"/"); ours {
			own = append(own, name)
		} else if i == module {
			own = append(own, path.Base(module))
		}
	}
	slices.Sort(own)
	return own
}

func packages(t *testing.T) (all []list) {
	t.Helper()
	// What this process opens is what go test looks at to tell whether an earlier result
	// still counts; go list is another process.
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "dist") {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Doc,GoFiles,Imports", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var l list
		if err := decoder.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if len(l.GoFiles) > 0 { // the others are tests only, which nothing can import
			all = append(all, l)
		}
	}
	return all
}

// layers are the folders of the module from top to bottom: a package imports packages of its own layer and of lower ones.
// The first folder of a list that holds a package is its layer.
var layers = []struct {
	name    string
	folders []string
}{
	{"the command", []string{"cmd", "internal/cli"}},
	{"the library", []string{"slipway"}},
	{"many clusters, an API, a report", []string{"internal/fleet", "internal/serve", "internal/report"}},
	{"sessions", []string{"internal/session"}},
	{"operations", []string{"internal/operation"}},
	{"providers of management clusters", []string{"internal/provider", "platform/kind", "platform/lab"}},
	{"state and plan", []string{"internal/state", "internal/planning"}},
	{"the steps of the bootstrap", []string{"steps"}},
	{"what steps create", []string{"internal/ensure"}},
	{"what is known of a cluster", []string{"internal/cluster"}},
	{"configuration and clients' interfaces", []string{"config", "platform", "manifests", "bootstrap", "packer"}},
	{"clients", []string{"internal/client"}},
	{"base", []string{"internal/base", "flow"}},
}

// layerOf is the index in layers of the layer that a package belongs to; -1: none.
func layerOf(name string) int {
	layer, longest := -1, 0
	for i, l := range layers {
		for _, folder := range l.folders {
			if (name == folder || strings.HasPrefix(name, folder+"/")) && len(folder) > longest {
				layer, longest = i, len(folder)
			}
		}
	}
	return layer
}

// outside are folders whose programs and suites use the module from outside.
func outside(name string) bool {
	return strings.HasPrefix(name, "test/") || strings.HasPrefix(name, "hack/")
}

// TestImportsGoDown holds the rule of the layers.
func TestImportsGoDown(t *testing.T) {
	for _, p := range packages(t) {
		if outside(p.name()) {
			continue
		}
		layer := layerOf(p.name())
		if layer < 0 {
			t.Errorf("package %s is in no layer: see docs/architecture.md for the folder that it belongs to", p.name())
			continue
		}
		for _, i := range p.own() {
			if to := layerOf(i); to < layer {
				t.Errorf("%s (%s) imports %s (%s): imports go down the layers of docs/architecture.md only", p.name(),
					layers[layer].name, i, layers[to].name)
			}
			if i == "internal/base/crash" && p.name() != "internal/cli" {
				t.Errorf("%s imports %s, which is for internal/cli alone", p.name(), i)
			}
		}
		if p.name() == "flow" {
			for _, i := range p.Imports {
				if strings.Contains(strings.Split(i, "/")[0], ".") {
					t.Errorf("flow imports %s; it uses the standard library only", i)
				}
			}
		}
	}
}

// TestThePackagesAreListed compares the list of packages with their comments.
func TestThePackagesAreListed(t *testing.T) {
	const begin, end = "<!-- packages: begin -->\n", "<!-- packages: end -->\n"
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(data), begin)
	is, after, found2 := strings.Cut(rest, end)
	if !found || !found2 {
		t.Fatalf("%s has no %q and %q", page, begin, end)
	}
	want := listed(t)
	if *update {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if is != want {
		t.Errorf("the list of packages in docs/architecture.md is not true: go test ./test/architecture -update writes it")
	}
}

// listed is a table of the packages for each layer.
func listed(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	all := packages(t)
	for i, layer := range layers {
		fmt.Fprintf(&b, "\n### %s\n\n| package | purpose |\n| --- | --- |\n",
			strings.ToUpper(layer.name[:1])+layer.name[1:])
		for _, p := range all {
			if outside(p.name()) || layerOf(p.name()) != i {
				continue
			}
			purpose, named := strings.CutPrefix(p.Doc, "Package "+filepath.Base(p.name())+" ")
			if !named && filepath.Base(p.name()) != "bootstrap" {
				t.Errorf("the comment of package %s begins with %q: \"Package %s ...\" is what it should begin with", p.name(),
					p.Doc, filepath.Base(p.name()))
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", p.name(), strings.TrimPrefix(purpose, "Command bootstrap "))
		}
	}
	b.WriteString("\n")
	return b.String()
}

func lines(t *testing.T, path string) (all []string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for s := bufio.NewScanner(file); s.Scan(); {
		all = append(all, s.Text())
	}
	return all
}

// TestFilesAreShort bounds the length of every file that is not a test.
func TestFilesAreShort(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.GoFiles {
			if n := len(lines(t, filepath.Join(p.Dir, f))); n > longestFile {
				t.Errorf("%s/%s has %d lines, %d are the most", p.name(), f, n, longestFile)
			}
		}
	}
}
