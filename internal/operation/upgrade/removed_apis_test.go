package upgrade

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

const metrics = `# HELP apiserver_requested_deprecated_apis [STABLE] Gauge of deprecated APIs that have been requested
# TYPE apiserver_requested_deprecated_apis gauge
apiserver_requested_deprecated_apis{group="flowcontrol.apiserver.k8s.io",removed_release="1.32",resource="flowschemas",subresource="",version="v1beta3"} 1
apiserver_requested_deprecated_apis{group="storage.k8s.io",removed_release="1.34",resource="csistoragecapacities",subresource="",version="v1beta1"} 1
apiserver_requested_deprecated_apis{group="",removed_release="",resource="componentstatuses",subresource="",version="v1"} 1
apiserver_requested_deprecated_apis{group="batch",removed_release="1.25",resource="cronjobs",subresource="",version="v1beta1"} 0
`

// servers are API servers behind one address that goes round.
func servers(t *testing.T, pages ...string) *kube.Cluster {
	t.Helper()
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			http.NotFound(w, r)
			return
		}
		page := pages[int(asked.Add(1))%len(pages)]
		if page == "" {
			http.Error(w, "forbidden", http.StatusForbidden)
			return
		}
		_, _ = fmt.Fprint(w, page)
	}))
	t.Cleanup(s.Close)
	c, err := kube.ConnectTrusted([]byte(fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],
		"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{}}],"current-context":"c"}`,
		s.URL)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// One API server of three was asked for a removed API: it is found whichever answers first.
func TestRemoved(t *testing.T) {
	c := servers(t, "# nothing\n", metrics, "# nothing\n")
	for minor, want := range map[uint64]int{31: 0, 32: 1, 33: 1, 34: 2} {
		found, err := removedAPIs(t.Context(), c, 3, minor)
		if err != nil || len(found) != want {
			t.Errorf("in 1.%d: %v, %v, want %d", minor, found, err, want)
		}
	}
	found, err := removedAPIs(t.Context(), c, 3, 33)
	const says = "flowschemas of flowcontrol.apiserver.k8s.io/v1beta3 (removed in Kubernetes 1.32)"
	if err != nil || len(found) != 1 || found[0].String() != says {
		t.Errorf("%v, %v", found, err)
	}
}

// An API server that does not tell is not taken for one that was asked for nothing.
func TestRemovedThatCannotBeAsked(t *testing.T) {
	if found, err := removedAPIs(t.Context(), servers(t, metrics, ""), 3, 33); err == nil ||
		!strings.Contains(err.Error(), "403") {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := removedAPIs(t.Context(), servers(t, "apiserver_requested_deprecated_apis{"), 1, 33); err == nil {
		t.Error("a page that cannot be read is taken for an empty one")
	}
}
