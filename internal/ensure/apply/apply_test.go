package apply

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// The webhooks are waited for once, not once for each object: the deadline of the step has room for that much.
func TestObjectsShareOneDeadline(t *testing.T) {
	w := clustertest.New(t)
	cfg, tools := w.Config(), w.Tools().WithDefaults()
	refused := map[string]int{"a": 1, "c": 1000}
	w.Management.Fail = func(r *http.Request) (int, string) {
		name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		if r.Method != http.MethodPatch || refused[name] == 0 {
			return 0, ""
		}
		refused[name]--
		return http.StatusInternalServerError, `Internal error occurred: failed calling webhook "x": connection refused`
	}
	mgmt, err := tools.Connect(w.Management.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	object := func(name string) *unstructured.Unstructured {
		return kubetest.Object("v1", "ConfigMap", config.DefaultNamespace, name, nil)
	}
	patience := time.Hour
	if err := Objects(t.Context(), cfg, clustertest.Silent, mgmt,
		[]*unstructured.Unstructured{object("a"), object("b")}, &patience); err != nil {
		t.Fatal(err)
	}
	if patience > time.Hour-wait.LookGap {
		t.Errorf("after a wait %s are left of an hour", patience)
	}
	patience = 0
	err = Objects(t.Context(), cfg, clustertest.Silent, mgmt,
		[]*unstructured.Unstructured{object("b"), object("c")}, &patience)
	var late *wait.TimeoutError
	if !errors.As(err, &late) || late.Within != 0 || !strings.Contains(late.What, "ConfigMap") || refused["c"] != 999 {
		t.Errorf("without patience it looked %d times: %v", 1000-refused["c"], err)
	}
}
