package steps

import (
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/factory"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

const packerTemplate = "packer/hcloud_talosimage.pkr.hcl"

// PackerCommands are shell commands that make the image of the configuration with Packer, in place of the step image.
// overrides is as Tools has it.
func PackerCommands(cfg config.Config, overrides string) ([]string, error) {
	sources, err := render.Read(nil, overrides)
	if err != nil {
		return nil, err
	}
	commands := []string{"packer init " + packerTemplate}
	build := func(name string, architectures ...string) error {
		_, id, err := schematic(sources, name)
		if err != nil {
			return err
		}
		if file, _ := sources.SchematicFile(name); id != knownSchematic {
			commands = append(commands,
				fmt.Sprintf("curl --fail --data-binary @%s %s/schematics", text.Quote(file.Name), factory.Address))
		}
		for _, architecture := range architectures {
			commands = append(commands, fmt.Sprintf("packer build -var talos_version=%s -var architecture=%s -var schematic=%s "+
				"-var image_name=%s -var location=%s %s",
				text.Quote(cfg.TalosVersion), architecture, id, text.Quote(cfg.SchematicImage(name, architecture)),
				cfg.PreferredLocation(), packerTemplate))
		}
		return nil
	}
	if err := build("", cfg.Architectures(architectureOf(cfg.PreferredServerType()))...); err != nil {
		return nil, err
	}
	built := map[string]bool{"": true}
	for _, p := range cfg.Workers {
		if p = cfg.Pool(p); built[p.Schematic] {
			continue
		}
		built[p.Schematic] = true
		if err := build(p.Schematic, architectureOf(p.ServerTypes()[0])); err != nil {
			return nil, err
		}
	}
	return commands, nil
}

// architectureOf tells a server type's architecture by its name, for where Hetzner is not asked: only CAX types are
// arm64.
func architectureOf(serverType string) string {
	if strings.HasPrefix(serverType, "cax") {
		return "arm64"
	}
	return "amd64"
}
