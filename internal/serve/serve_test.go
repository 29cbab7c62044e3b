package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/serve/auth"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

func TestMain(m *testing.M) {
	if isCommand() {
		os.Exit(commandMain())
	}
	os.Exit(m.Run())
}

// planted is a secret that the stand-in for the command puts into everything.
const planted = "planted-s3cr3t-of-hetzner"

// desk is a server with one cluster, over a real connection.
type desk struct {
	t       testing.TB
	dir     string
	token   string
	server  *server
	cluster *cluster
	http    *httptest.Server
	log     bytes.Buffer
}

func newDesk(t testing.TB, dir string) *desk {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, dir: dir}
	hide := &redact.Redactor{}
	hide.Learn(planted)
	log := slog.New(slog.NewTextHandler(hide.Writer(&d.log), nil))
	state := statedir.Dir(filepath.Join(dir, "state"))
	d.cluster, err = openCluster(t.Context(), clusterOptions{Name: "desk", Dir: dir, State: state, Environment: statedir.EnvironmentLab,
		Executable: self, Arguments: []string{"--state-dir", string(state)}, Env: commandEnv(secretVariable + "=" + planted),
		Targets: targetsOfCommand(), Hide: hide, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	tokenFile := state.Path("serve/token")
	token, plain, err := auth.EnsureToken(tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	d.token = plain
	learn := redact.NewWatch(hide, []string{tokenFile}, []string{string(state)})
	d.server = newServer(serverOptions{Clusters: []*cluster{d.cluster}, Auth: auth.New(auth.Options{Token: &token}),
		Hosts: auth.Loopback(), Version: "test", Hide: hide, Learn: learn.Learn, Log: log})
	d.http = httptest.NewServer(d.server)
	return d
}

// close ends serve, and nothing else.
func (d *desk) close() {
	d.t.Helper()
	d.server.end()
	d.http.Close()
	if err := d.cluster.Close(); err != nil {
		d.t.Error(err)
	}
}

// with changes a request.
type with func(*http.Request)

func (d *desk) bearer(r *http.Request) { r.Header.Set("Authorization", "Bearer "+d.token) }

func header(name, value string) with {
	return func(r *http.Request) {
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (d *desk) ask(method, path, body string, with ...with) answer {
	d.t.Helper()
	var data io.Reader
	if body != "" {
		data = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.http.URL+path, data)
	if err != nil {
		d.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, w := range with {
		w(r)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{response.StatusCode, response.Header, string(text)}
}

const runsPath = prefix + "/clusters/desk/runs"

func (d *desk) start(target string) Run {
	d.t.Helper()
	a := d.ask("POST", runsPath, `{"targets":["`+target+`"]}`, d.bearer)
	var r Run
	if err := json.Unmarshal([]byte(a.body), &r); err != nil || a.status != http.StatusAccepted {
		d.t.Fatalf("start: %d %s", a.status, a.body)
	}
	if want := runsPath + "/" + r.ID; a.header.Get("Location") != want {
		d.t.Errorf("Location %q, want %q", a.header.Get("Location"), want)
	}
	return r
}

// until asks for a run until it is what is wanted.
func (d *desk) until(id string, is func(Run) bool) Run {
	d.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		a := d.ask("GET", runsPath+"/"+id, "", d.bearer)
		var r Run
		if json.Unmarshal([]byte(a.body), &r) == nil && is(r) {
			return r
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("run %s: %s", id, a.body)
		}
	}
}

func inState(s State) func(Run) bool { return func(r Run) bool { return r.State == s } }
func waits(r Run) bool {
	return r.State == Running && r.Steps.AtWork == 1 && r.Steps.Done == 1
}

// split takes a route's pattern apart, with the run in it.
func split(r route, run string) (method, path string) {
	method, path, _ = strings.Cut(r.pattern, " ")
	path = strings.NewReplacer("{cluster}", "desk", "{run}", run, "{$}", "").Replace(path)
	if strings.HasSuffix(path, "/plan") {
		path += "?target=" + quickTarget
	}
	return method, path
}

// Every route that is of a cluster is closed to who has no token, a wrong one, no CSRF token, or comes from another
// site; what is open tells nothing.
func TestWhoMayAsk(t *testing.T) {
	d := newDesk(t, t.TempDir())
	defer d.close()
	d.server.changes, d.server.looks = auth.NewLimits(1000, 1000), auth.NewLimits(1000, 1000)
	run := d.until(d.start(quickTarget).ID, inState(Finished))
	login := d.ask("POST", prefix+"/session", `{"token":"`+d.token+`"}`)
	cookie := header("Cookie", strings.Split(login.header.Get("Set-Cookie"), ";")[0])
	var session Session
	if err := json.Unmarshal([]byte(login.body), &session); err != nil || session.CSRF == "" || login.status != 200 {
		t.Fatalf("login: %d %s", login.status, login.body)
	}
	for _, part := range []string{"HttpOnly", "SameSite=Strict", "Path=/"} {
		if !strings.Contains(login.header.Get("Set-Cookie"), part) {
			t.Errorf("the cookie is not %s: %s", part, login.header.Get("Set-Cookie"))
		}
	}
	host := strings.TrimPrefix(d.http.URL, "http://")
	for _, r := range d.server.table() {
		method, path := split(r, run.ID)
		body := ""
		if method == "POST" {
			body = "{}"
		}
		closed := r.access != open && r.access != probe
		api := closed || method != "GET"
		for name, tc := range map[string]struct {
			with   []with
			status int // 0: anything that is no refusal
		}{
			"no token":              {nil, http.StatusUnauthorized},
			"a wrong token":         {[]with{header("Authorization", "Bearer wrong")}, http.StatusUnauthorized},
			"an empty token":        {[]with{header("Authorization", "Bearer ")}, http.StatusUnauthorized},
			"another scheme":        {[]with{header("Authorization", "Basic "+d.token)}, http.StatusUnauthorized},
			"a wrong cookie":        {[]with{header("Cookie", strings.Split(login.header.Get("Set-Cookie"), "=")[0]+"=wrong")}, http.StatusUnauthorized},
			"the token":             {[]with{d.bearer}, 0},
			"a foreign origin":      {[]with{d.bearer, header("Origin", "https://evil.example")}, http.StatusForbidden},
			"an origin of no site":  {[]with{d.bearer, header("Origin", "null")}, http.StatusForbidden},
			"another port":          {[]with{d.bearer, header("Origin", "http://127.0.0.1:1")}, http.StatusForbidden},
			"its name over TLS":     {[]with{d.bearer, header("Origin", "https://"+host)}, http.StatusForbidden},
			"its own origin":        {[]with{d.bearer, header("Origin", "http://"+host)}, 0},
			"a page of another one": {[]with{d.bearer, header("Sec-Fetch-Site", "cross-site")}, http.StatusForbidden},
			"a page of a neighbour": {[]with{d.bearer, header("Sec-Fetch-Site", "same-site")}, http.StatusForbidden},
			"another name":          {[]with{d.bearer, header("Host", "evil.example")}, http.StatusMisdirectedRequest},
		} {
			if strings.HasSuffix(path, "/session") && name == "the token" && method == "DELETE" {
				continue
			}
			a := d.ask(method, path, body, tc.with...)
			want := tc.status
			switch {
			case a.status == http.StatusTooManyRequests && strings.Contains(a.body, "wrong tokens"):
				a.status = http.StatusUnauthorized // the limit of wrong tokens: it is a refusal, too
			case r.access == probe, !closed && want == http.StatusUnauthorized, !api && want == http.StatusForbidden:
				want = 0
			}
			refused := slices.Contains([]int{401, 403, 421, 429}, a.status)
			login := path == prefix+"/session" && method == "POST" && a.status == http.StatusUnauthorized
			if want != 0 && a.status != want || want == 0 && refused && !login {
				t.Errorf("%s %s with %s: %d, want %d: %s", method, path, name, a.status, want, a.body)
			}
			if tc.status == http.StatusUnauthorized && strings.Contains(a.body, run.ID) {
				t.Errorf("%s %s with %s tells of a run: %s", method, path, name, a.body)
			}
		}
		if !closed || strings.HasSuffix(path, "/session") {
			continue
		}
		plain, proven := d.ask(method, path, body, cookie), d.ask(method, path, body, cookie, header(auth.CSRFHeader, session.CSRF))
		if forged := plain.status == http.StatusForbidden; forged != (method == "POST") {
			t.Errorf("%s %s of a session without its CSRF token: %d %s", method, path, plain.status, plain.body)
		}
		if proven.status == http.StatusForbidden || proven.status == http.StatusUnauthorized {
			t.Errorf("%s %s of a session with its CSRF token: %d %s", method, path, proven.status, proven.body)
		}
	}
	if a := d.ask("DELETE", prefix+"/session", "", cookie, header(auth.CSRFHeader, session.CSRF)); a.status != http.StatusNoContent {
		t.Errorf("logout: %d", a.status)
	}
	if a := d.ask("GET", prefix+"/clusters", "", cookie); a.status != http.StatusUnauthorized {
		t.Errorf("after the logout: %d", a.status)
	}
}

// A browser sends a cookie to every port of a host. Who gets it there does not get the CSRF token for it, and servers at
// two ports do not overwrite the cookies of each other.
func TestTheCookieAlone(t *testing.T) {
	d := newDesk(t, t.TempDir())
	defer d.close()
	login := d.ask("POST", prefix+"/session", `{"token":"`+d.token+`"}`)
	sent := strings.Split(login.header.Get("Set-Cookie"), ";")[0]
	_, port, _ := net.SplitHostPort(d.http.Listener.Addr().String())
	if !strings.HasPrefix(sent, "slipway-session-"+port+"=") {
		t.Errorf("at port %s the cookie is %s", port, sent)
	}
	var session Session
	if err := json.Unmarshal([]byte(login.body), &session); err != nil || session.CSRF == "" {
		t.Fatalf("login: %s", login.body)
	}
	for presented, gets := range map[string]bool{"": false, "wrong": false, session.CSRF: true} {
		a := d.ask("GET", prefix+"/session", "", header("Cookie", sent), header(auth.CSRFHeader, presented))
		if a.status != http.StatusOK || strings.Contains(a.body, session.CSRF) != gets {
			t.Errorf("with the CSRF token %q: %d %s", presented, a.status, a.body)
		}
	}
	if a := d.ask("GET", prefix+"/session", "", header("Cookie", strings.Replace(sent, port, "1", 1))); a.status != http.StatusUnauthorized {
		t.Errorf("with a cookie of another port: %d", a.status)
	}
}

// Wrong tokens are limited, and do not lock out who has the right one.
func TestWrongTokensAreLimited(t *testing.T) {
	d := newDesk(t, t.TempDir())
	defer d.close()
	limited := 0
	for range 20 {
		if a := d.ask("POST", prefix+"/session", `{"token":"wrong"}`); a.status == http.StatusTooManyRequests && a.header.Get("Retry-After") != "" {
			limited++
		} else if a.status != http.StatusUnauthorized {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if limited < 5 {
		t.Errorf("%d of 20 were limited", limited)
	}
	if a := d.ask("GET", prefix+"/clusters", "", d.bearer); a.status != http.StatusOK {
		t.Errorf("the right token: %d", a.status)
	}
	refused := 0
	for range 30 {
		if a := d.ask("POST", runsPath, `{"targets":["no-such"]}`, d.bearer); a.status == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused < 10 {
		t.Errorf("%d of 30 changes were limited", refused)
	}
}

func TestWhatIsTooLargeOrWrong(t *testing.T) {
	d := newDesk(t, t.TempDir())
	defer d.close()
	d.server.changes = auth.NewLimits(1000, 1000)
	large := `{"targets":["` + strings.Repeat("x", 10<<20) + `"]}`
	// A client may see its connection reset while it still sends: then it gets no answer, which is right, too.
	for name, length := range map[string]int64{"with its length": int64(len(large)), "in chunks": -1} {
		r := httptest.NewRequest("POST", runsPath, strings.NewReader(large))
		r.Host, r.ContentLength = "localhost", length
		r.Header.Set("Content-Type", "application/json")
		d.bearer(r)
		w := httptest.NewRecorder()
		d.server.ServeHTTP(w, r)
		if w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("10 MB %s: %d %s", name, w.Code, w.Body)
		}
	}
	ignored := httptest.NewRequest("GET", prefix+"/clusters", strings.NewReader(large)) // of a route that reads no body
	ignored.Host = "localhost"
	d.bearer(ignored)
	w := httptest.NewRecorder()
	if d.server.ServeHTTP(w, ignored); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("10 MB where none is read: %d", w.Code)
	}
	for body, status := range map[string]int{
		`{`: 400, `{"targets":["quick"],"more":1}`: 400, `{"targets":["quick"]} {}`: 400, `{"targets":"quick"}`: 400, `{"targets":[]}`: 400,
		`{"targets":["destroy"]}`: 400, `{"targets":["--state-dir=/"]}`: 400,
	} {
		if a := d.ask("POST", runsPath, body, d.bearer); a.status != status {
			t.Errorf("%s: %d, want %d", body, a.status, status)
		}
	}
	if a := d.ask("POST", runsPath, `{"targets":["quick"]}`, d.bearer, header("Content-Type", "text/plain")); a.status != http.StatusUnsupportedMediaType {
		t.Errorf("a form's type: %d", a.status)
	}
	for _, path := range []string{"/nothing", prefix + "/clusters/other", runsPath + "/other", runsPath + "/..%2f..%2fserve/events", "/page/app.js"} {
		if a := d.ask("GET", path, "", d.bearer); a.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if all := d.ask("GET", runsPath, "", d.bearer); strings.TrimSpace(all.body) != `{"items":[]}` {
		t.Errorf("something was started: %s", all.body)
	}
}

// A client that sends slowly is cut off, and others are answered meanwhile.
func TestASlowClient(t *testing.T) {
	d := newDesk(t, t.TempDir())
	defer d.close()
	d.server.slow.header, d.server.slow.request = 200*time.Millisecond, 400*time.Millisecond
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.server.Serve(ctx, listener, nil) }()
	for name, begun := range map[string]string{
		"headers": "GET /healthz HTTP/1.1\r\nHost: local",
		"body": "POST " + prefix + "/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
			"Content-Length: 100\r\n\r\n{",
	} {
		slow, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(slow, begun); err != nil {
			t.Fatal(err)
		}
		response, err := http.Get("http://" + listener.Addr().String() + "/healthz")
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("while another client is slow: %v %v", response, err)
		}
		response.Body.Close()
		_ = slow.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadAll(slow); err != nil { // to the end of the connection
			t.Errorf("slow %s: %v", name, err)
		}
		slow.Close()
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// stream reads server-sent events: name, id and data of each.
func (d *desk) stream(run, after string, enough func(all [][3]string) bool) (all [][3]string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", d.http.URL+runsPath+"/"+run+"/events", nil)
	if err != nil {
		d.t.Fatal(err)
	}
	d.bearer(r)
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer response.Body.Close()
	if kind := response.Header.Get("Content-Type"); kind != "text/event-stream" {
		d.t.Fatalf("%d %s", response.StatusCode, kind)
	}
	var one [3]string
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() && !enough(all) {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch i := slices.Index([]string{"event", "id", "data"}, name); {
		case i >= 0:
			one[i] = value
		case one[0] != "":
			all = append(all, one)
			one = [3]string{}
		}
	}
	return all
}

func named(all [][3]string, name string) (some [][3]string) {
	for _, e := range all {
		if e[0] == name {
			some = append(some, e)
		}
	}
	return some
}

// A stream that was cut off goes on behind the event that the client has seen last: no event is lost or comes twice.
func TestAStreamGoesOn(t *testing.T) {
	d := newDesk(t, t.TempDir())
	defer d.close()
	run := d.start(waitingTarget)
	first := named(d.stream(run.ID, "", func(all [][3]string) bool { return len(named(all, "event")) >= 3 }), "event")[:3]
	d.until(run.ID, waits)
	if err := os.WriteFile(filepath.Join(d.dir, gate), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	never := func([][3]string) bool { return false }
	rest := d.stream(run.ID, first[2][1], never)
	if n := len(rest); rest[n-1][0] != "end" || !strings.Contains(named(rest, "run")[len(named(rest, "run"))-1][2], `"state":"finished"`) {
		t.Errorf("the stream ends with %q", rest[n-1])
	}
	var parts, whole []string
	for _, e := range append(first, named(rest, "event")...) {
		parts = append(parts, e[1]+e[2])
	}
	for _, e := range named(d.stream(run.ID, "", never), "event") {
		whole = append(whole, e[1]+e[2])
	}
	if !slices.Equal(parts, whole) || len(whole) != 7 {
		t.Errorf("in two parts:\n%s\nas a whole:\n%s", strings.Join(parts, "\n"), strings.Join(whole, "\n"))
	}
	var last flow.Event
	if err := json.Unmarshal([]byte(whole[6][strings.Index(whole[6], "{"):]), &last); err != nil || last.Kind != flow.RunFinished {
		t.Errorf("%s: %v", whole[6], err)
	}
	if again := named(d.stream(run.ID, named(rest, "event")[len(named(rest, "event"))-1][1], never), "event"); len(again) != 0 {
		t.Errorf("behind the last event: %q", again)
	}
	for _, id := range []string{"x", "-1", "1e3"} {
		if a := d.ask("GET", runsPath+"/"+run.ID+"/events", "", d.bearer, header("Last-Event-ID", id)); a.status != http.StatusBadRequest {
			t.Errorf("Last-Event-ID %s: %d", id, a.status)
		}
	}
}

// A stream ends with the session, and with the ID token, of the client that reads it.
func TestAStreamEndsWithItsSession(t *testing.T) {
	d := newDesk(t, t.TempDir())
	defer d.close()
	var later atomic.Int64 // how far the clock of the sessions is ahead
	d.server.Auth.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	run := d.start(waitingTarget)
	d.until(run.ID, waits)
	defer func() {
		d.ask("POST", runsPath+"/"+run.ID+"/cancel", "", d.bearer)
		d.until(run.ID, inState(Cancelled))
	}()
	for name, end := range map[string]func(...with){
		"logout": func(of ...with) { d.ask("DELETE", prefix+"/session", "", of...) },
		"expiry": func(...with) { later.Store(int64(13 * time.Hour)) },
	} {
		later.Store(0)
		login := d.ask("POST", prefix+"/session", `{"token":"`+d.token+`"}`)
		cookie := header("Cookie", strings.Split(login.header.Get("Set-Cookie"), ";")[0])
		var session Session
		if err := json.Unmarshal([]byte(login.body), &session); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, "GET", d.http.URL+runsPath+"/"+run.ID+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		cookie(r)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", name, response.Status)
		}
		end(cookie, header(auth.CSRFHeader, session.CSRF))
		if all, err := io.ReadAll(response.Body); err != nil || strings.Contains(string(all), "event: end") {
			t.Errorf("after the %s the stream goes on: %v\n%s", name, err, all)
		}
	}
}

// A run that has no events yet is followed too, to its end.
func TestAStreamOfARunThatFailsAtOnce(t *testing.T) {
	d := newDesk(t, t.TempDir())
	defer d.close()
	all := d.stream(d.start(failingTarget).ID, "", func([][3]string) bool { return false })
	if len(all) < 2 || all[len(all)-1][0] != "end" || !strings.Contains(all[len(all)-2][2], "the configuration is wrong") {
		t.Errorf("%q", all)
	}
}

// Serve ends while a run works; the next one follows it.
func TestServeIsStartedAgain(t *testing.T) {
	dir := t.TempDir()
	d := newDesk(t, dir)
	run := d.start(waitingTarget)
	d.until(run.ID, waits)
	d.close()
	again := newDesk(t, dir)
	defer again.close()
	if again.token != d.token {
		t.Error("it has another token")
	}
	again.until(run.ID, waits)
	if a := again.ask("POST", runsPath+"/"+run.ID+"/cancel", "", again.bearer); a.status != http.StatusAccepted {
		t.Fatalf("cancel: %d %s", a.status, a.body)
	}
	again.until(run.ID, inState(Cancelled))
	if err := os.WriteFile(filepath.Join(dir, gate), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	resumed := again.ask("POST", runsPath+"/"+run.ID+"/resume", "", again.bearer)
	var next Run
	if err := json.Unmarshal([]byte(resumed.body), &next); err != nil || next.Resumes != run.ID {
		t.Fatalf("resume: %d %s", resumed.status, resumed.body)
	}
	again.until(next.ID, inState(Finished))
}

// Nothing that serve answers, logs or writes holds a secret, although what it runs is careless with them.
func TestNoSecretLeaves(t *testing.T) {
	d := newDesk(t, t.TempDir())
	defer d.close()
	d.server.changes, d.server.looks = auth.NewLimits(1000, 1000), auth.NewLimits(1000, 1000)
	key := "LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0tLS0tCk1IY0NBUUVFSUJ0ZXN0Cg=="
	if err := os.WriteFile(d.cluster.State.Path("kubeconfig"), []byte("users:\n- user:\n    client-key-data: "+key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := d.until(d.start(quickTarget).ID, inState(Finished))
	failed := d.until(d.start(failingTarget).ID, inState(Failed))
	hidden := 0
	search := func(where, text string) {
		for _, secret := range []string{planted, d.token, key, "MHcCAQEEIBtest"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s holds the secret %s: %s", where, secret, text)
			}
		}
		hidden += strings.Count(text, "[hidden]")
	}
	events := d.cluster.State.Path(filepath.Join(statedir.RunsFolder, run.Run, statedir.EventsFile))
	file, err := os.OpenFile(events, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(file, `{"kind":"note","message":"%s and %s and %s"}`+"\n", key, d.token, planted)
	file.Close()
	time.Sleep(1100 * time.Millisecond) // secrets of files are read at most once a second
	for _, r := range d.server.table() {
		for _, id := range []string{run.ID, failed.ID} {
			method, path := split(r, id)
			if path == prefix+"/session" {
				continue
			}
			a := d.ask(method, path, map[string]string{"POST": "{}"}[method], d.bearer)
			search(method+" "+path, a.body+fmt.Sprint(a.header))
		}
	}
	if hidden < 6 {
		t.Errorf("only %d were hidden: the test plants none where it should", hidden)
	}
	search("the log", d.log.String())
	err = filepath.WalkDir(d.cluster.State.Path(statedir.ServeFolder), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			if info, stat := e.Info(); stat != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%s: %v %v", path, info.Mode(), stat)
			}
			return err
		}
		info, err := e.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
		data, err := os.ReadFile(path)
		if filepath.Base(path) != "token" {
			search(path, string(data))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestHealthAndReadiness(t *testing.T) {
	d := newDesk(t, t.TempDir())
	defer d.close()
	both := func() (health, ready answer) {
		return d.ask("GET", "/healthz", "", header("Host", "10.0.0.1:8087")), d.ask("GET", "/readyz", "", header("Host", "10.0.0.1:8087"))
	}
	if health, ready := both(); health.body != "ok\n" || ready.body != "ok\n" || ready.status != 200 {
		t.Errorf("%+v %+v", health, ready)
	}
	// Whatever happens to a cluster, serve is ready; without a place for its records it is not.
	folder := d.cluster.State.Path(statedir.ServeFolder)
	if err := os.Rename(folder, folder+".away"); err != nil {
		t.Fatal(err)
	}
	d.server.readyAt = time.Time{}
	if health, ready := both(); health.status != 200 || ready.status != http.StatusServiceUnavailable || strings.Contains(ready.body, d.dir) {
		t.Errorf("%+v %+v", health, ready)
	}
	if err := os.Rename(folder+".away", folder); err != nil {
		t.Fatal(err)
	}
}

func TestMetrics(t *testing.T) {
	d := newDesk(t, t.TempDir())
	defer d.close()
	run := d.start(waitingTarget)
	d.until(run.ID, waits)
	text := d.ask("GET", "/metrics", "", d.bearer).body
	for _, line := range []string{`slipway_runs{cluster="desk",state="running"} 1`, `slipway_step_at_work{cluster="desk",step="second"} 1`,
		`slipway_step_waits_total{cluster="desk",step="second"} 1`, `slipway_hetzner_ratelimit_remaining{cluster="desk"} 3001`,
		`slipway_calls_total{cluster="desk",outcome="applied",verb="create",world="hetzner"} 1`,
		`slipway_step_duration_seconds_count{cluster="desk",outcome="ran",step="first"} 1`} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if err := os.WriteFile(filepath.Join(d.dir, gate), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.until(run.ID, inState(Finished))
	for range 2 { // what was counted is not counted again
		text = d.ask("GET", "/metrics", "", d.bearer).body
	}
	for _, line := range []string{`slipway_runs{cluster="desk",state="running"} 0`, `slipway_runs_ended_total{cluster="desk",state="finished"} 1`,
		`slipway_step_duration_seconds_count{cluster="desk",outcome="ran",step="second"} 1`} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if strings.Contains(text, "slipway_step_at_work{") {
		t.Error("a step is at work after the end")
	}
}

// The description has every route, and every field that answers have.
func TestOpenAPI(t *testing.T) {
	d := newDesk(t, t.TempDir())
	defer d.close()
	var described struct {
		Paths      map[string]map[string]struct{ Security *[]map[string][]string }
		Components struct {
			Schemas map[string]struct {
				Required   []string
				Properties map[string]any
			}
		}
	}
	if err := json.Unmarshal([]byte(d.ask("GET", "/openapi.json", "").body), &described); err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, r := range d.server.table() {
		method, path, _ := strings.Cut(r.pattern, " ")
		if r.access == open && method == "GET" {
			continue // the page
		}
		operation, is := described.Paths[path][strings.ToLower(method)]
		if count++; !is {
			t.Errorf("openapi.json lacks %s", r.pattern)
		}
		said := readers
		if operation.Security != nil {
			if said = operators; len(*operation.Security) == 0 {
				said = open
			}
			for _, scheme := range *operation.Security {
				for name, roles := range scheme {
					if !slices.Equal(roles, []string{"operator"}) {
						t.Errorf("openapi.json has the roles %q for %s of %s", roles, name, r.pattern)
					}
				}
			}
		}
		want, is := map[access]access{readersNow: readers, probe: open}[r.access]
		if !is {
			want = r.access
		}
		if said != want {
			t.Errorf("openapi.json has another idea of who may ask for %s", r.pattern)
		}
	}
	for _, operations := range described.Paths {
		count -= len(operations)
	}
	if count != 0 {
		t.Errorf("openapi.json has %d operations more than there are", -count)
	}
	for name, value := range map[string]any{"Run": Run{}, "Counts": Counts{}, "Cluster": Cluster{}, "Session": Session{}, "Failure": Failure{}} {
		schema := described.Components.Schemas[name]
		kind := reflect.TypeOf(value)
		for i := range kind.NumField() {
			field, more, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
			if _, is := schema.Properties[field]; !is || slices.Contains(schema.Required, field) == strings.Contains(more, "omit") {
				t.Errorf("openapi.json has another idea of %s.%s", name, field)
			}
		}
		if len(schema.Properties) != kind.NumField() {
			t.Errorf("openapi.json has %d fields of %s, and there are %d", len(schema.Properties), name, kind.NumField())
		}
	}
}

// The page loads nothing from elsewhere, has no scripts or styles in itself, and everything that it names is there.
func TestThePage(t *testing.T) {
	d := newDesk(t, t.TempDir())
	defer d.close()
	page := d.ask("GET", "/", "")
	if policy := page.header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") ||
		!strings.Contains(policy, "frame-ancestors 'none'") {
		t.Errorf("the policy is %q", policy)
	}
	for _, name := range []string{"/app.js", "/view.js", "/style.css", "/icon.svg"} {
		a := d.ask("GET", name, "")
		if a.status != 200 || a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v", name, a.status, a.header)
		}
		page.body += a.body
	}
	for _, wrong := range []string{"http://", "https://", "innerHTML", "style=\"", "<style", "onclick=\"", "eval("} {
		if strings.Contains(strings.ReplaceAll(page.body, "http://www.w3.org/2000/svg", ""), wrong) {
			t.Errorf("the page has %s", wrong)
		}
	}
	run := d.until(d.start(quickTarget).ID, inState(Finished))
	report := d.ask("GET", runsPath+"/"+run.ID+"/report", "", d.bearer)
	if policy := report.header.Get("Content-Security-Policy"); report.status != 200 || !strings.HasPrefix(policy, "sandbox;") {
		t.Errorf("the report: %d, policy %q", report.status, policy)
	}
}

func TestCommandsThatLook(t *testing.T) {
	d := newDesk(t, t.TempDir())
	defer d.close()
	cluster := prefix + "/clusters/desk"
	if a := d.ask("GET", cluster+"/plan?target=quick&target=waiting", "", d.bearer); a.status != 200 || !strings.Contains(a.body, `"words":["plan","quick","waiting","--output","json"`) {
		t.Errorf("plan: %d %s", a.status, a.body)
	}
	for _, query := range []string{"", "?target=destroy", "?target=--yes"} {
		if a := d.ask("GET", cluster+"/plan"+query, "", d.bearer); a.status != http.StatusBadRequest {
			t.Errorf("plan%s: %d %s", query, a.status, a.body)
		}
	}
	if a := d.ask("GET", cluster+"/doctor", "", d.bearer); a.status != 200 || !strings.Contains(a.body, `"failed":1`) {
		t.Errorf("doctor: %d %s", a.status, a.body)
	}
	failed := d.until(d.start(failingTarget).ID, inState(Failed))
	if a := d.ask("GET", runsPath+"/"+failed.ID+"/effects", "", d.bearer); a.status != http.StatusConflict {
		t.Errorf("effects of a run that did not begin: %d %s", a.status, a.body)
	}
}

// Where the issuer does not answer, that is said, and not that the token is wrong.
func TestTheIssuerIsAway(t *testing.T) {
	d := newDesk(t, t.TempDir())
	defer d.close()
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	d.server.Auth.OIDC = &auth.OIDC{Issuer: away.URL, ClientID: "slipway", Operators: auth.Members{Users: []string{"ann@example.com"}}}
	a := d.ask("GET", prefix+"/clusters", "", header("Authorization", "Bearer head.body.signature"))
	if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "issuer does not answer") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := d.ask("GET", prefix+"/clusters", "", d.bearer); a.status != http.StatusOK {
		t.Errorf("the token of the file: %d", a.status)
	}
}
