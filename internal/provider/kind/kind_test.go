package kind

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/operation/destroy"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// fakeKind is a Docker with kind clusters in it.
type fakeKind struct {
	there  map[string]bool // cluster → kubeadm got through
	down   error           // Docker does not answer
	deaf   error           // nodes do not answer
	dies   error           // creation ends with this, leaving a partially created cluster
	fails  error           // creation ends with this, leaving nothing
	opens  []byte          // kubeconfig of all; nil: a text with the name
	theirs bool            // another state folder created what is there
	did    []string
}

// ours is the identity of the tests' state folders.
const ours = "0123456789abcdef"

// folder is a state folder with that identity.
func folder(t *testing.T) platform.Files {
	t.Helper()
	files := platform.FilesIn(t.TempDir())
	if err := files.Write(ownership.IdentityFile, []byte(ours+"\n")); err != nil {
		t.Fatal(err)
	}
	return files
}

func (k *fakeKind) clusters() ([]string, error) {
	var names []string
	for name := range k.there {
		names = append(names, name)
	}
	return names, k.down
}

func (k *fakeKind) create(name, image, kubeconfigPath, identity string, _ flow.Say) error {
	k.did = append(k.did, "create "+name)
	if identity != ours {
		return fmt.Errorf("created by state folder %q", identity)
	}
	if k.there[name] {
		return errors.New("node(s) already exist for a cluster with the name")
	}
	if k.fails != nil {
		return k.fails
	}
	k.there[name] = k.dies == nil
	return k.dies
}

func (k *fakeKind) engine(context.Context) (engine, error) { return engine{name: "docker"}, k.down }

func (k *fakeKind) containers(name string) ([]container, error) {
	if _, there := k.there[name]; !there {
		return nil, k.down
	}
	by := ours
	if k.theirs {
		by = "fedcba9876543210"
	}
	return []container{{ID: "c0ffee000000000", Created: "2026-11-25T10:00:00Z",
		Mounts: []struct{ Destination string }{{"/lib/modules"}, {markFolder + "/" + by}}}}, k.down
}

func (k *fakeKind) remove(name, kubeconfigPath string) error {
	if err := os.WriteFile(kubeconfigPath, nil, 0o600); err != nil { // as kind leaves it
		return err
	}
	k.did = append(k.did, "delete "+name)
	delete(k.there, name)
	return nil
}

func (k *fakeKind) kubeconfig(name string) ([]byte, error) {
	if k.opens != nil {
		return k.opens, nil
	}
	return []byte("kubeconfig of " + name), nil
}

func (k *fakeKind) initialised(name string) (bool, error) { return k.there[name], k.deaf }

