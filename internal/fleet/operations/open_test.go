package operations

import (
	"errors"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/slipway-k8s/slipway/internal/fleet"
	"github.com/slipway-k8s/slipway/internal/session"
)

// Several commands for one rehearsal at the same moment: all have the same key and the same kubeconfig.
func TestRehearsalsAtOnce(t *testing.T) {
	f := &opened{Fleet: &fleet.Fleet{Spec: fleet.Spec{Name: "demo"}}, caller: &session.Caller{WorkDir: t.TempDir()}}
	if err := os.MkdirAll(string(f.folder()), 0o700); err != nil {
		t.Fatal(err)
	}
	const commands = 20
	keys, errs := make([]string, commands), make([]error, commands)
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range commands {
		all.Go(func() {
			<-begin
			var err error
			keys[i], err = f.rehearsedIdentity()
			errs[i] = errors.Join(err, f.keepKubeconfig([]byte("kubeconfig")))
		})
	}
	close(begin)
	all.Wait()
	if err := errors.Join(errs...); err != nil || len(slices.Compact(slices.Sorted(slices.Values(keys)))) != 1 ||
		keys[0] == "" {
		t.Errorf("%d keys, %v", len(slices.Compact(slices.Sorted(slices.Values(keys)))), err)
	}
}
