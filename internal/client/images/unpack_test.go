package images

import (
	"archive/tar"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// fetchLayers fetches an image of layers and returns its folder.
func fetchLayers(t *testing.T, layers ...[]file) (*Store, string, error) {
	t.Helper()
	r := newRegistry(t)
	made := make([]v1.Layer, len(layers))
	for i, files := range layers {
		made[i] = layerOf(t, files...)
	}
	r.push("one:v1", imageOf(t, v1.Config{}, made...))
	s := r.store()
	image, err := s.Fetch(t.Context(), one, nil)
	return s, image.Root, err
}

func link(kind byte, name, target string) file {
	return file{Header: tar.Header{Name: name, Typeflag: kind, Linkname: target, Mode: 0o777}}
}

// Nothing outside of the image's folder is written, whatever a layer holds.
func TestHostileLayersAreRefused(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("as it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	const sym, hard = tar.TypeSymlink, tar.TypeLink
	for name, test := range map[string]struct {
		files []file
		want  string
	}{
		"above":                  {[]file{plain("../victim", "x")}, "leaves the image's folder"},
		"above, by another path": {[]file{plain("a/../../victim", "x")}, "leaves the image's folder"},
		"absolute":               {[]file{plain(victim, "x")}, "leaves the image's folder"},
		"a link out":             {[]file{link(sym, "out", "../../victim")}, "leaves the image's folder"},
		"through a link out": {[]file{link(sym, "a/b", ".."), link(sym, "a/b/c", "../.."), plain("a/b/c/victim", "x")},
			"path escapes from parent"},
		"links that leave together": {[]file{{Header: tar.Header{Name: "x/y/z/", Typeflag: tar.TypeDir}},
			link(sym, "x/y/z/up", "../../.."), link(sym, "x/y/z/up/out", "../..")}, "refused"},
		"a hard link out":          {[]file{link(hard, "out", "../../victim")}, "leaves the image's folder"},
		"an absolute hard link":    {[]file{link(hard, "out", victim)}, "no such file"},
		"a hard link by a link":    {[]file{{Header: tar.Header{Name: "a/b/", Typeflag: tar.TypeDir}}, link(sym, "a/b/up", "../.."), link(sym, "a/b/up/s", "../../../../../../../etc"), link(hard, "s2", "s/hostname")}, "refused"},
		"a device":                 {[]file{{Header: tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}}}, "neither a file"},
		"a block device":           {[]file{{Header: tar.Header{Name: "disk", Typeflag: tar.TypeBlock}}}, "neither a file"},
		"a named pipe":             {[]file{{Header: tar.Header{Name: "pipe", Typeflag: tar.TypeFifo}}}, "neither a file"},
		"a whiteout of the folder": {[]file{plain(".wh...", "")}, "deletes nothing that has a name"},
		"a whiteout above":         {[]file{plain("../.wh.victim", "")}, "leaves the image's folder"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, err := fetchLayers(t, test.files)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %q", err, test.want)
			}
			entries, _ := os.ReadDir(filepath.Join(s.Dir, "roots"))
			entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), ".lock") })
			if len(entries) > 0 {
				t.Errorf("it left %v", entries)
			}
			if data, err := os.ReadFile(victim); err != nil || string(data) != "as it was" {
				t.Errorf("the file outside has %q, %v", data, err)
			}
			for _, at := range []string{s.Dir, filepath.Dir(s.Dir), filepath.Join(s.Dir, "roots")} {
				if exists(filepath.Join(at, "victim")) {
					t.Errorf("a file was written to %s", at)
				}
			}
		})
	}
}

