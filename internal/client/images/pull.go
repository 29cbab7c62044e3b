package images

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/slipway-k8s/slipway/internal/base/text"
)

const (
	// Bounds on what a registry may send. Manifests are small, by the specification at most 4 MiB.
	maxManifest = 4 << 20
	maxConfig   = 8 << 20
	maxLayers   = 200
	maxFetched  = 2 << 30 // of one image
)

// acceptedManifests are the kinds of manifests that are understood.
var acceptedManifests = []types.MediaType{types.OCIImageIndex, types.DockerManifestList, types.OCIManifestSchema1,
	types.DockerManifestSchema2}

// pull fetches one image.
type pull struct {
	store    *Store
	ref      name.Reference
	progress *Progress
}

// resolve asks what the reference stands for, records it at its first use and refuses another digest later. What it
// stands for is in the cache afterwards.
func (p *pull) resolve(ctx context.Context) (string, error) {
	data, from, err := p.manifest(ctx, p.ref.Identifier())
	if err != nil {
		return "", err
	}
	digest := hashOf(data)
	switch ref := p.ref.(type) {
	case name.Digest:
		if ref.DigestStr() != digest.String() {
			return "", refused(fmt.Errorf("%s answers with a manifest of the digest %s: it is refused", from, digest))
		}
	default:
		if err := p.store.Pin(ctx, ref.Name(), digest.String(), from); err != nil {
			return "", err
		}
	}
	return digest.String(), p.store.writeBlob(digest, data)
}

// manifest fetches a manifest by its tag or digest, from the first endpoint that has it.
func (p *pull) manifest(ctx context.Context, identifier string) (data []byte, from string, err error) {
	err = p.eachEndpoint(ctx, func(c *client) error {
		accept := make([]string, len(acceptedManifests))
		for i, kind := range acceptedManifests {
			accept[i] = string(kind)
		}
		data, err = p.small(ctx, c, "/manifests/"+identifier, strings.Join(accept, ","), maxManifest)
		from = c.base
		return err
	})
	return data, from, err
}

// small fetches what is held in memory.
func (p *pull) small(ctx context.Context, c *client, path, accept string, bound int64) ([]byte, error) {
	reply, err := p.get(ctx, c, path, http.Header{"Accept": {accept}})
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return nil, refusal(reply)
	}
	data, err := io.ReadAll(io.LimitReader(reply.Body, bound+1))
	if err == nil && int64(len(data)) > bound {
		err = fmt.Errorf("%s: the answer is longer than %d bytes", path, bound)
	}
	return data, err
}

// get sends a request. The reply ends with an error when the registry is silent for too long.
func (p *pull) get(ctx context.Context, c *client, path string, header http.Header) (*http.Response, error) {
	watched, watch := newWatch(ctx, p.store.patience())
	request, err := http.NewRequestWithContext(watched, http.MethodGet, c.base+path, nil)
	if err != nil {
		watch.end()
		return nil, err
	}
	request.Header = header
	request.Header.Set("User-Agent", "slipway")
	reply, err := c.http.Do(request)
	if err != nil {
		watch.end()
		return nil, watch.explain(err)
	}
	reply.Body = watch.body(reply.Body)
	return reply, nil
}

// refusal says how a registry refused, with the first of its reasons.
func refusal(reply *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(reply.Body, 4<<10))
	var said struct {
		Errors []struct{ Code, Message string }
	}
	reason := ""
	if json.Unmarshal(data, &said) == nil && len(said.Errors) > 0 {
		reason = ": " + text.Printable(said.Errors[0].Code+" "+said.Errors[0].Message)
	}
	err := fmt.Errorf("%s%s", reply.Status, reason)
	if reply.StatusCode == http.StatusUnauthorized || reply.StatusCode == http.StatusForbidden {
		err = fmt.Errorf("%w: the registry wants other credentials: docker login %s", err, reply.Request.URL.Host)
	}
	return err
}

