package hetzner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
)

func start(t *testing.T) *hetznertest.Server {
	t.Helper()
	s := hetznertest.New()
	t.Cleanup(s.Close)
	return s
}

func TestFindImage(t *testing.T) {
	name := "talos-amd64-v1.12.2"
	named := hetznertest.Image(9, "other", "x86", "available")
	named.Name = &name
	for _, tt := range []struct {
		what   string
		images []schema.Image
		id     int64
		want   string // part of the error; empty: found
	}{
		{"one", []schema.Image{hetznertest.Image(1, name, "x86", "available")}, 1, ""},
		{"other architecture beside it", []schema.Image{hetznertest.Image(1, name, "x86", "available"),
			hetznertest.Image(2, name, "arm", "available")}, 1, ""},
		{"by name", []schema.Image{named}, 9, ""},
		{"none", []schema.Image{hetznertest.Image(1, "other", "x86", "available")}, 0, "no image for amd64"},
		{"only the other architecture", []schema.Image{hetznertest.Image(1, name, "arm", "available")}, 0,
			"no image for amd64"},
		{"two", []schema.Image{hetznertest.Image(7, name, "x86", "available"), hetznertest.Image(5, name, "x86", "creating")},
			0, "snapshot 5 (creating"},
		{"label and name", []schema.Image{hetznertest.Image(1, name, "x86", "available"), named}, 0, "2 images"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			s := start(t)
			s.SetImages(tt.images...)
			got, err := hetzner.FindImage(t.Context(), s.Client(nil), name, "amd64", "")
			if tt.want == "" {
				if err != nil || got.ID != tt.id || !got.Available() {
					t.Errorf("got %+v, %v", got, err)
				}
				return
			}
			var mismatch *hetzner.ImageError
			if !errors.As(err, &mismatch) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestWhatBelongsToACluster(t *testing.T) {
	s := start(t)
	c := s.Client(nil)
	mine, other := map[string]string{"caph-cluster-k8s": "owned"}, map[string]string{"caph-cluster-demo": "owned"}
	s.SetServers(
		schema.Server{ID: 2, Name: "k8s-b", Status: "running", Labels: mine,
			PrivateNet: []schema.ServerPrivateNet{{IP: "10.10.64.3"}}},
		schema.Server{ID: 1, Name: "k8s-a", Labels: mine}, schema.Server{ID: 3, Name: "demo-a", Labels: other},
	)
	servers, err := hetzner.Servers(t.Context(), c, "k8s")
	if err != nil || len(servers) != 2 || servers[0].Name != "k8s-a" || servers[1].ProviderID() != "hcloud://2" ||
		servers[1].Private[0].String() != "10.10.64.3" {
		t.Errorf("servers %+v, %v", servers, err)
	}
	if id, err := hetzner.NetworkID(t.Context(), c, "k8s"); err != nil || id != 0 {
		t.Errorf("network %d, %v", id, err)
	}
	s.SetNetworks(schema.Network{ID: 8, Labels: mine, IPRange: "10.10.0.0/16"}, schema.Network{ID: 9, Labels: other,
		IPRange: "10.10.0.0/16"})
	if id, err := hetzner.NetworkID(t.Context(), c, "k8s"); err != nil || id != 8 {
		t.Errorf("network %d, %v", id, err)
	}
	s.SetNetworks(schema.Network{ID: 8, Labels: mine, IPRange: "10.10.0.0/16"}, schema.Network{ID: 9, Labels: mine,
		IPRange: "10.10.0.0/16"})
	if _, err := hetzner.NetworkID(t.Context(), c, "k8s"); err == nil || !strings.Contains(err.Error(), "2 networks") {
		t.Errorf("two networks: %v", err)
	}
}

// What the API or the line to it refuses for a moment passes; what Slipway itself concludes does not.
func TestPasses(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{hcloud.Error{Code: hcloud.ErrorCodeRateLimitExceeded}, true},
		{fmt.Errorf("create it: %w", hcloud.Error{Code: hcloud.ErrorCodeUniquenessError}), true},
		{hcloud.Error{Code: hcloud.ErrorCodeInvalidInput}, false},
		{&url.Error{Op: "Post", URL: "x", Err: io.ErrUnexpectedEOF}, true},
		{&url.Error{Op: "Post", URL: "x", Err: context.Canceled}, false},
		{new(hetzner.ForeignError), false},
		{errors.New("the address is another"), false},
	} {
		if got := hetzner.Passes(c.err); got != c.want {
			t.Errorf("%v passes: %v", c.err, got)
		}
	}
}
