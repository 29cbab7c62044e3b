package cli

import (
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/slipway-k8s/slipway/internal/fleet/operations"
)

// All Jobs of a rollout run the image that the tag stood for when the fleet was applied, whatever it becomes.
func TestFleetImageIsFixedByItsDigest(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	push := func() (digest string) {
		t.Helper()
		image, err := random.Image(10, 1)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/slipway:v1")
		if err == nil {
			err = remote.Write(ref, image)
		}
		if err != nil {
			t.Fatal(err)
		}
		hash, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return hash.String()
	}
	const tag = "example.org/slipway:v1"
	f := newFleetTest(t, strings.Replace(fleetOfTwo, fleetImage, tag, 1))
	f.write("registry.yaml", "registries:\n  example.org:\n    - url: "+server.URL+"\n")
	if r := f.run("apply"); r.code != ExitFailed || !strings.Contains(r.stderr, "write the digest into image") ||
		len(f.Writes()) > 0 {
		t.Errorf("without an answer of the registry it has written %v: %+v", f.Writes(), r)
	}
	want := tag + "@" + push()
	f.says(ExitDone, "all Jobs run the image "+want, "apply", "--cluster", "alpha")
	f.says(ExitDone, "2 done", "apply")
	for cluster, job := range f.jobs() {
		if is := job.Spec.Template.Spec.Containers[0].Image; is != want {
			t.Errorf("the Job of %s runs %s", cluster, is)
		}
	}
	var s operations.Report
	r := f.run("status", "--output", "json")
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil || s.Image != want {
		t.Errorf("the rollout has the image %q, %v", s.Image, err)
	}
	if len(f.installed) != 1 || f.order() != "alpha beta" {
		t.Errorf("the providers were installed %d times, and began %s", len(f.installed), f.order())
	}
	// Clusters are destroyed with what they were applied with, whatever the tag is now.
	push()
	f.says(ExitDone, "2 done", "destroy", "--yes")
	for cluster, job := range f.jobs() {
		if is := job.Spec.Template.Spec.Containers[0].Image; is != want {
			t.Errorf("the Job that destroys %s runs %s", cluster, is)
		}
	}
	f.write("fleet.yaml", strings.Replace(fleetOfTwo, fleetImage, "example.org/Slipway", 1))
	f.refuses("is not the reference of an image", "apply")
	f.write("fleet.yaml", strings.Replace(fleetOfTwo, fleetImage, "example.org/slipway", 1))
	f.refuses("names no version", "apply")
}
