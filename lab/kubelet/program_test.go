package kubelet

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/lab/plane/planetest"
	"github.com/slipway-k8s/slipway/lab/programs"
)

func TestMatch(t *testing.T) {
	all := []Program{
		{Image: "ghcr.io/org/app", Exec: "exact"},
		{Image: "docker.io/org/*", Exec: "hub"},
		{Image: "docker.io/library/alone", Exec: "library"},
		{Image: "localhost:5000/app", Exec: "port"},
		{Image: "ghcr.io/org/*", Exec: "pattern"},
	}
	for image, want := range map[string]string{
		"ghcr.io/org/app": "exact", "ghcr.io/org/app:v1": "exact", "ghcr.io/org/app:v1@sha256:00": "exact",
		"ghcr.io/org/app@sha256:00": "exact",
		"ghcr.io/org/other:v1":      "pattern", "ghcr.io/org/deep/app": "", "org/app:v2": "hub", "alone": "library",
		"alone:v1":           "library",
		"localhost:5000/app": "port", "localhost:5000/app:v1": "port", "other.io/org/app": "",
	} {
		if got, ok := Match(all, image); got.Exec != want || ok != (want != "") {
			t.Errorf("%s: %q, %v; want %q", image, got.Exec, ok, want)
		}
	}
}

func TestDefaultProgramsAreValid(t *testing.T) {
	for _, p := range DefaultPrograms(nil) {
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", p.Image, err)
		}
	}
}

// A Pod of Cluster API's core runs the program of the version that its image's tag names.
func TestCoreByTag(t *testing.T) {
	core := programs.NewSets(programs.Core())
	of := map[string]string{}
	for _, version := range []string{"v1.10.10", "v1.13.6"} {
		dir := t.TempDir()
		list := fmt.Sprintf(`{"programs": [{"file": "cluster-api", "version": %q, "image": "x"}]}`, version)
		for name, content := range map[string]string{"cluster-api": "", "programs.json": list} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := core.AddOwn(dir); err != nil {
			t.Fatal(err)
		}
		of[version] = dir
	}
	for version, dir := range of {
		p, ok := Match(UpstreamPrograms(core), "registry.k8s.io/cluster-api/cluster-api-controller:"+version)
		if !ok || p.Folder == nil {
			t.Fatalf("%s: %+v", version, p)
		}
		if got, err := p.Folder(version); err != nil || got != dir {
			t.Errorf("%s runs out of %s, %v", version, got, err)
		}
		if _, err := p.Folder("v1.12.0"); err == nil || !strings.Contains(err.Error(), "CAPI_VERSION=v1.12.0") {
			t.Errorf("a version that the lab was not given: %v", err)
		}
	}
}

// TestDefaultFlags holds the built-in mapping against the programs themselves.
func TestDefaultFlags(t *testing.T) {
	bin := planetest.Bin(t)
	for _, p := range DefaultPrograms(nil) {
		if p.Exec == labProgram {
			continue
		}
		// pflag prints every flag for --help, and ends with an error.
		help, _ := exec.CommandContext(t.Context(), filepath.Join(bin, p.Exec), "--help").CombinedOutput()
		for _, arg := range p.Args {
			name, _, _ := strings.Cut(arg, "=")
			if !strings.Contains(string(help), name+" ") {
				t.Errorf("%s has no flag %s:\n%s", p.Exec, name, help)
			}
		}
	}
}