func TestUnpackKeepsNoPrivileges(t *testing.T) {
	_, root, err := fetchLayers(t, []file{
		{tar.Header{Name: "su", Typeflag: tar.TypeReg, Mode: 0o6755}, "program"},
		{tar.Header{Name: "all", Typeflag: tar.TypeReg, Mode: 0o1777}, "program"},
		{tar.Header{Name: "none", Typeflag: tar.TypeReg, Mode: 0}, "data"},
		{tar.Header{Name: "d", Typeflag: tar.TypeDir, Mode: 0o7777}, ""}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"su": 0o755, "all": 0o755, "none": 0o600, "d": fs.ModeDir | 0o755} {
		info, err := os.Lstat(filepath.Join(root, name))
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
}

func TestLayersApplyInTheirOrder(t *testing.T) {
	_, _, err := fetchLayers(t,
		[]file{plain("etc/gone", "1"), plain("etc/stays", "1"), plain("lib/a", "1"), plain("lib/b/c", "1"),
			plain("run/x", "1"), plain("data", "1"), {Header: tar.Header{Name: "folder/", Typeflag: tar.TypeDir}}},
		[]file{plain("etc/.wh.gone", ""), plain("lib/b/d", "2"), plain("lib/.wh..wh..opq", ""), plain("./run/y", "2"),
			plain("folder", "now a file"), plain("data/inside", "now a folder")},
		[]file{link(tar.TypeSymlink, "bin/program", "/lib/b/d"), link(tar.TypeSymlink, "var/run", "/run"),
			link(tar.TypeLink, "lib/e", "lib/b/d"), link(tar.TypeSymlink, "nothing", "not/there")},
	)
	if err == nil {
		t.Fatal("a file in place of a folder's was written through")
	}
	_, root, err := fetchLayers(t,
		[]file{plain("etc/gone", "1"), plain("etc/stays", "1"), plain("lib/a", "1"), plain("lib/b/c", "1"),
			plain("run/x", "1"), {Header: tar.Header{Name: "folder/", Typeflag: tar.TypeDir}}, plain("folder/in", "1")},
		[]file{plain("etc/.wh.gone", ""), plain("lib/b/d", "2"), plain("lib/.wh..wh..opq", ""), plain("./run/y", "2"),
			plain("folder", "now a file"), plain("run/.wh.y", "")},
		[]file{link(tar.TypeSymlink, "bin/program", "/lib/b/d"), link(tar.TypeSymlink, "var/run", "/run"),
			link(tar.TypeLink, "lib/e", "lib/b/d"), link(tar.TypeSymlink, "nothing", "not/there")},
	)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	err = fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, path)
		}
		return err
	})
	want := []string{"bin/program", "etc/stays", "folder", "lib/b/d", "lib/e", "nothing", "run/x", "run/y", "var/run"}
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("files are %v, %v", found, err)
	}
	for _, path := range []string{"bin/program", "lib/e"} {
		if data, err := os.ReadFile(filepath.Join(root, path)); err != nil || string(data) != "2" {
			t.Errorf("%s has %q, %v", path, data, err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(root, "var/run/y")); err != nil || string(data) != "2" {
		t.Errorf("through the folder's link: %q, %v", data, err)
	}
}

func TestTooMuchIsRefused(t *testing.T) {
	r := (&unpacker{most: bounds{bytes: 4}}).bounded(strings.NewReader("12345"))
	buffer := make([]byte, 8)
	if _, err := r.Read(buffer); err == nil || !strings.Contains(err.Error(), "unpacks to more than") {
		t.Errorf("error is %v", err)
	}
	for name, m := range map[string]*v1.Manifest{
		"layers": {Layers: make([]v1.Descriptor, maxLayers+1)},
		"bytes":  {Config: part(1), Layers: []v1.Descriptor{part(maxFetched)}},
		"size":   {Config: part(-1)},
		"digest": {Config: v1.Descriptor{Size: 1, Digest: v1.Hash{Algorithm: "md5", Hex: "00"}}},
	} {
		if err := checkManifest(m); err == nil {
			t.Errorf("%s: it is accepted", name)
		}
	}
	if err := checkManifest(&v1.Manifest{Config: part(1), Layers: []v1.Descriptor{part(5)}}); err != nil {
		t.Error(err)
	}
}

func part(size int64) v1.Descriptor { return v1.Descriptor{Size: size, Digest: hashOf(nil)} }

func TestProgramOfAnImage(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"manager", "usr/local/bin/kube-apiserver", "app/cmd/webhook/webhook", "go-runner"} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "data"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(root, "out")); err != nil {
		t.Fatal(err)
	}
	list := func(words ...string) []string { return words }
	for _, test := range []struct {
		entrypoint, cmd []string
		workingDir      string
		otherwise       string
		want            string
		says            string
	}{
		{entrypoint: list("/manager"), want: "manager"},
		{entrypoint: list("/manager", "-v"), cmd: list("2"), want: "manager"},
		{cmd: list("/manager"), want: "manager"},
		{entrypoint: list("/go-runner"), otherwise: "/usr/local/bin/kube-apiserver", want: "usr/local/bin/kube-apiserver"},
		{entrypoint: list("/go-runner", "--log-file=/x", "/usr/local/bin/kube-apiserver", "-v=2"),
			otherwise: "/usr/local/bin/kube-apiserver", want: "usr/local/bin/kube-apiserver"},
		{entrypoint: list("/go-runner"), cmd: list("kube-apiserver"), want: "usr/local/bin/kube-apiserver"},
		{entrypoint: list("webhook"), workingDir: "/app", says: "no executable file /usr/local/sbin/webhook or"},
		{entrypoint: list("cmd/webhook/webhook"), workingDir: "/app", want: "app/cmd/webhook/webhook"},
		{entrypoint: list("/bin/sh", "-c", "x"), otherwise: "/manager", want: "manager"},
		{says: "has no entry point"},
		{entrypoint: list("/data"), says: "no executable file /data"},
		{entrypoint: list("/out"), says: "no executable file"},
		{entrypoint: list("/../../../bin/sh"), says: "no executable file"},
	} {
		image := Image{Reference: one, Root: root, Config: v1.Config{Entrypoint: test.entrypoint, Cmd: test.cmd,
			WorkingDir: test.workingDir}}
		file, err := image.Program(test.otherwise)
		if test.says != "" {
			if err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), one) {
				t.Errorf("%q: %s, %v", test.entrypoint, file, err)
			}
			continue
		}
		if err != nil || file != filepath.Join(root, test.want) {
			t.Errorf("%q %q: %s, %v", test.entrypoint, test.cmd, file, err)
		}
	}
}
