package repository

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/slipway-k8s/slipway/lab/caph/api"
)

// toolModules are the modules of the provider programs, as the lab's go.mod
// resolves them.
var toolModules = sync.OnceValues(func() ([]Module, error) {
	arguments := []string{"mod", "download", "-json"}
	for _, p := range providers {
		arguments = append(arguments, p.module)
	}
	out, err := exec.Command("go", arguments...).Output()
	if err != nil {
		return nil, err
	}
	var modules []Module
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var m Module
		if err := decoder.Decode(&m); err != nil {
			return nil, err
		}
		modules = append(modules, m)
	}
	return modules, nil
})

// write makes a repository out of the lab's own modules.
func write(t *testing.T, dir string) Contents {
	t.Helper()
	modules, err := toolModules()
	if err != nil {
		t.Fatalf("download the modules of the provider programs: %v", err)
	}
	contents, err := Write(t.Context(), dir, Options{Modules: modules})
	if err != nil {
		t.Fatal(err)
	}
	return contents
}

// tree reads every file below dir.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		files[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestWriteIsDeterministicAndReplaces(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	contents := write(t, first)

	stale := filepath.Join(second, providersFolder, "bootstrap-talos", "v0.0.1", "bootstrap-components.yaml")
	if err := writeFile(stale, []byte("old")); err != nil {
		t.Fatal(err)
	}
	bystander := filepath.Join(second, "state.json")
	if err := writeFile(bystander, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	write(t, second)
	write(t, second)

	want, got := tree(t, first), tree(t, second)
	if got["state.json"] != "{}" {
		t.Error("a file that is not the repository's was touched")
	}
	delete(got, "state.json")
	for name, content := range want {
		if got[name] != content {
			t.Errorf("%s differs between two writes", name)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d files after replacing an older repository, %d in a fresh one", len(got), len(want))
	}
	for label, file := range contents.Components {
		if !filepath.IsAbs(file) {
			t.Errorf("components of %s: %s is not absolute, clusterctl refuses that", label, file)
		}
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
	if got := contents.Offers["CAPH"]; !slices.Equal(got, api.Versions()) || contents.Versions["CAPH"] != "v1.0.7" {
		t.Errorf("CAPH is offered as %v, %s where none is asked for", got, contents.Versions["CAPH"])
	}
	keys := []string{"CABPT", "CACPPT", "CAPH", "CAPI", "CILIUM", "CLUSTER_AUTOSCALER", "GITEA", "HCLOUD_CCM", "HCLOUD_CSI",
		"METRICS_SERVER", "TALOS_CCM"}
	for _, key := range keys {
		if contents.Versions[key] == "" {
			t.Errorf("no version of %s", key)
		}
	}
	if len(contents.Versions) != len(keys) {
		t.Errorf("versions %v, want those of %v", contents.Versions, keys)
	}
}

func TestWriteSaysWhichModuleIsMissing(t *testing.T) {
	modules, err := toolModules()
	if err != nil {
		t.Fatal(err)
	}
	without := slices.DeleteFunc(slices.Clone(modules), func(m Module) bool { return m.Path == providers[1].module })
	_, err = Write(t.Context(), t.TempDir(), Options{Modules: without})
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte(providers[1].module)) {
		t.Errorf("error %v does not name %s", err, providers[1].module)
	}
}
