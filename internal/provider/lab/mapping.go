package lab

import (
	"bytes"
	"context"
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
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return "", usage.Errorf("%s %s: %w", what, file, err)
	}
	progress := images.NewProgress(say, 5*time.Second)
	resolved := false
	if document.Kind != 0 {
		for _, item := range document.Content[0].Content {
			from := valueOf(item, "from")
			if from == nil {
				continue
			}
			resolved = true
			if err := b.resolveEntry(ctx, item, from, progress); err != nil {
				return "", fmt.Errorf("%s %s, line %d: %w", what, file, from.Line, err)
			}
			say("%s runs the program of the image %s", valueOf(item, "image").Value, from.Value)
		}
	}
	if !resolved {
		return file, nil
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	if err := encoder.Encode(&document); err != nil {
		return "", fmt.Errorf("write the mapping of images: %w", err)
	}
	made := filepath.Join(b.lab, "images.yaml")
	if err := os.WriteFile(made, out.Bytes(), 0o600); err != nil {
		return "", fmt.Errorf("write the mapping of images: %w", err)
	}
	return made, nil
}

// resolveEntry puts the program of an image, which is fetched, in place of the image: exec for from.
func (b *builder) resolveEntry(ctx context.Context, item, from *yaml.Node, progress *images.Progress) error {
	image := valueOf(item, "image")
	switch {
	case image == nil:
		return usage.Errorf("image is missing: name the image that the program runs for, without tag and digest")
	case valueOf(item, "exec") != nil:
		return usage.Errorf("exec and from are both given for %s: keep one", image.Value)
	}
	if from.Value == fromConfigured {
		reference, err := configuredReference(b.sets.config, image.Value)
		if err != nil {
			return err
		}
		from.Value = reference
	}
	fetched, err := b.sets.store.Fetch(ctx, from.Value, progress)
	if err != nil {
		return err
	}
	program, err := fetched.Program("")
	if err != nil {
		return err
	}
	set := func(key string, value any) error {
		var node yaml.Node
		if err := node.Encode(value); err != nil {
			return err
		}
		item.Content = append(item.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, &node)
		return nil
	}
	for i := 0; i < len(item.Content); i += 2 {
		if item.Content[i+1] == from {
			item.Content = append(item.Content[:i], item.Content[i+2:]...)
			break
		}
	}
	if err := set("exec", program); err != nil {
		return err
	}
	if entry := fetched.Config.Entrypoint; len(entry) > 1 && valueOf(item, "prefix") == nil {
		if err := set("prefix", entry[1:]); err != nil {
			return err
		}
	}
	if valueOf(item, "note") == nil {
		return set("note", "from the image "+fetched.Reference+"@"+fetched.Digest)
	}
	return nil
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

// valueOf is the value of a key; nil: the mapping has none.
func valueOf(mapping *yaml.Node, key string) *yaml.Node {
	if mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}
