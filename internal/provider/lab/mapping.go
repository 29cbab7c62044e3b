package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/images"
)

// fromConfigured, as the value of the key from, is the image at its configured version.
const fromConfigured = "configured"

// resolveMapping fetches what a mapping of images to programs takes out of images: entries with the key from in place
// of exec; what is the file in errors. It returns the file for the lab, which is the given one where no entry has
// that key.
func (b *builder) resolveMapping(ctx context.Context, what, file string, say flow.Say) (string, error) {
	if file == "" {
		return "", nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", usage.Errorf("%s: %w", what, err)
	}
	var mapping []map[string]yaml.Node
	err = yaml.Unmarshal(data, &mapping)
	if _, other := errors.AsType[*yaml.TypeError](err); other {
		return file, nil // the lab says what is wrong with it
	}
	if err != nil {
		return "", usage.Errorf("%s %s: %w", what, file, err)
	}
	progress := images.NewProgress(say, 5*time.Second)
	resolved := false
	for _, item := range mapping {
		from, has := item["from"]
		if !has {
			continue
		}
		resolved = true
		reference, err := b.resolveEntry(ctx, item, from.Value, progress)
		if err != nil {
			return "", fmt.Errorf("%s %s, line %d: %w", what, file, from.Line, err)
		}
		say("%s runs the program of the image %s", item["image"].Value, reference)
	}
	if !resolved {
		return file, nil
	}
	out, err := yaml.Marshal(mapping)
	if err != nil {
		return "", fmt.Errorf("write the mapping of images: %w", err)
	}
	made := filepath.Join(b.lab, "images.yaml")
	if err := os.WriteFile(made, out, 0o600); err != nil {
		return "", fmt.Errorf("write the mapping of images: %w", err)
	}
	return made, nil
}

// resolveEntry puts the program of an image, which is fetched, in place of the image: exec for from. It returns the
// image's reference.
func (b *builder) resolveEntry(ctx context.Context, item map[string]yaml.Node, reference string,
	progress *images.Progress) (string, error) {
	image, named := item["image"]
	if !named {
		return "", usage.Errorf("image is missing: name the image that the program runs for, without tag and digest")
	}
	if _, has := item["exec"]; has {
		return "", usage.Errorf("exec and from are both given for %s: keep one", image.Value)
	}
	if reference == fromConfigured {
		var err error
		if reference, err = configuredReference(b.sets.config, image.Value); err != nil {
			return "", err
		}
	}
	fetched, err := b.sets.store.Fetch(ctx, reference, progress)
	if err != nil {
		return "", err
	}
	program, _, err := fetched.Program("")
	if err != nil {
		return "", err
	}
	delete(item, "from")
	values := map[string]any{"exec": program, "note": "from the image " + fetched.Reference + "@" + fetched.Digest}
	if entry := fetched.Config.Entrypoint; len(entry) > 1 {
		values["prefix"] = entry[1:]
	}
	for key, value := range values {
		var node yaml.Node
		if err := node.Encode(value); err != nil {
			return "", err
		}
		if _, given := item[key]; !given {
			item[key] = node
		}
	}
	return reference, nil
}

// configuredReference is the image of a program at its configured version.
func configuredReference(c config.Config, image string) (string, error) {
	var known []string
	for _, p := range upstreamPrograms() {
		if p.file != "" {
			continue // it runs out of its set
		}
		known = append(known, p.image)
		if p.image != image && p.image != "docker.io/"+image {
			continue
		}
		if reference := p.reference(c); reference != "" {
			return reference, nil
		}
		return "", usage.Errorf("which version of %s belongs to the configured chart is not known: write the image with "+
			"its tag in place of %q", image, fromConfigured)
	}
	return "", usage.Errorf("%s has no configured version: write an image with its tag in place of %q, or one of %s", image,
		fromConfigured, strings.Join(known, ", "))
}
