package dependencies

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/base/usage"
)

// treeCase is the file case.yaml in a folder of testdata/cases: what is read of the other files in it.
type treeCase struct {
	About    string            `json:"about"`
	Remote   string            `json:"remote"`   // of the repository; empty: it has none
	Paths    []string          `json:"paths"`    // of the command; none: the folder
	Objects  []string          `json:"objects"`  // each with its dependencies after a colon
	Findings map[string]string `json:"findings"` // by object, besides those that a list clears; nothing else is found
	Unknown  map[string]string `json:"unknown"`
	Error    string            `json:"error"`
}

// What is read of the trees of operators, and found in them.
func TestCases(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "cases", "*", "case.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d cases, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c treeCase
			if err := yaml.UnmarshalStrict(data, &c); err != nil {
				t.Fatal(err)
			}
			dir := repo(t)
			if err := os.CopyFS(dir, os.DirFS(filepath.Dir(file))); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(dir, "case.yaml")); err != nil {
				t.Fatal(err)
			}
			put(t, dir, ".git/config", "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = "+c.Remote+"\n")
			t.Chdir(dir)
			if len(c.Paths) == 0 {
				c.Paths = []string{"."}
			}
			c.check(t)
		})
	}
}

func (c treeCase) check(t *testing.T) {
	t.Helper()
	tree, err := Read(c.Paths, "default")
	if c.Error != "" {
		if err == nil || !errors.As(err, new(*usage.Error)) || !strings.Contains(err.Error(), c.Error) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.About, err, c.Error)
		}
		return
	}
	if err != nil {
		t.Fatalf("%s: %v", c.About, err)
	}
	var objects []string
	for _, o := range tree.Objects {
		var on []string
		for _, key := range o.DependsOn {
			on = append(on, key.Namespace+"/"+key.Name)
		}
		objects = append(objects, strings.TrimSuffix(o.Key.String()+": "+strings.Join(on, ", "), ": "))
		if _, err := os.Stat(fileOf(o.Place)); err != nil {
			t.Errorf("%s: the place of %s: %v", c.About, o.Key, err)
		}
	}
	slices.Sort(objects)
	slices.Sort(c.Objects)
	if !slices.Equal(objects, c.Objects) {
		t.Errorf("%s: it reads\n%s\nwant\n%s", c.About, strings.Join(objects, "\n"), strings.Join(c.Objects, "\n"))
	}
	r := Audit(tree, ListOf(tree, nil), "deps.yaml")
	for _, f := range r.Findings {
		if !slices.ContainsFunc([]string{f.Object, f.Object + " "}, func(object string) bool {
			return c.Findings[object] != "" && strings.Contains(f.Says, c.Findings[object])
		}) {
			t.Errorf("%s: it finds %+v", c.About, f)
		}
	}
	for object, says := range c.Findings {
		if !slices.ContainsFunc(r.Findings, func(f Finding) bool {
			return f.Object == strings.TrimSpace(object) && strings.Contains(f.Says, says)
		}) {
			t.Errorf("%s: it does not find that %s: %s", c.About, object, says)
		}
	}
	for object, says := range c.Unknown {
		if !slices.ContainsFunc(r.Unknown, func(u Unknown) bool { return u.Object == object && strings.Contains(u.Says, says) }) {
			t.Errorf("%s: it does not say that it does not know of %s: %s: %v", c.About, object, says, r.Unknown)
		}
	}
}
