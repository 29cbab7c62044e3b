package factory_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/base/factory"
)

// guide is the id that the guide names for plain Talos with qemu-guest-agent.
const guide = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"

// The ids are those of github.com/siderolabs/image-factory/pkg/schematic v0.9.0 for the same texts.
func TestID(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"guide's": {"customization:\n  systemExtensions:\n    officialExtensions: [siderolabs/qemu-guest-agent]\n",
			guide},
		"plain Talos": {"customization: {}\n", "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"},
		"every field": {`# in another order, with comments
customization:
  systemExtensions: {officialExtensions: [siderolabs/iscsi-tools, siderolabs/qemu-guest-agent]}
  meta:
  - {value: "x: |\n line\n", key: 12}
  extraKernelArgs:
  - net.ifnames=0
  - 'console=ttyS0,115200 with a very long argument that goes on and on beyond eighty characters of a line: yes'
  - "a: b"
`, "79682395eb883b2a821284a8aaf4fe4b54ddf9927c9103fd2fcadd52d77a1bd7"},
	} {
		s, err := factory.Parse([]byte(tt.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := s.ID(); err != nil || got != tt.want {
			t.Errorf("%s: got %s, %v; want %s", name, got, err, tt.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "is empty",
		"overlay: {name: rpi}": "overlay",
		"customization: []":    "cannot unmarshal",
		"customization: {sys: {officialExtensions: [a/b]}}": "sys",
	} {
		if s, err := factory.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %+v, %v; want %s", text, s, err, want)
		}
	}
}

func TestDiskImage(t *testing.T) {
	want := "https://factory.talos.dev/image/" + guide + "/v1.12.2/hcloud-arm64.raw.xz"
	if got := factory.DiskImage(guide, "v1.12.2", "arm64").String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRegister(t *testing.T) {
	s, err := factory.Parse([]byte("customization: {systemExtensions: {officialExtensions: " +
		"[siderolabs/qemu-guest-agent]}}"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		status       int
		answer, want string // want: of the error; empty: none
	}{
		"taken":      {http.StatusCreated, `{"id":"` + guide + `"}`, ""},
		"another id": {http.StatusCreated, `{"id":"376567988a"}`, "376567988a"},
		"refused":    {http.StatusBadRequest, "yaml: no", "400 Bad Request: yaml: no"},
		"no JSON":    {http.StatusOK, "<html>", "<html>"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				told, parseErr := factory.Parse(body)
				if id, _ := told.ID(); err != nil || parseErr != nil || id != guide || r.Method+r.URL.Path != "POST/schematics" {
					t.Errorf("%s %s %q: %v", r.Method, r.URL, body, err)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.answer)
			}))
			defer server.Close()
			err := factory.Register(t.Context(), server.URL, s)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := factory.Register(ended, "http://127.0.0.1:1", s); err == nil {
		t.Error("a factory that is not there took it")
	}
}
