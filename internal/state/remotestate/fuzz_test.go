package remotestate

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"testing"

	"github.com/slipway-k8s/slipway/internal/client/objectstore"
)

// FuzzDocument reads what an attacker has put into the store: nothing that is not authentic is taken, and nothing
// panics.
func FuzzDocument(f *testing.F) {
	p := Place{Store: objectstore.Folder("/nowhere"), Cluster: "k8s", Environment: "hetzner", Keys: keysOf(f, goldenKey)}
	for _, name := range []string{"format1/state.json", "format2/state.json"} {
		f.Add(golden(f, name))
	}
	whole, err := p.parse("", golden(f, "format2/state.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(altered(f, golden(f, "format2/state.json"), func(d map[string]any) { d["serial"] = 3 }))
	f.Add([]byte(`{"format":2,"cluster":"k8s","world":"hetzner","serial":0}`))
	f.Add([]byte(`{"format":1,"cluster":"k8s","world":"hetzner","serial":9}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := p.decode("", data)
		if err != nil {
			return
		}
		if d.Format >= authenticated && (!bytes.Equal(d.Authentication, whole.Authentication) || d.Digest != whole.Digest ||
			!bytes.Equal(d.Sealed, whole.Sealed) || d.Serial != whole.Serial) {
			t.Fatalf("%s was taken", data)
		}
		c, err := p.content(d)
		if err == nil && d.Serial > 0 && c.Digest() != d.Digest {
			t.Fatal("content of another digest was taken")
		}
	})
}

// FuzzContent unpacks what is encrypted for the right key: it takes a bounded amount of memory.
func FuzzContent(f *testing.F) {
	d := Document{Format: Format, Cluster: "k8s", Environment: "hetzner", Serial: 1}
	for _, archive := range hostileArchives(f) {
		if len(archive) < 1<<20 { // go test -fuzz takes no seed above 100 MiB
			f.Add(archive)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for format := 1; format <= Format; format++ {
			d.Format = format
			c, err := unpackArchive(bytes.NewReader(packed(t, data)), d)
			if err != nil {
				continue
			}
			total := 0
			for _, file := range c {
				total += len(file)
			}
			if total > mostContent || len(c) > mostFiles {
				t.Fatalf("%d files with %d bytes", len(c), total)
			}
		}
	})
}

func packed(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(data)
	if closeErr := w.Close(); err != nil || closeErr != nil {
		t.Fatal(err, closeErr)
	}
	return out.Bytes()
}

// hostileArchives are archives that are refused, by what is wrong with them.
func hostileArchives(t testing.TB) map[string][]byte {
	t.Helper()
	archive := func(headers ...tar.Header) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for _, header := range headers {
			if err := w.WriteHeader(&header); err != nil {
				t.Fatal(err)
			}
			if header.Typeflag == tar.TypeReg {
				if _, err := io.CopyN(w, zeros{}, header.Size); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	file := func(name string, size int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size}
	}
	var many, large []tar.Header
	for i := range mostFiles + 1 {
		many = append(many, file(fmt.Sprint("f", i), 0))
	}
	for i := range mostContent/mostFile + 1 {
		large = append(large, file(fmt.Sprint("f", i), mostFile))
	}
	// A sparse entry of the old GNU form: 512 bytes that say that they are of a file of 4 GiB.
	sparse := archive(file("journal.json", 0))
	copy(sparse[156:], "S")
	copy(sparse[257:], "ustar  \x00")
	copy(sparse[483:], "00000000000\x00")
	copy(sparse[148:], fmt.Sprintf("%06o\x00 ", checksum(sparse[:512])))
	return map[string][]byte{
		"a link":          archive(tar.Header{Typeflag: tar.TypeSymlink, Name: "kubeconfig", Linkname: "/etc/passwd"}),
		"a folder":        archive(tar.Header{Typeflag: tar.TypeDir, Name: "restore/"}),
		"outside":         archive(file("../kubeconfig", 1)),
		"of this machine": archive(file("synced.json", 1)),
		"twice":           archive(file("kubeconfig", 1), file("kubeconfig", 1)),
		"a large file":    archive(file("kubeconfig", mostFile+1)),
		"many files":      archive(many...),
		"many bytes":      archive(large...),
		"sparse, GNU":     sparse,
		"sparse, PAX": sparsePAX(archive(tar.Header{Typeflag: tar.TypeReg, Name: "kubeconfig", Size: 1, PAXRecords: map[string]string{
			"XXX.sparse.map": "0,1", "XXX.sparse.size": "1000", "XXX.sparse.numblocks": "1"}})),
	}
}

// sparsePAX makes records of an archive, which archive/tar would not write, those of a sparse entry.
func sparsePAX(archive []byte) []byte {
	return bytes.ReplaceAll(archive, []byte("XXX.sparse."), []byte("GNU.sparse."))
}

func checksum(block []byte) (sum int) {
	for i, b := range block {
		if i >= 148 && i < 156 {
			b = ' '
		}
		sum += int(b)
	}
	return sum
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestHostileArchives(t *testing.T) {
	for name, archive := range hostileArchives(t) {
		if c, err := unpackArchive(bytes.NewReader(packed(t, archive)), Document{Format: 1}); err == nil {
			t.Errorf("%s: %v was unpacked", name, c.names())
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}
