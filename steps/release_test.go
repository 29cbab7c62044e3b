package steps

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

// strangersInstall leaves the record of somebody else's helm that has just begun to install Cilium.
func strangersInstall(t *testing.T, w *clustertest.Environment) {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(w.Workload.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s := storage.Init(driver.NewSecrets(clients.CoreV1().Secrets("kube-system")))
	err = s.Create(&release.Release{
		Name: "cilium", Namespace: "kube-system", Version: 1, Info: &release.Info{Status: release.StatusPendingInstall},
		Chart: &chart.Chart{Metadata: &chart.Metadata{Name: "cilium", Version: "1.0.0", APIVersion: "v2"}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

const cilium1 = "sh.helm.release.v1.cilium.v1"

// Somebody else's helm is waited for, and when it has ended the step goes on.
func TestReleaseWaitsForSomebodyElsesHelm(t *testing.T) {
	w := clustertest.New(t)
	strangersInstall(t, w)
	var once sync.Once
	var mu sync.Mutex
	var lines []string
	_, err := runPlan(t, w, w.Config(), flow.Memory(), func(e flow.Event) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, e.Message)
		if strings.Contains(e.Message, "whoever did is waited for") {
			once.Do(func() { go w.Workload.Remove("v1", "Secret", "kube-system", cilium1) })
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(lines, "\n")
	wait := strings.Index(all, "waiting for release cilium: revision 1 of helm release cilium in namespace kube-system "+
		"is pending-install since ")
	install := strings.Index(all, "installing release cilium")
	if wait < 0 || install < wait {
		t.Errorf("it waited at %d and installed at %d of\n%s", wait, install, all)
	}
	if strings.Contains(all, "was left pending-install") {
		t.Errorf("it trampled somebody:\n%s", all)
	}
}

// One that goes on for too long fails the step with what was seen, and is left alone.
func TestReleaseDoesNotWaitForever(t *testing.T) {
	w := clustertest.New(t)
	strangersInstall(t, w)
	cfg := w.Config()
	cfg.ReleaseTimeout = config.Duration(2 * time.Second)
	_, err := runPlan(t, w, cfg, flow.Memory(), nil)
	if err == nil || !strings.Contains(err.Error(), "waited 2s for release cilium; last seen: revision 1 of helm "+
		"release cilium") {
		t.Errorf("error is %v", err)
	}
	if w.Workload.Get("v1", "Secret", "kube-system", cilium1) == nil {
		t.Error("somebody else's record is gone")
	}
}

// A call that is lost on the way ends nothing: an API server that has just come up drops some.
func TestReleaseOutlastsLostCalls(t *testing.T) {
	w := clustertest.New(t)
	var lost atomic.Int32
	w.Workload.Fail = func(r *http.Request) (int, string) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/daemonsets/cilium") && lost.Add(1) <= 2 {
			return kubetest.Garbled, ""
		}
		return 0, ""
	}
	if _, err := runPlan(t, w, w.Config(), flow.Memory(), nil); err != nil {
		t.Fatal(err)
	}
	if lost.Load() <= 2 {
		t.Errorf("%d calls were lost: nothing was tried", lost.Load())
	}
}
