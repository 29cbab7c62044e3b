package cli

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/ratelimit"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/platform"
)

// A request that is refused and sent again is one effect: the refused one changed nothing.
func TestRefusedRequestIsOneEffect(t *testing.T) {
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(data))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("RateLimit-Limit", "3600")
		w.Header().Set("RateLimit-Remaining", "0")
		w.Header().Set("RateLimit-Reset", strconv.FormatInt(time.Now().Add(2*time.Second).Unix(), 10))
		if len(bodies) < 3 {
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"error":{"code":"rate_limit_exceeded","message":"limit reached"}}`)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"placement_group":{"id":1,"name":"k8s"}}`)
	}))
	defer server.Close()
	var written, told bytes.Buffer
	recorder := effect.New(effect.Options{Lines: &written})
	governor := ratelimit.New(func(format string, args ...any) { fmt.Fprintf(&told, format+"\n", args...) })
	client := session.HetznerClient(server.URL, platform.NewSecret("t"), recorder, governor)
	if _, _, err := client.PlacementGroup.Create(t.Context(), hcloud.PlacementGroupCreateOpts{Name: "k8s",
		Type: hcloud.PlacementGroupTypeSpread}); err != nil {
		t.Fatal(err)
	}
	lines, err := effect.Read(&written)
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 2 || lines[1].Phase != effect.Applied || lines[1].Key() != "hetzner create placement_groups/k8s#1" {
		t.Errorf("the effects are %+v", lines)
	}
	if len(bodies) != 3 || bodies[0] != bodies[2] || !strings.Contains(bodies[2], "k8s") {
		t.Errorf("it sent %q", bodies)
	}
	if strings.Count(told.String(), "\n") != 1 || !strings.Contains(told.String(), "429") {
		t.Errorf("it said %q", told.String())
	}
}

// A command without a run says on standard error why it takes long.
func TestLookSaysThatItIsSlow(t *testing.T) {
	var stderr bytes.Buffer
	c := call{console: &console{stderr: &stderr, hide: &redact.Redactor{}, size: func() (int, int) { return 0, 0 }}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("RateLimit-Limit", "3600")
		w.Header().Set("RateLimit-Remaining", "200")
		w.Header().Set("RateLimit-Reset", strconv.FormatInt(time.Now().Add(3400*time.Second).Unix(), 10))
		fmt.Fprint(w, `{"locations":[],"meta":{"pagination":{}}}`)
	}))
	defer server.Close()
	client := session.HetznerClient(server.URL, platform.NewSecret("t"), nil, c.caller().InspectionGovernor())
	if _, _, err := client.Location.List(t.Context(), hcloud.LocationListOpts{}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(stderr.String(), "note: the rate limit of the Hetzner project is low (200 of 3600") {
		t.Errorf("it said %q", stderr.String())
	}
}
