package etcd_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/slipway-k8s/slipway/internal/client/etcd"
	"github.com/slipway-k8s/slipway/internal/client/etcd/etcdtest"
)

const (
	// largeVariable asks for the tests with a snapshot of 1 GB, which take longer than the others together.
	largeVariable = "SLIPWAY_LARGE"
	fileVariable  = "SLIPWAY_TEST_SNAPSHOT" // has the test's own program look into that file, to be measured
	// maxMemory is what a restore may have of its own in memory, whatever the size of the snapshot (bytes).
	maxMemory = 250 << 20
)

// TestMain is the program that TestMemory starts.
func TestMain(m *testing.M) {
	file := os.Getenv(fileVariable)
	if file == "" {
		os.Exit(m.Run())
	}
	if err := lookInChild(file); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// lookInChild does what a restore does with a snapshot, and prints the most memory that it had of its own at any time
// (kB).
func lookInChild(file string) error {
	ended, most := make(chan struct{}), make(chan int64)
	go func() {
		peak := ownMemory()
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				peak = max(peak, ownMemory())
			case <-ended:
				most <- peak
				return
			}
		}
	}()
	if _, err := etcd.Inspect(file, file+".member"); err != nil {
		return err
	}
	silenced, err := etcd.Silence(file, "cluster.x-k8s.io/provider")
	if err != nil || len(silenced) != 1 {
		return fmt.Errorf("silenced %v: %w", silenced, err)
	}
	close(ended)
	fmt.Println("peak:", <-most)
	return nil
}

// ownMemory is what the process holds besides pages of files, which the kernel takes back when it needs them (kB).
func ownMemory() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	var kib int64
	_, _ = fmt.Sscan(rest, &kib)
	return kib
}

// TestMemory looks into a snapshot of 1 GB, with 200,000 keys, and takes a Deployment out of it, in little memory.
func TestMemory(t *testing.T) {
	if os.Getenv(largeVariable) == "" {
		t.Skipf("writes and reads 1 GB three times: %s=1 asks for it", largeVariable)
	}
	path := filepath.Join(t.TempDir(), "snapshot.db")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	value := make([]byte, 5200)
	_, _ = rand.Read(value)
	etcdtest.Snapshot(t, file, "7a3b", func(store mvcc.KV) {
		etcdtest.PutDeployment(t, store, "caph", map[string]string{"cluster.x-k8s.io/provider": "infrastructure-hetzner"}, 1)
		for i := range 200_000 {
			store.Put([]byte("/registry/things/"+strconv.Itoa(i)), value, lease.NoLease)
		}
	})
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() < 1<<30 {
		t.Fatalf("%v, %v: the snapshot is smaller than 1 GB", info.Size(), err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), fileVariable+"="+path)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	var kib int64
	if _, scanErr := fmt.Fscanf(bytes.NewReader(out), "peak: %d", &kib); err != nil || scanErr != nil {
		t.Fatalf("%v, %v: %s", err, scanErr, out)
	}
	t.Logf("%d MB of its own at most for a snapshot of %d MB, in %.1fs", kib>>10, info.Size()>>20,
		time.Since(began).Seconds())
	if kib<<10 > maxMemory {
		t.Errorf("%d MB", kib>>10)
	}
}
