package stockout_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

// orderedOnce has CAPH give up the servers of m2 and m3, as v1.0.12 does.
func (w *environment) orderedOnce() {
	w.t.Helper()
	w.cfg.CAPHVersion = "v1.0.12"
	for _, name := range []string{"m2", "m3"} {
		w.objects.Change(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, name, clustertest.Map{
			"status": clustertest.Map{"conditions": []any{clustertest.Map{"type": "ServerCreateSucceeded", "status": "False",
				"severity": "Error", "reason": "ServerCreateFailedIrrecoverableError",
				"message": "error during placement (resource_unavailable, 3a4b5c6d7e8f9a0b)"}}}})
	}
}

// orderedAgain names the machines whose server was ordered again.
func (w *environment) orderedAgain() string {
	var names []string
	for _, name := range []string{"m1", "m2", "m3"} {
		if w.get("HCloudMachine", name).GetAnnotations()[capi.OrderedAgainAnnotation] != "" {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// What CAPH does not order again by itself is ordered again, once a minute, and nothing else is changed.
func TestOrderedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		caph, types, locations string
		out                    []string // of stock at Hetzner now
		once                   bool     // CAPH does not order them again by itself
		failed                 bool     // nor where they change
		want                   string
	}{
		"one server type":                {caph: "v1.0.12", types: "cx33", locations: "nbg1", once: true, want: "m2 m3"},
		"a CAPH that tries again itself": {caph: "v1.0.7", types: "cx33", locations: "nbg1"},
		"not given up":                   {caph: "v1.0.12", types: "cx33", locations: "nbg1"},
		"in stock again": {caph: "v1.0.12", types: "cx33,cpx32", locations: "nbg1", once: true,
			want: "m2 m3"},
		"given up for good": {caph: "v1.1.8", types: "cx33", locations: "nbg1", once: true, failed: true},
		"several, all out of stock": {caph: "v1.0.12", types: "cx33,cpx32", locations: "nbg1", once: true,
			out: []string{"cx33 nbg1", "cpx32 nbg1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.out...)
			if tt.once {
				w.orderedOnce()
			}
			for _, name := range []string{"m2", "m3"} {
				if tt.failed {
					w.objects.Change(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, name,
						clustertest.Map{"status": clustertest.Map{"bootState": "ProvisioningFailed"}})
				}
			}
			w.cfg.CAPHVersion, w.cfg.ServerType, w.cfg.Location = tt.caph, tt.types, tt.locations
			watch := w.watch()
			for range 3 {
				if busy, _, err := watch.Check(t.Context(), w.mgmt); busy || err != nil {
					t.Fatalf("busy %v, %v", busy, err)
				}
			}
			if got := w.orderedAgain(); got != tt.want {
				t.Errorf("ordered again: %q, want %q", got, tt.want)
			}
			if writes := len(w.objects.Writes()); writes != len(strings.Fields(tt.want)) {
				t.Errorf("%d writes: %v", writes, w.objects.Writes())
			}
		})
	}
}
