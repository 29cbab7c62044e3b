package images

import (
	"bytes"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

func writeFile(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadRegistries(t *testing.T) {
	file := filepath.Join(t.TempDir(), "registry.yaml")
	writeFile(t, file, `
registries:
  registry.k8s.io:
    - url: https://mirror.example.com/k8s
      caFile: mirror-ca.pem
    - url: https://registry.k8s.io
  "*":
    - url: http://127.0.0.1:5000
`)
	r, err := LoadRegistries(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.of("registry.k8s.io"); len(got) != 2 || got[0].CAFile != filepath.Join(filepath.Dir(file), "mirror-ca.pem") ||
		got[1].URL != "https://registry.k8s.io" {
		t.Errorf("of registry.k8s.io: %+v", got)
	}
	if got := r.of("ghcr.io"); len(got) != 1 || got[0].URL != "http://127.0.0.1:5000" {
		t.Errorf("of ghcr.io: %+v", got)
	}
	for host, url := range map[string]string{"ghcr.io": "https://ghcr.io", "index.docker.io": "https://index.docker.io"} {
		if got := (Registries{}).of(host); len(got) != 1 || got[0].URL != url {
			t.Errorf("without configuration, of %s: %+v", host, got)
		}
	}
	if got := (Registries{"docker.io": {{URL: "https://m"}}}).of("index.docker.io"); got[0].URL != "https://m" {
		t.Errorf("docker.io under its other name: %+v", got)
	}
}

func TestMistakesInTheConfigurationOfRegistries(t *testing.T) {
	for text, want := range map[string]string{
		"registries: {ghcr.io: [{url: ghcr.io}]}":                         "is not an address",
		"registries: {ghcr.io: [{url: 'ftp://ghcr.io'}]}":                 "is not an address",
		"registries: {ghcr.io: [{url: 'https://u:hidden@ghcr.io'}]}":      "docker login",
		"registries: {ghcr.io: [{url: 'https://ghcr.io/?a=b'}]}":          "more than a host and a prefix",
		"registries: {ghcr.io: [{url: 'http://m', insecure: true}]}":      "http:// has none of",
		"registries: {ghcr.io: []}":                                       "ghcr.io has no endpoint",
		"registries: {ghcr.io/siderolabs: [{url: 'https://m'}]}":          "is not the host of a registry",
		"registries: {ghcr.io: [{url: 'https://m', username: 'hidden'}]}": "field username not found",
		"mirrors: {}": "field mirrors not found",
	} {
		file := writeFile(t, filepath.Join(t.TempDir(), "registry.yaml"), text)
		_, err := LoadRegistries(file)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", text, err)
		}
		if err != nil && strings.Contains(err.Error(), "hidden") {
			t.Errorf("a password is in %v", err)
		}
	}
	if _, err := LoadRegistries(writeFile(t, filepath.Join(t.TempDir(), "registry.yaml"), "# nothing\n")); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}

// The mirror is asked first, under its prefix; what it does not have comes from the next endpoint.
func TestMirrors(t *testing.T) {
	mirror, origin := newRegistry(t), newRegistry(t)
	mirror.push("k8s/one:v1", ofManager(t, "of the mirror"))
	origin.push("one:v1", ofManager(t, "of the origin"))
	origin.push("two:v1", ofManager(t, "of the origin"))
	s := origin.store()
	s.Registries = Registries{"registry.k8s.io": {{URL: mirror.server.URL + "/k8s"}, {URL: origin.server.URL}}}
	for image, want := range map[string]string{"one": "of the mirror", "two": "of the origin"} {
		got, err := s.Fetch(t.Context(), "registry.k8s.io/"+image+":v1", nil)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(filepath.Join(got.Root, "manager")); string(data) != want {
			t.Errorf("%s is %q, %v", image, data, err)
		}
	}
	if asked := origin.asked("/one/"); len(asked) != 0 {
		t.Errorf("the origin was asked for %v", asked)
	}
	if _, err := s.Fetch(t.Context(), "registry.k8s.io/three:v1", nil); err == nil ||
		!strings.Contains(err.Error(), mirror.server.URL) || !strings.Contains(err.Error(), origin.server.URL) {
		t.Errorf("an image that neither has: %v", err)
	}
}

// Plain HTTP and certificates of an unknown authority are accepted only where the configuration says so, also on the
// loopback.
func TestEncryptionIsTheDefault(t *testing.T) {
	r := newRegistry(t)
	r.push("one:v1", ofManager(t, "x"))
	encrypted := httptest.NewTLSServer(http.HandlerFunc(r.server.Config.Handler.ServeHTTP))
	defer encrypted.Close()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: encrypted.Certificate().Raw})
	ca := writeFile(t, filepath.Join(t.TempDir(), "ca.pem"), string(certificate))
	wrong := writeFile(t, filepath.Join(t.TempDir(), "ca.pem"), string(bytes.ToLower(certificate)))
	for name, test := range map[string]struct {
		endpoint Endpoint
		want     string
	}{
		"plain HTTP unasked":     {Endpoint{URL: "https://" + r.host()}, "registry.yaml"},
		"unknown authority":      {Endpoint{URL: encrypted.URL}, "certificate"},
		"its authority":          {Endpoint{URL: encrypted.URL, CAFile: ca}, ""},
		"no authority":           {Endpoint{URL: encrypted.URL, CAFile: wrong}, "has no certificate in PEM"},
		"any":                    {Endpoint{URL: encrypted.URL, Insecure: true}, ""},
		"plain HTTP, as it says": {Endpoint{URL: r.server.URL}, ""},
	} {
		s := r.store()
		s.Registries = Registries{AnyRegistry: {test.endpoint}}
		_, err := s.Fetch(t.Context(), one, nil)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An image stays whole while a process holds its program, as a lab or a management cluster does that runs it.
func TestPruneKeepsProgramsInUse(t *testing.T) {
	r := newRegistry(t)
	r.push("caph:v1", imageOf(t, ofManagerConfig(), layerOf(t, plain("manager", "a program"))))
	s := r.store()
	image, err := s.Fetch(t.Context(), "ghcr.io/caph:v1", nil)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Open(filepath.Join(image.Root, "manager"))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if err := syscall.Flock(int(program.Fd()), syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	prune := func() {
		t.Helper()
		if err := s.Prune(t.Context(), nil, func(string, ...any) {}); err != nil {
			t.Fatal(err)
		}
	}
	prune()
	r.asked("")
	if again, err := s.Fetch(t.Context(), "ghcr.io/caph:v1", nil); err != nil || again.Root != image.Root ||
		!exists(program.Name()) || len(r.asked("")) != 0 {
		t.Errorf("while it is in use: %v", err)
	}
	if err := program.Close(); err != nil {
		t.Fatal(err)
	}
	if prune(); exists(image.Root) {
		t.Error("it is still there when nothing uses it")
	}
}

func TestPruneKeepsWhatIsKept(t *testing.T) {
	r := newRegistry(t)
	shared := layerOf(t, plain("base", incompressible(2<<20)))
	for name, text := range map[string]string{"one": "1", "two": "2"} {
		r.push(name+":v1", imageOf(t, ofManagerConfig(), shared, layerOf(t, plain("manager", text+incompressible(2<<20)))))
	}
	s := r.store()
	one, err := s.Fetch(t.Context(), "registry.k8s.io/one:v1", nil)
	if err != nil {
		t.Fatal(err)
	}
	two, err := s.Fetch(t.Context(), "registry.k8s.io/two:v1", nil)
	if err != nil {
		t.Fatal(err)
	}
	busy := filepath.Join(s.Dir, "blobs", "sha256", "busy")
	writeFile(t, busy+".partial", "being fetched")
	left := writeFile(t, filepath.Join(s.Dir, "blobs", "sha256", "ended.partial"), "of a pull that was killed")
	unlock, err := flow.LockFile(t.Context(), busy+".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	var said []string
	if err := s.Prune(t.Context(), []string{one.Digest}, func(format string, _ ...any) { said = append(said, format) }); err != nil {
		t.Fatal(err)
	}
	for path, stays := range map[string]bool{one.Root: true, two.Root: false, busy + ".partial": true, left: false} {
		if exists(path) != stays {
			t.Errorf("%s is there: %v", path, !stays)
		}
	}
	r.asked("")
	if _, err := s.Fetch(t.Context(), "registry.k8s.io/one:v1", nil); err != nil || len(r.asked("")) != 0 {
		t.Errorf("the kept image: %v", err)
	}
	if _, err := s.Fetch(t.Context(), "registry.k8s.io/two:v1", nil); err != nil {
		t.Error(err)
	}
	if blobs := r.asked("/blobs/"); len(blobs) != 2 { // without the shared layer
		t.Errorf("after the prune these were fetched: %v", blobs)
	}
	if len(said) != 1 {
		t.Errorf("it said %q", said)
	}
}
