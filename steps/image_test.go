package steps

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/ensure/prune"
	"github.com/slipway-k8s/slipway/platform"
)

func TestImageIsMade(t *testing.T) {
	t.Parallel()
	s := newStudio(t)
	image := s.mustRun()
	s.finished(image)
	made := s.Images()[0]
	for key, want := range map[string]string{
		"os": "talos", "caph-image-name": testImage, "arch": "amd64", "slipway-cluster": "k8s",
		"slipway-schematic": "ce4c980550dd2ab1",
	} {
		if made.Labels[key] != want {
			t.Errorf("label %s is %q, want %q", key, made.Labels[key], want)
		}
	}
	if made.Architecture != "x86" || made.DiskSize != 40 || made.Description != "Talos Linux v1.13.9 amd64" {
		t.Errorf("made %+v", made) // on cx23: the smallest disk, and not the cheaper one that is about to vanish
	}
	before := len(s.Writes())
	if again := s.mustRun(); again.ID != image.ID || len(s.Writes()) > before {
		t.Errorf("the next run has image %d, and wrote %v", again.ID, s.Writes()[before:])
	}
}

func TestImageForBothArchitectures(t *testing.T) {
	t.Parallel()
	s := newStudio(t)
	s.cfg.ServerType, s.cfg.ImageArchitectures = "cax21", "amd64, arm64"
	image := s.mustRun()
	if image.Name != "talos-arm64-v1.13.9" || len(image.Others) != 1 || image.Others[0].Name != testImage ||
		len(s.Images()) != 2 {
		t.Errorf("made %+v; the project has %+v", image, s.Images())
	}
}

// TestImageSurvivesAKillAtEveryRequest kills a run before and after each of its requests.
func TestImageSurvivesAKillAtEveryRequest(t *testing.T) {
	t.Parallel()
	undisturbed := newStudio(t)
	undisturbed.mustRun()
	total := undisturbed.Requests()
	if total < 15 {
		t.Fatalf("an upload took %d requests", total)
	}
	for at := 1; at <= total; at++ {
		for _, answered := range []bool{false, true} {
			t.Run(fmt.Sprintf("request %d, answered %v", at, answered), func(t *testing.T) {
				t.Parallel()
				s := newStudio(t)
				foreign(s)
				ctx, die := context.WithCancel(t.Context())
				defer die()
				if _, _, err := s.run(ctx, &mortal{at: at, answered: answered, die: die}); err == nil {
					t.Fatal("it was not killed")
				}
				image := s.mustRun()
				withoutForeign(s)
				s.finished(image)
			})
		}
	}
}

func TestInterruptedImageTidiesUp(t *testing.T) {
	t.Parallel()
	s := newStudio(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.during = func(ctx context.Context) { // as the library, which waits for its SSH command whatever happens
		cancel()
		<-ctx.Done()
		time.Sleep(50 * time.Millisecond)
	}
	if _, _, err := s.run(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if servers := s.Servers(); len(s.Keys()) > 0 || len(servers) > 1 || len(servers) == 1 &&
		servers[0].Status != "deleting" {
		t.Errorf("left over: servers %+v, keys %+v", servers, s.Keys())
	}
	s.during = func(context.Context) {}
	s.finished(s.mustRun())
}

func TestImageOutOfStock(t *testing.T) {
	t.Parallel()
	s := newStudio(t)
	s.SellOut("cx23")
	s.finished(s.mustRun())
	if disk := s.Images()[0].DiskSize; disk != 80 {
		t.Errorf("made with a disk of %v GB", disk)
	}
	s = newStudio(t)
	s.SellOut("cx23")
	s.SellOut("cx33") // cx43's disk is larger than the servers'
	_, said, err := s.run(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "resource_unavailable") ||
		!slices.Contains(said, "cx33 is out of stock in nbg1") {
		t.Errorf("got %v, said %q", err, said)
	}
	if len(s.Servers())+len(s.Keys())+len(s.Images()) > 0 {
		t.Error("something is left over")
	}
}

func TestSnapshotWhoseCreationFailedIsMadeAgain(t *testing.T) {
	t.Parallel()
	s := newStudio(t)
	id := s.PutImage(made("a-dead-run", "creating"))
	s.FailCreation(id)
	image := s.mustRun()
	if image.ID == id {
		t.Error("the failed snapshot is taken for the image")
	}
	s.finished(image)
}

// A snapshot that a dead run began comes into being without it. It is waited for, and not made a second time.
func TestSnapshotOnItsWayIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStudio(t)
	coming := made("a-dead-run", "creating")
	coming.ID = s.PutImage(coming)
	image, said, err := s.run(t.Context(), transportFunc(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/images/actions" { // it asks how far it is
			coming.Status = "available"
			s.PutImage(coming)
		}
		return http.DefaultTransport.RoundTrip(r)
	}))
	if err != nil || image.ID != coming.ID || len(s.Writes()) > 0 {
		t.Errorf("image %+v of snapshot %d, %v; wrote %q, said %q", image, coming.ID, err, s.Writes(), said)
	}
	if !slices.ContainsFunc(said, func(line string) bool { return strings.Contains(line, "is being created") }) {
		t.Errorf("it does not say what it waits for: %q", said)
	}
}

func TestBrokenSnapshotOfOthersIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"creating", "unavailable"} {
		s := newStudio(t)
		by := made("", status)
		by.Labels = map[string]string{"caph-image-name": testImage}
		id := s.PutImage(by)
		s.FailCreation(id)
		_, _, err := s.run(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("snapshot %d", id)) || len(s.Writes()) > 0 {
			t.Errorf("%s: got %v; wrote %v", status, err, s.Writes())
		}
	}
}

// TestImageIsMadeOnceThoughTheListIsBehind (crash suite: fault image: stale-lists).
func TestImageIsMadeOnceThoughTheListIsBehind(t *testing.T) {
	t.Parallel()
	s, lists := newStudio(t), &behind{times: 6}
	image, said, err := s.run(t.Context(), lists)
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(said, "\n"))
	}
	s.finished(image)
	if lists.lists != lists.times {
		t.Errorf("%d lists were behind, not %d: this test shows nothing", lists.lists, lists.times)
	}
	if !slices.ContainsFunc(said, func(line string) bool { return strings.Contains(line, "does not have it yet") }) {
		t.Errorf("it said %q", said)
	}
}

func TestTwoRunsAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("the other came first", func(t *testing.T) {
		t.Parallel()
		s := newStudio(t)
		first := made("another-run", "available")
		first.ID = 50
		s.during = func(context.Context) { s.PutImage(first) }
		if image := s.mustRun(); image.ID != 50 {
			t.Errorf("image %d stays", image.ID)
		}
		s.finished(Image{ID: 50})
	})
	t.Run("the other came second, and takes its own back", func(t *testing.T) {
		t.Parallel()
		s := newStudio(t)
		second := made("another-run", "available")
		second.ID = 5000
		s.during = func(context.Context) {
			s.PutImage(second)
			time.AfterFunc(300*time.Millisecond, func() { s.Drop("images", 5000) })
		}
		image := s.mustRun()
		if image.ID == 5000 {
			t.Error("the second one stays")
		}
		s.finished(image)
	})
	t.Run("the other is at work", func(t *testing.T) {
		t.Parallel()
		s := newStudio(t)
		s.Put("servers", 7, schema.Server{ID: 7, Name: "theirs", Labels: ours("another-run"), Status: "running", Created: time.Now()})
		var finished sync.Once
		image, said, err := s.run(t.Context(), transportFunc(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/ssh_keys" { // the run has found no image and looks for the other's work
				finished.Do(func() { s.PutImage(made("another-run", "available")) })
			}
			return http.DefaultTransport.RoundTrip(r)
		}))
		if err != nil || image.ID == 0 || len(s.Writes()) > 0 {
			t.Errorf("got %+v, %v; wrote %v", image, err, s.Writes())
		}
		if !slices.ContainsFunc(said,
			func(line string) bool { return strings.Contains(line, "another run, for cluster k8s") }) {
			t.Errorf("said %q", said)
		}
	})
	t.Run("the other died long ago", func(t *testing.T) {
		t.Parallel()
		s := newStudio(t)
		s.Put("servers", 7, schema.Server{ID: 7, Name: "theirs", Labels: ours("another-run"), Status: "running",
			Created: time.Now().Add(-time.Hour)})
		s.finished(s.mustRun())
	})
}

