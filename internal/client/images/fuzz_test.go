package images

import (
	"archive/tar"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLayer unpacks what a registry may send as a layer: it stays within its folder and its bounds.
func FuzzLayer(f *testing.F) {
	for _, archive := range sparseArchives() {
		f.Add([]byte(archive))
	}
	file := func(name, content string) string { return rawEntry(tar.TypeReg, name, content, nil) }
	linked := func(kind byte, name, target string) string {
		return rawEntry(kind, name, "", func(header []byte) { copy(header[157:], target) })
	}
	for _, archive := range []string{
		file("a/b", "content") + file("a/.wh..wh..opq", "") + file(".wh.a", ""),
		file("../beside", "x"), file("/absolute", "x"),
		linked(tar.TypeSymlink, "out", "../beside") + file("out", "x"),
		linked(tar.TypeSymlink, "a/up", "..") + linked(tar.TypeSymlink, "a/up/out", "../..") + file("a/up/out/beside", "x"),
		file("a", "x") + linked(tar.TypeLink, "b", "a") + file("b", "y"),
		rawEntry(tar.TypeDir, "d/", "", nil) + paxRecords("path", strings.Repeat("d/", 100)+"x") + file("x", "y"),
		"\x1f\x8b\x08\x00", "\x28\xb5\x2f\xfd",
	} {
		f.Add([]byte(archive + strings.Repeat(endOfArchive, 1024)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		most := bounds{bytes: 64 << 10, files: 40}
		parent := t.TempDir()
		beside, dir := filepath.Join(parent, "beside"), filepath.Join(parent, "root")
		if err := os.WriteFile(beside, []byte("as it was"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		plain, err := uncompress(strings.NewReader(string(data)))
		if err != nil {
			return
		}
		defer plain.Close()
		u := &unpacker{root: root, most: most}
		if err := u.layer(t.Context(), u.bounded(plain)); err == nil {
			_ = u.checkLinks() // an error refuses the image
		}
		checkWithin(t, dir, most)
		if entries, err := os.ReadDir(parent); err != nil || len(entries) != 2 {
			t.Errorf("beside the folder are %v, %v", entries, err)
		}
		if content, err := os.ReadFile(beside); err != nil || string(content) != "as it was" {
			t.Errorf("the file beside the folder has %q, %v", content, err)
		}
	})
}
