package lab

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/images"
	"github.com/slipway-k8s/slipway/internal/provider/lab/originals"
	"github.com/slipway-k8s/slipway/internal/provider/lab/originals/originalstest"
)

// releasesBuilder is a builder whose configuration names releases of a server.
func releasesBuilder(t *testing.T, s *originalstest.Server, cfg config.Config, overrides, home string) *builder {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("images hold programs for Linux")
	}
	store := &images.Store{Dir: filepath.Join(home, "images"), LockFile: filepath.Join(home, "images.lock"),
		Registries: images.Registries{images.AnyRegistry: {{URL: s.URL}}}, Keychain: authn.NewMultiKeychain()}
	b := &builder{lab: filepath.Join(home, "state", "lab"), cache: filepath.Join(home, "lab"), overrides: overrides,
		released: &originals.Cache{Dir: filepath.Join(home, "lab-originals"), Store: store},
		sets:     &imageSets{config: cfg, dir: filepath.Join(home, "lab-images"), store: store}}
	if err := os.MkdirAll(b.lab, 0o700); err != nil {
		t.Fatal(err)
	}
	return b
}

// runs is what a lab runs of each project: the folder of its first release, without its digest, or "stand-in: why".
func (b *builder) runs(t *testing.T) (now map[string]string, said string) {
	t.Helper()
	var lines []string
	file, err := b.originals(t.Context(), b.sets.bin(), func(format string, args ...any) {
		lines = append(lines, fmt.Sprintf(format, args...))
	})
	if err != nil || file == "" {
		t.Fatalf("%q, %v", file, err)
	}
	record, err := readOriginals(file)
	if err != nil {
		t.Fatal(err)
	}
	now = map[string]string{}
	for _, p := range record.Projects {
		now[p.Project] = "stand-in: " + p.StandIn
		if len(p.Folders) > 0 {
			name := filepath.Base(filepath.Dir(p.Folders[0]))
			now[p.Project] = name[:strings.LastIndex(name, "-")]
		}
	}
	return now, strings.Join(lines, "\n")
}

func refuse(part string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, part) {
			return false
		}
		w.WriteHeader(http.StatusNotFound)
		return true
	}
}

