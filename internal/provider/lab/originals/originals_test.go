package originals

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/images"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/provider/lab/originals/originalstest"
)

type fixture struct {
	*originalstest.Server
	cfg       config.Config
	overrides string
	cache     *Cache
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("images hold programs for Linux")
	}
	home := t.TempDir()
	f := &fixture{Server: originalstest.New(t)}
	f.cfg, f.overrides = f.Releases(t, config.Defaults())
	f.cache = &Cache{Dir: filepath.Join(home, "originals"), Within: 10 * time.Second, Store: &images.Store{
		Dir: filepath.Join(home, "images"), LockFile: filepath.Join(home, "images.lock"), Keychain: authn.NewMultiKeychain(),
		Registries: images.Registries{images.AnyRegistry: {{URL: f.URL}}}, Patience: 2 * time.Second}}
	return f
}

// releases are those of the configuration, by project.
func (f *fixture) releases(t *testing.T) map[string]Release {
	t.Helper()
	sources, err := render.Read(render.VariablesOf(f.cfg), f.overrides)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Configured(t.Context(), f.cfg, sources)
	if err != nil {
		t.Fatal(err)
	}
	byProject := map[string]Release{}
	for _, r := range all {
		byProject[r.Project] = r
	}
	return byProject
}

// The addresses are clusterctl's and the charts' own where nothing else is configured.
func TestConfiguredAddresses(t *testing.T) {
	f := &fixture{cfg: config.Defaults()}
	all := f.releases(t)
	for project, want := range map[string]string{
		CAPH: "https://github.com/syself/cluster-api-provider-hetzner/releases/download/v1.1.8/" +
			"infrastructure-components.yaml",
		CertManager: "https://github.com/cert-manager/cert-manager/releases/download/" +
			clusterctl.CertManagerDefaultVersion + "/cert-manager.yaml",
		HCloudCCM: "https://charts.hetzner.cloud", TalosCCM: "oci://ghcr.io/siderolabs/charts",
	} {
		if all[project].Source != want {
			t.Errorf("%s is at %s, want %s", project, all[project].Source, want)
		}
	}
	if got := all[CAPH].files[1].address; !strings.HasSuffix(got, "/releases/download/v1.1.8/metadata.yaml") {
		t.Errorf("metadata is at %s", got)
	}
	f.cfg.ProviderRepository = "/repository"
	if got := f.releases(t)[CAPH].Source; got != "/repository/infrastructure-hetzner/v1.1.8/infrastructure-components.yaml" {
		t.Errorf("with PROVIDER_REPOSITORY CAPH is at %s", got)
	}
}

// Each release is fetched once, with the images that its own manifest or chart names.
func TestFetch(t *testing.T) {
	f := newFixture(t)
	want := map[string]string{CAPH: "caph ", CertManager: "cert-manager-cainjector cert-manager-controller " +
		"cert-manager-webhook ", HCloudCCM: "hcloud-cloud-controller-manager--default ",
		TalosCCM: "talos-cloud-controller-manager "}
	for project, r := range f.releases(t) {
		if dir, err := f.cache.Cached(r); dir != "" || err != nil {
			t.Errorf("before: %q, %v", dir, err)
		}
		dir, err := f.cache.Fetch(t.Context(), r, nil)
		if err != nil {
			t.Fatal(err)
		}
		l, err := readList(dir)
		if err != nil || l.Project != project || l.Version != r.Version || l.Source != r.Source {
			t.Errorf("the list of %s: %+v, %v", project, l, err)
		}
		programs := ""
		for _, p := range l.Programs {
			if data, err := os.ReadFile(filepath.Join(dir, p.File)); err != nil || string(data) != p.Image {
				t.Errorf("%s of %s is %q, %v", p.File, p.Image, data, err)
			}
			programs += p.File + strings.Join(p.Prefix, "") + " "
		}
		if programs != want[project] {
			t.Errorf("%s has the programs %s, want %s", project, programs, want[project])
		}
		if (l.Chart != nil) != (r.chart != nil) || l.Chart != nil && l.Chart["version"] != r.Version {
			t.Errorf("%s has the chart %v", project, l.Chart)
		}
	}
	f.Close()
	before := f.Requests()
	for _, r := range f.releases(t) {
		if dir, err := f.cache.Fetch(t.Context(), r, nil); err != nil || !Whole(dir) {
			t.Errorf("%s from the cache: %v", r.Name(), err)
		}
	}
	if f.Requests() != before {
		t.Errorf("%d requests for what is cached", f.Requests()-before)
	}
}

// Two versions lie side by side, also with the same name of their files.
func TestTwoVersions(t *testing.T) {
	f := newFixture(t)
	folders := map[string]string{}
	for _, version := range []string{"v1.1.8", "v1.0.12"} {
		f.cfg.CAPHVersion = version
		f.CAPH(t, version)
		dir, err := f.cache.Fetch(t.Context(), f.releases(t)[CAPH], nil)
		if err != nil {
			t.Fatal(err)
		}
		folders[version] = dir
	}
	for version, dir := range folders {
		if data, err := os.ReadFile(filepath.Join(dir, "caph")); string(data) != "ghcr.io/syself/caph:"+version {
			t.Errorf("%s has the program %q, %v", version, data, err)
		}
	}
}