func TestKind(t *testing.T) {
	const name = "k8s-mgmt"
	silent := errors.New("container is not running")
	for title, tc := range map[string]struct {
		kind    fakeKind
		marked  bool  // a run of ours died while it made the cluster
		used    bool  // Cluster API is in it
		mute    error // its API server does not answer
		yes     bool
		adopted string // the container that the operator agreed to use
		did     []string
		says    string // error; empty: none
	}{
		"nothing there": {did: []string{"create " + name}},
		"there":         {kind: fakeKind{there: map[string]bool{name: true}}},
		"another is there": {kind: fakeKind{there: map[string]bool{"kind": true}},
			did: []string{"create " + name}},
		"partially created by a run of this folder": {kind: fakeKind{there: map[string]bool{name: false}}, marked: true,
			did: []string{"delete " + name, "create " + name}},
		"created, but the run was killed before": {kind: fakeKind{there: map[string]bool{name: true}}, marked: true,
			did: []string{"delete " + name, "create " + name}},
		"marked, in use by another run since": {kind: fakeKind{there: map[string]bool{name: true}}, marked: true, used: true},
		"marked, in use, yes": {kind: fakeKind{there: map[string]bool{name: true}}, marked: true, used: true,
			yes: true},
		"marked, silent": {kind: fakeKind{there: map[string]bool{name: true}, deaf: silent}, marked: true,
			yes: true, says: "left alone: start its container"},
		"marked, API server silent": {kind: fakeKind{there: map[string]bool{name: true}}, marked: true, mute: silent,
			yes: true, says: "left alone: run again in a minute"},
		"partially created by another state folder": {kind: fakeKind{there: map[string]bool{name: false}, theirs: true},
			says: "container c0ffee000000, created 2026-11-25T10:00:00Z by the state folder with identity fedcba9876543210"},
		"partially created by another state folder, yes": {kind: fakeKind{there: map[string]bool{name: false}, theirs: true},
			yes: true, says: "kind delete cluster --name " + name},
		"partially created by another state folder, after a creation that was killed": {kind: fakeKind{there: map[string]bool{name: false},
			theirs: true}, marked: true, says: "not by this state folder"},
		"another's": {kind: fakeKind{there: map[string]bool{name: true}, theirs: true},
			says: "run again with --yes; it is never deleted"},
		"another's, after a creation that was killed": {kind: fakeKind{there: map[string]bool{name: true}, theirs: true},
			marked: true, says: "this state folder did not create it (container c0ffee000000, created"},
		"another's, yes":            {kind: fakeKind{there: map[string]bool{name: true}, theirs: true}, yes: true},
		"another's, adopted before": {kind: fakeKind{there: map[string]bool{name: true}, theirs: true}, adopted: "c0ffee000000000"},
		"another's, in the place of one that was adopted": {kind: fakeKind{there: map[string]bool{name: true}, theirs: true},
			adopted: "decaf0000000000", says: "run again with --yes"},
		"silent": {kind: fakeKind{there: map[string]bool{name: true}, deaf: silent},
			says: "left alone: start its container"},
		"silent, yes": {kind: fakeKind{there: map[string]bool{name: true}, deaf: silent}, yes: true, says: "left alone"},
		"no Docker":   {kind: fakeKind{down: errNoDocker}, says: "rehearse without any of them (--lab)"},
		"creation fails": {kind: fakeKind{dies: errors.New("no space left")},
			did: []string{"create " + name, "delete " + name}, says: "no space left"},
		"creation fails before anything is created": {kind: fakeKind{fails: errors.New("no such image")},
			did: []string{"create " + name}, says: "no such image"},
	} {
		t.Run(title, func(t *testing.T) {
			if tc.kind.there == nil {
				tc.kind.there = map[string]bool{}
			}
			files := folder(t)
			if tc.marked {
				if err := files.Write(making(name), []byte("then")); err != nil {
					t.Fatal(err)
				}
			}
			m := &Provider{kind: &tc.kind, image: "kindest/node:v1.33.7@sha256:0", files: files, yes: tc.yes}
			m.used = func(_ context.Context, kubeconfig []byte) (bool, error) {
				if string(kubeconfig) != "kubeconfig of "+name {
					t.Errorf("asked whether %q is used", kubeconfig)
				}
				return tc.used, tc.mute
			}
			record := ownership.Record{Cluster: "k8s", Management: &ownership.Management{Provider: "kind", Name: name,
				Adopted: tc.adopted}}
			if err := record.Write(files); err != nil {
				t.Fatal(err)
			}
			if there, err := m.Exists(t.Context(), name); there && err == nil {
				if err := m.Adoptable(t.Context(), name); (err != nil) != (tc.says != "") {
					t.Errorf("the doctor hears %v", err)
				}
			}
			kubeconfig, err := m.Ensure(t.Context(), name, quiet)
			if !slices.Equal(tc.kind.did, tc.did) {
				t.Errorf("did %q, want %q", tc.kind.did, tc.did)
			}
			if tc.says != "" {
				if err == nil || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("error %v does not say %q", err, tc.says)
				}
				return
			}
			if err != nil || string(kubeconfig) != "kubeconfig of "+name {
				t.Errorf("got %q, %v", kubeconfig, err)
			}
			if _, err := files.Read(making(name)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the mark of a creation is still there: %v", err)
			}
			kept, err := ownership.Read(files)
			if err != nil || kept.Management.Engine != "docker" || (kept.Management.Adopted != "") != tc.kind.theirs {
				t.Errorf("recorded: %+v, %v", kept.Management, err)
			}
			m.yes = false // what was agreed to once is not asked again
			if err := m.Adoptable(t.Context(), name); err != nil {
				t.Errorf("the next run: %v", err)
			}
		})
	}
}

