package serve

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/serve/auth"
)

// decode reads the JSON of an answer.
func (d *desk) decode(a answer, into any) {
	d.t.Helper()
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		d.t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
}

// The role of a client decides what it may do, with a bearer token and in a session of a browser.
func TestReaders(t *testing.T) {
	d := newDesk(t, t.TempDir())
	t.Cleanup(d.close)
	d.server.changes, d.server.looks = auth.NewLimits(1000, 1000), auth.NewLimits(1000, 1000)
	token, plain, err := auth.EnsureToken(filepath.Join(t.TempDir(), "readers"))
	if err != nil {
		t.Fatal(err)
	}
	d.server.Auth.ReaderToken = &token
	run := d.start(waitingTarget)
	d.until(run.ID, waits)
	login := d.ask("POST", prefix+"/session", `{"token":"`+plain+`"}`)
	var session Session
	d.decode(login, &session)
	if session.Role != auth.Reader || session.CSRF == "" {
		t.Fatalf("login: %d %s", login.status, login.body)
	}
	cookie := header("Cookie", strings.Split(login.header.Get("Set-Cookie"), ";")[0])
	bearer := header("Authorization", "Bearer "+plain)
	for name, as := range map[string][]with{
		"the token": {bearer}, "a session": {cookie, header(auth.CSRFHeader, session.CSRF)},
		"both, and the session of nobody": {bearer, header("Cookie", "slipway-session=x"), header(auth.CSRFHeader, "x")},
	} {
		for _, r := range d.server.table() {
			method, path := split(r, run.ID)
			switch {
			case strings.HasSuffix(path, "/events") || strings.HasSuffix(path, "/session"):
				continue
			case method == "GET" && r.access == operators, method != "GET" && r.access != operators:
				t.Errorf("%s is for %d", r.pattern, r.access)
			}
			for _, body := range map[string][]string{"POST": {"", "{}", `{"targets":["quick"]}`, `{"force":true}`}, "GET": {""}}[method] {
				a := d.ask(method, path, body, as...)
				if r.access == operators && (a.status != http.StatusForbidden || !strings.Contains(a.body, "reader")) ||
					r.access != operators && a.status != http.StatusOK {
					t.Errorf("a reader, with %s: %s %s %s: %d %s", name, method, path, body, a.status, a.body)
				}
			}
		}
	}
	if a := d.ask("GET", prefix+"/session", "", bearer); !strings.Contains(a.body, `"role":"reader"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := d.ask("GET", prefix+"/session", "", d.bearer); !strings.Contains(a.body, `"role":"operator"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	var all struct{ Items []Run }
	d.decode(d.ask("GET", runsPath, "", bearer), &all)
	if len(all.Items) != 1 || all.Items[0].Cancelled || all.Items[0].State != Running {
		t.Errorf("the runs are %+v", all.Items)
	}
	if err := os.WriteFile(filepath.Join(d.dir, gate), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.until(run.ID, inState(Finished))
	if a := d.ask("GET", runsPath+"/"+run.ID+"/events", "", cookie); a.status != 200 || !strings.Contains(a.body, "event: end") {
		t.Errorf("events: %d %s", a.status, a.body)
	}
	if a := d.ask("DELETE", prefix+"/session", "", cookie, header(auth.CSRFHeader, session.CSRF)); a.status != http.StatusNoContent {
		t.Errorf("logout: %d %s", a.status, a.body)
	}
}