// Another run may take minutes, and what Hetzner answers in an hour is counted.
func TestAnothersWorkIsLookedAtSeldom(t *testing.T) {
	t.Parallel()
	s := newStudio(t)
	s.cfg.ImageTimeout = config.Duration(4 * time.Second)
	s.Put("servers", 7, schema.Server{ID: 7, Name: "theirs", Labels: ours("another-run"), Status: "running", Created: time.Now()})
	looks := 0
	_, said, err := s.run(t.Context(), transportFunc(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/ssh_keys" {
			looks++
		}
		return http.DefaultTransport.RoundTrip(r)
	}))
	if err == nil || !strings.Contains(err.Error(), "another run, for cluster k8s") {
		t.Errorf("got %v, said %q", err, said)
	}
	if looks != 1 {
		t.Errorf("it looked %d times in %s", looks, s.cfg.ImageTimeout)
	}
}

func TestSeveralImagesAreForAPerson(t *testing.T) {
	t.Parallel()
	for what, labels := range map[string]map[string]string{
		"made by hand":       {"caph-image-name": testImage},
		"made by a dead run": ours("a-dead-run"),
	} {
		s := newStudio(t)
		long := time.Now().Add(-time.Hour)
		first := s.PutImage(schema.Image{Type: "snapshot", Status: "available", Architecture: "x86", Labels: ours("one"),
			Created: &long})
		second := s.PutImage(schema.Image{Type: "snapshot", Status: "available", Architecture: "x86", Labels: labels,
			Created: &long})
		_, _, err := s.run(t.Context(), nil)
		if err == nil || len(s.Writes()) > 0 {
			t.Fatalf("%s: got %v; wrote %v", what, err, s.Writes())
		}
		for _, want := range []string{fmt.Sprintf("snapshot %d", first), fmt.Sprintf("snapshot %d", second),
			"image --prune"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %s", what, err, want)
			}
		}
		pruned(t, s, first, second)
	}
}

// pruned prunes two snapshots of which the newer, keep, stays.
func pruned(t *testing.T, s *studio, gone, keep int64) {
	t.Helper()
	c := s.Client(nil)
	before := len(s.Writes())
	plan, err := prune.Plan(t.Context(), s.cfg, platform.Tools{Hetzner: c})
	if err != nil || len(plan) != 1 || plan[0].Keep.ID != keep || len(plan[0].Delete) != 1 ||
		plan[0].Delete[0].ID != gone {
		t.Fatalf("plan %+v, %v", plan, err)
	}
	if len(s.Writes()) > before {
		t.Fatalf("planning wrote %v", s.Writes()[before:])
	}
	if err := plan[0].Prune(t.Context(), platform.Tools{Hetzner: c}); err != nil {
		t.Fatal(err)
	}
	if wrote := s.Writes()[before:]; !slices.Equal(wrote, []string{fmt.Sprintf("DELETE /images/%d", gone)}) {
		t.Errorf("prune wrote %v", wrote)
	}
	s.finished(Image{ID: keep})
}

func TestImageOfAnotherSchematic(t *testing.T) {
	t.Parallel()
	s := newStudio(t)
	image := made("one", "available")
	image.Labels["slipway-schematic"] = "376567988ad37013"
	s.PutImage(image)
	_, _, err := s.run(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "376567988ad37013") || !strings.Contains(err.Error(), "IMAGE_NAME") ||
		len(s.Writes()) > 0 {
		t.Errorf("got %v; wrote %v", err, s.Writes())
	}
}