// Only a cluster that says that it has no kind Cluster was never used.
func TestUsedByClusterAPI(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/api":
			fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
		case r.URL.Path == "/apis":
			fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apiextensions.k8s.io",
				"versions":[{"groupVersion":"apiextensions.k8s.io/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apiextensions.k8s.io/v1","version":"v1"}}]}`)
		case r.URL.Path == "/apis/apiextensions.k8s.io/v1":
			fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apiextensions.k8s.io/v1","resources":[
				{"name":"customresourcedefinitions","namespaced":false,"kind":"CustomResourceDefinition","verbs":["get"]}]}`)
		case strings.HasSuffix(r.URL.Path, "/customresourcedefinitions/clusters.cluster.x-k8s.io") && status == http.StatusOK:
			fmt.Fprint(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"clusters.cluster.x-k8s.io"}}`)
		case status == http.StatusOK:
			t.Errorf("asked for %s", r.URL.Path)
		default:
			w.WriteHeader(status)
			reason := map[int]string{http.StatusNotFound: "NotFound", http.StatusForbidden: "Forbidden"}[status]
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, status)
		}
	}))
	defer server.Close()
	kubeconfig := []byte(`{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],
		"users":[{"name":"a","user":{}}],"clusters":[{"name":"a","cluster":{"server":"` + server.URL + `"}}]}`)
	for _, tc := range []struct {
		status     int
		used, fail bool
	}{{http.StatusOK, true, false}, {http.StatusNotFound, false, false}, {http.StatusForbidden, false, true}} {
		status = tc.status
		if used, err := usedByClusterAPI(t.Context(), kubeconfig); used != tc.used || (err != nil) != tc.fail {
			t.Errorf("where the answer is %d: %v, %v", tc.status, used, err)
		}
	}
	server.Close()
	if used, err := usedByClusterAPI(t.Context(), kubeconfig); used || err == nil {
		t.Errorf("without an answer: %v, %v", used, err)
	}
}

// A creation that failed leaves nothing: what comes later under that name is not taken for its remains, and stays.
func TestKindAfterAFailedCreation(t *testing.T) {
	for title, k := range map[string]*fakeKind{
		"which left a cluster": {dies: errors.New("kubeadm")},
		"which left nothing":   {fails: errors.New("no such image")},
	} {
		t.Run(title, func(t *testing.T) {
			k.there = map[string]bool{}
			m := &Provider{kind: k, files: folder(t)}
			if _, err := m.Ensure(t.Context(), "m", quiet); err == nil {
				t.Fatal("it should fail")
			}
			if left, _ := filepath.Glob(m.files.Path("kind-*")); len(left) > 0 || len(k.there) > 0 {
				t.Errorf("left: %v, %v", left, k.there)
			}
			k.dies, k.fails, k.did = nil, nil, nil
			k.there["m"], k.theirs = true, true
			_, _ = m.Ensure(t.Context(), "m", quiet)
			if err := m.Delete(t.Context(), "m"); !errors.Is(err, steps.ErrNotOurs) || len(k.did) > 0 {
				t.Errorf("%v; it did %q to another's cluster", err, k.did)
			}
		})
	}
}

// A cluster that appears while another one's creation fails stays.
func TestKindCreationMeetsAnothersCluster(t *testing.T) {
	k := &fakeKind{there: map[string]bool{}, dies: errors.New("the container name is already in use"), theirs: true}
	m := &Provider{kind: k, files: folder(t)}
	if _, err := m.Ensure(t.Context(), "m", quiet); !errors.Is(err, k.dies) {
		t.Errorf("%v", err)
	}
	if _, err := m.files.Read(making("m")); !slices.Equal(k.did, []string{"create m"}) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it did %q; the mark: %v", k.did, err)
	}
}

// What only looks changes nothing, not even the mark of a creation.
func TestKindLook(t *testing.T) {
	const name = "k8s-mgmt"
	for title, tc := range map[string]struct {
		whole, marked, used, theirs bool
		want                        string
	}{
		"whole":              {whole: true, want: "kubeconfig of " + name},
		"marked, in use":     {whole: true, marked: true, used: true, want: "kubeconfig of " + name},
		"marked, never used": {whole: true, marked: true},
		"partially created by a run of this folder": {marked: true},
		"partially created by another":              {theirs: true},
		"another's":                                 {whole: true, theirs: true, want: "kubeconfig of " + name},
		"another's, after a creation that was killed": {whole: true, theirs: true, marked: true,
			want: "kubeconfig of " + name},
	} {
		t.Run(title, func(t *testing.T) {
			k := &fakeKind{there: map[string]bool{name: tc.whole}, theirs: tc.theirs}
			m := &Provider{kind: k, files: folder(t),
				used: func(context.Context, []byte) (bool, error) { return tc.used, nil }}
			if tc.marked {
				if err := m.files.Write(making(name), []byte("then")); err != nil {
					t.Fatal(err)
				}
			}
			kubeconfig, err := m.Look(t.Context(), name)
			if string(kubeconfig) != tc.want || err != nil {
				t.Errorf("got %q, %v", kubeconfig, err)
			}
			if _, err := m.files.Read(making(name)); (err == nil) != tc.marked || len(k.did) > 0 {
				t.Errorf("it did %q; the mark: %v", k.did, err)
			}
		})
	}
}

// A partially created kind cluster is not created again to be deleted.
func TestDestroyMakesNoKindCluster(t *testing.T) {
	s := hetznertest.NewEmpty()
	defer s.Close()
	cfg := config.Defaults()
	name := cfg.ManagementName()
	k := &fakeKind{there: map[string]bool{name: false}}
	m := &Provider{kind: k, files: folder(t)}
	if err := m.files.Write(making(name), []byte("then")); err != nil {
		t.Fatal(err)
	}
	destroyer := destroy.New(cfg, platform.Tools{Hetzner: s.Client(nil), Management: m, Files: m.files})
	listed, err := destroyer.Plan(t.Context(), destroy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = destroyer.Destroy(t.Context(), listed, func(_, _ string, do func(flow.Say) error) error { return do(t.Logf) })
	if want := []string{"delete " + name}; err != nil || !slices.Equal(k.did, want) {
		t.Errorf("%v; it did %q, want %q", err, k.did, want)
	}
	if _, err := m.files.Read(making(name)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mark of a creation is still there: %v", err)
	}
}

// A destroy leaves a kind cluster that this state folder did not create, also with --yes, and what is in it.
func TestDestroyLeavesAnothersKindCluster(t *testing.T) {
	cfg := config.Defaults()
	cfg.Namespace = "team-a"
	name := cfg.ManagementName()
	for title, whole := range map[string]bool{"whole": true, "partially created": false} {
		t.Run(title, func(t *testing.T) {
			s := hetznertest.NewEmpty()
			defer s.Close()
			kinds := clustertest.ClusterAPIKinds()
			theirs := kubetest.New("theirs", kinds...)
			defer theirs.Close()
			clustertest.Define(theirs, kinds)
			theirs.Put(kubetest.Object("v1", "Namespace", "", cfg.Namespace, clustertest.Map{
				"metadata": clustertest.Map{"labels": clustertest.Map{"app.kubernetes.io/managed-by": "slipway"}}}))
			k := &fakeKind{there: map[string]bool{name: whole}, theirs: true, opens: theirs.Kubeconfig()}
			m := &Provider{kind: k, files: folder(t), yes: true}
			destroyer := destroy.New(cfg, platform.Tools{Hetzner: s.Client(nil), Management: m, Files: m.files, Consent: true})
			listed, err := destroyer.Plan(t.Context(), destroy.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var said []string
			err = destroyer.Destroy(t.Context(), listed, func(_, _ string, do func(flow.Say) error) error {
				return do(func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
			})
			if err != nil || len(k.did) > 0 || theirs.Get("v1", "Namespace", "", cfg.Namespace) == nil {
				t.Errorf("%v; it did %q", err, k.did)
			}
			if !strings.Contains(strings.Join(said, "\n"), steps.ErrNotOurs.Error()) {
				t.Errorf("it said %q", said)
			}
		})
	}
}

func TestKindExists(t *testing.T) {
	k := &fakeKind{there: map[string]bool{"a": true}}
	m := &Provider{kind: k}
	if there, err := m.Exists(t.Context(), "a"); !there || err != nil {
		t.Errorf("a: %v, %v", there, err)
	}
	if there, err := m.Exists(t.Context(), "b"); there || err != nil {
		t.Errorf("b: %v, %v", there, err)
	}
	k.down = errNoDocker
	if _, err := m.Exists(t.Context(), "a"); !errors.Is(err, errNoDocker) {
		t.Errorf("without Docker: %v", err)
	}
}

func TestGivenManagement(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	silent := errors.New("connection refused")
	var ready error
	g := behind(path)
	g.ready = func(context.Context, []byte) error { return ready }
	if _, err := g.Exists(t.Context(), ""); err == nil {
		t.Error("a missing kubeconfig says nothing about the cluster")
	}
	if err := os.WriteFile(path, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	if kubeconfig, err := g.Ensure(t.Context(), "", quiet); err != nil || string(kubeconfig) != "theirs" {
		t.Errorf("got %q, %v", kubeconfig, err)
	}
	if there, err := g.Exists(t.Context(), ""); !there || err != nil {
		t.Errorf("exists: %v, %v", there, err)
	}
	ready = silent
	if there, err := g.Exists(t.Context(), ""); there || !errors.Is(err, silent) {
		t.Errorf("silent: %v, %v", there, err)
	}
	if err := g.Delete(t.Context(), ""); err == nil {
		t.Error("it was deleted")
	}
}
