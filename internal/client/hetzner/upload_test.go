package hetzner_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apricote/hcloud-upload-image/hcloudimages"
	"github.com/apricote/hcloud-upload-image/hcloudimages/contextlogger"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
)

func order() hetzner.ImageOrder {
	return hetzner.ImageOrder{
		Name: "mine", Architecture: "arm64", URL: &url.URL{Scheme: "https", Host: "factory.example", Path: "/image.raw.xz"},
		Schematic: strings.Repeat("0123456789abcdef", 4), Description: "Talos", Cluster: "k8s", Run: "r", Location: "nbg1",
		ServerType: "cax11",
	}
}

func TestMakeImage(t *testing.T) {
	var got hcloudimages.UploadOptions
	upload := func(ctx context.Context, _ *hcloud.Client, o hcloudimages.UploadOptions) (*hcloud.Image, error) {
		got = o
		log := contextlogger.From(ctx).With("server", 7)
		log.Info("# Step 1: Generating SSH Key")
		log.Info("Cleanup: Deleting temporary server")
		log.Debug("some detail")
		log.Warn("Cleanup: server could not be deleted", "error", errors.New("locked"))
		return &hcloud.Image{ID: 42}, nil
	}
	var told []string
	var file bytes.Buffer
	id, err := hetzner.MakeImage(t.Context(), nil, upload, order(), func(line string) { told = append(told, line) }, &file)
	if err != nil || id != 42 {
		t.Fatalf("got %d, %v", id, err)
	}
	if want := []string{"Step 1: Generating SSH Key", "Cleanup: server could not be deleted: locked"}; !slices.Equal(told,
		want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if text := file.String(); !strings.Contains(text, "some detail") || !strings.Contains(text, "server=7") {
		t.Errorf("the log has %q", text)
	}
	if got.Architecture != hcloud.ArchitectureARM || got.ServerType.Name != "cax11" || got.Location.Name != "nbg1" ||
		got.ImageCompression != hcloudimages.CompressionXZ || got.ImageURL.Host != "factory.example" ||
		*got.Description != "Talos" {
		t.Errorf("ordered %+v", got)
	}
	if l := got.Labels; l["slipway-schematic"] != "0123456789abcdef" || l["slipway-run"] != "r" || l["arch"] != "arm64" ||
		l["slipway-cluster"] != "k8s" {
		t.Errorf("labelled %v", l)
	}
}

func TestMakeImageTellsWhatTheServerSays(t *testing.T) {
	upload := func(ctx context.Context, _ *hcloud.Client, _ hcloudimages.UploadOptions) (*hcloud.Image, error) {
		contextlogger.From(ctx).Debug("wget: server returned error:\n  HTTP/1.1 404 Not Found\n")
		return nil, fmt.Errorf("failed to download and write the image: %w", &ssh.ExitError{})
	}
	_, err := hetzner.MakeImage(t.Context(), nil, upload, order(), func(string) {}, new(bytes.Buffer))
	if err == nil || !strings.Contains(err.Error(), "https://factory.example/image.raw.xz") ||
		!strings.Contains(err.Error(), "error: HTTP/1.1 404 Not Found") {
		t.Errorf("got %v", err)
	}
}

func TestMakeImageDoesNotWaitForADeafLibrary(t *testing.T) {
	deaf := make(chan struct{})
	defer close(deaf)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, errors.New("enough"))
	defer cancel()
	upload := func(context.Context, *hcloud.Client, hcloudimages.UploadOptions) (*hcloud.Image, error) {
		<-deaf
		return nil, nil
	}
	if _, err := hetzner.MakeImage(ctx, nil, upload, order(), func(string) {}, new(bytes.Buffer)); err == nil ||
		!strings.Contains(err.Error(), "enough") {
		t.Errorf("got %v", err)
	}
}

func TestUploadServerTypes(t *testing.T) {
	p := hetznertest.NewProject()
	defer p.Close()
	for _, tt := range []struct {
		architecture, servers string
		want                  []string
	}{
		{"amd64", "cx33", []string{"cx23", "cx33"}},          // cx43's disk is too large, cx22 retires
		{"amd64", "cax21", []string{"cx23", "cx33", "cx43"}}, // no bound: the servers have another architecture
		{"arm64", "cax11", []string{"cax11"}},
	} {
		got, err := hetzner.UploadServerTypes(t.Context(), p.Client(nil), "nbg1", tt.architecture, tt.servers)
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s for %s: got %v, %v; want %v", tt.architecture, tt.servers, got, err, tt.want)
		}
	}
	if got, err := hetzner.UploadServerTypes(t.Context(), p.Client(nil), "ash", "arm64", "cpx11"); err == nil ||
		!strings.Contains(err.Error(), "ash") {
		t.Errorf("where none is sold: got %v, %v", got, err)
	}
}

func TestSurplus(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }
	one := hetzner.Image{ID: 1, Snapshot: true, Status: "available", Created: day(3)}
	two := hetzner.Image{ID: 2, Snapshot: true, Status: "available", Created: day(2)}
	coming := hetzner.Image{ID: 3, Snapshot: true, Status: "creating", Created: day(4)}
	named := hetzner.Image{ID: 4, Status: "available", Created: day(1)}
	for _, tt := range []struct {
		what  string
		found []hetzner.Image
		keep  int64
		gone  []int64
	}{
		{"the newest, not the highest id", []hetzner.Image{one, two}, 1, []int64{2}},
		{"one that is still being created gives way", []hetzner.Image{one, coming}, 1, []int64{3}},
		{"an image with a name stays", []hetzner.Image{named, one, two}, 4, []int64{1, 2}},
		{"an image with a name stays, wherever it is in the list", []hetzner.Image{one, two, named}, 4, []int64{1, 2}},
		{"one", []hetzner.Image{two}, 2, nil},
		{"none available", []hetzner.Image{coming, coming}, 0, nil},
	} {
		keep, surplus, err := hetzner.Surplus(tt.found)
		var gone []int64
		for _, s := range surplus {
			gone = append(gone, s.ID)
		}
		if keep.ID != tt.keep || !slices.Equal(gone, tt.gone) || errors.Is(err, hetzner.ErrNoneAvailable) != (tt.keep == 0) {
			t.Errorf("%s: keep %d, delete %v, %v", tt.what, keep.ID, gone, err)
		}
	}
}
