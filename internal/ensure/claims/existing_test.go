package claims

import (
	"errors"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/platform"
)

// givenProvider is the provider of a management cluster that the operator has named.
type givenProvider struct{ *clustertest.Provider }

func (givenProvider) Given() bool { return true }

// What is known of a cluster that the state folder did not create is what its run would be told, before it begins.
func TestFindExisting(t *testing.T) {
	owned := map[string]string{"caph-cluster-k8s": "owned"}
	exists := func(w *clustertest.Environment) {
		w.Hetzner.SetPlacementGroups(schema.PlacementGroup{ID: 7, Name: "slipway-k8s", Type: "spread",
			Labels: map[string]string{
				"slipway-cluster": "k8s", clustertest.ReservedBy: "0123456789abcdef", "slipway-host": "laptop"}})
		w.Hetzner.SetNetworks(schema.Network{ID: 77, Name: "k8s", Labels: owned, IPRange: "10.10.0.0/16"})
	}
	holds := func(s *kubetest.Server) {
		clustertest.Define(s, clustertest.ClusterAPIKinds())
		s.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s", clustertest.Map{}))
		s.Put(kubetest.Object(clustertest.CAPI, "Machine", config.DefaultNamespace, "m", clustertest.Map{
			"metadata": clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "k8s"}},
			"status":   clustertest.Map{"nodeRef": clustertest.Map{"name": "node-0"}}}))
	}
	for name, tt := range map[string]struct {
		environment func(*clustertest.Environment)
		given       bool // the operator names the management cluster
		refused     bool
		says        []string // empty: there is nothing to say
	}{
		"nothing is there": {},
		"another folder's": {environment: exists, refused: true, says: []string{"network k8s (77)", "0123456789abcdef",
			"laptop",
			"A run is refused", "MANAGEMENT_KUBECONFIG", "restore", "readopt", "--state-dir"}},
		"a management cluster without it": {environment: exists, given: true, refused: true, says: []string{"A run is " +
			"refused"}},
		"the management cluster holds it": {environment: func(w *clustertest.Environment) {
			exists(w)
			holds(w.Management)
		}, given: true, says: []string{"holds its objects", "takes it over and does not bootstrap it"}},
		"it manages itself": {given: true, environment: func(w *clustertest.Environment) {
			exists(w)
			holds(w.Management)
			w.Management.Put(kubetest.Object("v1", "Node", "", "node-0", clustertest.Map{}))
		}, says: []string{"it manages itself", "takes it over and does not bootstrap it"}},
		"a silent management cluster": {given: true, refused: true, environment: func(w *clustertest.Environment) {
			exists(w)
			w.Provider.ExistsError = errors.New("no answer")
		}, says: []string{"cannot be found out (no answer)"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := clustertest.New(t)
			if tt.environment != nil {
				tt.environment(w)
			}
			b := newStateFolder(t, w, &clustertest.Provider{})
			if tt.given {
				b.tools.Management = givenProvider{w.Provider}
			}
			writes := w.Writes()
			is, err := FindExisting(t.Context(), b.cfg, b.tools)
			if err != nil {
				t.Fatal(err)
			}
			if w.Writes() != writes {
				t.Error("looking changed something")
			}
			if _, err := b.tools.Files.Read(platform.ManagementKubeconfig); err == nil {
				t.Error("looking wrote a file")
			}
			if len(tt.says) == 0 {
				if is != nil {
					t.Errorf("%+v", is)
				}
				return
			}
			if is == nil || is.Refused != tt.refused {
				t.Fatalf("%+v, want refused %t", is, tt.refused)
			}
			for _, words := range tt.says {
				if !strings.Contains(is.Sentence, words) {
					t.Errorf("%q is not in %q", words, is.Sentence)
				}
			}
		})
	}
}

// Once another state folder has taken the name over, the first one is refused: by what precedes every run, and by the
// step, which does not take the name back.
func TestTheOldFolderIsRefused(t *testing.T) {
	w := clustertest.New(t)
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	w.Management.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s", clustertest.Map{}))
	both := []*stateFolder{newStateFolder(t, w, w.Provider), newStateFolder(t, w, w.Provider)}
	for _, b := range both {
		if err := (ownership.Record{Cluster: "k8s"}).Write(b.tools.Files); err != nil {
			t.Fatal(err)
		}
		if _, err := b.reserve(t); err != nil {
			t.Fatal(err)
		}
	}
	was, now := both[0], both[1]
	by, err := ownership.Identity(now.tools)
	if err != nil {
		t.Fatal(err)
	}
	var went *TakenOverError
	for what, err := range map[string]error{
		"before a run": CheckProject(t.Context(), was.cfg, was.tools),
		"the step":     func() error { _, err := was.reserve(t); return err }(),
	} {
		if !errors.As(err, &went) || !strings.Contains(err.Error(), by) || !strings.Contains(err.Error(), "--state-dir") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if is, err := FindExisting(t.Context(), was.cfg, was.tools); err != nil || is == nil || !is.Refused {
		t.Errorf("a look: %+v, %v", is, err)
	}
	if err := CheckProject(t.Context(), now.cfg, now.tools); err != nil {
		t.Errorf("the new folder: %v", err)
	}
	if _, err := now.reserve(t); err != nil {
		t.Errorf("the new folder: %v", err)
	}
}
