package kube

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
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
	name := "one/templates/" + strings.Repeat("x/", 5_000) + "y" // an extended header of 10 kB
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
	if c, err := ReadChart(chartArchive(t, 0)); err != nil || c.Name() != "one" {
		t.Errorf("a chart: %+v, %v", c, err)
	}
	large, most := chartArchive(t, 100), int64(1<<20)
	if _, err := readChart(large, most); err == nil || !strings.Contains(err.Error(), "unpacks to more than") {
		t.Errorf("error is %v", err)
	}
	if _, err := ReadChart([]byte("<html>")); err == nil {
		t.Error("a page is read as a chart")
	}
}
