package steps

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/ensure/pivot"
	"github.com/slipway-k8s/slipway/platform"
)

func TestPivotMovesEverything(t *testing.T) {
	w := newPivotWorld(t)
	was := inventoryOf(t, w, platform.ManagementKubeconfig)
	out, err := w.pivot(t)
	if err != nil {
		t.Fatal(err)
	}
	w.pivoted(t, was)
	if !slices.Equal(out.Servers, []int64{100}) || out.Cluster == "" {
		t.Errorf("output %+v", out)
	}
	folder := w.files.Path(records.PivotFolder)
	// A release that kept the Secrets has left them; the next run removes them.
	old := kubetest.Object("v1", "Secret", config.DefaultNamespace, "k8s-ca",
		clustertest.Map{"data": clustertest.Map{"tls.key": "a2V5"}})
	if err := records.PivotCopyOf(w.b.tools).Put(old); err != nil {
		t.Fatal(err)
	}
	if err := (&Plan{b: w.b}).RemovePivotSecrets(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != without(was, "Secret")+1 {
		t.Errorf("%d files in the copy, %v", len(entries), err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "secret_") {
			t.Errorf("%s is left in clear text", e.Name())
		}
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", e.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of the copy: %v %v", info.Mode(), err)
	}
	if v := verifyIn(w.b, platform.Kubeconfig, w.b.verifyPivot)(t.Context(), out); v.Answer() != flow.AnswerHolds {
		t.Errorf("verified: %v", v)
	}
	another := out
	another.Cluster = "another UID"
	if v := verifyIn(w.b, platform.Kubeconfig, w.b.verifyPivot)(t.Context(), another); v.Answer() != flow.AnswerGone {
		t.Errorf("verified, with another Cluster object: %v", v)
	}
	w.target.Change(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s",
		clustertest.Map{"metadata": clustertest.Map{"annotations": clustertest.Map{capi.ReadoptedAnnotation: "5a5a"}}})
	if v := verifyIn(w.b, platform.Kubeconfig, w.b.verifyPivot)(t.Context(), another); v.Answer() != flow.AnswerHolds {
		t.Errorf("verified, with a Cluster object that a readoption has put back: %v", v)
	}
	// Only the record lost: nothing is done a second time.
	writes := len(w.source.Writes()) + len(w.target.Writes())
	if again, err := w.pivot(t); err != nil || again.Cluster != out.Cluster || len(w.source.Writes())+
		len(w.target.Writes()) != writes {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// Writes of a pivot of nine objects: the pause and the label of a Secret without an owner, two for each object that is
// created (itself and its field managers), four for each that is deleted (the mark, the finalizers before and after,
// and itself), and the end of the pause.
const (
	beforeMarks   = 2 + 2*9
	writesOfPivot = beforeMarks + 4*9 + 1
)

// TestPivotIsCrashSafe kills a run after every one of its writes, and the next one once more.
func TestPivotIsCrashSafe(t *testing.T) {
	for lives := range writesOfPivot {
		t.Run(fmt.Sprint(lives), func(t *testing.T) {
			t.Parallel()
			w := newPivotWorld(t)
			was := inventoryOf(t, w, platform.ManagementKubeconfig)
			for _, w.lives = range []int{lives, lives % 5} {
				if _, err := w.pivot(t); err == nil {
					break
				} else if !errors.Is(err, errKilled) {
					t.Fatalf("the run died after %d writes: %v", lives, err)
				}
				source, target := w.source.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s"),
					w.target.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s")
				if source != nil && target != nil && !connect.Paused(source) && !connect.Paused(target) {
					t.Fatal("both sides are unpaused")
				}
				if passed, err := w.b.pivotUnderway(); !passed || err != nil {
					t.Errorf("the steps before it are looked at in the middle of a move (%v)", err)
				}
			}
			w.lives = -1
			if _, err := w.pivot(t); err != nil {
				t.Fatal(err)
			}
			w.pivoted(t, was)
		})
	}
}

// What a run before has created is made what it has to be, its owners' UIDs included.
func TestPivotUpdatesWhatIsThere(t *testing.T) {
	w := newPivotWorld(t)
	was := inventoryOf(t, w, platform.ManagementKubeconfig)
	w.lives = beforeMarks
	if _, err := w.pivot(t); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	w.target.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, "m1", clustertest.Map{
		"spec": clustertest.Map{"version": "v1.99.0"},
		"metadata": clustertest.Map{"ownerReferences": []any{clustertest.Map{"apiVersion": clustertest.CACPPT,
			"kind": "TalosControlPlane", "name": "k8s-control-plane", "uid": "of-another", "controller": true}}}})
	mustPivot(t, w)
	w.pivoted(t, was)
	m := w.target.Get(clustertest.CAPI, "Machine", config.DefaultNamespace, "m1")
	tcp := w.target.Get(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane")
	if owners := m.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != tcp.GetUID() {
		t.Errorf("it is owned by %v, and not by %s", owners, tcp.GetUID())
	}
}

// The objects keep their field managers, of which the fake API server has one, "somebody": else Slipway would own all
// fields, too.
func TestPivotKeepsFieldManagers(t *testing.T) {
	w := newPivotWorld(t)
	var mu sync.Mutex
	kept := map[string]bool{}
	w.target.Fail = func(r *http.Request) (int, string) {
		if r.Method != http.MethodPatch {
			return 0, ""
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return http.StatusBadRequest, err.Error()
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(string(body), `"managedFields":[{`) && strings.Contains(string(body), `"manager":"somebody"`) {
			kept[r.URL.Path] = true
		}
		return 0, ""
	}
	was := inventoryOf(t, w, platform.ManagementKubeconfig)
	mustPivot(t, w)
	if len(kept) != len(was) {
		t.Errorf("%d of %d objects have theirs: %v", len(kept), len(was), slices.Collect(maps.Keys(kept)))
	}
}

// A provider may hold an object back, after the pause, until it has done with it.
func TestPivotAwaitsBlockedObjects(t *testing.T) {
	w := newPivotWorld(t)
	was := inventoryOf(t, w, platform.ManagementKubeconfig)
	block := func(value any) {
		w.source.Change(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, "m1",
			clustertest.Map{"metadata": clustertest.Map{"annotations": clustertest.Map{capi.BlockMove: value}}})
	}
	block("")
	early, held := 0, false
	say := func(format string, args ...any) {
		if line := fmt.Sprintf(format, args...); strings.Contains(line, "HCloudMachine m1 has the annotation") {
			early, held = len(w.target.Writes()), true
			block(nil)
		}
	}
	if _, err := w.b.runPivot(t.Context(), say); err != nil {
		t.Fatal(err)
	}
	if !held || early > 0 {
		t.Errorf("it was held back: %v; by then %d writes", held, early)
	}
	w.pivoted(t, was)
}

// TestPivotSweepsTheSource has the move of an older release die between the Cluster object and the Secrets that nobody
// owns: clusterctl deletes them side by side.
func TestPivotSweepsTheSource(t *testing.T) {
	w := newPivotWorld(t)
	secret := w.source.Get("v1", "Secret", config.DefaultNamespace, "k8s-talos")
	mustPivot(t, w)
	w.source.Put(secret)
	if err := records.PivotCopyOf(w.b.tools).Put(secret); err != nil { // until the pivot is over it is in the copy
		t.Fatal(err)
	}
	state, err := records.PivotCopyOf(w.b.tools).State("k8s")
	if err != nil {
		t.Fatal(err)
	}
	state.Phase = records.Moving
	if err := records.PivotCopyOf(w.b.tools).SetState(state); err != nil {
		t.Fatal(err)
	}
	mustPivot(t, w)
	if w.source.Get("v1", "Secret", config.DefaultNamespace, "k8s-talos") != nil ||
		w.source.Get("v1", "Secret", config.DefaultNamespace, "somebody-elses") == nil {
		t.Error("the Secret that the move left is there still, or a foreign one is not")
	}
}

func TestPivotIsAborted(t *testing.T) {
	for lives := range beforeMarks + 1 {
		t.Run(fmt.Sprint(lives), func(t *testing.T) {
			t.Parallel()
			w := newPivotWorld(t)
			was := inventoryOf(t, w, platform.ManagementKubeconfig)
			w.lives = lives
			if _, err := w.pivot(t); !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			if err := pivot.Abort(t.Context(), w.b.cfg, w.b.tools, w.say); err != nil {
				t.Fatal(err)
			}
			if left := inventoryOf(t, w, platform.Kubeconfig); len(left) > 0 {
				t.Errorf("left in the cluster: %v", slices.Collect(maps.Keys(left)))
			}
			is := inventoryOf(t, w, platform.ManagementKubeconfig)
			if len(is) != len(was) || connect.Paused(is["Cluster k8s"]) {
				t.Errorf("the management cluster holds %d of %d objects, paused %v", len(is), len(was),
					connect.Paused(is["Cluster k8s"]))
			}
			if passed, err := w.b.pivotUnderway(); passed || err != nil {
				t.Errorf("it still counts as begun (%v)", err)
			}
			if err := pivot.Abort(t.Context(), w.b.cfg, w.b.tools, w.say); !errors.Is(err, pivot.ErrNothingToAbort) {
				t.Errorf("aborted again: %v", err)
			}
			w.lives = -1
			if _, err := w.pivot(t); err != nil {
				t.Fatal(err)
			}
			w.pivoted(t, was)
		})
	}
}

func TestAbortComesTooLate(t *testing.T) {
	for _, lives := range []int{beforeMarks + 1, beforeMarks + 3, writesOfPivot - 1} {
		w := newPivotWorld(t)
		w.lives = lives
		if _, err := w.pivot(t); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		if lives == beforeMarks+3 { // one object is gone, and only the target still tells of it
			if err := os.RemoveAll(w.files.Path(records.PivotFolder)); err != nil {
				t.Fatal(err)
			}
		}
		writes := len(w.source.Writes()) + len(w.target.Writes())
		err := pivot.Abort(t.Context(), w.b.cfg, w.b.tools, w.say)
		if err == nil || !strings.Contains(err.Error(), "too late") {
			t.Errorf("after %d writes: %v", lives, err)
		}
		if len(w.source.Writes())+len(w.target.Writes()) != writes {
			t.Errorf("after %d writes: it wrote", lives)
		}
	}
}

func TestPivotGoesOnWithoutItsCopy(t *testing.T) {
	for _, lives := range []int{9, 15, beforeMarks + 2, beforeMarks + 20} {
		w := newPivotWorld(t)
		was := inventoryOf(t, w, platform.ManagementKubeconfig)
		w.lives = lives
		if _, err := w.pivot(t); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		if err := os.RemoveAll(w.files.Path(records.PivotFolder)); err != nil {
			t.Fatal(err)
		}
		w.lives = -1
		if _, err := w.pivot(t); err != nil {
			t.Fatalf("after %d writes: %v", lives, err)
		}
		w.pivoted(t, was)
	}
}

func TestPivotRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		make func(*pivotWorld)
		says string
	}{
		"another cluster in the namespace": {func(w *pivotWorld) {
			w.source.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "other", nil))
		}, "also holds other"},
		"a paused cluster": {func(w *pivotWorld) {
			w.source.Change(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s",
				clustertest.Map{"spec": clustertest.Map{"paused": true}})
		}, "not by a pivot"},
		"a machine without a node": {func(w *pivotWorld) {
			w.source.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, "m1",
				clustertest.Map{"status": clustertest.Map{"nodeRef": nil}})
		}, "Machine m1 has no node yet"},
		"a control plane that is not ready": {func(w *pivotWorld) {
			w.source.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
				clustertest.Map{"status": clustertest.Map{"readyReplicas": 0}})
		}, "1 of 1 replicas, 0 ready"},
		"two managers": {func(w *pivotWorld) {
			w.target.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s", nil))
		}, "both"},
		"no manager": {func(w *pivotWorld) {
			w.source.Remove(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s")
		}, "neither"},
		"a management cluster that is silent": {func(w *pivotWorld) { w.source.Close() }, "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newPivotWorld(t)
			w.b.cfg.NodesTimeout = config.Duration(10 * time.Second)
			tt.make(w)
			writes := len(w.target.Writes())
			_, err := w.pivot(t)
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want something about %q", err, tt.says)
			}
			if len(w.source.Writes()) > 0 || len(w.target.Writes()) != writes {
				t.Errorf("it wrote %v %v", w.source.Writes(), w.target.Writes())
			}
			if passed, err := w.b.pivotUnderway(); passed || err != nil {
				t.Errorf("a refused pivot counts as begun (%v)", err)
			}
		})
	}
}

