package architecture

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	version "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// installed is the module as a release of it, and the program in it.
var installed = version.Version{Path: "github.com/slipway-k8s/slipway", Version: "v0.0.0-20260102030405-abcdefabcdef"}

// TestInstalls has go install take the command from a module proxy, as people do: it refuses a module with a replace,
// and one whose packages are not found without the nested modules beside it. Nothing is compiled.
func TestInstalls(t *testing.T) {
	proxy := serveModule(t)
	output, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	cache := strings.TrimSpace(string(output))
	install := exec.CommandContext(t.Context(), "go", "install", "-n", installed.Path+"/cmd/bootstrap@"+installed.Version)
	install.Dir = t.TempDir()
	install.Env = append(os.Environ(), "GOWORK=off", "GOSUMDB=off", "GOMODCACHE="+besideOf(t, cache),
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(cache, "cache", "download"),
		"GOFLAGS=-modcacherw -tags=kustomize_disable_go_plugin_support")
	if output, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%.2000s", err, output)
	}
}

// serveModule makes a folder that is a module proxy with this module in it.
func serveModule(t *testing.T) string {
	t.Helper()
	const root = "../.."
	proxy := t.TempDir()
	folder := filepath.Join(proxy, installed.Path, "@v")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := modfile.Parse("go.mod", gomod, nil)
	if err != nil || len(parsed.Replace) > 0 || len(parsed.Exclude) > 0 {
		t.Fatalf("go.mod replaces %d modules and excludes %d, %v: go install refuses it", len(parsed.Replace),
			len(parsed.Exclude), err)
	}
	file, err := os.Create(filepath.Join(folder, installed.Version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	checked, _ := zip.CheckDir(root) // its error is about files that are left out below, too
	var files []zip.File
	for _, path := range checked.Valid {
		path, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(path, ".") { // such as the state folder of a rehearsal
			files = append(files, moduleFile{root, filepath.ToSlash(path)})
		}
	}
	if err := zip.Create(file, installed, files); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		installed.Version + ".mod": string(gomod), "list": installed.Version + "\n",
		installed.Version + ".info": `{"Version":"` + installed.Version + `","Time":"2026-01-02T03:04:05Z"}`,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return proxy
}

// moduleFile is a file of the module.
type moduleFile struct{ root, path string }

func (f moduleFile) Path() string                 { return f.path }
func (f moduleFile) Lstat() (os.FileInfo, error)  { return os.Lstat(filepath.Join(f.root, f.path)) }
func (f moduleFile) Open() (io.ReadCloser, error) { return os.Open(filepath.Join(f.root, f.path)) }

// besideOf makes a module cache of links to another one's modules, to which this module can be added.
func besideOf(t *testing.T, cache string) string {
	t.Helper()
	beside := t.TempDir()
	// Folders on the path to this module are real, everything beside them is a link.
	for _, prefix := range []string{"", "cache/download"} {
		for _, folder := range []string{"", "github.com"} {
			entries, err := os.ReadDir(filepath.Join(cache, prefix, folder))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(beside, prefix, folder), 0o755); err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				at := filepath.Join(prefix, folder, e.Name())
				if at == "cache" || filepath.Base(at) == "github.com" || e.Name() == "slipway-k8s" {
					continue
				}
				if err := os.Symlink(filepath.Join(cache, at), filepath.Join(beside, at)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return beside
}