// A project whose release cannot be fetched has its stand-in, and the others do not. Once a cluster is installed, the
// lab stays with what it ran, with and without a network, and a further version comes beside the first.
func TestOriginalsOfALab(t *testing.T) {
	s := originalstest.New(t)
	cfg, overrides := s.Releases(t, config.Defaults())
	home := t.TempDir()
	b := releasesBuilder(t, s, cfg, overrides, home)
	s.Change(refuse("/cert-manager/"))
	now, said := b.runs(t)
	if now["caph"] != "caph-v1.1.8" || now["hcloud-ccm"] != "hcloud-ccm-1.39.0" || now["talos-ccm"] != "talos-ccm-0.5.4" ||
		!strings.HasPrefix(now["cert-manager"], "stand-in: cert-manager v1.21.1 could not be fetched: ") {
		t.Errorf("it runs %v", now)
	}
	for _, want := range []string{"cert-manager v1.21.1 could not be fetched", "answers 404", "its stand-in runs",
		"CERT_MANAGER_URL"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}

	// Nothing is installed yet: a later start tries again, and then sends no request.
	s.Change(nil)
	if now, _ := b.runs(t); now["cert-manager"] != "cert-manager-v1.21.1" {
		t.Errorf("with a network again: %v", now)
	}
	before := s.Requests()
	if now, said := b.runs(t); now["caph"] != "caph-v1.1.8" || said != "" || s.Requests() != before {
		t.Errorf("a later start: %v, %d requests, %q", now, s.Requests()-before, said)
	}

	// Installed: another version is added, and one that cannot be fetched leaves the first.
	if err := os.MkdirAll(filepath.Join(b.lab, "clusters", "k8s"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.sets.config.CAPHVersion = "v1.0.12"
	if now, said := b.runs(t); now["caph"] != "caph-v1.1.8" || !strings.Contains(said, "this lab continues with caph-v1.1.8") {
		t.Errorf("with a version that does not exist: %v\n%s", now, said)
	}
	s.CAPH(t, "v1.0.12")
	if now, _ := b.runs(t); now["caph"] != "caph-v1.0.12" {
		t.Errorf("with another version: %v", now)
	}
	record, err := readOriginals(filepath.Join(b.lab, originalsFile))
	if err != nil || len(record.of("caph").Folders) != 2 {
		t.Errorf("folders are %v, %v", record.of("caph").Folders, err)
	}

	// A lab whose clusters were installed with stand-ins stays with them.
	old := releasesBuilder(t, s, cfg, overrides, home)
	old.lab = filepath.Join(home, "old", "lab")
	if err := os.MkdirAll(filepath.Join(old.lab, "management", "m"), 0o700); err != nil {
		t.Fatal(err)
	}
	for project, runs := range func() map[string]string { now, _ := old.runs(t); return now }() {
		if !strings.HasPrefix(runs, "stand-in: this lab ran it before") {
			t.Errorf("%s of a lab of an earlier release is %s", project, runs)
		}
	}
	if file, err := old.originals(t.Context(), filepath.Join(old.cache, "x", "bin"), quiet); file != "" || err != nil ||
		Exists(filepath.Join(old.lab, originalsFile)) {
		t.Errorf("with programs from source: %q, %v", file, err)
	}
}

// What was received and is wrong ends the command, and no stand-in takes its place.
func TestOriginalsThatAreRefused(t *testing.T) {
	s := originalstest.New(t)
	cfg, overrides := s.Releases(t, config.Defaults())
	b := releasesBuilder(t, s, cfg, overrides, t.TempDir())
	s.Serve("/charts/hcloud-cloud-controller-manager.tgz", []byte("another archive"))
	file, err := b.originals(t.Context(), b.sets.bin(), quiet)
	if err == nil || !strings.Contains(err.Error(), "hcloud-ccm 1.39.0") || file != "" {
		t.Errorf("%q, %v", file, err)
	}
	if Exists(filepath.Join(b.lab, originalsFile)) {
		t.Error("a record of what the lab runs was written")
	}
}

// Prune leaves the configured releases, and those that a lab runs.
func TestPruneOriginals(t *testing.T) {
	s := originalstest.New(t)
	cfg, overrides := s.Releases(t, config.Defaults())
	b := releasesBuilder(t, s, cfg, overrides, t.TempDir())
	folder := map[string]string{}
	for _, version := range []string{"v1.0.9", "v1.0.10", "v1.1.8"} {
		s.CAPH(t, version)
		b.sets.config.CAPHVersion = version
		b.runs(t)
		record, err := readOriginals(filepath.Join(b.lab, originalsFile))
		if err != nil {
			t.Fatal(err)
		}
		folder[version] = record.of("caph").Folders[0]
	}
	running, err := os.Open(folder["v1.0.9"]) // as the lab does
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	if err := syscall.Flock(int(running.Fd()), syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(b.sets.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := b.prune(t.Context(), []string{b.sets.bin()}, quiet); err != nil {
		t.Fatal(err)
	}
	for version, stays := range map[string]bool{"v1.0.9": true, "v1.0.10": false, "v1.1.8": true} {
		if originals.Whole(folder[version]) != stays {
			t.Errorf("CAPH %s is there: %v", version, !stays)
		}
	}
	before := s.Requests()
	if now, _ := b.runs(t); now["hcloud-ccm"] != "hcloud-ccm-1.39.0" || s.Requests() != before {
		t.Errorf("after the prune: %v, %d requests", now, s.Requests()-before)
	}
	if roots, _ := filepath.Glob(filepath.Join(b.sets.store.Dir, "roots", "*")); len(withoutLocks(roots)) != 7 {
		t.Errorf("unpacked images are %v", roots) // of the configured releases, and one of CAPH v1.0.9
	}
}

func withoutLocks(paths []string) (left []string) {
	for _, path := range paths {
		if !strings.HasSuffix(path, ".lock") {
			left = append(left, path)
		}
	}
	return left
}
