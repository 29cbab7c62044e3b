package kube_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/kube"
)

// chartArchive is a chart with more files, all of them empty.
func chartArchive(t *testing.T, more int) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	files := tar.NewWriter(zipped)
	const metadata = "apiVersion: v2\nname: one\nversion: 1.0.0\n"
	write := func(name, content string) {
		header := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}
		if err := files.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	write("one/Chart.yaml", metadata)
	name := "one/templates/" + strings.Repeat("x/", 400_000) // an extended header of 800 kB
	for range more {
		write(name, "")
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Empty files count nothing for Helm, and their names take the memory.
func TestReadChart(t *testing.T) {
	if c, err := kube.ReadChart(chartArchive(t, 0)); err != nil || c.Name() != "one" {
		t.Errorf("a chart: %+v, %v", c, err)
	}
	large := chartArchive(t, 200)
	if len(large) > 1<<20 {
		t.Fatalf("the archive has %d bytes: it does not show it", len(large))
	}
	if _, err := kube.ReadChart(large); err == nil || !strings.Contains(err.Error(), "unpacks to more than") {
		t.Errorf("error is %v", err)
	}
	if _, err := kube.ReadChart([]byte("<html>")); err == nil {
		t.Error("a page is read as a chart")
	}
}
