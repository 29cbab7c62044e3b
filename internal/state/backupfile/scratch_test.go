package backupfile

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A process that was killed leaves every secret of a cluster behind, unencrypted: the next one deletes them.
func TestScratchOfAKilledProcessIsRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	made := func() (string, func() error) {
		t.Helper()
		dir, remove, err := newScratch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "snapshot.db"), []byte("secrets"), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir, remove
	}
	old := func(dir string) {
		t.Helper()
		then := time.Now().Add(-2 * scratchYoung)
		if err := os.Chtimes(dir, then, then); err != nil {
			t.Fatal(err)
		}
	}
	// The kernel releases the lock of a process that ended; its folder stays.
	dead := filepath.Join(os.TempDir(), scratchPrefix+"dead")
	young := filepath.Join(os.TempDir(), scratchPrefix+"young")
	for _, dir := range []string{dead, young} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "snapshot.db"), []byte("secrets"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old(dead)
	alive, remove := made()
	old(alive)
	second, removeSecond := made()
	for dir, want := range map[string]bool{dead: false, young: true, alive: true, second: true} {
		if _, err := os.Stat(filepath.Join(dir, "snapshot.db")); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", filepath.Base(dir), !want, want)
		}
	}
	for _, remove := range []func() error{remove, removeSecond} {
		if err := remove(); err != nil {
			t.Error(err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), scratchPrefix+"*")); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}
