package hetzner

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// running answers that action 1 runs, until it has taken as long as it takes.
type running struct {
	until time.Time
	asked int
}

func (r *running) RoundTrip(*http.Request) (*http.Response, error) {
	r.asked++
	status := "running"
	if !time.Now().Before(r.until) {
		status = "success"
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"actions":[{"id":1,"status":%q,"command":"create_image"}],"meta":{"pagination":{}}}`, status)
	return w.Result(), nil
}

// A short action is seen to end soon, and a long one is not asked for hundreds of times.
func TestActionsAreAskedForSeldom(t *testing.T) {
	for takes, want := range map[time.Duration]struct {
		asked int
		late  time.Duration
	}{400 * time.Millisecond: {1, time.Second}, time.Second: {2, time.Second}, 3 * time.Minute: {40, 5 * time.Second}} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end := time.Now().Add(takes)
				api := &running{until: end}
				client := hcloud.NewClient(append(ClientOptions(api), hcloud.WithEndpoint("http://127.0.0.1"))...)
				err := client.Action.WaitFor(t.Context(), &hcloud.Action{ID: 1, Status: hcloud.ActionStatusRunning})
				if late := time.Since(end); err != nil || api.asked > want.asked || late > want.late {
					t.Errorf("asked %d times, seen %v after its end, %v", api.asked, late, err)
				}
			})
		})
	}
}