func TestLoadPrograms(t *testing.T) {
	file := filepath.Join(t.TempDir(), "images.yaml")
	text := `
- image: ghcr.io/syself/caph
  exec: /opt/caph
  args: ["--health=127.0.0.1:{port:9440}", '{"json": true}']
  env: {SSL_CERT_FILE: "{ca}"}
  noContainerArgs: true
  reads: [/opt/charts]
  tools: true
- {image: "quay.io/*/*", exec: lab, prefix: [cert-manager], fidelity: stand-in, note: mine}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := LoadPrograms(file)
	if err != nil {
		t.Fatal(err)
	}
	want := []Program{
		{
			Image: "ghcr.io/syself/caph", Exec: "/opt/caph", Args: []string{"--health=127.0.0.1:{port:9440}", `{"json": true}`},
			Env: map[string]string{"SSL_CERT_FILE": "{ca}"}, NoContainerArgs: true, Fidelity: Mapped,
			Reads: []string{"/opt/charts"}, Tools: true,
		},
		{Image: "quay.io/*/*", Exec: "lab", Prefix: []string{"cert-manager"}, Fidelity: StandIn, Note: "mine"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if got, err := parsePrograms(nil); err != nil || len(got) != 0 {
		t.Errorf("an empty file: %v, %v", got, err)
	}
}

func TestLoadProgramsNamesThePlace(t *testing.T) {
	for text, want := range map[string]string{
		"image: a\n":                                          "line 1, column 1: want a list",
		"- image: a\n  exec: b\n  arg: [c]\n":                 `line 3, column 3: unknown key "arg"`,
		"- image: a\n  image: b\n  exec: c\n":                 `line 2, column 3: key "image" is given twice`,
		"- exec: b\n":                                         "line 1, column 3: image is missing",
		"- image: a\n":                                        "line 1, column 3: exec is missing",
		"- image: a:v1\n  exec: b\n":                          `image "a:v1" has a tag or a digest`,
		"- image: a\n  exec: b/c\n":                           `exec "b/c" is a relative path`,
		"- image: '['\n  exec: b\n":                           "is not a pattern",
		"- image: a\n  exec: b\n  args: 3\n":                  "line 3, column 9: args: ",
		"- image: a\n  exec: b\n  fidelity: perfect\n":        `line 3, column 13: fidelity "perfect"`,
		"- image: a\n  exec: b\n  args: ['{port:0}']\n":       "placeholder {port:0}",
		"- image: a\n  exec: b\n  args: ['{port}']\n":         "placeholder {port}",
		"- image: a\n  exec: b\n  args: ['{reach:x}']\n":      "write {reach:N}",
		"- image: a\n  exec: b\n  args: ['{dir:certs}']\n":    "placeholder {dir:certs}",
		"- image: a\n  exec: b\n  env: {A: '{pod:x}'}\n":      "{pod} takes no argument",
		"- just text\n":                                       "line 1, column 3: want an object",
		"- image: a\n  exec: b\n - x\n":                       "line ",
		"- image: a\n  exec: b\n  noContainerArgs: perhaps\n": "line 3, column 20: noContainerArgs",
	} {
		_, err := parsePrograms([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n%v\nwant %s", text, err, want)
		}
	}
}

func TestExpand(t *testing.T) {
	env := map[string]string{"A": "1", "B": "$(A)", "": "empty"}
	for text, want := range map[string]string{
		"": "", "plain": "plain", "$(A)": "1", "x$(A)y$(B)z": "x1y$(A)z", "$$(A)": "$(A)", "$$$(A)": "$1",
		"$(NONE)": "$(NONE)", "$": "$", "$A": "$A", "$(A": "$(A", "a$$": "a$", "$(A)$": "1$",
	} {
		if got := expand(text, env); got != want {
			t.Errorf("expand(%q) = %q; want %q", text, got, want)
		}
	}
}

func TestRegistry(t *testing.T) {
	r := NewRegistry()
	key := portKey{"c", "ns", "pod", 9443}
	first, err := r.allot(key)
	if err != nil {
		t.Fatal(err)
	}
	// A process that is started again gets its port before the old one is freed.
	second, err := r.allot(key)
	if err != nil || second == first {
		t.Fatalf("allotted %d, then %d: %v", first, second, err)
	}
	r.release(key, first)
	if addr, ok := r.Address("c", "ns", "pod", 9443); !ok || addr != loopback(second) {
		t.Errorf("address %q, %v; want that of port %d", addr, ok, second)
	}
	r.release(key, second)
	if addr, ok := r.Address("c", "ns", "pod", 9443); ok {
		t.Errorf("address %q of a port that was given back", addr)
	}
}

func TestReplaceFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	read := func() map[string]string {
		found := map[string]string{}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "..") {
				continue
			}
			if content, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil {
				found[e.Name()] = string(content)
			} else {
				found[e.Name()] = "" // a folder
			}
		}
		return found
	}
	replace := func(files map[string][]byte) {
		t.Helper()
		if err := replaceFiles(dir, files); err != nil {
			t.Fatal(err)
		}
	}
	replace(map[string][]byte{"a": []byte("1"), "deep/b": []byte("2")})
	if got := read(); !reflect.DeepEqual(got, map[string]string{"a": "1", "deep": ""}) {
		t.Errorf("found %v", got)
	}
	if content, err := os.ReadFile(filepath.Join(dir, "deep", "b")); err != nil || string(content) != "2" {
		t.Errorf("deep/b: %q, %v", content, err)
	}
	replace(map[string][]byte{"a": []byte("3"), "c": nil})
	if got := read(); !reflect.DeepEqual(got, map[string]string{"a": "3", "c": ""}) {
		t.Errorf("found %v", got)
	}
	entries, err := filepath.Glob(filepath.Join(dir, "..files-*"))
	if err != nil || len(entries) != 1 {
		t.Errorf("generations %v, %v; want one", entries, err)
	}
	if err := replaceFiles(dir, map[string][]byte{"../out": nil}); err == nil {
		t.Error("a name that leads out of the volume was accepted")
	}
	if got := read(); !reflect.DeepEqual(got, map[string]string{"a": "3", "c": ""}) {
		t.Errorf("after a refusal: %v", got)
	}
	private(t, dir)
}
