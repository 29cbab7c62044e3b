package restore

import (
	"errors"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
)

// Two people with one backup each restore one cluster once. Whose the cluster was does not matter: it is lost.
func TestOneOfTwoRestores(t *testing.T) {
	w := newRestoreWorld(t)
	w.Hetzner.SetPlacementGroups(schema.PlacementGroup{ID: 7, Name: "slipway-k8s", Type: "spread",
		Labels: map[string]string{
			"slipway-cluster": "k8s", clustertest.ReservedBy: "0123456789abcdef", "slipway-host": "laptop"}})
	mine, err := w.r.claimRestore(t.Context(), w.say, Lost{})
	if err != nil {
		t.Fatal(err)
	}
	others := w.r
	others.tools.Files = platform.FilesIn(t.TempDir())

	var restoring *claims.RecoveringError
	if _, err := others.claimRestore(t.Context(), w.say, Lost{}); !errors.As(err, &restoring) ||
		restoring.Claim.By != mine.By || !strings.Contains(err.Error(), "delete the placement group slipway-k8s.restore") {
		t.Errorf("the second is told %v", err)
	}
	if err := others.tools.Files.Write(platform.Kubeconfig, []byte("of the lost cluster")); err != nil {
		t.Fatal(err)
	}
	if _, err := others.ensureLost(t.Context(), w.say); !errors.As(err, &restoring) {
		t.Errorf("before its folder is a restore's the second is told %v", err)
	}
	record, err := records.ReadRestore(others.tools.Files)
	if kept, keptErr := others.tools.Files.Read(platform.Kubeconfig); record != nil ||
		string(kept) != "of the lost cluster" || errors.Join(err, keptErr) != nil {
		t.Errorf("its folder was changed: %+v, %q, %v, %v", record, kept, err, keptErr)
	}
	if err := others.tools.Files.Remove(platform.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	if _, err := claims.Reserve(t.Context(), others.cfg, others.tools, w.say); !errors.As(err, &restoring) {
		t.Errorf("a bootstrap meanwhile, with another folder, is told %v", err)
	}
	if again, err := w.r.claimRestore(t.Context(), w.say, Lost{}); err != nil || again != mine {
		t.Errorf("without its journal the first gets %+v, %v", again, err)
	}
	if n := len(w.Hetzner.Writes()); n != 1 {
		t.Errorf("wrote %v", w.Hetzner.Writes())
	}

	// The second has another folder and the same management cluster: the first one's folder was lost.
	w.Provider.There = true
	clustertest.Define(w.Management, []kubetest.Resource{clustertest.Resource("Cluster", "clusters", "cluster.x-k8s.io",
		"v1beta1")})
	w.Management.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s", nil))
	if _, err := others.claimRestore(t.Context(), w.say, Lost{}); !errors.As(err, &restoring) {
		t.Errorf("with a cluster in management that no restore made: %v", err)
	}
	w.Management.Put(restoredCluster(w))
	taken, err := others.claimRestore(t.Context(), w.say, Lost{})
	if err != nil || taken.By == mine.By {
		t.Fatalf("the restore is not taken over: %+v, %v", taken, err)
	}
	if v := claims.VerifyRecovery(t.Context(), w.r.cfg, w.r.tools, mine.By); v.Answer() != flow.AnswerGone {
		t.Error("the claim that was taken over is said to stand")
	}

	// At its end the name is the restorer's, and no restore is under way any more.
	out, err := recovery.HandOver(t.Context(), others.cfg, others.tools, w.say)
	if err != nil || out.By != taken.By {
		t.Fatalf("handed over to %+v, %v", out, err)
	}
	groups := w.Hetzner.PlacementGroups()
	if len(groups) != 1 || groups[0].Name != "slipway-k8s" || groups[0].Labels[clustertest.ReservedBy] != taken.By {
		t.Errorf("left: %+v", groups)
	}
	if again, err := recovery.HandOver(t.Context(), others.cfg, others.tools, w.say); err != nil || again != out {
		t.Errorf("again: %+v, %v", again, err)
	}
	if v := claims.VerifyRecovery(t.Context(), others.cfg, others.tools, taken.By); v.Answer() != flow.AnswerHolds {
		t.Errorf("a claim that was given up ends the restore: %s", v.Reason())
	}
}