func TestPivotNoticesWhatDiffers(t *testing.T) {
	w := newPivotWorld(t)
	was := inventoryOf(t, w, platform.ManagementKubeconfig)
	w.lives = writesOfPivot - 1 // everything is over, and it died before the end
	if _, err := w.pivot(t); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	w.lives = -1
	w.target.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, "m1",
		clustertest.Map{"spec": clustertest.Map{"version": "v1.99.0"}})
	w.target.Change(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, "m1",
		clustertest.Map{"metadata": clustertest.Map{"annotations": clustertest.Map{"cloned-from": nil}}})
	w.target.Remove("v1", "Secret", config.DefaultNamespace, "k8s-talos")
	_, err := w.pivot(t)
	if err == nil || !strings.Contains(err.Error(), "Machine m1: spec.version") ||
		strings.Contains(err.Error(), "HCloudMachine") {
		t.Fatalf("did not tell, or did not mend: %v", err)
	}
	if !connect.Paused(w.target.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s")) {
		t.Error("unpaused although something differs")
	}
	w.target.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, "m1",
		clustertest.Map{"spec": clustertest.Map{"version": "v1.35.4"}})
	if _, err := w.pivot(t); err != nil {
		t.Fatal(err)
	}
	w.pivoted(t, was)
}

func TestPivotHoldsWhileServersChange(t *testing.T) {
	w := newPivotWorld(t)
	w.target.React = func(o *unstructured.Unstructured) {
		if o.GetKind() == "Cluster" && !connect.Paused(o) {
			w.replaceServer(101)
			go wellIn(w.target)
		}
	}
	refuses := func(what, says string) {
		t.Helper()
		if _, err := w.pivot(t); err == nil || !strings.Contains(err.Error(), says) ||
			!strings.Contains(err.Error(), "pivot --yes") {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.b.tools.Consent = true
	refuses("a server was replaced by a run that was given --yes", "[100] before, [101] now")
	w.b.tools.Consent = false
	refuses("again, and nobody agrees", "[100] before, [101] now")
	w.b.tools.Consent = true
	w.replaceServer(102)
	refuses("another than the one that was agreed to", "[100] before, [102] now")
	for range 2 {
		if out, err := w.pivot(t); err != nil || !slices.Equal(out.Servers, []int64{102}) {
			t.Errorf("as agreed: %+v, %v", out, err)
		}
		w.b.tools.Consent = false // it is written down
	}
}

// TestPivotTakesTheServersOfItsBeginning has one replaced after the copy was taken, while the management cluster is at
// work still.
func TestPivotTakesTheServersOfItsBeginning(t *testing.T) {
	w := newPivotWorld(t)
	cluster := w.source.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s")
	copied := records.PivotState{Phase: records.Copied, Cluster: "k8s", UID: string(cluster.GetUID()), Since: time.Now(),
		Servers: []int64{100}}
	if err := records.PivotCopyOf(w.b.tools).SetState(copied); err != nil {
		t.Fatal(err)
	}
	w.replaceServer(101)
	if out, err := w.pivot(t); err != nil || !slices.Equal(out.Servers, []int64{101}) {
		t.Errorf("after a run that was killed there: %+v, %v", out, err)
	}
}

func TestClean(t *testing.T) {
	for name, tt := range map[string]struct {
		make    func(*testing.T, *pivotWorld)
		says    string // of the refusal; empty: it deletes
		deletes bool
		left    bool
		before  bool // the refusal is known before the run's first step
	}{
		"after a pivot": {deletes: true, make: func(t *testing.T, w *pivotWorld) { mustPivot(t, w) }},
		"before one":    {says: "does not hold its own Cluster object", make: func(*testing.T, *pivotWorld) {}},
		"another cluster in it": {says: "elsewhere/other", before: true, make: func(t *testing.T, w *pivotWorld) {
			mustPivot(t, w)
			w.source.Put(kubetest.Object(clustertest.CAPI, "Cluster", "elsewhere", "other", nil))
		}},
		"a paused cluster": {says: "is paused", make: func(t *testing.T, w *pivotWorld) {
			mustPivot(t, w)
			w.target.Change(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s",
				clustertest.Map{"spec": clustertest.Map{"paused": true}})
		}},
		"silent, all moved": {says: "docker start k8s-mgmt-control-plane", before: true,
			make: func(t *testing.T, w *pivotWorld) { mustPivot(t, w); w.source.Close() }},
		"silent, agreed": {deletes: true, make: func(t *testing.T, w *pivotWorld) {
			mustPivot(t, w)
			w.source.Close()
			w.b.tools.Consent = true
		}},
		"silent, its deletion was killed": {deletes: true, make: func(t *testing.T, w *pivotWorld) {
			mustPivot(t, w)
			killed := errors.New("killed")
			w.b.tools.Management = &deletingProvider{Provider: w.provider, err: killed}
			if _, err := w.b.runClean(t.Context(), w.say); !errors.Is(err, killed) {
				t.Fatal(err)
			}
			w.source.Close()
		}},
		"silent, not reconciled": {says: "not reconciled", make: func(t *testing.T, w *pivotWorld) {
			mustPivot(t, w)
			w.source.Close()
			w.b.tools.Consent = true
			w.target.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, "m1",
				clustertest.Map{"status": clustertest.Map{"nodeRef": nil}})
		}},
		"gone": {make: func(t *testing.T, w *pivotWorld) { mustPivot(t, w); w.provider.There = false }},
		"provider cannot tell": {says: "docker is not running",
			make: func(t *testing.T, w *pivotWorld) { w.provider.ExistsError = errors.New("docker is not running") }},
		"the cluster itself": {left: true, make: func(t *testing.T, w *pivotWorld) {
			mustPivot(t, w)
			if err := w.files.Write(platform.ManagementKubeconfig, w.target.Kubeconfig()); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newPivotWorld(t)
			tt.make(t, w)
			deleter := &deletingProvider{Provider: w.provider}
			w.b.tools.Management = deleter
			if err := (&Plan{b: w.b}).RefuseClean(t.Context()); (err != nil) != tt.before ||
				tt.before && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("before a run: %v", err)
			}
			out, err := w.b.runClean(t.Context(), w.say)
			switch {
			case tt.says == "" && err != nil:
				t.Fatal(err)
			case tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)):
				t.Errorf("got %v, want something about %q", err, tt.says)
			}
			if deleter.deleted != tt.deletes || out.Left != tt.left {
				t.Errorf("deleted %v, %+v", deleter.deleted, out)
			}
			_, err = os.Stat(w.files.Path(platform.ManagementKubeconfig))
			if gone := errors.Is(err, fs.ErrNotExist); tt.says == "" && !tt.left && !gone {
				t.Errorf("its kubeconfig is still there")
			}
			if begun, _ := filepath.Glob(w.files.Path("clean.*")); len(begun) > 0 {
				t.Errorf("left in the state folder: %v", begun)
			}
		})
	}
}

