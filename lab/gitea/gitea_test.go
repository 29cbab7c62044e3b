package gitea

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// served is a stand-in on loopback, and a function that asks it.
func served(t *testing.T, dir string) func(method, path, user, token, body string) (int, string) {
	t.Helper()
	s, err := New(dir, "admin", "right")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return func(method, path, password, token, body string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "token "+token)
		} else {
			request.SetBasicAuth("admin", password)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var said json.RawMessage
		_ = json.NewDecoder(response.Body).Decode(&said)
		return response.StatusCode, string(said)
	}
}

// Tokens are created, listed, used and deleted by who has the password, outlive a restart, and are in no file.
func TestTokens(t *testing.T) {
	dir := t.TempDir()
	ask := served(t, dir)
	const tokens = "/api/v1/users/admin/tokens"
	for _, refused := range []struct {
		method, path, password, body string
		status                       int
		says                         string
	}{
		{"GET", tokens, "wrong", "", 401, "password"},
		{"GET", "/api/v1/users/someone/tokens", "right", "", 404, "does not exist"},
		{"POST", tokens, "right", `{"name": "a"}`, 400, "must have a scope"},
		{"POST", tokens, "right", `{"name": "a", "scopes": ["read:everything"]}`, 400, "invalid access token scope"},
		{"POST", tokens, "right", `{"scopes": ["all"]}`, 422, "Required"},
		{"DELETE", tokens + "/7", "right", "", 404, "does not exist"},
		{"GET", "/api/v1/admin/users", "right", "", 404, "stand-in"},
	} {
		if status, said := ask(refused.method, refused.path, refused.password, "", refused.body); status != refused.status ||
			!strings.Contains(said, refused.says) {
			t.Errorf("%v: %d %s", refused, status, said)
		}
	}
	status, said := ask("POST", tokens, "right", "", `{"name": "a", "scopes": ["read:repository"]}`)
	var made struct {
		ID    int64
		Value string `json:"sha1"`
		Ends  string `json:"token_last_eight"`
	}
	if err := json.Unmarshal([]byte(said), &made); err != nil || status != 201 || len(made.Value) != 40 ||
		!strings.HasSuffix(made.Value, made.Ends) || len(made.Ends) != 8 {
		t.Fatalf("%d %s", status, said)
	}
	if status, said := ask("POST", tokens, "right", "", `{"name": "a", "scopes": ["all"]}`); status != 400 ||
		!strings.Contains(said, "name has been used") {
		t.Errorf("the same name: %d %s", status, said)
	}
	data, err := os.ReadFile(filepath.Join(dir, "tokens.json"))
	if err != nil || strings.Contains(string(data), made.Value) {
		t.Errorf("the file has the token, or %v", err)
	}
	ask = served(t, dir)
	if status, said := ask("GET", tokens+"?page=1&limit=50", "right", "", ""); status != 200 ||
		!strings.Contains(said, made.Ends) || strings.Contains(said, made.Value) {
		t.Errorf("after a restart: %d %s", status, said)
	}
	if status, _ := ask("GET", tokens+"?page=2&limit=50", "right", "", ""); status != 200 {
		t.Errorf("the second page: %d", status)
	}
	if status, _ := ask("GET", "/api/v1/repos/search", "", made.Value, ""); status != 200 {
		t.Errorf("with the token: %d", status)
	}
	if status, _ := ask("DELETE", tokens+"/a", "right", "", ""); status != 204 {
		t.Errorf("delete: %d", status)
	}
	if status, _ := ask("GET", "/api/v1/repos/search", "", made.Value, ""); status != 401 {
		t.Errorf("with the deleted token: %d", status)
	}
}