// A worker pool with a schematic of its own gets an image of its own, which the Image Factory is told of; the control
// plane keeps its own.
func TestImageOfAPoolsSchematic(t *testing.T) {
	t.Parallel()
	s := newStudio(t)
	s.cfg.Workers = config.WorkerPools{{Name: "general", Replicas: 1}, {Name: "gpu", Replicas: 1, Schematic: "gpu"},
		{Name: "gpu-large", Replicas: 1, Schematic: "gpu"}}
	if _, err := New(s.cfg, platform.Tools{Files: platform.FilesIn(s.state), Management: &clustertest.Provider{}}); err == nil ||
		!strings.Contains(err.Error(), "bootstrap/schematics/gpu.yaml does not exist") {
		t.Fatalf("without the file: %v", err)
	}
	s.overrides = t.TempDir()
	write(t, filepath.Join(s.overrides, "bootstrap", "schematics"), "gpu.yaml", "customization: {}\n")
	image := s.mustRun()
	if image.Name != testImage || len(image.Others) != 1 || image.Others[0].Name != testImage+"-gpu" || len(s.Images()) != 2 {
		t.Fatalf("made %+v; the project has %+v", image, s.Images())
	}
	for _, one := range s.Images() {
		want := "ce4c980550dd2ab1"
		if one.Labels["caph-image-name"] == testImage+"-gpu" {
			want = "376567988ad37013"
		}
		if is := one.Labels["slipway-schematic"]; is != want {
			t.Errorf("image %s is made from schematic %s, not %s", one.Labels["caph-image-name"], is, want)
		}
	}
	if image.of("", "amd64") != testImage || image.of("gpu", "amd64") != testImage+"-gpu" || image.of("gpu", "arm64") != "" {
		t.Errorf("images of pools: %q, %q, %q", image.of("", "amd64"), image.of("gpu", "amd64"), image.of("gpu", "arm64"))
	}
	if again := s.mustRun(); again.Others[0].ID != image.Others[0].ID || len(s.Images()) != 2 {
		t.Errorf("the next run has %+v", again)
	}
	commands, err := PackerCommands(s.cfg, s.overrides)
	if err != nil || len(commands) != 4 || !strings.Contains(commands[3], "image_name="+testImage+"-gpu") {
		t.Errorf("by Packer: %q, %v", commands, err)
	}
}

func TestIdentityStays(t *testing.T) {
	b := &Set{tools: platform.Tools{Files: platform.FilesIn(t.TempDir())}}
	first, err := ownership.Identity(b.tools)
	if err != nil || !ownership.IdentityForm.MatchString(first) {
		t.Fatalf("got %q, %v", first, err)
	}
	if again, err := ownership.Identity(b.tools); err != nil || again != first {
		t.Errorf("then %q, %v", again, err)
	}
	if other, err := ownership.Identity(platform.Tools{Files: platform.FilesIn(t.TempDir())}); err != nil ||
		other == first {
		t.Errorf("another folder has %q, %v", other, err)
	}
}

// TestSchematicInsideTheCommand compares the built-in schematic with the guide's ID, which the Packer template has too.
func TestSchematicInsideTheCommand(t *testing.T) {
	commands, err := PackerCommands(config.Defaults(), "")
	if err != nil {
		t.Fatal(err)
	}
	template, err := os.ReadFile(filepath.Join("..", packerTemplate))
	if err != nil {
		t.Fatal(err)
	}
	if len(commands) != 2 || !strings.Contains(commands[1], "schematic="+knownSchematic+" ") ||
		!strings.Contains(string(template), `"`+knownSchematic+`"`) {
		t.Errorf("commands %q", commands)
	}
	for _, v := range regexp.MustCompile(`-var (\w+)=`).FindAllStringSubmatch(commands[1], -1) {
		if !strings.Contains(string(template), `variable "`+v[1]+`"`) {
			t.Errorf("the Packer template has no variable %s", v[1])
		}
	}
}

func TestPackerCommandsOfAChangedSchematic(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "bootstrap"), "schematic.yaml", "customization: {}\n")
	cfg := config.Defaults()
	cfg.ServerType, cfg.ImageName, cfg.ImageArchitectures = "cax21", "it's mine", "amd64"
	commands, err := PackerCommands(cfg, dir)
	if err != nil || len(commands) != 4 {
		t.Fatalf("got %q, %v", commands, err)
	}
	if !strings.HasPrefix(commands[1], "curl --fail --data-binary @"+dir) ||
		!strings.Contains(commands[2], "architecture=arm64") ||
		!strings.Contains(commands[3], "architecture=amd64") || !strings.Contains(commands[3], `image_name='it'\''s mine'`) {
		t.Errorf("got %q", commands)
	}
}
