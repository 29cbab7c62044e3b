package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/planning/bootstrapped"
	"github.com/slipway-k8s/slipway/platform"
)

// unknowns are what an overview could not ask.
func unknowns(o Overview) string {
	var all []string
	for _, u := range o.Unknown {
		all = append(all, u.What)
	}
	return strings.Join(all, ", ")
}

func TestOverviewOfAWholeCluster(t *testing.T) {
	w := clustertest.New(t)
	if _, err := bootstrapped.Run(t, w, w.Config(), flow.Memory()); err != nil {
		t.Fatal(err)
	}
	writes := w.Writes()
	o := overviewOf(t, w)
	if o.Sentence != "" {
		t.Errorf("a whole cluster waits: %s", o.Sentence)
	}
	if len(o.Servers) != 3 || len(o.Etcd) != 3 || len(o.Releases) != 3 || len(o.Certificates) == 0 {
		t.Errorf("%d servers, %d members, %d releases, %d certificates", len(o.Servers), len(o.Etcd), len(o.Releases),
			len(o.Certificates))
	}
	for _, s := range o.Servers {
		if s.State != "running" || s.Talos != "answers" || s.Node != "Ready" || s.Machine == "" {
			t.Errorf("server %+v", s)
		}
	}
	if w.Writes() != writes {
		t.Error("looking changed something")
	}

	// A node that is not Ready is said, and what cannot be asked any more is unknown, not left out.
	w.Workload.Change("v1", "Node", "", o.Servers[0].Name,
		clustertest.Map{"status": clustertest.Map{"conditions": []any{clustertest.Map{"type": "Ready", "status": "False",
			"reason": "KubeletDown"}}}})
	if o = overviewOf(t, w); !strings.HasPrefix(o.Sentence, "waiting for the nodes: 2 of 3 Ready; "+o.Servers[0].Name+
		": not Ready (KubeletDown)") {
		t.Errorf("the sentence is %q", o.Sentence)
	}
	w.Hetzner.CloseClientConnections()
	w.Hetzner.Server.Close()
	began := time.Now()
	if o = overviewOf(t, w); !strings.Contains(unknowns(o), "what it costs") ||
		!strings.Contains(unknowns(o), "the load balancer's targets") || len(o.Etcd) != 3 {
		t.Errorf("unknown is only %q, and etcd has %d members", unknowns(o), len(o.Etcd))
	}
	if took := time.Since(began); took > 2*answersWithin {
		t.Errorf("it took %s", took)
	}
}

// Before anything is made there is nothing unknown, and what is waited for is said.
func TestOverviewOfNothing(t *testing.T) {
	w := clustertest.New(t)
	if o := overviewOf(t, w); o.Sentence != "waiting for the management cluster: there is none yet" || len(o.Unknown) > 0 {
		t.Errorf("the sentence is %q, unknown %q", o.Sentence, unknowns(o))
	}
}

// A cluster that manages itself and does not answer is not taken for one that was never begun.
func TestOverviewOfASilentCluster(t *testing.T) {
	w := clustertest.New(t)
	if err := w.Tools().Files.Write(platform.Kubeconfig, w.Workload.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	w.Workload.Close()
	if o := overviewOf(t, w); !strings.HasPrefix(o.Sentence, "waiting for the cluster: connection refused") {
		t.Errorf("the sentence is %q, unknown %q", o.Sentence, unknowns(o))
	}
}

// A token that Hetzner refuses ends every wait that asks Hetzner itself.
func TestWaitEndsWithTheToken(t *testing.T) {
	err := wait.Wait{What: "the nodes", Within: time.Minute}.Until(t.Context(), t.Logf,
		func(context.Context) (string, error) {
			return "", fmt.Errorf("list the servers: %w", hetzner.ErrToken)
		})
	if !errors.Is(err, hetzner.ErrToken) || !strings.Contains(err.Error(), "waiting for the nodes") {
		t.Errorf("it ends with %v", err)
	}
}