// TestNoSecondClusterBesideASelfManagedOne loses everything but the kubeconfig, and then that, too: the management
// cluster is gone, as after clean.
func TestNoSecondClusterBesideASelfManagedOne(t *testing.T) {
	for name, tt := range map[string]struct {
		make func(*testing.T, *pivotWorld)
		says string // of the refusal; empty: adopted
	}{
		"kubeconfig at hand": {make: func(*testing.T, *pivotWorld) {}},
		"kubeconfig lost": {says: "MANAGEMENT_KUBECONFIG",
			make: func(t *testing.T, w *pivotWorld) { w.forget(t, platform.Kubeconfig) }},
		"it does not answer": {says: "does not answer", make: func(_ *testing.T, w *pivotWorld) { w.target.Close() }},
		"it never managed itself": {says: "does not manage itself", make: func(_ *testing.T, w *pivotWorld) {
			w.target.Remove(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newPivotWorld(t)
			mustPivot(t, w)
			w.provider.There = false
			w.forget(t, platform.ManagementKubeconfig)
			tt.make(t, w)
			m, err := w.b.runManagement(t.Context(), w.say)
			if tt.says == "" && (err != nil || m.UID != "target" || m.Kubeconfig != platform.ManagementKubeconfig) {
				t.Errorf("not adopted: %+v, %v", m, err)
			}
			if tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "m1")) {
				t.Errorf("got %v, want something about %q and the servers", err, tt.says)
			}
			if w.provider.Ensured > 0 {
				t.Error("a management cluster was made")
			}
		})
	}
}
