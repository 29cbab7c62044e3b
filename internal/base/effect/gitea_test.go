package effect

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestGiteaCall(t *testing.T) {
	for _, tt := range []struct{ method, path, body, verb, object string }{
		{http.MethodPost, "/api/v1/users/gitea_admin/tokens", `{"name": "slipway.k8s.abc"}`, "create",
			"users/gitea_admin/tokens"},
		{http.MethodDelete, "/api/v1/users/gitea_admin/tokens/17", "", "delete", "users/gitea_admin/tokens/*"},
		{http.MethodPost, "/api/v1/user/repos", `{"name": "k8s"}`, "create", "user/repos/k8s"},
		{http.MethodPost, "/api/v1/repos/gitea_admin/fleet/contents", `{"branch": "main"}`, "create",
			"repos/gitea_admin/fleet/contents"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), tt.method, "http://gitea"+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		if verb, object, ok := GiteaCall(request); !ok || verb != tt.verb || object != tt.object {
			t.Errorf("%s %s: %q, %q, %v", tt.method, tt.path, verb, object, ok)
		}
	}
}

// A port that is forwarded changes nothing by itself.
func TestForwardedPortIsNoEffect(t *testing.T) {
	request := httptest.NewRequest(http.MethodPost, "http://api/api/v1/namespaces/gitea/pods/gitea-0/portforward", nil)
	if verb, object, ok := KubernetesCall(request); ok {
		t.Errorf("%s %s", verb, object)
	}
}
