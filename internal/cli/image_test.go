package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
)

func TestPackerIsPrinted(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	// no token, no network
	r := execute(t, t.Context(), dir, "", "image", "--packer", "TALOS_VERSION=v1.12.3", "SERVER_TYPE=cax21")
	for _, want := range []string{"packer init packer/", "-var talos_version=v1.12.3 ", "-var architecture=arm64 ",
		"-var image_name=talos-arm64-v1.12.3 "} {
		if r.code != ExitDone || !strings.Contains(r.stdout, want) {
			t.Errorf("%+v does not say %s", r, want)
		}
	}
	lines := strings.Split(strings.TrimSpace(execute(t, t.Context(), dir, "", "image", "--packer").stdout), "\n")
	r = execute(t, t.Context(), dir, "", "image", "--packer", "--output", "json")
	var told struct {
		Kind     string
		Commands []string
	}
	if err := json.Unmarshal([]byte(r.stdout), &told); err != nil || r.code != ExitDone || told.Kind != "packer" ||
		!slices.Equal(told.Commands, lines) {
		t.Errorf("as JSON: %v, %+v; want the lines %q", err, r, lines)
	}
	for _, args := range []string{"--packer", "image apply --prune", "bootstrap --prune"} {
		if r := execute(t, t.Context(), dir, "", strings.Fields(args)...); r.code != ExitUsage {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

func TestPruneImages(t *testing.T) {
	p := hetznertest.NewProject()
	defer p.Close()
	snapshot := func(id int64, age time.Duration) {
		created := time.Now().Add(-age)
		p.PutImage(schema.Image{
			ID: id, Type: "snapshot", Status: "available", Architecture: "x86", Created: &created, Description: "one of several",
			Labels: map[string]string{"caph-image-name": "talos-amd64-v1.13.9"},
		})
	}
	snapshot(7, time.Hour)
	snapshot(5, time.Minute) // the newest
	dir := t.TempDir()
	t.Chdir(dir)
	environment := "HCLOUD_ENDPOINT=" + p.URL + " HCLOUD_TOKEN=" + hetznertest.Token

	r := execute(t, t.Context(), dir, environment, "image", "--prune")
	if r.code != ExitFailed || !strings.Contains(r.stdout, "keeping snapshot 5") ||
		!strings.Contains(r.stdout, "to be deleted: snapshot 7") || len(p.Images()) != 2 {
		t.Errorf("unconfirmed: %+v; left are %v", r, p.Images())
	}
	r = execute(t, t.Context(), dir, environment, "image", "--prune", "--yes")
	if left := p.Images(); r.code != ExitDone || len(left) != 1 || left[0].ID != 5 {
		t.Errorf("%+v; left are %v", r, left)
	}
	r = execute(t, t.Context(), dir, environment, "image", "--prune")
	if r.code != ExitDone || !strings.Contains(r.stdout, "nothing to delete") {
		t.Errorf("again: %+v", r)
	}
}

func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"yes\n": true, " yes \n": true, "yes": true, "": false, "y\n": false,
		"no\nyes\n": false} {
		var asked bytes.Buffer
		c := &console{stdin: strings.NewReader(answer), stderr: &asked}
		err := c.confirm(t.Context(), "Really? ", "yes")
		if (err == nil) != want || err != nil && !errors.Is(err, errNotConfirmed) || asked.String() != "Really? " {
			t.Errorf("%q: %v, asked %q", answer, err, asked.String())
		}
	}
}
