package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
)

// builtFrom is what Go records in a program that is built from this module.
func builtFrom(t *testing.T, path string) *debug.BuildInfo {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	info := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123abc"},
		{Key: "vcs.modified", Value: "true"}}}
	for line := range strings.Lines(string(data)) {
		if words := strings.Fields(line); len(words) >= 2 && strings.HasPrefix(words[1], "v") {
			info.Deps = append(info.Deps, &debug.Module{Path: words[0], Version: words[1]})
		}
	}
	return info
}

func TestVersionReport(t *testing.T) {
	info := builtFrom(t, "../../go.mod")
	r := newVersionReport(info, filepath.Join("..", ".."), config.Shipped())
	if r.Commit != "0123abc" || !r.Modified {
		t.Errorf("got %+v", r)
	}
	for _, name := range librariesShown() {
		want := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == name })
		if want < 0 || !slices.Contains(r.Libraries, lab.Version{Name: name, Version: info.Deps[want].Version}) {
			t.Errorf("%s is missing in %+v", name, r.Libraries)
		}
	}
	var out strings.Builder
	if err := r.print(&out, 0); err != nil || !strings.Contains(out.String(), "0123abc, with changes") ||
		!strings.Contains(out.String(), "  "+r.Libraries[0].Name+" ") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestVersion(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	r := execute(t, t.Context(), root, "", "version", "--output", "json")
	var got versionReport
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != ExitDone {
		t.Fatalf("%v: %+v", err, r)
	}
	if got.Kind != "version" || got.Version == "" || got.Go != runtime.Version() {
		t.Errorf("got %+v", got)
	}
	for _, v := range config.Variables() {
		name, is := strings.CutSuffix(v.Name, "_VERSION")
		if is && v.Default != "" && !slices.Contains(got.Cluster, lab.Version{Name: name, Version: v.Default}) {
			t.Errorf("%s %s is missing in %+v", name, v.Default, got.Cluster)
		}
	}
	for _, name := range []string{"Kubernetes", "Kubernetes, when configured", "etcd", "Cluster API", "CABPT", "CACPPT"} {
		if !slices.ContainsFunc(got.Lab, func(v lab.Version) bool {
			return v.Name == name &&
				strings.HasPrefix(v.Version, "v")
		}) {
			t.Errorf("%s of the lab is missing in %+v", name, got.Lab)
		}
	}
	text := execute(t, t.Context(), t.TempDir(), "", "version")
	for _, says := range []string{"KUBERNETES", "in no clone of Slipway"} {
		if text.code != ExitDone || !strings.Contains(text.stdout, says) {
			t.Errorf("it does not say %q: %+v", says, text)
		}
	}
}
