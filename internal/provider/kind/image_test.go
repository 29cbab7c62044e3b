package kind

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// An image that was loaded has no digest, and is used by its tag; one with another digest is not.
func TestTheNodeImageIsFound(t *testing.T) {
	const tag, pinned = "kindest/node:v1.33.7", "kindest/node:v1.33.7@sha256:d26e"
	for title, tc := range map[string]struct {
		images map[string]string
		asked  string
		want   string
		there  bool
	}{
		"pulled":              {map[string]string{pinned: "[{}]", tag: `[{"RepoDigests":["kindest/node@sha256:d26e"]}]`}, pinned, pinned, true},
		"loaded":              {map[string]string{tag: `[{"RepoDigests":[]}]`}, pinned, tag, true},
		"loaded, of podman":   {map[string]string{tag: `[{"RepoDigests":null}]`}, pinned, tag, true},
		"of a mirror":         {map[string]string{tag: `[{"RepoDigests":["mirror.example/node@sha256:d26e"]}]`}, pinned, tag, true},
		"another of that tag": {map[string]string{tag: `[{"RepoDigests":["kindest/node@sha256:0000"]}]`}, pinned, pinned, false},
		"none":                {nil, pinned, pinned, false},
		"by its tag":          {map[string]string{tag: `[{"RepoDigests":[]}]`}, tag, tag, true},
		"none, by its tag":    {nil, tag, tag, false},
		"what cannot be read": {map[string]string{tag: "?"}, pinned, pinned, false},
	} {
		t.Run(title, func(t *testing.T) {
			docker(t, nil, tc.images)
			if got, there := findImage(t.Context(), "docker", tc.asked); got != tc.want || there != tc.there {
				t.Errorf("%q, %v", got, there)
			}
		})
	}
	t.Run("kind creates from it, and the run says so", func(t *testing.T) {
		did := docker(t, nil, map[string]string{tag: `[{"RepoDigests":[]}]`})
		m := &Provider{kind: dockerKind{log: io.Discard, engines: &chooser{}}, image: pinned, files: folder(t)}
		var said strings.Builder
		_, err := m.Ensure(t.Context(), "k8s-mgmt", func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) })
		if err == nil || !strings.HasPrefix(did(), "run "+tag+"\n") || !strings.Contains(said.String(), "without its digest") {
			t.Errorf("%v; docker did %q; said %q", err, did(), said.String())
		}
		if e, err := m.Engine(t.Context()); err != nil || e.NodeImage != tag || !e.NodeImageThere {
			t.Errorf("the doctor hears %+v, %v", e, err)
		}
	})
}
