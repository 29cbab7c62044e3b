package talos_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"

	"github.com/slipway-k8s/slipway/internal/client/talos"
)

const (
	// largeVariable asks for the test with a snapshot of 1 GB.
	largeVariable = "SLIPWAY_LARGE"
	// Variables for the test's own program, started a second time to be measured: an address to upload to, and a folder.
	addressVariable = "SLIPWAY_TEST_ADDRESS"
	folderVariable  = "SLIPWAY_TEST_FOLDER"

	largeSize = 1 << 30
	maxMemory = 250 << 20 // bytes resident, as for a backup
)

// TestMain is the program that TestUploadMemory starts.
func TestMain(m *testing.M) {
	address := os.Getenv(addressVariable)
	if address == "" {
		os.Exit(m.Run())
	}
	if err := uploadInChild(address, os.Getenv(folderVariable)); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func uploadInChild(address, folder string) error {
	config, err := os.ReadFile(filepath.Join(folder, "talosconfig"))
	if err != nil {
		return err
	}
	c, err := talos.Parse(config)
	if err != nil {
		return err
	}
	snapshot, err := os.Open(filepath.Join(folder, "snapshot"))
	if err != nil {
		return err
	}
	defer snapshot.Close()
	if err := c.UploadSnapshot(context.Background(), talos.Route{Endpoint: address}, snapshot); err != nil {
		return err
	}
	status, err := os.ReadFile("/proc/self/status")
	fmt.Print(string(status))
	return err
}

// sink counts what is uploaded.
type sink struct {
	node
	size int64
	sum  [sha256.Size]byte
}

func (s *sink) EtcdRecover(stream grpc.ClientStreamingServer[common.Data, machine.EtcdRecoverResponse]) error {
	sum := sha256.New()
	for {
		data, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			copy(s.sum[:], sum.Sum(nil))
			return stream.SendAndClose(&machine.EtcdRecoverResponse{Messages: []*machine.EtcdRecover{{}}})
		}
		if err != nil {
			return err
		}
		sum.Write(data.Bytes)
		s.size += int64(len(data.Bytes))
	}
}

// TestUploadMemory uploads a snapshot of 1 GB in little memory.
func TestUploadMemory(t *testing.T) {
	if os.Getenv(largeVariable) == "" {
		t.Skipf("uploads 1 GB: %s=1 asks for it", largeVariable)
	}
	a, folder := newAuthority(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "talosconfig"), a.talosconfig(t), 0o600); err != nil {
		t.Fatal(err)
	}
	snapshot, err := os.Create(filepath.Join(folder, "snapshot"))
	if err != nil {
		t.Fatal(err)
	}
	want := sha256.New()
	block := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for range largeSize / len(block) {
		if _, err := io.MultiWriter(snapshot, want).Write(block); err != nil {
			t.Fatal(err)
		}
	}
	if err := snapshot.Close(); err != nil {
		t.Fatal(err)
	}
	s := &sink{}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), addressVariable+"="+serve(t, a, s), folderVariable+"="+folder)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	_, peak, _ := strings.Cut(string(out), "VmHWM:")
	var kib int64
	if _, scanErr := fmt.Sscan(peak, &kib); err != nil || scanErr != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if s.size != largeSize || !bytes.Equal(s.sum[:], want.Sum(nil)) {
		t.Errorf("%d of %d bytes arrived, or others", s.size, largeSize)
	}
	t.Logf("%d MB resident at most, in %.1fs", kib>>10, time.Since(began).Seconds())
	if kib<<10 > maxMemory {
		t.Errorf("%d MB were resident", kib>>10)
	}
}
