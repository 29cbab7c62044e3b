package proc

import (
	"bytes"
	"io"
	"os"
	"strings"
)

// Tail returns the last lines of a log, for an error message. It reads no more than the last 16 KiB, and returns
// nothing where the file cannot be read: the error it illustrates matters more.
func Tail(path string, lines int) string {
	const window = 16 << 10
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	if _, err := f.Seek(max(0, size-window), io.SeekStart); err != nil {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(f, window))
	if err != nil {
		return ""
	}
	all := strings.Split(string(bytes.TrimSpace(b)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
