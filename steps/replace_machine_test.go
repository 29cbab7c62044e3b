package steps

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

// TestOneMachineIsReplacedAtATime has the first of three Machines on its way out: its member of etcd still votes, and is healthy.
func TestOneMachineIsReplacedAtATime(t *testing.T) {
	w := newWorld(t)
	if _, err := w.runTargets(t, w.config(), w.tools(), flow.Memory(), "wait-nodes"); err != nil {
		t.Fatal(err)
	}
	define(w.mgmt, capiKinds())
	w.mgmt.Change(capi, "Machine", Namespace, "k8s-control-plane-0", object{"metadata": object{
		"deletionTimestamp": "2026-05-04T12:00:00Z", "finalizers": []any{"machine.cluster.x-k8s.io"},
	}})
	writes := len(w.mgmt.Writes())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // else it would wait for another Machine
	defer cancel()
	_, err := NewOperations(w.config(), w.tools()).ReplaceMachine(ctx, func(string, ...any) {}, "k8s-control-plane-1")
	refused := &RefusedError{}
	if !errors.As(err, &refused) || !strings.Contains(refused.Why, "k8s-control-plane-0: its Machine is being deleted") {
		t.Errorf("got %v", err)
	}
	if wrote := w.mgmt.Writes()[writes:]; len(wrote) > 0 {
		t.Errorf("it wrote %v", wrote)
	}
}
