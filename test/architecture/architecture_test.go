// Package architecture holds docs/architecture.md against the code: every package has its row, every import is in
// it, and the rules of the page are kept.
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
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the last column of the table in docs/architecture.md anew")

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
	GoFiles    []string
	Imports    []string
}

// name is the package's path in the module.
func (l list) name() string { return strings.TrimPrefix(l.ImportPath, module+"/") }

// own are the packages of the module that it imports, without those that only carry files.
func (l list) own() (own []string) {
	for _, i := range l.Imports {
		if path, ours := strings.CutPrefix(i, module+"/"); ours {
			own = append(own, path)
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
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports", "./...")
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

var row = regexp.MustCompile("^\\| `([^`]+)` \\| ([^|]+) \\| ([^|]*) \\|$")

// table reads the rows of the page: name to the packages that it says are imported.
func table(t *testing.T) map[string][]string {
	t.Helper()
	rows := map[string][]string{}
	for _, line := range lines(t, page) {
		found := row.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		imports := []string{}
		for _, word := range strings.FieldsFunc(found[3], func(r rune) bool { return r == ',' || r == ' ' }) {
			if name := strings.Trim(word, "`"); name != "-" {
				imports = append(imports, name)
			}
		}
		rows[found[1]] = imports
	}
	return rows
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

// TestTheTableIsTrue compares the table of packages with what go list says.
func TestTheTableIsTrue(t *testing.T) {
	all := packages(t)
	if *update {
		write(t, all)
	}
	rows := table(t)
	for _, p := range all {
		written, there := rows[p.name()]
		if !there {
			t.Errorf("docs/architecture.md has no row for package %s", p.name())
			continue
		}
		if !slices.Equal(written, p.own()) {
			t.Errorf("package %s imports %v; docs/architecture.md says %v (go test ./test/architecture -update writes it)",
				p.name(), p.own(), written)
		}
		delete(rows, p.name())
	}
	for name := range rows {
		t.Errorf("docs/architecture.md has a row for package %s, which does not exist", name)
	}
}

func write(t *testing.T, all []list) {
	t.Helper()
	imports := map[string][]string{}
	for _, p := range all {
		imports[p.name()] = p.own()
	}
	var out strings.Builder
	for _, line := range lines(t, page) {
		if found := row.FindStringSubmatch(line); found != nil && imports[found[1]] != nil ||
			found != nil && slices.ContainsFunc(all, func(p list) bool { return p.name() == found[1] }) {
			column := "-"
			if names := imports[found[1]]; len(names) > 0 {
				column = strings.Join(names, ", ")
			}
			line = fmt.Sprintf("| `%s` | %s | %s |", found[1], found[2], column)
		}
		out.WriteString(line + "\n")
	}
	if err := os.WriteFile(page, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestTheRulesAreKept holds the import rules of the page.
func TestTheRulesAreKept(t *testing.T) {
	only := map[string][]string{ // all that a package may import of the module
		"cmd/bootstrap":   {"internal/cli"},
		"flow":            {},
		"internal/backup": {"internal/keys", "internal/s3"}, "internal/keys": {}, "internal/s3": {}, "internal/objectstore": {"internal/s3"},
		"internal/clusterapi": {}, "internal/diagram": {}, "internal/etcd": {}, "internal/factory": {},
		"internal/hetzner": {"internal/hetzner/ratelimit"}, "internal/hetzner/ratelimit": {}, "internal/kube": {"internal/kubeconfig"}, "internal/kubeconfig": {}, "internal/shell": {}, "internal/talos": {}, "internal/telemetry": {},
		"internal/text": {}, "internal/why": {}, "manifests": {}, "bootstrap": {}, "packer": {},
	}
	users := map[string][]string{ // all who may import a package
		"internal/cli":          {"cmd/bootstrap"},
		"internal/cli/ui":       {"internal/cli"},
		"internal/report/story": {"internal/cli"},
		"internal/serve":        {"internal/cli"},
		"internal/crash":        {"internal/cli", "test/crash"},
	}
	// these know nothing of the command
	below := []string{"config", "platform", "steps", "internal/capi", "internal/render", "internal/wait"}
	command := []string{"internal/cli", "internal/lab", "internal/kind", "internal/runs", "internal/settings",
		"internal/statedir", "internal/report", "internal/serve", "internal/crash", "test"}
	for _, p := range packages(t) {
		if may, bound := only[p.name()]; bound {
			for _, i := range p.own() {
				if !slices.Contains(may, i) {
					t.Errorf("%s imports %s; of the module it may import %v and nothing else", p.name(), i, may)
				}
			}
		}
		for _, i := range p.own() {
			if may, bound := users[i]; bound && !slices.Contains(may, p.name()) {
				t.Errorf("%s imports %s, which is for %v alone", p.name(), i, may)
			}
			if slices.Contains(below, p.name()) &&
				slices.ContainsFunc(command, func(c string) bool { return i == c || strings.HasPrefix(i, c+"/") }) {
				t.Errorf("%s imports %s: what the command is made of must not be known below it", p.name(), i)
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
