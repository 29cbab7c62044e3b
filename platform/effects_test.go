package platform

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

// notes are what a recorder wrote down.
type notes struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

// keys are the calls, by their names.
func (n *notes) keys(t *testing.T) []string {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	lines, err := effect.Read(bytes.NewReader(n.text.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, l := range lines {
		if l.Phase == effect.Leaves {
			keys = append(keys, l.Key())
		}
	}
	return keys
}

func newNotes(t *testing.T) (*notes, Tools) {
	t.Helper()
	n := &notes{}
	tools := Tools{Files: FilesIn(t.TempDir())}
	tools.Effects = effect.New(effect.Options{Lines: n})
	return n, tools.WithDefaults()
}

// The cluster is recognized by what it is, not by the file or the step that a client is made for: also when it manages
// itself.
func TestWhichClusterAClientChanges(t *testing.T) {
	kubeconfig := func(authority string) []byte {
		return []byte(`{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],"users":[{"name":"a","user":{}}],
			"clusters":[{"name":"a","cluster":{"server":"https://127.0.0.1:6443","certificate-authority-data":"` + authority + `"}}]}`)
	}
	management, workload := kubeconfig("bWFuYWdlbWVudA=="), kubeconfig("d29ya2xvYWQ=")
	_, tools := newNotes(t)
	write := func(file string, data []byte) {
		t.Helper()
		if err := tools.Files.Write(file, data); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, data []byte, want effect.System) {
		t.Helper()
		if got := tools.system(data, false); got != want {
			t.Errorf("%s: %s, not %s", when, got, want)
		}
	}
	write(ManagementKubeconfig, management)
	check("the management cluster, before there is another", management, effect.Management)
	check("the cluster, by its Secret, before it has a file", workload, effect.Workload)
	write(Kubeconfig, workload)
	check("the management cluster", management, effect.Management)
	check("the cluster", workload, effect.Workload)
	check("the cluster, with a fresh certificate of the client's",
		bytes.Replace(workload, []byte(`"user":{}`), []byte(`"user":{"token":"x"}`), 1), effect.Workload)
	write(ManagementKubeconfig, workload)
	check("the cluster, which manages itself", workload, effect.Workload)
	if err := tools.Files.Remove(ManagementKubeconfig); err != nil {
		t.Fatal(err)
	}
	check("the cluster, when its management cluster is gone", workload, effect.Workload)
}

// TestClusterctlsClientsAreRecorded makes its own clients: they are seen, too.
func TestClusterctlsClientsAreRecorded(t *testing.T) {
	n, tools := newNotes(t)
	server := kubetest.New("management")
	defer server.Close()
	defer server.CloseClientConnections()
	if err := tools.Files.Write(ManagementKubeconfig, server.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	kubeconfig := cluster.Kubeconfig{Path: tools.Files.Path(ManagementKubeconfig)}
	c, err := newSharingProxy(kubeconfig, tools.recorded(server.Kubeconfig(), false)).NewClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: config.DefaultNamespace, Name: "moved-x7f2k"},
		StringData: map[string]string{"a": "planted"}}
	_ = c.Create(t.Context(), secret) // the fake makes nothing by POST; what counts is what was asked of it
	if keys := n.keys(t); !slices.Contains(keys, "management create secrets/default/moved-*#1") {
		t.Errorf("recorded %q", keys)
	}
	if strings.Contains(n.text.String(), "planted") {
		t.Error("a secret is in the lines")
	}
}

// clusterctl asks for a client for each object: the API is asked once which kinds there are, and again for one that
// came since.
func TestClusterctlsClientsShareWhatTheyKnow(t *testing.T) {
	server := kubetest.New("management")
	defer server.Close()
	defer server.CloseClientConnections()
	var mu sync.Mutex
	asked := map[string]int{}
	server.Fail = func(r *http.Request) (int, string) {
		mu.Lock()
		defer mu.Unlock()
		asked[r.URL.Path]++
		return 0, ""
	}
	files := FilesIn(t.TempDir())
	if err := files.Write(ManagementKubeconfig, server.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	proxy := newSharingProxy(cluster.Kubeconfig{Path: files.Path(ManagementKubeconfig)}, nil)
	read := func(o client.Object) error {
		c, err := proxy.NewClient(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return c.Get(t.Context(), client.ObjectKey{Namespace: config.DefaultNamespace, Name: "none"}, o)
	}
	for range 5 {
		if err := read(&corev1.Secret{}); !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	if asked["/api"] != 1 || asked["/api/v1"] != 1 {
		t.Errorf("five objects were read, and the API was asked %v", asked)
	}
	unknown := &unstructured.Unstructured{}
	unknown.SetAPIVersion("example.org/v1")
	unknown.SetKind("Late")
	for range 2 {
		before := asked["/apis"]
		if err := read(unknown); !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		if asked["/apis"] == before && asked["/apis/example.org/v1"] == 0 {
			t.Error("a kind that was not there is not asked for again")
		}
	}
}

// Files are written down when they change, and only then.
func TestFilesAreRecorded(t *testing.T) {
	n, tools := newNotes(t)
	folder := tools.Files.Folder("pivot")
	for _, do := range []func() error{
		func() error { return tools.Files.Write("kubeconfig", []byte("a")) },
		func() error { return tools.Files.Write("kubeconfig", []byte("a")) }, // it is so already
		func() error { return tools.Files.Write("kubeconfig", []byte("b")) },
		func() error { return folder.Write("machine_x7f2k.json", nil) },
		func() error { return folder.Remove("nothing") },
		func() error { return folder.Remove("machine_x7f2k.json") },
		func() error { return folder.RemoveFolder() },
		func() error { return folder.RemoveFolder() },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"file write kubeconfig#1", "file write kubeconfig#2", "file write pivot/machine_*.json#1",
		"file remove pivot/machine_*.json#1", "file remove pivot#1"}
	if keys := n.keys(t); !slices.Equal(keys, want) {
		t.Errorf("recorded %q", keys)
	}
}