// What cannot be fetched leaves a stand-in; what was received and is wrong is refused. Both say what it is.
func TestFailures(t *testing.T) {
	status := func(part string, code int) func(*testing.T, *fixture) {
		return func(_ *testing.T, f *fixture) {
			f.Change(func(w http.ResponseWriter, r *http.Request) bool {
				if hit := strings.Contains(r.URL.Path, part); hit {
					w.WriteHeader(code)
					return true
				}
				return false
			})
		}
	}
	for name, test := range map[string]struct {
		project string
		break_  func(*testing.T, *fixture)
		refused bool
		want    string
	}{
		"no such release": {CAPH, status("/caph/", 404), false, "infrastructure-components.yaml answers 404"},
		"no metadata":     {CAPH, status("metadata.yaml", 404), false, "metadata.yaml answers 404"},
		"unauthorized":    {CertManager, status("cert-manager.yaml", 401), false, "cert-manager.yaml answers 401"},
		"no chart":        {HCloudCCM, status("index.yaml", 404), false, "404"},
		"no such image":   {CAPH, status("/v2/syself/", 404), false, "ghcr.io/syself/caph:v1.1.8"},
		"image refused":   {TalosCCM, status("/v2/siderolabs/", 401), false, "talos-cloud-controller-manager:v1.12.0"},
		"silent":          {CAPH, silent, false, "did not come within 500ms"},
		"nothing answers": {CAPH, func(_ *testing.T, f *fixture) { f.Close() }, false, "refused"},
		"lab's own":       {CAPH, standIn, false, "stand-in"},
		"a page": {CAPH, served("/caph/v1.1.8/infrastructure-components.yaml", "<html>Log in</html>"), true,
			"no Deployment"},
		"no chart archive": {HCloudCCM, otherChart, true, "is not the file that the repository's index describes"},
		"another layer":    {CAPH, otherLayer, true, "in place of"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			test.break_(t, f)
			dir, err := f.cache.Fetch(t.Context(), f.releases(t)[test.project], nil)
			if err == nil || Refused(err) != test.refused || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%q, refused %v: %v", dir, Refused(err), err)
			}
			if dir, err := f.cache.Cached(f.releases(t)[test.project]); dir != "" || err != nil {
				t.Errorf("it is cached: %s, %v", dir, err)
			}
		})
	}
}

func served(path, content string) func(*testing.T, *fixture) {
	return func(_ *testing.T, f *fixture) { f.Serve(path, []byte(content)) }
}

func silent(_ *testing.T, f *fixture) {
	f.cache.Within = 500 * time.Millisecond
	f.Change(func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return true
	})
}

func standIn(_ *testing.T, f *fixture) {
	mark := []byte("metadata: {annotations: {slipway/stand-in: \"true\"}, ")
	f.Serve("/caph/v1.1.8/infrastructure-components.yaml", bytes.ReplaceAll(
		originalstest.Manifest("ghcr.io/syself/caph:v1.1.8"), []byte("metadata: {"), mark))
}

func otherChart(_ *testing.T, f *fixture) {
	f.Serve("/charts/hcloud-cloud-controller-manager.tgz", []byte("another archive"))
}

func otherLayer(_ *testing.T, f *fixture) {
	f.Change(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<16))
		return true
	})
}

// A file that changes after its first use is refused until the operator accepts it; a damaged cache is fetched again.
func TestChangedFile(t *testing.T) {
	f := newFixture(t)
	r := f.releases(t)[CAPH]
	dir, err := f.cache.Fetch(t.Context(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(dir, "infrastructure-components.yaml")
	if err := os.WriteFile(manifest, []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := f.cache.Fetch(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(manifest); err != nil || !bytes.Contains(data, []byte("Deployment")) {
		t.Errorf("after the cache was damaged: %q, %v", data, err)
	}

	if err := os.RemoveAll(f.cache.Dir); err != nil {
		t.Fatal(err)
	}
	f.Serve("/caph/v1.1.8/infrastructure-components.yaml", append(
		originalstest.Manifest("ghcr.io/syself/caph:v1.1.8"), "\n# more"...))
	if _, err := f.cache.Fetch(t.Context(), r, nil); !Refused(err) || !strings.Contains(err.Error(), "at its first use") {
		t.Errorf("a changed manifest: %v", err)
	}
	if err := os.Remove(f.cache.Store.LockFile); err != nil {
		t.Fatal(err)
	}
	if _, err := f.cache.Fetch(t.Context(), r, nil); err != nil {
		t.Errorf("after it was accepted: %v", err)
	}
}

// A file of this machine is the operator's to change: another content is another release.
func TestLocalManifest(t *testing.T) {
	f := newFixture(t)
	f.cfg.CertManagerURL = filepath.Join(t.TempDir(), "cert-manager.yaml")
	f.Push(t, "quay.io/jetstack/other:v1", "/other")
	var folders []string
	for _, image := range []string{"quay.io/jetstack/cert-manager-webhook:v1.21.1", "quay.io/jetstack/other:v1"} {
		if err := os.WriteFile(f.cfg.CertManagerURL, originalstest.Manifest(image), 0o644); err != nil {
			t.Fatal(err)
		}
		dir, err := f.cache.Fetch(t.Context(), f.releases(t)[CertManager], nil)
		if err != nil {
			t.Fatal(err)
		}
		var l list
		data, _ := os.ReadFile(filepath.Join(dir, listFile))
		if err := json.Unmarshal(data, &l); err != nil || len(l.Programs) != 1 || l.Programs[0].Image != image {
			t.Errorf("of %s: %s, %v", image, data, err)
		}
		folders = append(folders, dir)
	}
	if folders[0] == folders[1] {
		t.Errorf("both contents are in %s", folders[0])
	}
}
