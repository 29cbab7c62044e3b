package serve

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/serve/auth"
)

// FuzzRequests sends requests to the handler, as nobody, as a reader and as an operator. None makes it panic or fails in
// the server; those of nobody and of a reader reach no handler that acts, and those of nobody none that tells.
func FuzzRequests(f *testing.F) {
	dir := f.TempDir()
	d := newDesk(f, dir)
	f.Cleanup(d.close)
	d.server.StreamLasts = time.Millisecond
	d.server.changes, d.server.looks = auth.NewLimits(1e6, 1e6), auth.NewLimits(1e6, 1e6)
	token, plain, err := auth.EnsureToken(filepath.Join(f.TempDir(), "readers"))
	if err != nil {
		f.Fatal(err)
	}
	d.server.Auth.ReaderToken = &token
	run := d.until(d.start(quickTarget).ID, inState(Finished))
	var acted, told bool
	handler := d.server.mux(observed(d.server.table(), &acted, &told))
	for _, r := range d.server.table() {
		method, path := split(r, run.ID)
		for _, body := range []string{"", "{}", `{"targets":["quick"]}`, `{"force":true}`, `{"token":"wrong"}`, `{"targets":`, "\x00"} {
			f.Add(method, path, "Content-Type: application/json", body)
		}
		f.Add(method, path, "Authorization: Bearer a.b.c\r\nLast-Event-ID: -1\r\nOrigin: null", "")
	}
	f.Add("PROPFIND", "//api/v1/../../healthz?%zz", "Cookie: slipway-session=x\r\nX-CSRF-Token: x", "")
	f.Add("OPTIONS", "*", "Host: [::1]:99999\r\nTransfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n")
	f.Add("POST", runsPath, "Content-Type: application/json; charset=\"\r\nExpect: 100-continue\r\nContent-Length: 99999999", "{}")
	f.Fuzz(func(t *testing.T, method, path, headers, body string) {
		for _, bearer := range []string{"", plain, d.token} {
			text := method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n"
			if bearer != "" {
				text += "Authorization: Bearer " + bearer + "\r\n"
			}
			if headers != "" {
				text += headers + "\r\n"
			}
			if !strings.Contains(strings.ToLower(headers), "content-length") && !strings.Contains(strings.ToLower(headers), "transfer-encoding") {
				text += "Content-Length: " + strconv.Itoa(len(body)) + "\r\n"
			}
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text + "\r\n" + body)))
			if err != nil {
				return // which the server of net/http answers
			}
			r.RemoteAddr = "127.0.0.1:1"
			acted, told = false, false
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code >= http.StatusInternalServerError {
				t.Errorf("%q: %d %s", text, w.Code, w.Body)
			}
			if bearer == "" && told || bearer != d.token && acted {
				t.Errorf("%q of %q reached a handler: acts: %t, tells: %t", text, bearer, acted, told)
			}
		}
	})
}

// observed has routes note that a handler was reached that acts, or that tells of clusters. What would start or cancel
// something, or run a command, ends there, behind the reading of the request's body.
func observed(table []route, acted, told *bool) []route {
	for i, r := range table {
		table[i].answer = func(w http.ResponseWriter, q *http.Request) {
			*told = *told || r.access == operators || r.access == readers || r.access == readersNow
			switch r.access {
			case operators:
				*acted = true
				_ = read(q, &struct{ Targets []string }{})
			case readersNow: // would run a command
			default:
				r.answer(w, q)
			}
		}
	}
	return table
}
