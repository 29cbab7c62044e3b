package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/images"
	"github.com/slipway-k8s/slipway/internal/provider/lab/originals"
)

func TestPruneKeepsWhatIsInUse(t *testing.T) {
	cache := t.TempDir()
	for _, set := range []string{"present", "old", "run", "built", "killed" + prunedSuffix} {
		writeFile(t, filepath.Join(cache, set, "bin", "kube-apiserver"), "program")
	}
	writeFile(t, filepath.Join(cache, "half", "unfinished", "server"), "program")
	// As the lab does.
	bin, err := os.Open(filepath.Join(cache, "run", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	defer bin.Close()
	if err := syscall.Flock(int(bin.Fd()), syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	unlock, err := flow.LockFile(t.Context(), filepath.Join(cache, "built.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()

	var said []string
	b := &builder{cache: cache, released: &originals.Cache{Dir: t.TempDir()},
		sets: &imageSets{store: &images.Store{Dir: t.TempDir()}}}
	err = b.prune(t.Context(), []string{filepath.Join(cache, "present", "bin")},
		func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
	if err != nil {
		t.Fatal(err)
	}
	for set, stays := range map[string]bool{"present": true, "old": false, "run": true, "built": true, "half": false,
		"killed" + prunedSuffix: false} {
		if Exists(filepath.Join(cache, set)) != stays {
			t.Errorf("%s is there: %v", set, !stays)
		}
	}
	all := strings.Join(said, "\n")
	for _, want := range []string{"run stays: a lab runs it", "built stays: process ", "removed " +
		filepath.Join(cache, "old")} {
		if !strings.Contains(all, want) {
			t.Errorf("it does not say %q in\n%s", want, all)
		}
	}
}
