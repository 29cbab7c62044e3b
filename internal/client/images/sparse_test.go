package images

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// rawEntry is an entry of an archive that archive/tar reads and does not write. change may change its header before the
// header's sum is computed.
func rawEntry(kind byte, name, content string, change func(header []byte)) string {
	header := make([]byte, 512)
	copy(header, name)
	copy(header[100:], "0000644\x00")
	copy(header[124:], fmt.Sprintf("%011o\x00", len(content)))
	copy(header[136:], "00000000000\x00")
	copy(header[148:], "        ")
	header[156] = kind
	copy(header[257:], "ustar\x0000")
	if change != nil {
		change(header)
	}
	var sum int
	for _, b := range header {
		sum += int(b)
	}
	copy(header[148:], fmt.Sprintf("%06o\x00 ", sum))
	return string(header) + content + strings.Repeat("\x00", (512-len(content)%512)%512)
}

// paxRecords is an extended header, whose records belong to the next entry.
func paxRecords(pairs ...string) string {
	var records strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		record := fmt.Sprintf(" %s=%s\n", pairs[i], pairs[i+1])
		n := len(record) + 2
		for len(fmt.Sprint(n))+len(record) != n {
			n++
		}
		fmt.Fprintf(&records, "%d%s", n, record)
	}
	return rawEntry(tar.TypeXHeader, "pax", records.String(), nil)
}

const endOfArchive = "\x00"

// hole is the size of the files below: 6 GiB, of which their archives have nothing.
const hole = "6442450944"

// sparseArchives has an archive of each form in which a file with holes can be described.
func sparseArchives() map[string]string {
	end := strings.Repeat(endOfArchive, 1024)
	data := rawEntry(tar.TypeReg, "data", "", nil)
	return map[string]string{
		"old GNU": rawEntry(tar.TypeGNUSparse, "data", "", func(header []byte) {
			copy(header[257:], "ustar  \x00")
			copy(header[386:], "60000000000\x0000000000000\x00") // at 6 GiB there are no bytes
			copy(header[483:], "60000000000\x00")
		}) + end,
		"PAX 0.0": paxRecords("GNU.sparse.size", hole, "GNU.sparse.numblocks", "1", "GNU.sparse.offset", hole,
			"GNU.sparse.numbytes", "0") + data + end,
		"PAX 0.1": paxRecords("GNU.sparse.size", hole, "GNU.sparse.numblocks", "1", "GNU.sparse.map", hole+",0",
			"GNU.sparse.name", "data") + data + end,
		"PAX 1.0": paxRecords("GNU.sparse.major", "1", "GNU.sparse.minor", "0", "GNU.sparse.name", "data",
			"GNU.sparse.realsize", hole) +
			rawEntry(tar.TypeReg, "data", "1\n"+hole+"\n0\n"+strings.Repeat("\x00", 512-len("1\n"+hole+"\n0\n")), nil) + end,
		"PAX of a version to come": paxRecords("GNU.sparse.major", "2", "GNU.sparse.minor", "0",
			"GNU.sparse.realsize", hole) + data + end,
	}
}

// unpackArchive unpacks one layer within bounds.
func unpackArchive(t *testing.T, most bounds, archive string) (dir string, err error) {
	t.Helper()
	dir = t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	u := &unpacker{root: root, most: most}
	return dir, u.layer(t.Context(), u.bounded(strings.NewReader(archive)))
}

// The size of a sparse file is in its header only: a few hundred bytes wrote any number of them.
func TestSparseFilesAreRefused(t *testing.T) {
	for name, archive := range sparseArchives() {
		t.Run(name, func(t *testing.T) {
			header, err := tar.NewReader(strings.NewReader(archive)).Next()
			if err != nil || header.Name != "data" || header.Size != 6<<30 && !strings.Contains(name, "to come") {
				t.Fatalf("this archive does not show it: %+v, %v", header, err)
			}
			dir, err := unpackArchive(t, bounds{bytes: 1 << 20, files: 100}, archive)
			if err == nil || !strings.Contains(err.Error(), "sparse file: it is refused") {
				t.Errorf("error is %v", err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
				t.Errorf("it wrote %v, %v", entries, err)
			}
		})
	}
}

// As it comes from a registry.
func TestAnImageWithASparseFileIsRefused(t *testing.T) {
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader([]byte(sparseArchives()["PAX 1.0"]))), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r := newRegistry(t)
	r.push("one:v1", imageOf(t, v1.Config{}, layer))
	s := r.store()
	if _, err := s.Fetch(t.Context(), one, nil); err == nil || !strings.Contains(err.Error(), "sparse file: it is refused") {
		t.Errorf("error is %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(s.Dir, "roots", "*", "data")); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

func TestBoundsOfALayer(t *testing.T) {
	file := func(name, content string) string { return rawEntry(tar.TypeReg, name, content, nil) }
	long := func(name string) string { return paxRecords("path", name) + file("short", "") }
	most := bounds{bytes: 16384, files: 4}
	for name, test := range map[string]struct {
		archive, want string
	}{
		"bytes in one file":       {file("a", strings.Repeat("x", 17000)), "more than 16384 bytes"},
		"bytes in several":        {strings.Repeat(file("a", strings.Repeat("x", 4000)), 4), "more than 16384 bytes"},
		"files":                   {file("a", "") + file("b", "") + file("c", "") + file("d", "") + file("e", ""), "more than 4 files"},
		"the same file again":     {strings.Repeat(file("a", ""), 5), "more than 4 files"},
		"folders of one path":     {file("a/b/c/d/e", ""), "more than 4 files"},
		"folders of several":      {file("a/b/f", "") + file("c/d/f", ""), "more than 4 files"},
		"a long path":             {long(strings.Repeat("a/", 100) + strings.Repeat("b", 3900)), "folders: it is refused"},
		"a path of many folders":  {long(strings.Repeat("a/", maxDepth) + "b"), "folders: it is refused"},
		"a hard link to too long": {paxRecords("linkpath", strings.Repeat("a/", maxDepth)+"b") + rawEntry(tar.TypeLink, "l", "", nil), "folders: it is refused"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := unpackArchive(t, most, test.archive)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %q", err, test.want)
			}
			checkWithin(t, dir, most)
		})
	}
	if _, err := unpackArchive(t, most, file("a/b/c", "x")+file("a/b/d", "y")[:512]); err == nil {
		t.Error("an archive that ends within a file is accepted")
	}
	if _, err := unpackArchive(t, most, file("a/b/c", "x")+file("a/b/c", "y")); err != nil {
		t.Errorf("within the bounds: %v", err)
	}
}

// A layer without end of extended headers, of which none is a file.
func TestHeadersCount(t *testing.T) {
	_, err := unpackArchive(t, bounds{bytes: 1 << 20, files: 4}, strings.Repeat(paxRecords("comment", "x"), 2000))
	if err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("error is %v", err)
	}
}

// checkWithin fails where a folder has more than the bounds allow.
func checkWithin(t *testing.T, dir string, most bounds) {
	t.Helper()
	var bytes int64
	files := -1 // the folder itself
	err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if files++; err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return err
	})
	if err != nil || bytes > most.bytes || files > most.files {
		t.Errorf("it has %d bytes in %d files and folders, %v", bytes, files, err)
	}
}
