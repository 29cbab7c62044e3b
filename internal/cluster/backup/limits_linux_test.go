package backup_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster/backup"
)

// Variables for the test's own program, started a second time with a limit, or to be measured.
const (
	limitVariable  = "SLIPWAY_TEST_FILE_LIMIT" // bytes that no file may exceed: a disk that is full
	sizeVariable   = "SLIPWAY_TEST_SNAPSHOT"   // bytes of the snapshot to back up
	folderVariable = "SLIPWAY_TEST_FOLDER"
)

// TestMain is the program that TestDiskFull and TestMemory start.
func TestMain(m *testing.M) {
	folder := os.Getenv(folderVariable)
	if folder == "" {
		os.Exit(m.Run())
	}
	if err := saveInChild(folder); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Print(string(status))
}

func saveInChild(folder string) error {
	if text := os.Getenv(limitVariable); text != "" {
		limit, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return err
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			return err
		}
	}
	size, err := strconv.ParseInt(os.Getenv(sizeVariable), 10, 64)
	if err != nil {
		return err
	}
	seal, err := backup.PassphraseSeal("correct horse")
	if err != nil {
		return err
	}
	c := contents()
	_, err = backup.Save(context.Background(), backup.Folder(folder), seal, c, streamed(size))
	return err
}

// streamed is a snapshot of a database of n bytes that is nowhere as a whole.
func streamed(n int64) io.Reader {
	block := make([]byte, 1<<20)
	_, _ = rand.Read(block)
	sum := sha256.New()
	left := n
	database := readerFunc(func(p []byte) (int, error) {
		if left == 0 {
			return 0, io.EOF
		}
		k := copy(p[:min(int64(len(p)), left)], block)
		sum.Write(p[:k])
		left -= int64(k)
		return k, nil
	})
	var checksum io.Reader
	return io.MultiReader(database, readerFunc(func(p []byte) (int, error) {
		if checksum == nil {
			checksum = bytes.NewReader(sum.Sum(nil))
		}
		return checksum.Read(p)
	}))
}

func child(t *testing.T, folder string, env ...string) (string, error) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(append(os.Environ(), folderVariable+"="+folder), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestDiskFull lets the disk take no more in the middle of a backup.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	out, err := child(t, dir, limitVariable+"=5000000", sizeVariable+"=20971520")
	if err == nil || !strings.Contains(out, "into the backup: write "+dir) ||
		!strings.Contains(out, syscall.EFBIG.Error()) {
		t.Errorf("%v: %s", err, out)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("there lie %v, %v", entries, err)
	}
}

// maxMemory is what a backup may have resident, whatever the size of the snapshot (bytes).
const maxMemory = 250 << 20

// TestMemory backs up a snapshot of 1 GB, and reads it back, in little memory. What the clients of a whole run need
// beside it the end to end test counts.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes and reads 1 GB")
	}
	out, err := child(t, t.TempDir(), sizeVariable+"=1073741824")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, peak, _ := strings.Cut(out, "VmHWM:")
	var kib int64
	if _, err := fmt.Sscan(peak, &kib); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("peak: %d MB", kib>>10)
	if kib<<10 > maxMemory*memoryFactor {
		t.Errorf("%d MB were resident", kib>>10)
	}
}