// eachEndpoint calls try with the endpoints of the reference's registry until one succeeds. The error names each.
func (p *pull) eachEndpoint(ctx context.Context, try func(*client) error) error {
	var errs []error
	for _, e := range p.store.Registries.of(p.ref.Context().RegistryStr()) {
		watched, watch := newWatch(ctx, p.store.patience())
		c, err := p.store.client(watched, e, p.ref.Context().RepositoryStr())
		watch.end()
		if err == nil {
			err = try(c)
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		errs = append(errs, fmt.Errorf("from %s: %w", e.URL, watch.explain(err)))
	}
	return errors.Join(errs...)
}

// contents fetches what a digest stands for and unpacks it.
func (p *pull) contents(ctx context.Context, digest string) error {
	manifest, hash, err := p.platformManifest(ctx, digest)
	if err != nil {
		return err
	}
	if err := checkManifest(manifest); err != nil {
		return refused(fmt.Errorf("its manifest %s: %w", hash, err))
	}
	if err := p.blob(ctx, manifest.Config, maxConfig); err != nil {
		return fmt.Errorf("its configuration: %w", err)
	}
	config, err := p.store.cachedConfig(manifest)
	if err != nil {
		return err
	}
	want := p.store.platform()
	if config.OS != want.OS || config.Architecture != want.Architecture {
		return fmt.Errorf("it is for %s/%s, and this machine runs %s/%s", config.OS, config.Architecture, want.OS,
			want.Architecture)
	}
	for _, layer := range manifest.Layers {
		p.progress.expect(layer.Size)
	}
	for i, layer := range manifest.Layers {
		if err := p.blob(ctx, layer, maxFetched); err != nil {
			return fmt.Errorf("its layer %d of %d: %w", i+1, len(manifest.Layers), err)
		}
	}
	if err := p.store.unpack(ctx, hash, manifest, config); err != nil {
		return refused(fmt.Errorf("unpack it: %w", err))
	}
	return nil
}

// platformManifest is the manifest of the platform's image. It is fetched where the digest is that of an index.
func (p *pull) platformManifest(ctx context.Context, digest string) (*v1.Manifest, v1.Hash, error) {
	manifest, hash, err := p.store.cachedManifest(digest)
	missing, isIndex := errors.AsType[*missingManifestError](err)
	if !isIndex {
		return manifest, hash, err
	}
	data, from, err := p.manifest(ctx, missing.digest.String())
	if err != nil {
		return nil, v1.Hash{}, err
	}
	if got := hashOf(data); got != missing.digest {
		return nil, v1.Hash{}, refused(fmt.Errorf("%s answers with a manifest of the digest %s in place of %s: it is "+
			"refused", from, got, missing.digest))
	}
	if err := p.store.writeBlob(missing.digest, data); err != nil {
		return nil, v1.Hash{}, err
	}
	return p.store.cachedManifest(digest)
}

// missingManifestError names the manifest that an index names for the platform, where the cache does not have it.
type missingManifestError struct{ digest v1.Hash }

func (e *missingManifestError) Error() string {
	return fmt.Sprintf("the manifest %s is not cached", e.digest)
}

// cachedManifest reads the platform's manifest from the cache.
func (s *Store) cachedManifest(digest string) (*v1.Manifest, v1.Hash, error) {
	hash, err := v1.NewHash(digest)
	if err != nil {
		return nil, v1.Hash{}, err
	}
	data, err := s.readBlob(hash)
	if err != nil {
		return nil, v1.Hash{}, err
	}
	var kind struct {
		MediaType types.MediaType   `json:"mediaType"`
		Manifests []json.RawMessage `json:"manifests"`
	}
	if err := json.Unmarshal(data, &kind); err != nil {
		return nil, v1.Hash{}, fmt.Errorf("read the manifest %s: %w", hash, err)
	}
	if !kind.MediaType.IsIndex() && kind.Manifests == nil {
		manifest, err := v1.ParseManifest(bytes.NewReader(data))
		return manifest, hash, err
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(data))
	if err != nil {
		return nil, v1.Hash{}, fmt.Errorf("read the index %s: %w", hash, err)
	}
	want := s.platform()
	for _, m := range index.Manifests {
		if m.Platform == nil || m.Platform.OS != want.OS || m.Platform.Architecture != want.Architecture {
			continue
		}
		if data, err = s.readBlob(m.Digest); errors.Is(err, os.ErrNotExist) {
			return nil, m.Digest, &missingManifestError{m.Digest}
		}
		if err != nil {
			return nil, v1.Hash{}, err
		}
		manifest, err := v1.ParseManifest(bytes.NewReader(data))
		return manifest, m.Digest, err
	}
	return nil, v1.Hash{}, fmt.Errorf("the index %s has no image for %s/%s", hash, want.OS, want.Architecture)
}

// cachedConfig reads an image's configuration from the cache.
func (s *Store) cachedConfig(manifest *v1.Manifest) (*v1.ConfigFile, error) {
	data, err := s.readBlob(manifest.Config.Digest)
	if err != nil {
		return nil, err
	}
	config, err := v1.ParseConfigFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("read the image's configuration %s: %w", manifest.Config.Digest, err)
	}
	return config, nil
}

// checkManifest bounds what is fetched for an image.
func checkManifest(m *v1.Manifest) error {
	if len(m.Layers) > maxLayers {
		return fmt.Errorf("it has %d layers, and at most %d are fetched", len(m.Layers), maxLayers)
	}
	sum := m.Config.Size
	for _, descriptor := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if descriptor.Size < 0 || descriptor.Digest.Algorithm != "sha256" || len(descriptor.Digest.Hex) != 64 {
			return fmt.Errorf("it names a part of %d bytes with the digest %q: want a size and sha256:…", descriptor.Size,
				descriptor.Digest)
		}
		sum += descriptor.Size
		if sum > maxFetched {
			return fmt.Errorf("it has more than %d MB, and at most as many are fetched", maxFetched>>20)
		}
	}
	return nil
}
