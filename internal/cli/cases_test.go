package cli

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/manifests"
)

// inputCase is a file of testdata/cases: files of an operator, and what plan says of them.
type inputCase struct {
	About string `json:"about"`
	// Edits change a built-in file of manifests: cluster.yaml, unless they name another.
	Edits []struct {
		In     string `json:"in"`
		Old    string `json:"old"`
		New    string `json:"new"`
		Append string `json:"append"` // to the end of the file: to the control plane's patches
	} `json:"edits"`
	Files   map[string]string `json:"files"` // others, by their paths
	Exit    int               `json:"exit"`
	Says    []string          `json:"says"`
	SaysNot []string          `json:"saysNot"`
}

// write puts the case's files into a folder.
func (c inputCase) write(t *testing.T, dir string) {
	t.Helper()
	files := map[string]string{}
	for name, text := range c.Files {
		files[name] = text
	}
	for _, e := range c.Edits {
		name := cmp.Or(e.In, manifests.Cluster)
		text, edited := files["manifests/"+name]
		if !edited {
			data, err := manifests.Files.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			text = string(data)
		}
		if e.Append == "" && !strings.Contains(text, e.Old) {
			t.Fatalf("the built-in %s has no %q", name, e.Old)
		}
		if e.Old != "" {
			text = strings.ReplaceAll(text, e.Old, e.New)
		}
		files["manifests/"+name] = text + e.Append
	}
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// What plan says of the files of operators, without a token and a connection: wrong ones are refused with their place, and
// right ones are not.
func TestCases(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "cases", "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d cases, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var c inputCase
			if err := yaml.UnmarshalStrict(data, &c); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			c.write(t, dir)
			r := execute(t, t.Context(), dir, "", "plan")
			if r.code != c.Exit {
				t.Errorf("%s: exit %d, want %d\n%s%s", c.About, r.code, c.Exit, r.stdout, r.stderr)
			}
			for _, says := range c.Says {
				if !strings.Contains(r.stderr, says) {
					t.Errorf("%s: it does not say %q\n%s", c.About, says, r.stderr)
				}
			}
			for _, says := range c.SaysNot {
				if strings.Contains(r.stderr+r.stdout, says) {
					t.Errorf("%s: it says %q\n%s", c.About, says, r.stderr)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, ".slipway")); err == nil {
				t.Error("plan has made a state folder")
			}
		})
	}
}
